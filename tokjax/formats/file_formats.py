"""Table of the formats of tokenizer files: names, how contents show the format, readers and writers.

Detection, loading, export and the messages of errors follow from the rows. A new format is a row, with a
function that reads its files and at most one that writes them:

    row         names of its files          contents that show it            reads         writes
    tiktoken    x.tiktoken, tekken.json     lines of base64 and a number     ByteLevelBPE  ranks.tiktoken
    gpt2        vocab.json and merges.txt   JSON of integers; "#version"     ByteLevelBPE  both files
"""

from __future__ import annotations

import inspect
import re
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax.formats.gpt2_files import read_gpt2
from tokjax.formats.huggingface.tokenizer_json import read_huggingface
from tokjax.formats.sentencepiece_files import read_sentencepiece
from tokjax.formats.tiktoken_files import is_rank_file, is_tekken, read_tiktoken
from tokjax.formats.tokenizer_files import BYTE_ORDER_MARK, read_bytes, read_json_object
from tokjax.formats.tokjax_json import TOKENIZER_FILE, read_tokjax
from tokjax.formats.word_bpe_files import read_word_bpe
from tokjax.formats.wordpiece_files import read_wordpiece
from tokjax.formats.writers import (
    write_gpt2,
    write_huggingface,
    write_sentencepiece,
    write_tiktoken,
    write_tokjax,
    write_wordpiece,
)
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer
from tokjax.models.vocabulary_changes import replace_roles
from tokjax.models.word_bpe import word_bpe
from tokjax.models.wordpiece import WordPieceTokenizer, wordpiece

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

Format = Literal[
    "tokjax",
    "huggingface",
    "gpt2",
    "sentencepiece",
    "tiktoken",
    "word_bpe",
    "wordpiece",
]

VOCAB_JSON, VOCAB_TXT = "vocab.json", "vocab.txt"
_HEADER_BYTES = 1 << 12
_HUGGINGFACE_HEADER = re.compile(rb'\s*\{\s*"version"\s*:\s*"[^"]*"\s*,\s*"truncation"\s*:')
_SCORED_PIECE = re.compile(rb"(piece\t)?[^\t]+\t-?[0-9][0-9.e+-]*(\t.*)?|#.*|type=.*|")
"""A line of a SentencePiece model as text."""
_MODEL_FIELDS = (b"\x0a", b"\x12", b"\x1a")
"""First bytes of a SentencePiece model. Its fields 1 to 3, pieces and settings, can be in any order."""


class FileStart:
    """A file whose format is to be found.

    Args:
        path: path of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = read_bytes(path, _HEADER_BYTES).removeprefix(BYTE_ORDER_MARK)

    @cached_property
    def json(self) -> Mapping[str, Any]:
        """The JSON object in the file; empty if the file has none, as a `vocab.txt` that begins with `{`."""
        if _HUGGINGFACE_HEADER.match(self.header):
            return {"model": {}}  # parsing a large file takes time, and its reader does it again
        may_be_json = self.header.lstrip().startswith(b"{") and self.path.suffix != ".txt"
        return read_json_object(self.path) if may_be_json else {}

    @cached_property
    def lines(self) -> list[bytes]:
        """The complete lines of the header, if it is UTF-8 text without NUL; otherwise empty."""
        text = self.header.rpartition(b"\n")[0] or self.header
        try:
            is_text = b"\0" not in text and bool(text.decode("utf-8").strip())
        except UnicodeDecodeError:
            is_text = False
        return text.splitlines() if is_text else []

    @property
    def has_scores(self) -> bool:
        """Whether the file has the pieces and scores of a SentencePiece model as text."""
        return any(b"\t" in line for line in self.lines) and all(map(_SCORED_PIECE.fullmatch, self.lines))

    @property
    def has_merges(self) -> bool:
        """Whether the file is a list of merges, by its first line or its name."""
        return b"#version" in self.header.partition(b"\n")[0] or self.path.name in ("merges.txt", "vocab.bpe")


class FileFormat(NamedTuple):
    """Row of the table of formats.

    Attributes:
        layouts: file names of a tokenizer in this format, in the order of the parameters of `read`: each a
            wildcard, or several separated by `|`, of which the first is written.
        sniff: function that returns why a file may be in this format, as a clause, or else `None`.
        read: function that reads the files. It takes the names of tokens by their role, and its keywords are
            options of the format.
        roles: roles whose tokens can be passed.
        make: function that makes such a tokenizer in memory.
        write: function that writes a tokenizer, if there is one.
        kind: type of the tokenizers that can be written, if it is only one.
    """

    layouts: tuple[tuple[str, ...], ...]
    sniff: Callable[[FileStart], str | None]
    read: Callable[..., SegmentModel | HuggingFaceTokenizer]
    roles: tuple[Role, ...] = ("bos", "eos", "pad", "unk")
    make: Callable[..., Any] | None = None
    write: Callable[..., tuple[Path, ...]] | None = None
    kind: type[Any] | None = None

    @property
    def options(self) -> set[str]:
        """Names of the options for reading."""
        return {f"{role}_token" for role in self.roles} | find_options(self.read, self.make)

    @property
    def first_name(self) -> str:
        """Name of the first file that is written to a directory."""
        return self.layouts[0][0].partition("|")[0]

    @property
    def num_files(self) -> int:
        """Number of files of a tokenizer."""
        return len(self.layouts[0])


def find_options(function: Callable[..., Any], make: Callable[..., Any] | None = None) -> set[str]:
    """Returns the keywords of a function, and those of the one to which it passes all others, if it does."""
    parameters = inspect.signature(function).parameters.values()
    names = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    if make is not None and any(each.kind is each.VAR_KEYWORD for each in parameters):
        names |= find_options(make)
    return names


def has_name(name: str, wildcards: str) -> bool:
    """Returns whether a file has one of the names of a layout. A name that begins with a dot has none."""
    return not name.startswith(".") and any(fnmatchcase(name, each) for each in wildcards.split("|"))


def _sniff_tokjax(start: FileStart) -> str | None:
    format_ = start.json.get("format")
    return f"its 'format' is {format_!r}" if isinstance(format_, str) else None


def _sniff_huggingface(start: FileStart) -> str | None:
    has_model = isinstance(start.json.get("model"), dict)
    return "it has a 'model', as a tokenizer.json does" if has_model else None


def _sniff_gpt2(start: FileStart) -> str | None:
    if start.json and all(isinstance(id_, int) for id_ in start.json.values()):
        return "it maps tokens to ids"
    return "it is a list of merges" if start.has_merges else None


def _sniff_sentencepiece(start: FileStart) -> str | None:
    if start.header.startswith(_MODEL_FIELDS) and b"\0" in start.header:
        return "its first bytes are those of a serialized SentencePiece model"
    return None


def _sniff_tiktoken(start: FileStart) -> str | None:
    if is_rank_file(start.header):
        return "its lines contain base64 tokens and ranks"
    return "it has a 'config' and a 'vocab', as Mistral's tekken.json does" if is_tekken(start.json) else None


def _sniff_word_bpe(start: FileStart) -> str | None:
    if start.has_merges:
        return "it is a list of merges"
    # The list of merges beside a vocab.json belongs to that file.
    is_vocabulary = start.path.name == VOCAB_TXT and not start.path.with_name(VOCAB_JSON).is_file()
    return _sniff_wordpiece(start) if is_vocabulary else None


def _sniff_wordpiece(start: FileStart) -> str | None:
    is_vocabulary = start.path.suffix == ".txt" and start.lines and not start.has_merges
    return "it is text with one token per line" if is_vocabulary and not start.has_scores else None


def _read_tokjax(path: Path, roles: Mapping[Role, str | None]) -> SegmentModel | HuggingFaceTokenizer:
    return replace_roles(read_tokjax(path), roles)


FORMATS: Mapping[Format, FileFormat] = {
    "tokjax": FileFormat(((TOKENIZER_FILE,),), _sniff_tokjax, _read_tokjax, write=write_tokjax),
    "huggingface": FileFormat(
        (("tokenizer.json",),), _sniff_huggingface, read_huggingface, write=write_huggingface
    ),
    "gpt2": FileFormat(
        ((VOCAB_JSON, "merges.txt"), ("encoder.json", "vocab.bpe")),
        _sniff_gpt2,
        read_gpt2,
        write=write_gpt2,
        kind=ByteLevelBPE,
    ),
    "sentencepiece": FileFormat(
        (
            ("tokenizer.model|spiece.model|sentencepiece.bpe.model|spm.model|tokenizer.model.v3",),
            ("*.model|*.model.v[0-9]*",),
        ),
        _sniff_sentencepiece,
        read_sentencepiece,
        ("bos", "eos", "pad"),
        write=write_sentencepiece,
        kind=SentencePieceTokenizer,
    ),
    "tiktoken": FileFormat(
        (("ranks.tiktoken|*.tiktoken|tekken.json|tekken_[0-9]*.json",),),
        _sniff_tiktoken,
        read_tiktoken,
        ("bos", "eos", "pad"),
        write=write_tiktoken,
        kind=ByteLevelBPE,
    ),
    "word_bpe": FileFormat(((VOCAB_TXT, "merges.txt"),), _sniff_word_bpe, read_word_bpe, make=word_bpe),
    "wordpiece": FileFormat(
        ((VOCAB_TXT,),),
        _sniff_wordpiece,
        read_wordpiece,
        ("bos", "eos", "pad", "unk", "mask"),
        wordpiece,
        write_wordpiece,
        WordPieceTokenizer,
    ),
}
"""Formats by name, in the order in which they are looked for in a directory."""
