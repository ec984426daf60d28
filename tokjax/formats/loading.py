"""Loading of tokenizers and chat templates: from files, by name, and from objects of other libraries.

A model has one default chat template, and may have others by name. They are read from files, or from a field
of `tokenizer_config.json`, which older models use:

    model/
      chat_template.jinja                    load_chat_template("model")
      additional_chat_templates/
        rag.jinja                            load_chat_template("model", "rag")
      tokenizer_config.json                  "chat_template": a string (the default), or a list of objects
                                             {"name": "rag", "template": ...}; read where no file exists

`encoding.chat` applies templates to conversations.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from tokjax._util.atomic_files import check_path
from tokjax._util.checks import check_choice
from tokjax.core import protocol
from tokjax.core.vocabulary import ROLES
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.downloads import TIKTOKEN_SCHEME, fetch_repository, open_files, parse_name
from tokjax.formats.file_formats import FORMATS, DetectedTokenizer, Format, detect_tokenizer_files
from tokjax.formats.huggingface.tokenizer_json import convert_files, from_huggingface
from tokjax.formats.tiktoken_files import from_tiktoken, get_tiktoken_encoding
from tokjax.formats.tokenizer_files import (
    CHAT_TEMPLATE_FILE,
    CHAT_TEMPLATES_DIRECTORY,
    CONFIG_FILE,
    RequiresTransformersError,
    read_companion_config,
)
from tokjax.formats.vocabulary_files import from_sentencepiece
from tokjax.models.format_errors import read_bytes
from tokjax.models.roles_and_templates import replace_roles

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Literal, Unpack

    from tokjax.formats.huggingface.library import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel
    from tokjax.pretokenize.patterns import Pattern


_DEFAULT = "default"
"""Name of the default chat template."""


class LoadOptions(TypedDict, total=False):
    """Options of `load_tokenizer`. Each format accepts some of them.

    Attributes:
        bos_token: special token in the role of BOS.
        eos_token: special token in the role of EOS.
        pad_token: special token that pads a batch.
        unk_token: special token for unknown text.
        cls_token: token whose output represents the text.
        sep_token: token that ends each text of a pair.
        mask_token: token for masked language modeling.
        special_tokens: special tokens: a map of names to ids for `"tiktoken"`, a list of names for other
            formats.
        encoding: name of a published encoding of tiktoken.
        pattern: split pattern, as in `byte_level_bpe`.
        lowercase: whether texts are converted to lower case, as in `wordpiece`; `None` for the setting in the
            files.
    """

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    cls_token: str | None
    sep_token: str | None
    mask_token: str | None
    special_tokens: Mapping[str, int] | Sequence[str] | None
    encoding: str | None
    pattern: Pattern | None
    lowercase: bool | None


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
    `bos_token`, `eos_token`, `pad_token` and those of other roles override them in every format. `with_roles`
    sets any role of a loaded tokenizer.

    - `"huggingface"`: A byte-level BPE with a common split pattern, a BPE with byte fallback, a BPE of words
      like that of OpenAI's first GPT, a unigram model like T5's, a WordPiece like BERT's and a word-level
      tokenizer become built-in tokenizers with the same ids. Other definitions run on the `tokenizers`
      library (the extra `tokjax[huggingface]`), and the reason is logged. Truncation and padding defined in
      the file are not applied.
    - `"gpt2"` accepts `pattern` and `special_tokens` (names; by default those that the configuration files
      declare, and `<|endoftext|>`). The default pattern is GPT-2's.
    - `"sentencepiece"`: `bos_token` and `eos_token` are inserted into texts; `"auto"` selects the token with
      the role, which is declared in the configuration files or else in the model.
    - `"tiktoken"` accepts `encoding`, `pattern` and `special_tokens` (name to id). A rank file contains
      neither a split pattern nor special tokens. They are taken from the published encoding that the file is
      named after (`cl100k_base.tiktoken`), or from `encoding`, or from `pattern` and `special_tokens`. A
      `tekken.json` contains both.
    - `"wordpiece"` accepts `special_tokens` (names) and `lowercase`, which is required if there is no
      `tokenizer_config.json` and the vocabulary has tokens in upper case. For other options, pass the tokens
      to `wordpiece`.
    - `"word_bpe"` accepts `special_tokens` (names). The ids equal those of
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
    if isinstance(name, str) and name.startswith(TIKTOKEN_SCHEME):
        if format not in ("auto", "tiktoken"):
            raise InvalidArgumentError(f"{path!r} is an encoding of tiktoken; leave out format={format!r}")
        return _convert(get_tiktoken_encoding(name.removeprefix(TIKTOKEN_SCHEME)), "auto", options)
    for option in options.keys() & _REPLACED_OPTIONS:
        raise InvalidArgumentError(f"load_tokenizer has no option {option!r}; {_REPLACED_OPTIONS[option]}")
    with open_files(name or path) as found:
        detected = detect_tokenizer_files(found, format)
        with _pause_garbage_collection():
            return _read(detected, options)


def _read(detected: DetectedTokenizer, options: Mapping[str, Any]) -> SegmentModel | HuggingFaceTokenizer:
    """Reads files, or converts the tokenizer that transformers makes of them."""
    row, files = FORMATS[detected.format], detected.files
    role_options = {f"{role}_token": role for role in ROLES}
    allowed = role_options.keys() | _get_options(row.read)
    where = f"the format {detected.format!r} ({detected.reason})"
    _check_options(allowed, options, where, row.make)
    roles = {role_options[name]: value for name, value in options.items() if name in role_options}
    others = {name: value for name, value in options.items() if name not in role_options}
    try:
        loaded = row.read(*files, roles, **others)
    except RequiresTransformersError as error:
        # A class reads a SentencePiece model under its usual name, of which there are several.
        names = row.names if "|" not in row.layouts[0][0] else [file.name for file in files]
        return convert_files(dict(zip(names, files, strict=True)), error, options)
    return replace_roles(loaded, {role: name for role, name in roles.items() if name != "auto"})


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
    if isinstance(name, str):
        encoding = name.removeprefix(TIKTOKEN_SCHEME)
        if encoding == name:
            raise InvalidArgumentError(
                f"{name!r} is a URL, whose files are not cached; copy them to a directory"
            )
        get_tiktoken_encoding(encoding)
        return DetectedTokenizer("tiktoken", (), f"{encoding!r} is an encoding of tiktoken")
    return detect_tokenizer_files(fetch_repository(name) if name else path)


def load_chat_template(path: str | os.PathLike[str], name: str = _DEFAULT) -> str:
    """Loads the Jinja chat template of a model, for `encode_chat`.

    The default template is read from `chat_template.jinja`, other templates from
    `additional_chat_templates/NAME.jinja`. If that file does not exist, the template is read from the field
    `chat_template` of `tokenizer_config.json`.

    Args:
        path: path of the model's directory, or its URL or the name of its repository, as for
            `load_tokenizer`.
        name: name of the template, for models with several.

    Raises:
        FileNotFoundError: the directory does not exist.
        TokenizerFormatError: the directory has no template of that name.
        TokenizerNotFoundError: the files of the repository are not available, as for `load_tokenizer`.
    """
    parsed = parse_name(path)
    if isinstance(parsed, str) and parsed.startswith(TIKTOKEN_SCHEME):
        raise TokenizerFormatError(f"{path!r} is an encoding of tiktoken, which has no chat template")
    with open_files(parsed or path) as found:
        directory = check_path(found)
        if not directory.is_dir():
            raise FileNotFoundError(f"{directory}: no such directory")
        template_path = (
            directory / CHAT_TEMPLATE_FILE
            if name == _DEFAULT
            else directory / CHAT_TEMPLATES_DIRECTORY / f"{name}.jinja"
        )
        if template_path.is_file():
            return read_bytes(template_path).decode("utf-8", "replace")
        templates = _parse_templates(read_companion_config(directory).config.get("chat_template"))
        if name not in templates:
            raise TokenizerFormatError(
                f"{directory}: has no chat template {name!r}: the file {template_path.name} does not exist, "
                f"and {CONFIG_FILE} has {sorted(templates) or 'none'}"
            )
        return templates[name]


def _parse_templates(value: object) -> dict[str, str]:
    """Returns name to template for a template, or a list of objects with the fields `name` and `template`."""
    if isinstance(value, str):
        return {_DEFAULT: value}
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    named = {str(entry.get("name")): entry.get("template") for entry in entries}
    return {name: template for name, template in named.items() if isinstance(template, str)}


def _convert(
    tokenizer: Any, format_: Format | Literal["auto"], options: Mapping[str, Any]
) -> SegmentModel | HuggingFaceTokenizer:
    """Converts a tokenizer object of another library. Tokenizers of tokjax are returned."""
    type_name = type(tokenizer).__name__
    if format_ != "auto":
        raise InvalidArgumentError(f"format={format_!r} is for paths, not for {type_name} objects")
    convert = _ADAPTERS[protocol.find_library(tokenizer)]
    _check_options(_get_options(convert), options, f"the conversion of {type_name} objects")
    return convert(tokenizer, **options)


_TYPES: Mapping[str, tuple[type, str]] = {
    "lowercase": (bool, "True, False or None"),
    "special_tokens": (Iterable, "a list of names"),
}
"""Types of options, and a description for errors. Options not listed are strings or `None`."""
_REPLACED_OPTIONS: Mapping[str, str] = {
    "revision": "pass 'hf://OWNER/NAME@REVISION'; a slash in the revision is %2F",
    "subfolder": "pass 'hf://OWNER/NAME@REVISION/SUBFOLDER'",
    "token": "set HF_TOKEN, or run `hf auth login`",
    "cache_dir": "set HF_HUB_CACHE",
    "local_files_only": "set HF_HUB_OFFLINE=1",
}
"""Options of `from_pretrained` in transformers, and what to do instead."""
_ADAPTERS: Mapping[str | None, Callable[..., SegmentModel | HuggingFaceTokenizer]] = {
    None: lambda tokenizer: tokenizer,
    "tokenizers": from_huggingface,
    "transformers": from_huggingface,
    "tiktoken": from_tiktoken,
    "sentencepiece": from_sentencepiece,
}
"""Conversions of tokenizer objects, by their library; `None` for tokenizers of tokjax."""


def _get_options(function: Callable[..., Any]) -> set[str]:
    """Returns the keywords of a function."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


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
        advice = f"; call tokjax.{make.__name__} with it" if make and name in _get_options(make) else ""
        raise InvalidArgumentError(
            f"{where} has no option {name!r}; it has {', '.join(sorted(allowed)) or 'none'}{advice}"
        )
    for name, value in options.items():
        types, expected = _TYPES.get(name, (str, "a string or None"))
        if name == "special_tokens" and "encoding" in allowed:
            types, expected = Mapping, "a dict of names to ids, or None"
        is_string = name in _TYPES and isinstance(value, str)
        if is_string or not isinstance(value, (types, type(None))):
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
