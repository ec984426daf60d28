"""Formats of tokenizer files: a table of their names, contents and readers, and detection by the table.

Detection, loading and the messages of errors follow from the rows. A new format is a row with a function that
reads its files, and at most one function in `exporting.py` that writes them:

    row         names of its files          contents that show it            reads
    tiktoken    x.tiktoken, tekken.json     lines of base64 and a number     ByteLevelBPE
    gpt2        vocab.json and merges.txt   JSON of integers; "#version"     ByteLevelBPE
"""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax._util.atomic_files import check_path
from tokjax._util.checks import is_iterable
from tokjax.core import protocol
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.huggingface.tokenizer_json import read_huggingface
from tokjax.formats.tiktoken_files import is_rank_file, is_tekken, read_tiktoken
from tokjax.formats.tokenizer_files import (
    BYTE_ORDER_MARK,
    COMPANION_FILES,
    MODEL_CONFIG_FILE,
    read_json_object,
)
from tokjax.formats.tokjax_json import TOKENIZER_FILE, read_tokjax
from tokjax.formats.vocabulary_files import read_gpt2, read_sentencepiece, read_word_bpe, read_wordpiece
from tokjax.models.byte_bpe import byte_level_bpe
from tokjax.models.format_errors import read_bytes
from tokjax.models.wordpiece import wordpiece
from tokjax.models.words import word_bpe

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from tokjax.formats.huggingface.library import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

Format = Literal["tokjax", "huggingface", "gpt2", "sentencepiece", "tiktoken", "word_bpe", "wordpiece"]

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
        make: function that makes such a tokenizer in memory, with more options.
    """

    layouts: tuple[tuple[str, ...], ...]
    sniff: Callable[[FileStart], str | None]
    read: Callable[..., SegmentModel | HuggingFaceTokenizer]
    make: Callable[..., Any] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the files that are written to a directory."""
        return [wildcards.partition("|")[0] for wildcards in self.layouts[0]]


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


FORMATS: Mapping[Format, FileFormat] = {
    "tokjax": FileFormat(((TOKENIZER_FILE,),), _sniff_tokjax, lambda path, _: read_tokjax(path)),
    "huggingface": FileFormat((("tokenizer.json",),), _sniff_huggingface, read_huggingface),
    "gpt2": FileFormat(
        ((VOCAB_JSON, "merges.txt"), ("encoder.json", "vocab.bpe")), _sniff_gpt2, read_gpt2, byte_level_bpe
    ),
    "sentencepiece": FileFormat(
        (
            ("tokenizer.model|spiece.model|sentencepiece.bpe.model|spm.model|tokenizer.model.v3",),
            ("*.model|*.model.v[0-9]*",),
        ),
        _sniff_sentencepiece,
        read_sentencepiece,
    ),
    "tiktoken": FileFormat(
        (("ranks.tiktoken|*.tiktoken|tekken.json|tekken_[0-9]*.json",),),
        _sniff_tiktoken,
        read_tiktoken,
        byte_level_bpe,
    ),
    "word_bpe": FileFormat(((VOCAB_TXT, "merges.txt"),), _sniff_word_bpe, read_word_bpe, word_bpe),
    "wordpiece": FileFormat(((VOCAB_TXT,),), _sniff_wordpiece, read_wordpiece, wordpiece),
}
"""Formats by name, in the order in which they are looked for in a directory."""


class DetectedTokenizer(NamedTuple):
    """Format and files of a detected tokenizer.

    Attributes:
        format: tokenizer format.
        files: files of the tokenizer, in the order of the parameters of their reader.
        reason: evidence for the format, as a phrase for error messages.
    """

    format: Format
    files: tuple[Path, ...]
    reason: str


def detect_tokenizer_files(
    path: str | os.PathLike[str] | Iterable[Any],
    format: Format | Literal["auto"] = "auto",  # noqa: A002 (the usual name)
) -> DetectedTokenizer:
    """Finds the files of a tokenizer and their format.

    A directory is searched in this order, and the first format found is returned:

    1. `tokenizer.tokjax.json`
    2. `tokenizer.json`
    3. `vocab.json` with `merges.txt`, like GPT-2's, or `encoder.json` with `vocab.bpe`
    4. a SentencePiece model with a usual name (`tokenizer.model`, `spiece.model`, `sentencepiece.bpe.model`,
       `spm.model`, `tokenizer.model.v3`) or as a single `*.model`, or a rank file with such a name
    5. a single `*.tiktoken`, or `tekken.json`, `tekken_240718.json` or other date
    6. `vocab.txt` with `merges.txt`: a classic BPE
    7. `vocab.txt` alone: WordPiece

    Args:
        path: path of a directory or a file, or a pair of file paths.
        format: the format, if it is known. A directory with a tokenizer of another one is an error.

    Raises:
        FileNotFoundError: the path does not exist.
        InvalidArgumentError: `path` is not a path or a pair of paths, or a tokenizer of another format.
        TokenizerFormatError: the path contains no tokenizer, or several tokenizers of one format.
    """
    if not isinstance(path, str) and not hasattr(path, "__fspath__"):
        if not is_iterable(path) or isinstance(path, bytes):
            raise InvalidArgumentError(
                f"path must be a path, a pair of paths, a name or a tokenizer, not {path!r:.80}"
                f"{protocol.suggest_tokenizer(path)}"
            )
        return _detect_pair(list(map(check_path, path)), format)
    target = check_path(path)
    if format != "auto" and len(FORMATS[format].names) == 1 and not target.is_dir():
        return DetectedTokenizer(format, (target,), "from the argument format=")
    detected = _detect_in_directory(target) if target.is_dir() else detect_tokenizer_format(target)
    if format not in ("auto", detected.format):
        raise InvalidArgumentError(
            f"{target} contains a tokenizer of the format {detected.format!r} ({detected.reason}), not "
            f"{format!r}; pass the path of the file to read, or format='auto'"
        )
    return detected


def _detect_in_directory(directory: Path) -> DetectedTokenizer:
    format_, names = select_names({entry.name for entry in directory.iterdir()}, str(directory))
    reason = f"{directory} has {' and '.join(names)}"
    if names[0].endswith(".json"):  # (parsing a large file takes time, and its reader does it again)
        return DetectedTokenizer(format_, tuple(directory / name for name in names), reason)
    detected = detect_tokenizer_format(directory / names[0])
    return detected._replace(reason=f"{reason}, and {detected.reason}")


def _detect_pair(files: Sequence[Path], format_: Format | Literal["auto"]) -> DetectedTokenizer:
    num_files = 2 if format_ == "auto" else len(FORMATS[format_].names)
    if len(files) != num_files:
        formats = "one file, or a pair of files" if format_ == "auto" else f"{num_files} in {format_!r}"
        raise InvalidArgumentError(
            f"a tokenizer has {formats}, not a list of {len(files)}: {', '.join(map(str, files))}"
        )
    if format_ != "auto":
        return DetectedTokenizer(format_, tuple(files), "from the argument format=")
    vocab, merges = sorted(files, key=lambda file: (file.suffix != ".json", file.name != VOCAB_TXT))
    is_text = vocab.name == VOCAB_TXT
    if not is_text and (vocab.suffix != ".json" or merges.suffix == ".json"):
        raise TokenizerFormatError(
            "a pair of files is a .json file that maps tokens to ids, and a list of merges; got "
            f"{vocab} and {merges}. For a vocabulary with one token per line, pass [VOCAB, MERGES] and "
            "format='word_bpe'"
        )
    return DetectedTokenizer(
        "word_bpe" if is_text else "gpt2", (vocab, merges), "they are a vocabulary and a list of merges"
    )


def detect_tokenizer_format(path: str | os.PathLike[str]) -> DetectedTokenizer:
    """Detects the tokenizer format of a file.

    Args:
        path: path of the file. For a format of two files, the path of either works, if the other file is in
            the same directory.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenizerFormatError: the file is not in a supported tokenizer format.
    """
    start = FileStart(check_path(path))
    reasons = {
        format_: reason for format_, row in FORMATS.items() if (reason := row.sniff(start)) is not None
    }
    for format_, reason in reasons.items():
        if len(FORMATS[format_].names) == 1:
            return DetectedTokenizer(format_, (start.path,), reason)
        for layout in FORMATS[format_].layouts:
            files = tuple(map(start.path.with_name, layout))
            if start.path in files and all(file.is_file() for file in files):
                others = ", and the other file is in the same directory"
                return DetectedTokenizer(format_, files, reason + others)
    raise TokenizerFormatError(f"{start.path}: {_explain_failure(start, [*reasons.values()])}")


def _explain_failure(start: FileStart, reasons: Sequence[str]) -> str:
    """Returns why a file is not a tokenizer, and what to do.

    Args:
        start: the file.
        reasons: why it may be one of two files.
    """
    if reasons:
        return (
            f"{reasons[0]}, which is one of the two files of a tokenizer; pass both, [VOCAB, MERGES], or one "
            "of them under its usual name with the other in the same directory"
        )
    if start.has_scores:
        return (
            "a list of the pieces and scores of a SentencePiece model, without its normalization; pass the "
            "path of the .model, which the trainer writes beside it; from KeemenaSubwords.jl, export the "
            "tokenizer with format=:hf_tokenizer_json and load that"
        )
    return (
        f"unknown tokenizer format; the file begins with {start.header[:30]!r}. If it is in one of the "
        f"formats {', '.join(FORMATS)}, pass format=; if it has ranks, pass them to tokjax.byte_level_bpe"
    )


def find_tokenizers(present: Collection[str]) -> list[tuple[Format, tuple[str, ...]]]:
    """Finds the files of a tokenizer by their names, in the order of `detect_tokenizer_files`.

    Args:
        present: names of the files in a directory.

    Returns:
        The names of the files of the first format, as one group; several groups of one file if the files of
        several tokenizers of one format are present; an empty list if there is no tokenizer.
    """
    for format_, row in FORMATS.items():
        for layout in row.layouts:
            columns = [[name for name in sorted(present) if _has_name(name, part)] for part in layout]
            if all(columns):
                return [(format_, names) for names in itertools.product(*columns)]
    return []


def _has_name(name: str, wildcards: str) -> bool:
    """Returns whether a file has one of the names of a layout. A name that begins with a dot has none."""
    return not name.startswith(".") and any(fnmatchcase(name, each) for each in wildcards.split("|"))


def select_names(present: Collection[str], directory: str) -> tuple[Format, tuple[str, ...]]:
    """Returns the names of the files of the only tokenizer of the first format.

    Args:
        present: names of all files in the directory.
        directory: path of the directory, for errors.

    Raises:
        TokenizerFormatError: there is no tokenizer, or more than one.
    """
    found = find_tokenizers(present)
    if not found:
        layouts = " or ".join(" with ".join(layout) for row in FORMATS.values() for layout in row.layouts)
        raise TokenizerFormatError(
            f"{directory}: contains no tokenizer in a supported format, only {sorted(present)[:20]}. Looked "
            f"for {layouts.replace('|', ' or ')}"
        )
    if len(found) > 1:
        names = [each[0] for _, each in found]
        raise TokenizerFormatError(
            f"{directory}: contains several tokenizers of one format, {', '.join(names)}; pass the path of "
            f"one of them: load_tokenizer({f'{directory}/{names[0]}'!r})"
        )
    return found[0]


def select_files(present: Collection[str], file: str | None, where: str) -> list[str]:
    """Selects the files that are needed to load a tokenizer, the tokenizer itself last.

    Args:
        present: names of all files in a directory.
        file: name of the file to load, or `None` for that of `detect_tokenizer_files`.
        where: path of the directory, for errors.

    Raises:
        TokenizerFormatError: `file` is `None`, and there is no tokenizer, or several of one format.
    """
    names = (file,) if file else select_names(present, where)[1]
    related = list_candidates(file) if file else _list_settings(names)
    return [*(name for name in related if name in present and name not in names), *names]


def list_candidates(name: str) -> list[str]:
    """Returns the names of the files that can be needed to load a file: itself, a pair's, and settings."""
    layouts = [layout for row in FORMATS.values() for layout in row.layouts if len(layout) > 1]
    pairs = [*dict.fromkeys(itertools.chain(*layouts))]
    related = pairs if name in pairs else [name]
    return [*_list_settings(related), *related]


def _list_settings(names: Sequence[str]) -> list[str]:
    # The configuration of the model can't matter for other files.
    has_class = len(names) > 1 or not names[0].endswith((".json", ".tiktoken"))
    return [*COMPANION_FILES, *[MODEL_CONFIG_FILE] * has_class]
