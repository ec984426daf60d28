"""Our own tokenizer file: plain JSON, versioned, with a checksum over its contents.

The file is one JSON object:

* `"format"`: `"tokjax-tokenizer"`; `"version"`: 1.
* `"checksum"`: `"sha256:"` and the digest of the object without this field, written with sorted keys, no
  white space and ASCII escapes.
* `"model"`, `"special_tokens"` (name to id), `"bos_token"`, `"eos_token"`, `"pad_token"`, `"unk_token"`; for
  `"sentencepiece"` only the roles of BOS, EOS and PAD, control pieces of the model, or null.
* where there are any: `"template"` (`"single"` and `"pair"`, lists as `make_template` takes them) and
  `"added_tokens"` (name to two booleans: which white space beside it a token takes with it).
* the other fields of the model:
  * `"byte_level_bpe"`: `"pattern"`, `"normalizer"`, `"ranks"` (pairs of base64 and id); unless they have the
    usual values, `"merges"` (pairs of ids), `"ignore_merges"`, `"add_prefix_space"`, `"trim_offsets"`.
  * `"metaspace_bpe"`: `"tokens"` (pairs of token and id, the special ones left out), `"merges"` (pairs of
    ids), `"add_prefix_space"`, `"split_words"`, `"strip"`.
  * `"wordpiece"`: `"tokens"` as before, `"clean_text"`, `"handle_chinese_chars"`, `"strip_accents"`,
    `"lowercase"`, `"continuing_prefix"`, `"max_word_characters"`, `"cleanup"`.
  * `"word_level"`: `"tokens"` as before, `"splitter"`, `"lowercase"`.
  * `"sentencepiece"`: `"model_proto"` (the contents of a `.model` file in base64).
  * `"byte_level"`: `"first_id"`, that of the byte 0.
  * `"char_level"`: `"tokens"` as before, single characters.
  * `"huggingface"`: `"definition"` (the contents of a `tokenizer.json`), `"reason"`; of the special tokens
    only the roles.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import compute_json_checksum, write_atomically
from tokjax.errors import TokenizerFormatError, UnsupportedTokenizerError
from tokjax.formats.huggingface import adapter
from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
from tokjax.formats.tokenizer_files import read_bytes
from tokjax.models import (
    byte_bpe,
    byte_level,
    char_level,
    metaspace_bpe,
    sentencepiece,
    word_level,
    wordpiece,
)
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.byte_level import ByteTokenizer
from tokjax.models.char_level import CharTokenizer
from tokjax.models.format_errors import as_format_errors
from tokjax.models.metaspace_bpe import MetaspaceBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.word_level import WordLevelTokenizer
from tokjax.models.wordpiece import WordPieceTokenizer
from tokjax.pretokenize.special_tokens import check_comparisons

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from tokjax.models.base import SegmentModel

FORMAT = "tokjax-tokenizer"
VERSION = 1
TOKENIZER_FILE = "tokenizer.tokjax.json"
"""The name of the file in a directory."""

_WRITERS: dict[type[Any], Callable[[Any], dict[str, Any]]] = {
    ByteLevelBPE: byte_bpe.to_json,
    MetaspaceBPE: metaspace_bpe.to_json,
    WordPieceTokenizer: wordpiece.to_json,
    WordLevelTokenizer: word_level.to_json,
    SentencePieceTokenizer: sentencepiece.to_json,
    ByteTokenizer: byte_level.to_json,
    CharTokenizer: char_level.to_json,
    HuggingFaceTokenizer: adapter.to_json,
}
_READERS: dict[str, Callable[[dict[str, Any]], SegmentModel | HuggingFaceTokenizer]] = {
    ByteLevelBPE.model: byte_bpe.from_json,
    MetaspaceBPE.model: metaspace_bpe.from_json,
    WordPieceTokenizer.model: wordpiece.from_json,
    WordLevelTokenizer.model: word_level.from_json,
    SentencePieceTokenizer.model: sentencepiece.from_json,
    ByteTokenizer.model: byte_level.from_json,
    CharTokenizer.model: char_level.from_json,
    HuggingFaceTokenizer.model: adapter.from_json,
}


def save_tokenizer(tokenizer: SegmentModel | HuggingFaceTokenizer, path: str | os.PathLike[str]) -> Path:
    """Write a tokenizer to one JSON file, whole or not at all.

    Args:
        tokenizer: a tokenizer of tokjax's own, or one that runs on the `tokenizers` library.
        path: the file, or an existing directory, in which it is named `tokenizer.tokjax.json`.

    Returns:
        The path of the file.

    Raises:
        UnsupportedTokenizerError: this format does not hold tokenizers of that type.
    """
    to_json = _WRITERS.get(type(tokenizer))
    if to_json is None:
        written = ", ".join(kind.__name__ for kind in _WRITERS)
        raise UnsupportedTokenizerError(
            f"save_tokenizer can't write a {type(tokenizer).__name__}; it writes {written}"
        )
    target = _resolve_file(path)
    contents = {"format": FORMAT, "version": VERSION, **to_json(tokenizer)}
    contents["checksum"] = compute_json_checksum(contents)
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in contents.items())
    data = ("{\n" + ",\n".join(lines) + "\n}\n").encode("ascii")  # (indented, it is written ten times slower)
    write_atomically(target, lambda file: file.write(data))
    return target


def read_tokjax(path: str | os.PathLike[str]) -> SegmentModel | HuggingFaceTokenizer:
    """Read what `save_tokenizer` wrote.

    Args:
        path: the file, or a directory that holds `tokenizer.tokjax.json`.

    Raises:
        FileNotFoundError: there is no such file.
        TokenizerFormatError: the file is of another format or version, damaged, or altered.
    """
    source = _resolve_file(path)
    return parse_tokjax(read_bytes(source), str(source))


def parse_tokjax(data: bytes, source: str) -> SegmentModel | HuggingFaceTokenizer:
    """Returns the tokenizer that `save_tokenizer` wrote.

    Args:
        data: contents of the file.
        source: the name of the file in errors.

    Raises:
        TokenizerFormatError: the file is of another format or version, damaged, or altered.
    """
    contents = _parse_object(data, source)
    if contents.get("format") != FORMAT:
        raise TokenizerFormatError(
            f"{source}: not a tokjax tokenizer: its 'format' is {contents.get('format')!r}, not {FORMAT!r}"
        )
    if contents.get("version") != VERSION:
        raise TokenizerFormatError(
            f"{source}: written in version {contents.get('version')!r} of the format; "
            f"this tokjax reads version {VERSION}"
        )
    stored, actual = contents.pop("checksum", None), compute_json_checksum(contents)
    if stored != actual:
        raise TokenizerFormatError(
            f"{source}: altered or damaged: it says checksum {stored!r}, its contents have {actual!r}; "
            "write it again with save_tokenizer"
        )
    reader = _READERS.get(str(contents.get("model")))
    if reader is None:
        raise TokenizerFormatError(
            f"{source}: unknown model {contents.get('model')!r}; known: {', '.join(_READERS)}"
        )
    with as_format_errors(str(source)):
        loaded = reader(contents)
        check_comparisons(loaded.vocabulary.split_token_names)
        return loaded


def _resolve_file(path: str | os.PathLike[str]) -> Path:
    candidate = Path(path)
    return candidate / TOKENIZER_FILE if candidate.is_dir() else candidate


def _parse_object(data: bytes, source: str) -> dict[str, Any]:
    try:
        contents = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerFormatError(f"{source}: not JSON, or cut short: {error}") from error
    if not isinstance(contents, dict):
        raise TokenizerFormatError(f"{source}: a JSON object is expected, not a {type(contents).__name__}")
    return contents
