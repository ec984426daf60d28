"""SentencePiece models: `.model` files, with the tokens that configuration files beside them add."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokjax._util.atomic_files import check_path
from tokjax.core.vocabulary import TEMPLATE_ROLES, select_roles
from tokjax.errors import TokenizerFormatError
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
    resolve_roles,
)
from tokjax.formats.transformers_classes import find_tokenizer_class
from tokjax.models.format_errors import as_format_errors, check_vocab_size
from tokjax.models.sentencepiece import SentencePieceTokenizer, declare_roles, sentencepiece, set_added_tokens
from tokjax.models.sentencepiece_files import PieceType, append_pieces
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.tokenizer_files import CompanionConfig

_T5_CLASSES = ("T5Tokenizer", "MT5Tokenizer")


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
    companion = read_companion_config(source.parent)
    passed: dict[Role, str | None] = {"bos": bos_token, "eos": eos_token, "pad": pad_token}
    class_name = find_tokenizer_class(source, companion.config)
    plain = sentencepiece(source, pad_token=None if pad_token is None else "auto")
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
    old = tokenizer.vocabulary
    return set_added_tokens(extended, old.roles, old.explicit_template, added_tokens)


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
