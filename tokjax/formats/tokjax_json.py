"""tokjax's own tokenizer format: versioned JSON with a checksum.

A file is one JSON object with these fields:

* `"format"`: `"tokjax-tokenizer"`; `"version"`: 3.
* `"checksum"`: `"sha256:"` and the digest of the object without this field, serialized with sorted keys,
  without whitespace, and with ASCII escapes.
* `"model"`: type of the tokenizer, such as `"byte_level_bpe"`.
* the fields of the tokenizer, as `tokjax.core.json_records` writes them, such as `"vocabulary"`. Those that
  have their default value are left out.
* instead of the vocabulary: for `"sentencepiece"`, `"model_proto"` (contents of a `.model` file in base64),
  and for `"huggingface"`, `"definition"` (contents of a `tokenizer.json`), both with the roles.
"""

from __future__ import annotations

import importlib
import json
import logging
from functools import partial
from typing import TYPE_CHECKING

from tokjax._util.atomic_files import check_path, compute_json_checksum, write_atomically
from tokjax._util.urls import reject_urls
from tokjax.core.json_records import get_models, read_record, to_json_values
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface import library  # noqa: F401 (registers its type, as the next modules do)
from tokjax.formats.tokenizer_files import parse_json_object
from tokjax.models import (  # noqa: F401
    byte_bpe,
    characters,
    metaspace,
    sentencepiece,
    unigram,
    wordpiece,
    words,
)
from tokjax.models.format_errors import as_format_errors, read_bytes
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from tokjax.formats.huggingface.library import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

FORMAT = "tokjax-tokenizer"
VERSION = 3
TOKENIZER_FILE = "tokenizer.tokjax.json"
"""Name of the file in a directory."""
_NAME_OF_HUGGING_FACE = "tokenizer.json"
logger = logging.getLogger("tokjax")
_models = importlib.import_module("tokjax.models")
for _name in _models.__all__:
    getattr(_models, _name)  # imports its module, which registers the type


def save_tokenizer(tokenizer: SegmentModel | HuggingFaceTokenizer, path: str | os.PathLike[str]) -> Path:
    """Saves a tokenizer to one JSON file, atomically. Load it with `load_tokenizer`.

    Other libraries can't read the file: `formats.export_tokenizer` writes their formats. So a file named
    `tokenizer.json` logs a warning.

    Args:
        tokenizer: a built-in tokenizer, or one that runs on the `tokenizers` library.
        path: path of the file, or of an existing directory, in which it is named `tokenizer.tokjax.json`.

    Returns:
        The path of the file.

    Raises:
        InvalidArgumentError: `path` is a URL.
        UnsupportedTokenizerError: tokenizers of this type can't be saved in this format.
    """
    reject_urls(path)
    data = dump_tokenizer(tokenizer)
    target = _resolve_file(path)
    if target.name == _NAME_OF_HUGGING_FACE:
        logger.warning(
            "%s is a file of tokjax, which other libraries can't read, with the name that Hugging Face uses; "
            "pass another name, or write Hugging Face's format with export_tokenizer or tokjax export",
            target,
        )
    write_atomically(target, lambda file: file.write(data))
    return target


def dump_tokenizer(tokenizer: SegmentModel | HuggingFaceTokenizer) -> bytes:
    """Returns the contents of the file of a tokenizer.

    Raises:
        UnsupportedTokenizerError: tokenizers of this type can't be saved in this format.
    """
    kinds = get_models().values()
    if type(tokenizer) not in kinds:
        supported = ", ".join(kind.__name__ for kind in kinds)
        raise UnsupportedTokenizerError(
            f"save_tokenizer can't write a {type(tokenizer).__name__}; it writes {supported}"
        )
    contents = {"format": FORMAT, "version": VERSION, **to_json_values(tokenizer)}
    contents["checksum"] = compute_json_checksum(contents, to_json_values)
    dump = partial(json.dumps, default=to_json_values)
    lines = (f"{dump(name)}: {dump(value)}" for name, value in contents.items())
    # One field per line, without indent=, which makes json.dumps ten times slower.
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")


def read_tokjax(path: str | os.PathLike[str]) -> SegmentModel | HuggingFaceTokenizer:
    """Reads a file that `save_tokenizer` wrote.

    Args:
        path: path of the file, or of a directory that contains `tokenizer.tokjax.json`.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenizerFormatError: the file is in another format or version, or is damaged or altered.
    """
    source = _resolve_file(path)
    return parse_tokjax(read_bytes(source), str(source))


def parse_tokjax(data: bytes, source: str) -> SegmentModel | HuggingFaceTokenizer:
    """Parses the contents of a file that `save_tokenizer` wrote.

    Args:
        data: contents of the file.
        source: name of the file, for errors.

    Raises:
        TokenizerFormatError: the contents are in another format or version, or are damaged or altered.
    """
    contents = parse_json_object(data, source)
    if contents.get("format") != FORMAT:
        raise TokenizerFormatError(
            f"{source}: not a tokjax tokenizer: its 'format' is {contents.get('format')!r}, not {FORMAT!r}"
        )
    if contents.get("version") != VERSION:
        raise TokenizerFormatError(
            f"{source}: has version {contents.get('version')!r} of the format; "
            f"this version of tokjax reads version {VERSION}; make the tokenizer again from its original "
            "files, and save it with save_tokenizer"
        )
    stored, actual = contents.pop("checksum", None), compute_json_checksum(contents)
    if stored != actual:
        raise TokenizerFormatError(
            f"{source}: altered or damaged: the checksum in the file is {stored!r}, that of its contents is "
            f"{actual!r}; write it again with save_tokenizer"
        )
    kind = get_models().get(str(contents.get("model")))
    if kind is None:
        raise TokenizerFormatError(
            f"{source}: unknown model {contents.get('model')!r}; supported: {', '.join(get_models())}"
        )
    with as_format_errors(str(source)):
        fields = {name: value for name, value in contents.items() if name not in ("format", "version")}
        loaded: SegmentModel | HuggingFaceTokenizer = read_record(kind, fields)
        check_comparisons(loaded.vocabulary.split_token_names)
        return loaded


def _resolve_file(path: str | os.PathLike[str]) -> Path:
    candidate = check_path(path)
    return candidate / TOKENIZER_FILE if candidate.is_dir() else candidate
