"""Loading of tokenizers: files of all supported formats, names, and objects of other libraries."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tokjax._util.atomic_files import check_path
from tokjax._util.checks import check_choice
from tokjax.core import protocol
from tokjax.errors import InvalidArgumentError
from tokjax.formats.adapters import from_sentencepiece, from_tiktoken, get_tiktoken_encoding
from tokjax.formats.detection import DetectedTokenizer, detect_tokenizer_files
from tokjax.formats.file_formats import FORMATS, Format, find_options
from tokjax.formats.hub import check_hub_options, fetch_repository
from tokjax.formats.huggingface.tokenizer_json import from_huggingface
from tokjax.formats.names import EncodingName, RepositoryName, UrlName, parse_name
from tokjax.formats.remote_files import open_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Literal, Unpack

    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel
    from tokjax.models.byte_bpe import Normalizer
    from tokjax.pretokenize.patterns import Pattern


class LoadOptions(TypedDict, total=False):
    """Options of `load_tokenizer`. Each format accepts some of them.

    Attributes:
        bos_token: special token in the role of BOS.
        eos_token: special token in the role of EOS.
        pad_token: special token that pads a batch.
        unk_token: special token for unknown text.
        mask_token: special token for masked language modeling, as in `wordpiece`.
        special_tokens: special tokens: a map of names to ids for `"tiktoken"`, a list of names for other
            formats.
        encoding: name of a published encoding of tiktoken.
        pattern: split pattern, as in `byte_level_bpe`.
        normalizer: normalization of texts, as in `byte_level_bpe`.
        add_prefix_space: whether a space is added before text that does not begin with one.
        lowercase: whether texts are converted to lower case, as in `wordpiece`; `None` for the setting in the
            files.
        strip_accents: whether nonspacing marks are removed, as in `wordpiece`; `None` for the setting in the
            files.
        clean_text: whether control characters are removed, as in `wordpiece`.
        handle_chinese_chars: whether CJK ideographs are separate words, as in `wordpiece`; `None` for the
            setting in the files.
        continuing_prefix: prefix of tokens that continue a word, as in `wordpiece`.
        max_word_characters: maximum length of a word in characters, as in `wordpiece`.
        cleanup: whether decoding removes the space before punctuation, as in `wordpiece`.
    """

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    mask_token: str | None
    special_tokens: Mapping[str, int] | Sequence[str] | None
    encoding: str | None
    pattern: Pattern | None
    normalizer: Normalizer | Literal["auto"] | None
    add_prefix_space: bool
    lowercase: bool | None
    strip_accents: bool | None
    clean_text: bool
    handle_chinese_chars: bool | None
    continuing_prefix: str
    max_word_characters: int
    cleanup: bool


def load_tokenizer(
    path: Any,
    format: Format | Literal["auto"] = "auto",  # noqa: A002 (the usual name)
    **options: Unpack[LoadOptions],
) -> SegmentModel | HuggingFaceTokenizer:
    """Loads a tokenizer from files or by its name, or converts one of another library.

    A string is the path of a file or directory, or else a name:

    | name | tokenizer |
    |---|---|
    | `"Qwen/Qwen3-8B"`, `"hf://Qwen/Qwen3-8B"` | of a repository of the Hugging Face hub |
    | `"Qwen/Qwen3-8B@main"`, `"hf://Qwen/Qwen3-8B@main"` | the same, at a branch, tag or commit |
    | `"hf://Qwen/Qwen3-8B@main/tokenizer.json"` | of a file or a directory in the repository |
    | `"cl100k_base"`, `"tiktoken://cl100k_base"` | encoding of tiktoken |
    | `"s3://bucket/model"` | of a directory or a file at another URL |

    Repositories need the extra `tokjax[hub]`, and are downloaded to the cache of `huggingface_hub`, whose
    environment variables apply. Only the tokenizer's files are downloaded. Encodings need
    `tokjax[tiktoken]`; `ENCODINGS` describes them. URLs are read with fsspec (`tokjax[remote]`), and not
    cached.

    These formats of files are supported:

    | format | files |
    |---|---|
    | `"tokjax"` | `tokenizer.tokjax.json`, also in a training bundle |
    | `"huggingface"` | `tokenizer.json` |
    | `"gpt2"` | `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe` |
    | `"sentencepiece"` | a `.model` file |
    | `"tiktoken"` | a rank file, `tekken.json` |
    | `"wordpiece"` | `vocab.txt` |
    | `"word_bpe"` | `vocab.txt` and `merges.txt` |

    Where the format does not define the roles of special tokens (BOS, EOS, padding, CLS, SEP, mask), they are
    read from the `tokenizer_config.json` and `special_tokens_map.json` in the same directory. Without a BOS
    or EOS token, CLS or SEP also has that role, as in BERT (but not with a `.model`). The options
    `bos_token`, `eos_token` and `pad_token` override them in every format. `with_roles` sets any role of a
    loaded tokenizer.

    - `"tokjax"` also accepts `unk_token`.
    - `"huggingface"` also accepts `unk_token`. A byte-level BPE with a common split pattern, a BPE with byte
      fallback, a BPE of words like that of OpenAI's first GPT, a unigram model like T5's, a WordPiece like
      BERT's and a word-level tokenizer become built-in tokenizers with the same ids. Other definitions run on
      the `tokenizers` library (the extra `tokjax[huggingface]`), and the reason is logged. Truncation and
      padding defined in the file are not applied.
    - `"gpt2"` also accepts `unk_token`, `pattern`, `special_tokens` (names; by default those that the
      configuration files declare, and `<|endoftext|>`), `normalizer` and `add_prefix_space`. The default
      pattern is GPT-2's.
    - `"sentencepiece"`: `bos_token` and `eos_token` are inserted into texts; `"auto"` selects the token with
      the role, which is declared in the configuration files or else in the model.
    - `"tiktoken"` also accepts `encoding`, `pattern`, `special_tokens` (name to id) and `normalizer`. A rank
      file contains neither a split pattern nor special tokens. They are taken from the published encoding
      that the file is named after (`cl100k_base.tiktoken`), or from `encoding`, or from `pattern` and
      `special_tokens`. A `tekken.json` contains both.
    - `"wordpiece"` also accepts the options of `wordpiece`. Without a `tokenizer_config.json`, `lowercase` is
      required if the vocabulary has tokens in upper case.
    - `"word_bpe"` also accepts `unk_token` and `special_tokens` (names). The ids equal those of
      KeemenaSubwords.jl's `load_bpe` and `load_bytebpe`, which begin at 1. For other options, pass the tokens
      and merges to `word_bpe`.

    transformers (the extra `tokjax[transformers]`) reads directories whose configuration files name a class
    with other ids, such as RoBERTa's, CLIP's and XLM-R's, or declare tokens that the files do not have.

    Files from untrusted sources are parsed within `tokjax.limits`, which bound time and memory.

    Args:
        path: path of a file; path of a directory, in which `detect_tokenizer_files` selects the files; a pair
            of file paths; a name; or a tokenizer object of `tokenizers`, `transformers`, `tiktoken` or
            `sentencepiece`, which is converted as by `from_huggingface`, `from_tiktoken` or
            `from_sentencepiece`. A tokenizer of tokjax is returned unchanged.
        format: one of the formats above, or `"auto"` to detect it with `detect_tokenizer_files`.
        **options: options of the format, as listed in `LoadOptions`.

    Raises:
        FileNotFoundError: the path does not exist.
        InvalidArgumentError: the format is unknown, or does not have such an option, or a value is invalid.
        MissingExtraError: the tokenizer needs the `tokenizers` library, or the name needs `huggingface_hub`
            or `tiktoken`, which is not installed.
        TokenizerFormatError: the path contains no tokenizer or several tokenizers of one format, or a file is
            damaged or does not define a valid tokenizer.
        TokenizerNotFoundError: there is no file and no repository of this name, access to the repository is
            denied, or the files are neither reachable nor in the cache. The message says which.
    """
    check_choice("format", format, ("auto", *FORMATS))
    if protocol.find_library(path) is not None or protocol.is_tokenizer(path):
        return _convert(path, format, options)
    name = parse_name(path)
    if isinstance(name, EncodingName):
        return _load_encoding(name.encoding, format, options)
    if isinstance(name, RepositoryName):
        check_hub_options(name, options)
    with open_files(name or path) as found:
        detected = _detect(found, format)
        row = FORMATS[detected.format]
        where = f"the format {detected.format!r} ({detected.reason})"
        _check_options(row.options, options, where, row.make)
        with _pause_garbage_collection():
            others: dict[str, Any] = {**options}
            names = {role: others.pop(f"{role}_token") for role in row.roles if f"{role}_token" in options}
            return row.read(*detected.files, names, **others)


def prefetch_tokenizer(path: str | os.PathLike[str]) -> DetectedTokenizer:
    """Downloads the files of a tokenizer to the cache, for later calls of `load_tokenizer` without a network.

    Use it on a machine with a network before a job on machines without one. Then set `HF_HUB_OFFLINE=1` in
    the job, so that a repository is not looked up again.

    Args:
        path: name of a repository or an encoding, as for `load_tokenizer`; or a path, for which nothing is
            downloaded.

    Returns:
        The format and the local files. For an encoding, there are no files: they are in the cache of
        tiktoken.

    Raises:
        FileNotFoundError: the path does not exist.
        InvalidArgumentError: the name is invalid.
        MissingExtraError: `huggingface_hub` or `tiktoken` is not installed.
        TokenizerFormatError: there is no tokenizer, or several of one format, or a file is damaged.
        TokenizerNotFoundError: the files are not available, as for `load_tokenizer`.
    """
    name = parse_name(path)
    if isinstance(name, UrlName):
        raise InvalidArgumentError(f"{path!r} is a URL, whose files are not cached; copy them to a directory")
    if isinstance(name, EncodingName):
        get_tiktoken_encoding(name.encoding)
        return DetectedTokenizer("tiktoken", (), f"{name.encoding!r} is an encoding of tiktoken")
    return detect_tokenizer_files(fetch_repository(name) if name else path)


def _load_encoding(
    name: str, format_: Format | Literal["auto"], options: Mapping[str, Any]
) -> SegmentModel | HuggingFaceTokenizer:
    """Loads an encoding of tiktoken by its name."""
    if format_ not in ("auto", "tiktoken"):
        raise InvalidArgumentError(f"{name!r} is an encoding of tiktoken; leave out format={format_!r}")
    _check_options(find_options(from_tiktoken), options, f"the encoding {name!r} of tiktoken")
    return from_tiktoken(get_tiktoken_encoding(name), **options)


def _convert(
    tokenizer: Any, format_: Format | Literal["auto"], options: Mapping[str, Any]
) -> SegmentModel | HuggingFaceTokenizer:
    """Converts a tokenizer object of another library. Tokenizers of tokjax are returned."""
    type_name = type(tokenizer).__name__
    if format_ != "auto":
        raise InvalidArgumentError(f"format={format_!r} is for paths, not for {type_name} objects")
    library = protocol.find_library(tokenizer)
    convert = _get_unchanged if library is None else _ADAPTERS[library]
    _check_options(find_options(convert), options, f"the conversion of {type_name} objects")
    return convert(tokenizer, **options)


def _get_unchanged(tokenizer: SegmentModel) -> SegmentModel:
    """Returns a tokenizer of tokjax, which needs no conversion."""
    return tokenizer


_TEXT = ((str, type(None)), "a string or None")
_BOOL = ((bool, np.bool_), "True or False")
_OPTIONAL_BOOL = ((*_BOOL[0], type(None)), "True, False or None")
_SPECIAL_TOKENS = ((Mapping, type(None)), "a dict of names to ids, or None")
_SPECIAL_NAMES = ((Iterable, type(None)), "a list of names")
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "add_prefix_space": _BOOL,
    "lowercase": _OPTIONAL_BOOL,
    "strip_accents": _OPTIONAL_BOOL,
    "clean_text": _BOOL,
    "handle_chinese_chars": _OPTIONAL_BOOL,
    "cleanup": _BOOL,
    "continuing_prefix": ((str,), "a string"),
    "max_word_characters": ((int, np.integer), "an integer"),
}
"""Types of options, and a description for errors. Options not listed are strings or `None`."""
_ADAPTERS: Mapping[str, Callable[..., SegmentModel | HuggingFaceTokenizer]] = {
    "tokenizers": from_huggingface,
    "transformers": from_huggingface,
    "tiktoken": from_tiktoken,
    "sentencepiece": from_sentencepiece,
}
"""Conversions of tokenizer objects, by their library."""


def _detect(path: Any, format_: Format | Literal["auto"]) -> DetectedTokenizer:
    """Returns the files to read; raises if a directory has another format than the one that was passed."""
    if format_ == "auto" or not isinstance(path, (str, os.PathLike, Iterable)):
        return detect_tokenizer_files(path)
    num_files = FORMATS[format_].num_files
    if not isinstance(path, (str, bytes)) and not hasattr(path, "__fspath__"):
        files = tuple(map(check_path, path))
        if len(files) != num_files:
            raise InvalidArgumentError(
                f"a tokenizer of the format {format_!r} has {num_files} file(s), not {len(files)}: "
                f"{', '.join(map(str, files))}"
            )
        return DetectedTokenizer(format_, files, "from the argument format=")
    target = check_path(path)
    if num_files > 1 or target.is_dir():
        detected = detect_tokenizer_files(target)
        if detected.format != format_:
            raise InvalidArgumentError(
                f"{target} contains a tokenizer of the format {detected.format!r} ({detected.reason}), not "
                f"{format_!r}; pass the path of the file to read, or format='auto'"
            )
        return detected
    return DetectedTokenizer(format_, (target,), "from the argument format=")


def _check_options(
    allowed: Collection[str], options: Mapping[str, Any], where: str, make: Callable[..., Any] | None = None
) -> None:
    """Raises `InvalidArgumentError` for an option that is not allowed, or of the wrong type.

    Args:
        allowed: names of the options.
        options: options by name.
        where: description of the format, for errors.
        make: function that makes such a tokenizer in memory, and may have more options.
    """
    for name in sorted(options.keys() - allowed):
        advice = f"; call tokjax.{make.__name__} with it" if make and name in find_options(make) else ""
        raise InvalidArgumentError(
            f"{where} has no option {name!r}; it has {', '.join(sorted(allowed)) or 'none'}{advice}"
        )
    for name, value in options.items():
        types, expected = _TYPES.get(name, _TEXT)
        if name == "special_tokens":
            types, expected = _SPECIAL_TOKENS if "encoding" in allowed else _SPECIAL_NAMES
        if not isinstance(value, types) or (name == "special_tokens" and isinstance(value, str)):
            raise InvalidArgumentError(f"{name} must be {expected}, not {value!r:.80}")


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Pauses the search for reference cycles in the block, in all threads.

    While a program creates many objects and keeps them all, Python searches again and again through all of
    them. For the JSON of a large tokenizer this takes longer than parsing it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
