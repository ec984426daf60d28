"""Tokenizers from a `tokenizer.json` and from objects of `tokenizers` and `transformers`, and their export.

A definition becomes a built-in tokenizer if one gives exactly the same result:

| model | conditions | built-in type |
|---|---|---|
| BPE | split patterns with boundary tables, and a vocabulary with all 256 bytes | `ByteLevelBPE` |
| BPE with `byte_fallback` | spaces written as `▁`, the byte tokens that texts need | `MetaspaceBPE` |
| BPE of words | a split at whitespace or BERT's, `</w>` or no mark at the end of words | `WordBPE` |
| WordPiece | BERT's normalizer and pre-tokenizer | `WordPieceTokenizer` |
| WordLevel | a split at whitespace or BERT's, and no normalizer or lower case | `WordLevelTokenizer` |
| Unigram | `Metaspace`, after `WhitespaceSplit` or not, and a normalizer of known steps | `Unigram` |

Each condition is checked. The first one that does not hold raises `RequiresLibraryError` with the reason, and
the tokenizer runs on the library (`tokjax.formats.huggingface.library`). See docs/bring-your-tokenizer.md,
section "What runs on the tokenizers library".
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from tokjax.core.vocabulary import ROLES
from tokjax.errors import InvalidArgumentError, TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface import metaspace, parts, words
from tokjax.formats.huggingface.byte_level import build_byte_level, parse_byte_level
from tokjax.formats.huggingface.library import build_huggingface_tokenizer, import_tokenizers
from tokjax.formats.tokenizer_files import (
    BERT_ROLES,
    RequiresTransformersError,
    find_undeclared_token,
    load_by_transformers,
    mark_words_as_text,
    parse_json_object,
    read_companion_config,
)
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.format_errors import as_format_errors, read_bytes
from tokjax.models.metaspace import MetaspaceBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.unigram import Unigram
from tokjax.models.vocabulary_changes import replace_roles
from tokjax.models.wordpiece import WordLevelTokenizer, WordPieceTokenizer
from tokjax.models.words import END_OF_WORD, WordBPE
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.library import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

logger = logging.getLogger("tokjax")
_VERSION = "1.0"


def read_huggingface(source: Path, _: Mapping[Role, str | None]) -> SegmentModel | HuggingFaceTokenizer:
    """Reads a `tokenizer.json`.

    A byte-level BPE with a common split pattern, a BPE with byte fallback (Llama 2, Mistral, Gemma), a BPE of
    words (OpenAI's first GPT), a WordPiece like BERT's, a word-level and most unigram tokenizers (T5, XLM-R)
    become built-in ones with the same ids. All others run on the `tokenizers` library (the extra
    `tokjax[huggingface]`). The reason is logged, and part of the tokenizer's `repr`.

    If the configuration files in the same directory declare an added token that the file does not have, or
    has with other options, transformers reads both.

    Truncation and padding defined in the file are not applied; use `max_length` and `collate_padded_batch`.

    Args:
        source: path of the file. The `tokenizer_config.json` or `special_tokens_map.json` in the same
            directory names the roles.

    Raises:
        FileNotFoundError: the file does not exist.
        MissingExtraError: the tokenizer has to run on the library, or transformers has to read the files,
            and it is not installed.
        TokenizerFormatError: the file is damaged, or does not define a valid tokenizer.
    """
    try:
        definition = read_bytes(source).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerFormatError(f"{source}: not UTF-8: {error}") from error
    companion = read_companion_config(source.parent)
    contents = parse_json_object(definition, str(source))
    with as_format_errors(str(source)):
        token = find_undeclared_token(contents, source, companion)
    if token is not None:
        reason = f"its configuration files declare the token {token!r} otherwise than {source.name}"
        fast = load_by_transformers({"tokenizer.json": source}, RequiresTransformersError(reason, ()))
        old, contents = contents, parse_json_object(fast.backend_tokenizer.to_str(), str(source))
        mark_words_as_text(contents, old, companion)
        definition = json.dumps(contents, ensure_ascii=False)
    return build_tokenizer(definition, contents, companion.roles, str(source))


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
            f"{type(tokenizer).__name__}; a slow tokenizer has no offsets: load it with use_fast=True, or "
            "register a custom type that wraps it (docs/extending.md)"
        )
    declared: Mapping[str, str] = getattr(tokenizer, "special_tokens_map", {})
    defaults = {role: declared[f"{role}_token"] for role in ROLES if f"{role}_token" in declared}
    where, definition = f"the {type(tokenizer).__name__}", library.to_str()
    loaded = build_tokenizer(definition, parse_json_object(definition, where), defaults, where)
    return replace_roles(loaded, {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token})


def convert_files(
    files: Mapping[str, Path], error: RequiresTransformersError, options: Mapping[str, Any]
) -> SegmentModel | HuggingFaceTokenizer:
    """Converts the tokenizer that transformers makes of files.

    Args:
        files: name that transformers looks for, to the path of the file.
        error: why transformers has to read them.
        options: options of `load_tokenizer`. Only names of tokens with a role are allowed.

    Raises:
        InvalidArgumentError: there is another option.
    """
    directory = next(iter(files.values())).parent
    roles = {role: options.get(f"{role}_token") for role in ROLES}
    for name, value in options.items():
        if value == "auto" or (value is not None and name.removesuffix("_token") not in roles):
            raise InvalidArgumentError(
                f"{name} is {value!r:.80}, and transformers reads {directory}, since {error}; leave it out, "
                "or copy the vocabulary to a directory without configuration files"
            )
    fast = load_by_transformers(files, error)
    with as_format_errors(f"{directory}: {error}"):
        loaded = from_huggingface(fast)
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
            loaded = _build_builtin(contents, roles)
            check_comparisons(loaded.vocabulary.split_token_names)
            return loaded
    except parts.RequiresLibraryError as error:
        reason = str(error)
    logger.info("%s runs on the tokenizers library: %s", where, reason)
    with as_format_errors(where):
        definition = json.dumps(contents, ensure_ascii=False) if definition is None else definition
        return build_huggingface_tokenizer(definition, reason, roles, contents)


def _build_builtin(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> SegmentModel:
    """Builds the built-in tokenizer of a definition.

    Args:
        contents: parsed `tokenizer.json`.
        roles: role to the name of a token; see `select_roles`.

    Raises:
        parts.RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    parse = _select_parser(contents)
    if parse is not parse_byte_level and parts.parse_trim_offsets(contents) is not None:
        raise parts.RequiresLibraryError("its post-processor has trim_offsets=true")
    try:
        return parse(contents, roles)
    except InvalidArgumentError as error:
        raise parts.RequiresLibraryError(str(error)) from error


def _select_parser(contents: Mapping[str, Any]) -> Callable[..., SegmentModel]:
    """Returns the function that builds the tokenizer of a model."""
    model = contents["model"]
    model_type = model.get("type") or ("BPE" if "merges" in model else "WordPiece")
    if model_type != "BPE":
        if model_type not in _PARSERS:
            raise parts.RequiresLibraryError(f"its model is {model_type}")
        return _PARSERS[model_type]
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option) and (option, model[option]) != ("end_of_word_suffix", END_OF_WORD):
            raise parts.RequiresLibraryError(f"its BPE model has {option}={model[option]!r}")
    splits_words = parts.list_types(parts.get_steps(contents, "pre_tokenizer")) in words.WORD_SPLITTERS
    if model.get("end_of_word_suffix") or splits_words:
        return words.parse_word_bpe
    return metaspace.parse_metaspace_bpe if parts.get_flag(model, "byte_fallback") else parse_byte_level


def build_tokenizer_json(tokenizer: Any) -> dict[str, Any]:
    """Builds a `tokenizer.json` that gives the same ids and offsets as a built-in tokenizer.

    Args:
        tokenizer: one of the types in `_EXPORTERS`.

    Returns:
        The definition, as a JSON object.

    Raises:
        UnsupportedTokenizerError: the format can't represent the tokenizer or one of its options.
    """
    if type(tokenizer) not in _EXPORTERS:
        supported = ", ".join(kind.__name__ for kind in _EXPORTERS)
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can be written for {supported}, not for {type(tokenizer).__name__}"
        )
    built = _EXPORTERS[type(tokenizer)](tokenizer)
    vocabulary = tokenizer.vocabulary
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": parts.build_added_tokens(vocabulary),
        "normalizer": None,
        "post_processor": parts.build_template(vocabulary),
        **built,
    }


_PARSERS: Mapping[str, Callable[..., SegmentModel]] = {
    "WordPiece": words.parse_wordpiece,
    "WordLevel": words.parse_word_level,
    "Unigram": metaspace.parse_unigram,
}
_EXPORTERS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    ByteLevelBPE: build_byte_level,
    MetaspaceBPE: metaspace.build_metaspace_bpe,
    SentencePieceTokenizer: metaspace.build_sentencepiece,
    WordBPE: words.build_word_bpe,
    WordPieceTokenizer: words.build_wordpiece,
    WordLevelTokenizer: words.build_word_level,
    Unigram: metaspace.build_unigram,
}
