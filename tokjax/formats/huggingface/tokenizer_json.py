"""Tokenizers from a `tokenizer.json`, and from objects of Hugging Face's `tokenizers` and `transformers`.

A definition becomes a built-in tokenizer if one gives exactly the same result
(`tokjax.formats.huggingface.built_in`). Otherwise it runs on the `tokenizers` library
(`tokjax.formats.huggingface.adapter`).
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import check_path
from tokjax.core.vocabulary import ROLES
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer, build_huggingface_tokenizer
from tokjax.formats.huggingface.built_in import build_builtin_tokenizer
from tokjax.formats.huggingface.definition import RequiresLibraryError
from tokjax.formats.huggingface.library import import_tokenizers
from tokjax.formats.tokenizer_files import (
    BERT_ROLES,
    parse_json_object,
    read_bytes,
    read_companion_config,
)
from tokjax.formats.transformers_files import (
    find_undeclared_token,
    load_by_transformers,
    mark_words_as_text,
    reject_options,
)
from tokjax.models.format_errors import as_format_errors
from tokjax.models.vocabulary_changes import replace_roles
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.models.base import SegmentModel

logger = logging.getLogger("tokjax")
_VERSION = "1.0"


def read_huggingface(
    path: str | os.PathLike[str], roles: Mapping[Role, str | None]
) -> SegmentModel | HuggingFaceTokenizer:
    """Reads a `tokenizer.json`.

    A byte-level BPE with a common split pattern, a BPE with byte fallback (Llama 2, Mistral, Gemma), a BPE of
    words (OpenAI's first GPT), a WordPiece like BERT's, a word-level and most unigram tokenizers (T5, XLM-R)
    become built-in ones with the same ids. All others run on the `tokenizers` library (the extra
    `tokjax[huggingface]`). The reason is logged, and part of the tokenizer's `repr`.

    If the configuration files in the same directory declare an added token that the file does not have, or
    has with other options, transformers reads both.

    Truncation and padding defined in the file are not applied; use `max_length` and `collate_padded_batch`.

    Args:
        path: path of the file.
        roles: role to the name of a special token. Without a name, it is the token that
            `tokenizer_config.json` or `special_tokens_map.json` in the same directory names, if any. The role
            does not change the template, which is part of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: a role names a token that is not special.
        MissingExtraError: the tokenizer has to run on the library, or transformers has to read the files,
            and it is not installed.
        TokenizerFormatError: the file is damaged, or does not define a valid tokenizer.
    """
    source = check_path(path)
    try:
        definition = read_bytes(source).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"{source}: not UTF-8: {error}") from error
    companion = read_companion_config(source.parent)
    contents = parse_json_object(definition, str(source))
    token = find_undeclared_token(contents, source, companion)
    if token is not None:
        reason = f"its configuration files declare the token {token!r} otherwise than {source.name}"
        fast = load_by_transformers({"tokenizer.json": source}, reason, ())
        old, contents = contents, parse_json_object(fast.backend_tokenizer.to_str(), str(source))
        mark_words_as_text(contents, old, companion)
        definition = json.dumps(contents, ensure_ascii=False)
    loaded = build_tokenizer(definition, contents, companion.roles, str(source))
    return replace_roles(loaded, roles)


def from_huggingface(
    tokenizer: Any,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> SegmentModel | HuggingFaceTokenizer:
    """Converts a tokenizer of the `tokenizers` or the `transformers` library.

    The result is a built-in tokenizer in the same cases as for `load_tokenizer` with the same definition.

    Args:
        tokenizer: a `tokenizers.Tokenizer`, or a "fast" tokenizer of `transformers`, which is based on one.
        bos_token: special token in the role of BOS. `None` uses the attribute `bos_token` of a `transformers`
            tokenizer, if any; this also applies to the next three arguments, and to the roles CLS, SEP and
            mask.
        eos_token: special token in the role of EOS.
        pad_token: special token that pads a batch.
        unk_token: special token for unknown text.

    Raises:
        InvalidArgumentError: a role names a token that is not special.
        MissingExtraError: the installed version of `tokenizers` has another interface.
        TokenizerFormatError: the definition of the tokenizer is invalid or exceeds `tokjax.limits`.
        UnsupportedTokenizerError: `tokenizer` is of another type.
    """
    library = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not (hasattr(library, "to_str") and hasattr(library, "encode_batch")):
        if type(library).__module__.partition(".")[0] == "tokenizers":
            import_tokenizers()  # raises for a version whose tokenizers have no definition
        raise UnsupportedTokenizerError(
            f"from_huggingface takes a tokenizers.Tokenizer or a fast tokenizer of transformers, not "
            f"{type(tokenizer).__name__}; a slow tokenizer has no offsets: load it with use_fast=True"
        )
    declared: Mapping[str, str] = getattr(tokenizer, "special_tokens_map", {})
    defaults = {role: declared[f"{role}_token"] for role in ROLES if f"{role}_token" in declared}
    where, definition = f"the {type(tokenizer).__name__}", library.to_str()
    loaded = build_tokenizer(definition, parse_json_object(definition, where), defaults, where)
    return replace_roles(loaded, {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token})


def convert_files(
    files: Mapping[str, Path],
    reason: str,
    tokens: Collection[str],
    roles: Mapping[Role, str | None],
    **options: object,
) -> SegmentModel | HuggingFaceTokenizer:
    """Converts the tokenizer that transformers makes of files.

    Args:
        files: name that transformers looks for, to the path of the file.
        reason: why transformers has to read them, as a clause.
        tokens: tokens of the vocabulary.
        roles: role to the name of the token that the caller passed, or `None`.
        **options: other options of the caller, which must be `None`.
    """
    reject_options(next(iter(files.values())).parent, reason, options)
    loaded = from_huggingface(load_by_transformers(files, reason, tokens))
    declared = loaded.vocabulary.roles
    others = {role: declared[other] for role, other in BERT_ROLES.items() if other in declared}
    return replace_roles(replace_roles(loaded, {**others, **declared}), roles)


def build_tokenizer(
    definition: str | None, contents: Mapping[str, Any], roles: Mapping[Role, str], where: str
) -> SegmentModel | HuggingFaceTokenizer:
    """Builds a built-in tokenizer, or else one that runs on the library.

    Args:
        definition: contents of a `tokenizer.json`, as JSON text; `None` to write it if it is needed.
        contents: the same, parsed.
        roles: role to the name of a token.
        where: name of the file or object, for errors.
    """
    if contents.get("version", _VERSION) != _VERSION:
        raise TokenizerFormatError(
            f"{where}: unknown version {contents['version']!r}; supported is {_VERSION!r}"
        )
    try:
        with as_format_errors(where):
            loaded = build_builtin_tokenizer(contents, roles)
            check_comparisons(loaded.vocabulary.split_token_names)
            return loaded
    except RequiresLibraryError as error:
        reason = str(error)
    logger.info("%s runs on the tokenizers library: %s", where, reason)
    with as_format_errors(where):
        definition = json.dumps(contents, ensure_ascii=False) if definition is None else definition
        return build_huggingface_tokenizer(definition, reason, roles, contents)
