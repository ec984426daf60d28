r"""SentencePiece models, and the lists of pieces and scores that the trainer writes next to them (`*.vocab`).

A list has one piece per line. It shows the type of the model, but not the normalization:

    line         unigram          BPE         piece
    0            <unk>\t0         <unk>\t0    unknown token
    1            <s>\t0           <s>\t0      control piece
    2            ▁the\t-3.1257    ▁t\t-0      score: log probability; rank of the merge
    3            s\t-3.4012       ▁a\t-1

The trainer rounds the scores of unigram models to 6 digits, so a text can have other ids than with the
`.model`, if it has two segmentations with nearly equal scores.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tokjax._util.atomic_files import check_path
from tokjax.core.vocabulary import TEMPLATE_ROLES, select_roles
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.added_tokens import (
    ADVICE,
    DeclaredToken,
    get_whitespace_options,
    read_added_tokens,
    select_new_tokens,
)
from tokjax.formats.tokenizer_files import (
    CONFIG_FILE,
    read_companion_config,
    read_lines,
    resolve_roles,
)
from tokjax.formats.transformers_classes import find_tokenizer_class
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.metaspace import BYTE_FORMS, METASPACE
from tokjax.models.sentencepiece import SentencePieceTokenizer, declare_roles, sentencepiece
from tokjax.models.sentencepiece_files import PieceType, append_pieces, build_model
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.tokenizer_files import CompanionConfig

Normalization = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]
TextModelType = Literal["unigram", "bpe"]
_T5_CLASSES = ("T5Tokenizer", "MT5Tokenizer")
_CONTROL_PIECES = ("<s>", "</s>", "<pad>")


class _Piece(NamedTuple):
    """One line of a list.

    Attributes:
        text: the piece.
        score: its score.
        has_score: whether the score is that of a piece of text: other pieces have the score `0`.
    """

    text: str
    score: float
    has_score: bool


def read_sentencepiece(
    path: str | os.PathLike[str],
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
) -> SentencePieceTokenizer:
    """Reads a SentencePiece model.

    The roles of special tokens are read from the `tokenizer_config.json` or `special_tokens_map.json` in the
    same directory, where tokens that do not exist are ignored, and otherwise from the model. Added tokens,
    from `added_tokens_decoder` or `added_tokens.json`, are appended to the pieces, and so are the sentinels
    of T5 (`extra_ids`, or a class or `model_type` of T5).

    Args:
        path: path of the `.model` file.
        bos_token: special token to insert at the start of a text; `"auto"` for the one with the role BOS.
            `None` inserts none, unless `tokenizer_config.json` in the same directory sets `add_bos_token`.
        eos_token: special token to insert at the end of a text; likewise with `add_eos_token`.
        pad_token: special token that pads a batch; `"auto"` for the one with that role, `None` for none.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: there is no such special token.
        TokenizerFormatError: the file is not a SentencePiece model, or is truncated; the ids of added tokens
            do not follow those of the model; or the configuration names a class with other ids, such as
            XLM-R's.
    """
    source = check_path(path)
    return _make_tokenizer(source, source, bos_token, eos_token, pad_token)


def read_sentencepiece_vocab(
    path: str | os.PathLike[str],
    *,
    model_type: TextModelType | None = None,
    normalizer: Normalization | None = None,
    special_tokens: Sequence[str] | None = None,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
    unk_token: str | None = None,
) -> SentencePieceTokenizer:
    """Reads the list of pieces and scores that SentencePiece's trainer writes next to a model.

    If you have the `.model`, load that: its scores are exact, and it has the settings of normalization. With
    the list, whitespace is handled as by default: runs of it become one `▁`, and one is added before a text.

    Args:
        path: path of the `.vocab` file.
        model_type: type of the model. `None` determines it from the scores: those of a BPE model are ranks.
        normalizer: normalization of the trainer: `"nmt_nfkc"`, `"nfkc"`, one of these with `"_cf"` (case
            folding), or `"identity"`. `None` is `"nmt_nfkc"`, its default, if the pieces agree with it.
        special_tokens: names of the control pieces, which text never becomes, in addition to `<s>`, `</s>`
            and `<pad>`. Other pieces with the score 0 are user-defined symbols, which are matched in texts.
            Required if there are such pieces.
        bos_token: special token to insert at the start of a text, as in `read_sentencepiece`; the role BOS
            is that of `<s>` unless a configuration file declares another token.
        eos_token: special token to insert at the end of a text; likewise with `</s>`.
        pad_token: special token that pads a batch; likewise with `<pad>`.
        unk_token: piece for unknown text; `None` for `<unk>`.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: an option is invalid, or a piece does not exist.
        TokenizerFormatError: the file is not such a list, or it does not determine an option that was not
            passed.
    """
    source = check_path(path)
    for name, value, values in (
        ("model_type", model_type, get_args(TextModelType)),
        ("normalizer", normalizer, get_args(Normalization)),
    ):
        if value not in (None, *values):
            raise InvalidArgumentError(f"{name} must be {' or '.join(map(repr, values))}, not {value!r}")
    pieces = _read_pieces(source)
    types = _find_types(source, pieces, unk_token or "<unk>", special_tokens)
    normal = [piece for piece, type_ in zip(pieces, types, strict=True) if type_ == PieceType.NORMAL]
    _check_whitespace(source, normal)
    proto = build_model(
        [(piece.text, piece.score, type_) for piece, type_ in zip(pieces, types, strict=True)],
        model_type or _find_model_type(source, normal),
        _load_normalizer(source, normalizer, normal),
    )
    return _make_tokenizer(proto, source, bos_token, eos_token, pad_token)


def _make_tokenizer(
    model: Path | bytes, source: Path, bos_token: str | None, eos_token: str | None, pad_token: str | None
) -> SentencePieceTokenizer:
    companion = read_companion_config(source.parent)
    passed: dict[Role, str | None] = {"bos": bos_token, "eos": eos_token, "pad": pad_token}
    class_name = find_tokenizer_class(source, companion.config)
    plain = sentencepiece(model, pad_token=None if pad_token is None else "auto")
    tokenizer = _add_tokens(plain, source, companion, is_t5=class_name in _T5_CLASSES)
    overrides = {role: None if name == "auto" else name for role, name in passed.items()}
    # The unknown piece is always that of the model.
    ignored = {"unk"} if pad_token is not None else {"unk", "pad"}
    declared = {role: name for role, name in companion.declared_roles.items() if role not in ignored}
    vocabulary = tokenizer.vocabulary
    roles = {
        **vocabulary.roles,
        **select_roles(declared, vocabulary.ordinary, vocabulary.special),
        **resolve_roles(vocabulary.special, overrides, {}),
    }
    inserted = [role for role in TEMPLATE_ROLES if passed[role] or companion.config.get(f"add_{role}_token")]
    return declare_roles(tokenizer, roles, inserted)


def _add_tokens(
    tokenizer: SentencePieceTokenizer, source: Path, companion: CompanionConfig, *, is_t5: bool
) -> SentencePieceTokenizer:
    """Appends the added tokens that the configuration files declare to the pieces of a model."""
    num_sentinels = companion.config.get("extra_ids", 100 if is_t5 else 0)
    declared = read_added_tokens(source.parent, companion)
    if not declared and not num_sentinels:
        return tokenizer
    ids = {name.decode("utf-8"): id_ for name, id_ in tokenizer.vocabulary.ordinary.items()}
    ids |= tokenizer.vocabulary.special
    sentinels = _list_sentinels(source, num_sentinels, ids)
    new_tokens = select_new_tokens(source, sentinels | declared, ids)
    if not new_tokens:
        return tokenizer
    if companion.config.get("legacy") is False and not is_t5:
        raise TokenizerFormatError(
            f'{source.parent}: with "legacy": false, as in its {CONFIG_FILE}, no space is added to the text '
            f"after the added token {next(iter(new_tokens))!r}, but {source.name} adds one; {ADVICE}"
        )
    piece_types = {
        name: PieceType.CONTROL if token.special else PieceType.USER_DEFINED
        for name, token in new_tokens.items()
    }
    with as_format_errors(str(source.parent)):
        extended = sentencepiece(append_pieces(tokenizer.model_proto, piece_types), pad_token=None)
        check_comparisons({*extended.vocabulary.special, *new_tokens})
    added_tokens = get_whitespace_options(new_tokens)
    vocabulary = replace(extended.vocabulary, roles=tokenizer.vocabulary.roles, added_tokens=added_tokens)
    return extended.replace_vocabulary(vocabulary)


def _list_sentinels(source: Path, count: object, ids: Mapping[str, int]) -> dict[str, DeclaredToken]:
    """Returns the sentinels that transformers appends to T5's pieces: `<extra_id_99>` to `<extra_id_0>`.

    Args:
        source: path of the model.
        count: number of sentinels, the field `extra_ids` of the configuration.
        ids: ids by piece of the model.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise TokenizerFormatError(f"{source.parent}: 'extra_ids' is {count!r}, not a number of tokens")
    check_vocab_size(len(ids) + count, str(source))
    names = [f"<extra_id_{i}>" for i in reversed(range(count))]
    new_names = [name for name in names if name not in ids]
    return {name: DeclaredToken(len(ids) + i, True, False) for i, name in enumerate(new_names)}


def _read_pieces(source: Path) -> list[_Piece]:
    """Reads the lines of a list."""
    pieces: dict[str, _Piece] = {}
    for number, line in read_lines(source):
        text, _, score_text = line.rpartition("\t")
        try:
            score = float(score_text)
        except ValueError:
            score = math.nan
        if not text or not score <= 0 or math.isinf(score):
            raise TokenizerFormatError(
                f"{source}, line {number}: expected a piece, a tab, and a score that is 0 or negative; got "
                f"{line[:60]!r}"
            )
        if text in pieces:
            raise TokenizerFormatError(f"{source}, line {number}: duplicate of the piece {text!r}")
        # The trainer writes the score of the first merge as -0, other programs as -0.0.
        pieces[text] = _Piece(text, score, math.copysign(1, score) < 0)
    check_vocab_size(len(pieces), str(source))
    return list(pieces.values())


def _find_types(
    source: Path, pieces: Sequence[_Piece], unknown: str, special_tokens: Sequence[str] | None
) -> list[PieceType]:
    """Determines the type of each piece."""
    without_score = [piece.text for piece in pieces if not piece.has_score]
    if unknown not in without_score:
        raise TokenizerFormatError(
            f"{source}: no line has the piece {unknown!r} with the score 0; pass unk_token= with the name of "
            "the piece for unknown text"
        )
    missing = [name for name in special_tokens or () if name not in without_score]
    if missing:
        raise InvalidArgumentError(
            f"{source}: special_tokens has {missing[0]!r}, which is not a piece with the score 0"
        )
    types = dict.fromkeys((*_CONTROL_PIECES, *(special_tokens or ())), PieceType.CONTROL)
    types[unknown] = PieceType.UNKNOWN
    if set(BYTE_FORMS) <= set(without_score):
        types |= dict.fromkeys(BYTE_FORMS, PieceType.BYTE)
    symbols = [name for name in without_score if name not in types]
    if symbols and special_tokens is None:
        raise TokenizerFormatError(
            f"{source}: the pieces {symbols[:5]} have the score 0: they are control pieces, which text never "
            "becomes, or user-defined symbols, which are matched in texts; pass special_tokens= with the "
            "names of the control pieces, [] for none"
        )
    types |= dict.fromkeys(symbols, PieceType.USER_DEFINED)
    return [PieceType.NORMAL if piece.has_score else types[piece.text] for piece in pieces]


def _check_whitespace(source: Path, pieces: Sequence[_Piece]) -> None:
    """Raises `TokenizerFormatError` if whitespace is not handled as it is by default."""
    long = [piece.text for piece in pieces if len(piece.text) > 1]
    runs = [text for text in long if METASPACE * 2 in text]
    if runs:
        raise TokenizerFormatError(
            f"{source}: the piece {runs[0]!r} shows that the model keeps runs of spaces, which is not the "
            "default; load the .model"
        )
    if any(text.endswith(METASPACE) for text in long) and not any(map(_begins_word, long)):
        raise TokenizerFormatError(
            f"{source}: its pieces have '▁' at the end of words, which is not the default; load the .model"
        )


def _begins_word(text: str) -> bool:
    return text.startswith(METASPACE)


def _find_model_type(source: Path, pieces: Sequence[_Piece]) -> TextModelType:
    """Determines the type of a model by its scores."""
    scores = [piece.score for piece in pieces]
    if scores == [-rank for rank in range(len(scores))]:
        return "bpe"
    has_fractions = any(not score.is_integer() for score in scores)
    if has_fractions and not all(map(_begins_word, (piece.text for piece in pieces))):
        return "unigram"
    reason = (
        "every piece begins with '▁', as in a model of whole words"
        if has_fractions
        else "its scores are integers, but not 0, -1, -2, ... as in a BPE model"
    )
    raise TokenizerFormatError(
        f"{source}: unknown type of the model: {reason}; pass model_type='unigram' or model_type='bpe', or "
        "load the .model"
    )


def _load_normalizer(source: Path, name: Normalization | None, pieces: Sequence[_Piece]) -> bytes:
    """Returns the normalizer's settings, a serialized `NormalizerSpec`.

    Raises:
        TokenizerFormatError: the name was not passed, and the pieces do not agree with the default.
    """
    from sentencepiece import SentencePieceNormalizer  # noqa: PLC0415 (slow to import)

    library = SentencePieceNormalizer(
        rule_name=name or "nmt_nfkc",
        # The defaults of the trainer. Those of this class differ between versions of SentencePiece.
        add_dummy_prefix=True,
        remove_extra_whitespaces=True,
        escape_whitespaces=True,
    )
    if name is None:
        _check_default(source, library, [piece.text.replace(METASPACE, " ").strip(" ") for piece in pieces])
    spec: bytes = library.serialized_normalizer_spec()
    return spec


def _check_default(source: Path, library: Any, texts: Sequence[str]) -> None:
    changed = [text for text in texts if library.Normalize(text).replace(METASPACE, " ").strip(" ") != text]
    if changed:
        raise TokenizerFormatError(
            f"{source}: its piece {changed[0]!r} does not occur in texts that are normalized to 'nmt_nfkc', "
            "the default; pass normalizer= with the normalization of the model, such as normalizer='identity'"
        )
    if all(text == text.lower() for text in texts) and any(text != text.upper() for text in texts):
        raise TokenizerFormatError(
            f"{source}: no piece has an upper-case letter, and it is unknown whether texts are converted to "
            "lower case; pass normalizer='nmt_nfkc_cf' if they are, otherwise normalizer='nmt_nfkc'"
        )
