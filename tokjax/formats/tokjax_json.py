"""tokjax's own tokenizer format: versioned JSON with a checksum.

A file is one JSON object with these fields:

* `"format"`: `"tokjax-tokenizer"`; `"version"`: 2.
* `"checksum"`: `"sha256:"` and the digest of the object without this field, serialized with sorted keys,
  without whitespace, and with ASCII escapes.
* `"model"`: type of the tokenizer, one of those below.
* `"special_tokens"` (name to id), `"bos_token"`, `"eos_token"`, `"pad_token"`, `"unk_token"` (names or null).
  For `"sentencepiece"` only the roles of BOS, EOS and padding: control pieces of the model, or null.
* optional: `"cls_token"`, `"sep_token"`, `"mask_token"` (names), `"template"` (`"single"` and `"pair"`, lists
  as `make_template` takes them), `"added_tokens"` (name to two booleans, `lstrip` and `rstrip`: whether the
  token includes the whitespace before and after it), and `"duplicate_token_ids"` (name to id of added and
  special tokens that have the same bytes as another token, and of tokens that no text becomes).
* the fields of each model:
  * `"byte_level_bpe"`: `"pattern"`, `"normalizer"`, `"ranks"` (pairs of base64 and id); and if they differ
    from their defaults, `"merges"` (pairs of ids), `"ignore_merges"`, `"add_prefix_space"`, `"trim_offsets"`.
  * `"metaspace_bpe"`: `"tokens"` (pairs of token and id, without the special tokens), `"merges"` (pairs of
    ids), `"add_prefix_space"`, `"split_words"`, `"strip"`.
  * `"wordpiece"`: `"tokens"` as above, `"clean_text"`, `"handle_chinese_chars"`, `"strip_accents"`,
    `"lowercase"`, `"continuing_prefix"`, `"max_word_characters"`, `"cleanup"`.
  * `"word_bpe"`: `"tokens"` as above, `"merges"` (pairs of strings), the four steps of the normalizer as for
    `"wordpiece"`, `"splitter"`, `"end_of_word"`, `"byte_level"`, `"unknown"`.
  * `"word_level"`: `"tokens"` as above, `"splitter"`, `"lowercase"`.
  * `"unigram"`: `"tokens"` as above, `"pieces"` (pairs of a piece and its score), `"unknown_id"`,
    `"byte_fallback"`, `"steps"` (of the normalizer of a `tokenizer.json`), `"prepends"`,
    `"splits_whitespace"`, `"strip"`, `"normalized_tokens"` (name, id, `lstrip` and `rstrip` of each).
  * `"sentencepiece"`: `"model_proto"` (contents of a `.model` file in base64).
  * `"byte_level"`: `"first_id"`, the id of byte 0.
  * `"char_level"`: `"tokens"` as above, single characters.
  * `"huggingface"`: `"definition"` (contents of a `tokenizer.json`), `"reason"`; of the special tokens only
    the roles.
  * `"bpe_dropout"`: `"dropout"`, `"seed"` and `"tokenizer"`, an object with the fields of `"byte_level_bpe"`
    or `"metaspace_bpe"`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import check_path, compute_json_checksum, write_atomically
from tokjax._util.urls import reject_urls
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface import adapter
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
from tokjax.formats.tokenizer_files import read_bytes
from tokjax.models import (
    bpe_dropout,
    byte_bpe,
    byte_level,
    char_level,
    metaspace_bpe,
    sentencepiece,
    unigram,
    word_bpe,
    word_level,
    wordpiece,
)
from tokjax.models.bpe_dropout import BPEDropout
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.byte_level import ByteTokenizer
from tokjax.models.char_level import CharTokenizer
from tokjax.models.format_errors import as_format_errors
from tokjax.models.metaspace_bpe import MetaspaceBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.unigram import Unigram
from tokjax.models.word_bpe import WordBPE
from tokjax.models.word_level import WordLevelTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from tokjax.models.base import SegmentModel

FORMAT = "tokjax-tokenizer"
VERSION = 2
TOKENIZER_FILE = "tokenizer.tokjax.json"
"""Name of the file in a directory."""
_NAME_OF_HUGGING_FACE = "tokenizer.json"
logger = logging.getLogger("tokjax")

_WRITERS: dict[type[Any], Callable[[Any], dict[str, Any]]] = {
    ByteLevelBPE: byte_bpe.to_json,
    MetaspaceBPE: metaspace_bpe.to_json,
    WordPieceTokenizer: wordpiece.to_json,
    WordBPE: word_bpe.to_json,
    WordLevelTokenizer: word_level.to_json,
    Unigram: unigram.to_json,
    SentencePieceTokenizer: sentencepiece.to_json,
    ByteTokenizer: byte_level.to_json,
    CharTokenizer: char_level.to_json,
    HuggingFaceTokenizer: adapter.to_json,
    BPEDropout: bpe_dropout.to_json,
}
_READERS: dict[str, Callable[[dict[str, Any]], SegmentModel | HuggingFaceTokenizer]] = {
    ByteLevelBPE.model: byte_bpe.from_json,
    MetaspaceBPE.model: metaspace_bpe.from_json,
    WordPieceTokenizer.model: wordpiece.from_json,
    WordBPE.model: word_bpe.from_json,
    WordLevelTokenizer.model: word_level.from_json,
    Unigram.model: unigram.from_json,
    SentencePieceTokenizer.model: sentencepiece.from_json,
    ByteTokenizer.model: byte_level.from_json,
    CharTokenizer.model: char_level.from_json,
    HuggingFaceTokenizer.model: adapter.from_json,
    BPEDropout.model: bpe_dropout.from_json,
}


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
    to_json = _WRITERS.get(type(tokenizer))
    if to_json is None:
        supported = ", ".join(kind.__name__ for kind in _WRITERS)
        raise UnsupportedTokenizerError(
            f"save_tokenizer can't write a {type(tokenizer).__name__}; it writes {supported}"
        )
    target = _resolve_file(path)
    if target.name == _NAME_OF_HUGGING_FACE:
        logger.warning(
            "%s is a file of tokjax, which other libraries can't read, with the name that Hugging Face uses; "
            "pass another name, or write Hugging Face's format with export_tokenizer or tokjax export",
            target,
        )
    contents = {"format": FORMAT, "version": VERSION, **to_json(tokenizer)}
    contents["checksum"] = compute_json_checksum(contents)
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in contents.items())
    # One field per line, without indent=, which makes json.dumps ten times slower.
    data = ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")
    write_atomically(target, lambda file: file.write(data))
    return target


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
    contents = _parse_object(data, source)
    if contents.get("format") != FORMAT:
        raise TokenizerFormatError(
            f"{source}: not a tokjax tokenizer: its 'format' is {contents.get('format')!r}, not {FORMAT!r}"
        )
    if contents.get("version") != VERSION:
        raise TokenizerFormatError(
            f"{source}: has version {contents.get('version')!r} of the format; "
            f"this version of tokjax reads version {VERSION}"
        )
    stored, actual = contents.pop("checksum", None), compute_json_checksum(contents)
    if stored != actual:
        raise TokenizerFormatError(
            f"{source}: altered or damaged: the checksum in the file is {stored!r}, that of its contents is "
            f"{actual!r}; write it again with save_tokenizer"
        )
    reader = _READERS.get(str(contents.get("model")))
    if reader is None:
        raise TokenizerFormatError(
            f"{source}: unknown model {contents.get('model')!r}; supported: {', '.join(_READERS)}"
        )
    with as_format_errors(str(source)):
        loaded = reader(contents)
        check_comparisons(loaded.vocabulary.split_token_names)
        return loaded


def _resolve_file(path: str | os.PathLike[str]) -> Path:
    candidate = check_path(path)
    return candidate / TOKENIZER_FILE if candidate.is_dir() else candidate


def _parse_object(data: bytes, source: str) -> dict[str, Any]:
    try:
        contents = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerFormatError(f"{source}: not JSON, or truncated: {error}") from error
    if not isinstance(contents, dict):
        raise TokenizerFormatError(f"{source}: expected a JSON object, got a {type(contents).__name__}")
    return contents
