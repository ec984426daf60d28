"""Hugging Face's `tokenizer.json`, and tokenizers of that library that are in memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer, build_huggingface_tokenizer
from tokjax.formats.huggingface.built_in import build_builtin_tokenizer
from tokjax.formats.huggingface.definition import RequiresLibraryError
from tokjax.formats.tokenizer_files import (
    as_path,
    parse_json_object,
    read_bytes,
    read_companion_config,
    with_roles,
)
from tokjax.models.format_errors import as_format_errors
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tokjax.core.vocabulary import Role
    from tokjax.models.base import SegmentModel

logger = logging.getLogger("tokjax")
_VERSION = "1.0"


def read_huggingface(
    path: str | os.PathLike[str],
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> SegmentModel | HuggingFaceTokenizer:
    """Read a `tokenizer.json`.

    A byte-level BPE whose split pattern is a published one, a BPE with byte fallback (Llama 2, Mistral,
    Gemma), a WordPiece as BERT's and a word-level tokenizer become tokjax's own, with the same ids.
    Everything else runs on the `tokenizers` library (the extra `tokjax[huggingface]`), which is logged, and
    told by the tokenizer's `repr`.

    Truncation and padding that the file sets up are not done: `max_length` and `collate_padded_batch` are.

    Args:
        path: the file.
        bos_token: which special token begins a text; like the next three, as the `tokenizer_config.json` or
            `special_tokens_map.json` beside the file says, or else none. What is put around texts is said by
            the file itself.
        eos_token: which special token ends a text.
        pad_token: which special token pads a batch.
        unk_token: which special token stands for the unknown.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidArgumentError: a role is given to a token that is no special one.
        MissingExtraError: it has to run on the library, which is not installed.
        TokenizerFormatError: the file is damaged, or makes no tokenizer.
    """
    source = as_path(path)
    try:
        definition = read_bytes(source).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"{source}: not UTF-8: {error}") from error
    overrides: dict[Role, str | None] = {
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "unk": unk_token,
    }
    loaded = _build_tokenizer(definition, read_companion_config(source.parent).roles, str(source))
    return with_roles(loaded, overrides)


def from_huggingface(
    tokenizer: Any,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> SegmentModel | HuggingFaceTokenizer:
    """A tokenizer of the `tokenizers` or the `transformers` library, as one of tokjax.

    It is one of tokjax's own where `load_tokenizer` makes one of a `tokenizer.json` of the same definition.

    Args:
        tokenizer: a `tokenizers.Tokenizer`, or a tokenizer of `transformers` that is based on one (a "fast"
            one).
        bos_token: which special token begins a text; like the next three, as a tokenizer of `transformers`
            says, or else none.
        eos_token: which special token ends a text.
        pad_token: which special token pads a batch.
        unk_token: which special token stands for the unknown.

    Raises:
        InvalidArgumentError: a role is given to a token that is no special one.
        TokenizerFormatError: it makes no tokenizer of tokjax.
        UnsupportedTokenizerError: it is none of those.
    """
    library = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not (hasattr(library, "to_str") and hasattr(library, "encode_batch")):
        raise UnsupportedTokenizerError(
            f"from_huggingface takes a tokenizers.Tokenizer or a fast tokenizer of transformers, not "
            f"{type(tokenizer).__name__}; a slow one has no offsets: load it with use_fast=True"
        )
    names: tuple[Role, ...] = ("bos", "eos", "pad", "unk")
    names_by_role = {role: getattr(tokenizer, f"{role}_token", None) for role in names}
    overrides: dict[Role, str | None] = {
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "unk": unk_token,
    }
    defaults = {role: str(name) for role, name in names_by_role.items() if name is not None}
    loaded = _build_tokenizer(library.to_str(), defaults, f"the {type(tokenizer).__name__}")
    return with_roles(loaded, overrides)


def _build_tokenizer(
    definition: str, roles: Mapping[Role, str], where: str
) -> SegmentModel | HuggingFaceTokenizer:
    contents = parse_json_object(definition, where)
    if contents.get("version", _VERSION) != _VERSION:
        raise TokenizerFormatError(f"{where}: version {contents['version']!r} is not known; {_VERSION!r} is")
    try:
        with as_format_errors(where):
            loaded = build_builtin_tokenizer(contents, roles)
            check_comparisons(loaded.vocabulary.split_token_names)
            return loaded
    except RequiresLibraryError as error:
        reason = str(error)
    logger.info("%s runs on the tokenizers library: %s", where, reason)
    with as_format_errors(where):
        return build_huggingface_tokenizer(definition, reason, roles, contents)
