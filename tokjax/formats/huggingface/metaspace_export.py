r"""Export as a `tokenizer.json` of models that write spaces as `▁`: BPE with byte fallback, SentencePiece.

A SentencePiece BPE model merges the pair of pieces whose concatenation has the highest score. The file lists
pairs in order of priority: here, for each piece, all pairs that it is the concatenation of. The normalizer of
the model becomes these steps:

    step                                   if the model
    `Precompiled`                          replaces characters
    `Replace` of `\A +` by nothing         removes and merges spaces
    `Replace` of ` {2,}` by one space
    `Replace` of `[ ▁]+\z` by nothing
    `Prepend` of `▁`                       adds a space before texts
    `Replace` of a space by `▁`            is any model

User-defined symbols become pre-tokens (`Split`), which are encoded to their token by `ignore_merges`. As
added tokens, they would be matched before the normalizer, which would then remove the spaces beside them.
"""

from __future__ import annotations

import base64
import itertools
import logging
import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tokjax.bpe.sequential_merging import merge_by_scanning
from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.huggingface.metaspace_definition import (
    DECODERS,
    PREPEND,
    SCHEMES,
    SPACE_TO_METASPACE,
    STRIP,
)
from tokjax.models.metaspace import METASPACE
from tokjax.models.sentencepiece_files import parse_model_info, parse_pieces
from tokjax.models.sentencepiece_spans import SPACE
from tokjax.pretokenize.aligned_text import CharacterTrie

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Vocabulary
    from tokjax.models.metaspace_bpe import MetaspaceBPE
    from tokjax.models.sentencepiece import SentencePieceTokenizer
    from tokjax.models.sentencepiece_files import ModelInfo, Pieces

logger = logging.getLogger("tokjax")
_CODE_POINT = re.compile(r"\\x\{([0-9a-f]{1,5})\}")
_SYMBOL_SPLIT = re.compile(rf"(?:{_CODE_POINT.pattern}|\|)+")
_WITHOUT_EXPORT = "; pass format='sentencepiece' to write the .model"


def build_forms(vocabulary: Vocabulary, forms: Mapping[str, int]) -> dict[str, int]:
    """Returns written form to id of all tokens, ordered by id. Special and added tokens have their names.

    Second names of ids are left out, and logged: a file has one name for each id.

    Args:
        vocabulary: vocabulary of the tokenizer to export.
        forms: written form to id of the ordinary tokens.

    Raises:
        UnsupportedTokenizerError: a name is also the written form of a token with another id.
    """
    all_forms = {**forms, **vocabulary.unreachable_ids}
    for name in sorted(vocabulary.second_names):
        first_name = vocabulary.get_bytes(vocabulary.get_id(name)).decode("utf-8")
        logger.warning("the file will not have the special token %r, a second name of %r", name, first_name)
    for name in vocabulary.split_token_names - vocabulary.second_names:
        if all_forms.setdefault(name, vocabulary.get_id(name)) != vocabulary.get_id(name):
            raise UnsupportedTokenizerError(
                f"the format can't represent {name!r}: it is also the written form of the token with id "
                f"{all_forms[name]}"
            )
    return dict(sorted(all_forms.items(), key=itemgetter(1)))


def build_text_forms(vocabulary: Vocabulary) -> dict[str, int]:
    """Returns written form to id of all tokens of a vocabulary that is written as text."""
    return build_forms(vocabulary, {token.decode("utf-8"): id_ for token, id_ in vocabulary.ordinary.items()})


def build_bpe_model(
    forms: Mapping[str, int], merges: Sequence[Sequence[str]], **options: Any
) -> dict[str, Any]:
    """Builds a model of BPE.

    Args:
        forms: written form to id of all tokens.
        merges: pairs of written forms, in order of priority.
        **options: other fields of the model.
    """
    no_options = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    flags = dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    vocab = {"vocab": forms, "merges": list(map(list, merges))}
    return {"type": "BPE", **no_options, **flags, **options, **vocab}


def build_metaspace_step(scheme: str, *, split: bool = True) -> dict[str, Any]:
    """Builds a step `Metaspace` of a pre-tokenizer or decoder."""
    return {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": scheme, "split": split}


def build_metaspace_parts(tokenizer: MetaspaceBPE) -> dict[str, Any]:
    """Builds the normalizer, pre-tokenizer, decoder and model of a `tokenizer.json`."""
    steps: dict[str, Any]
    if tokenizer.add_prefix_space == "always":
        steps = {"normalizer": {"type": "Sequence", "normalizers": [PREPEND, SPACE_TO_METASPACE]}}
    elif tokenizer.add_prefix_space is None and not tokenizer.split_words:
        steps = {"normalizer": SPACE_TO_METASPACE}
    else:
        [scheme] = (name for name, prefix in SCHEMES.items() if prefix == tokenizer.add_prefix_space)
        steps = {"pre_tokenizer": build_metaspace_step(scheme, split=tokenizer.split_words)}
    return steps | _build_model_parts(tokenizer.vocabulary, tokenizer.merges, strip=tokenizer.strip)


def _build_model_parts(
    vocabulary: Vocabulary, merges: Sequence[tuple[str, str]], *, strip: bool, **options: bool
) -> dict[str, Any]:
    """Builds the decoder and the model of a vocabulary that writes spaces as `▁`.

    Args:
        vocabulary: all tokens.
        merges: pairs of written forms, in order of priority.
        strip: whether decoding removes a space at the start of a text.
        **options: fields of the model that differ from those of Llama 2.
    """
    fields: dict[str, Any] = {
        "unk_token": vocabulary.roles.get("unk"),
        "fuse_unk": True,
        "byte_fallback": True,
    }
    return {
        "decoder": {"type": "Sequence", "decoders": [*DECODERS, *([STRIP] if strip else [])]},
        "model": build_bpe_model(build_text_forms(vocabulary), merges, **fields | options),
    }


def build_sentencepiece_parts(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Builds the normalizer, pre-tokenizer, decoder and model of a `tokenizer.json`.

    Raises:
        UnsupportedTokenizerError: the format can't represent the model.
    """
    info = parse_model_info(tokenizer.model_proto)
    pieces = parse_pieces(tokenizer.model_proto, has_byte_fallback=info.has_byte_fallback)
    if info.model_type != "bpe":
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can be written for SentencePiece models of the type bpe, not {info.model_type}"
            f"{_WITHOUT_EXPORT}"
        )
    merged = sorted((piece for piece in pieces.scores if len(piece) > 1), key=pieces.scores.__getitem__)[::-1]
    _check_model(info, pieces, merged)
    merges = [
        (piece[:index], piece[index:])
        for piece in merged
        for index in range(len(piece) - 1, 0, -1)
        if piece[:index] in pieces.scores and piece[index:] in pieces.scores
    ]
    spaces = info.spaces
    return {
        "normalizer": _build_normalizer(info),
        "pre_tokenizer": _build_symbol_split(pieces.symbols) if pieces.symbols else None,
        **_build_model_parts(
            tokenizer.vocabulary,
            merges,
            strip=spaces.is_added or spaces.are_merged,
            byte_fallback=bool(pieces.byte_ids),
            ignore_merges=bool(pieces.symbols),
        ),
    }


def _check_model(info: ModelInfo, pieces: Pieces, merged: list[str]) -> None:
    """Raises `UnsupportedTokenizerError` if merging pairs by rank gives other pieces than the model.

    Args:
        info: properties of the model.
        pieces: pieces of the model.
        merged: pieces of several characters, by descending score.
    """
    if info.spaces.is_suffix or info.spaces.mark != SPACE:
        raise UnsupportedTokenizerError(
            f"a tokenizer.json needs a model that writes spaces as ▁ before words{_WITHOUT_EXPORT}"
        )
    ranks = {piece: rank for rank, piece in enumerate(merged)}
    problems = [
        *("unused pieces" for _ in range(pieces.has_unused)),
        *(
            f"the pieces {first!r} and {second!r} of equal scores"
            for first, second in itertools.pairwise(merged)
            if pieces.scores[first] == pieces.scores[second]
        ),
        *(
            f"the piece {piece!r}, of which a character is not a piece"
            for piece in merged
            if not pieces.scores.keys() >= {*piece}
        ),
        # A pre-token that is a piece becomes this piece if the model has user-defined symbols.
        *(
            f"the piece {piece!r}, which its characters do not merge to, and user-defined symbols"
            for piece in (merged if pieces.symbols else ())
            if merge_by_scanning(piece, lambda left, right: ranks.get(left + right)) != [piece]
        ),
        *_find_changed_symbols(info, pieces),
    ]
    if problems:
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can't represent a model with {problems[0]}{_WITHOUT_EXPORT}"
        )


def _find_changed_symbols(info: ModelInfo, pieces: Pieces) -> list[str]:
    """Returns the descriptions of user-defined symbols that the normalizer of the definition would change."""
    # A character alone, or the last one of a sequence, is changed whatever comes after it.
    changed = {key[-1] for key in CharacterTrie(info.charsmap).iter_keys()} if pieces.symbols else set()
    return [
        f"the user-defined symbol {symbol!r}, which its normalizer changes elsewhere"
        for symbol in pieces.symbols
        if not changed.isdisjoint(symbol)
    ]


def _build_normalizer(info: ModelInfo) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if info.charsmap:
        charsmap = base64.b64encode(info.charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if info.spaces.are_merged:
        steps += [
            {"type": "Replace", "pattern": {"Regex": expression}, "content": content}
            for expression, content in ((r"\A +", ""), (" {2,}", " "), (rf"[ {METASPACE}]+\z", ""))
        ]
    steps += [PREPEND] * info.spaces.is_added
    steps.append(SPACE_TO_METASPACE)
    return {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else steps[0]


def parse_symbol_split(pre_tokenizer: Any) -> list[str]:
    """Returns the symbols of a pre-tokenizer that `_build_symbol_split` made; `[]` for any other one."""
    pattern = pre_tokenizer.get("pattern") if isinstance(pre_tokenizer, dict) else None
    expression = pattern.get("Regex") if isinstance(pattern, dict) else None
    if not isinstance(expression, str) or not _SYMBOL_SPLIT.fullmatch(expression):
        return []
    names = (_CODE_POINT.findall(part) for part in expression.split("|"))
    return ["".join(chr(int(code, 16)) for code in name) for name in names]


def _build_symbol_split(symbols: list[str]) -> dict[str, Any]:
    """Builds the pre-tokenizer that isolates symbols. The longest one that matches is taken."""
    expressions = ("".join(f"\\x{{{ord(c):x}}}" for c in symbol) for symbol in sorted(symbols, key=len)[::-1])
    pattern = {"Regex": "|".join(expressions)}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
