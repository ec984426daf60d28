"""Corpora: files or texts, read lazily as documents or as chunks of bounded size."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tokjax.errors import InvalidArgumentError
from tokjax.text.files import SourceFile, TextFiles, as_they_are, is_file, text_files
from tokjax.text.readers import Chunk, TextChunk, file_chunks
from tokjax.utf8 import Text, from_characters, nbytes_of, to_characters

if TYPE_CHECKING:
    from tokjax._urls import FetchedFiles

Source: TypeAlias = str | os.PathLike[str] | TextFiles | Iterable[os.PathLike[str]] | Iterable[Text]
"""A path or a pattern of paths, several (`os.PathLike`), `text_files(...)`, or an iterable of texts."""

_READ_SIZE = 1 << 22
_LOOKED_AT = 100
_OBJECT_BYTES = 64
"""About what a text takes in memory besides its bytes."""


def files_of(source: Source) -> TextFiles | None:
    """The files that a source names, or `None` where it is an iterable of texts.

    A `str` or a path is one file or a pattern; in a list, paths are `os.PathLike` and strings are texts.

    Raises:
        InvalidArgumentError: a path that is no file; paths and texts in one list; a list of strings
            of which one is the name of a file, which is ambiguous.
    """
    if isinstance(source, TextFiles):
        return source
    if isinstance(source, (bytes, Mapping)) or not isinstance(source, (str, os.PathLike, Iterable)):
        raise InvalidArgumentError(
            f"source must be a path, paths, or an iterable of texts, not {type(source).__name__}; "
            "for one text in memory pass [text]"
        )
    if isinstance(source, (str, os.PathLike)):
        return text_files(source)
    if not isinstance(source, (list, tuple)) or not source:
        return None
    are_paths = [isinstance(item, os.PathLike) for item in source]
    if all(are_paths):
        return text_files(source)
    if any(are_paths):
        raise InvalidArgumentError("source mixes paths and texts; pass the one or the other")
    for item in source[:_LOOKED_AT]:
        if isinstance(item, str) and is_file(item):
            raise InvalidArgumentError(
                f"source is a list of strings, and {item!r} is the name of a file: for files pass "
                "text_files([...]), for the names as texts pass iter([...])"
            )
    return None


class Corpus(NamedTuple):
    """What to read, in chunks.

    Attributes:
        chunks: some text each.
        nbytes: how far they go, as of `read_nbytes`, or `None` where that is not known.
        files: the files, as they are now; empty for an iterable of texts.
        fetched: what was fetched from URLs, which stays as long as this refers to it.
    """

    chunks: Iterable[Chunk]
    nbytes: int | None
    files: tuple[SourceFile, ...]
    fetched: tuple[FetchedFiles, ...] = ()


def corpus_of(source: Source, separators: Sequence[str], longest: int, *, safe_cuts: bool) -> Corpus:
    """A source in chunks of about `longest` bytes; the arguments are those of `file_chunks`."""
    files = files_of(source)
    if files is None:
        return Corpus(text_chunks(source, longest), None, ())  # type: ignore[arg-type]
    as_read = as_they_are(files)
    chunks = file_chunks(files, separators, longest, safe_cuts=safe_cuts)
    return Corpus(chunks, sum(file.nbytes for file in as_read), as_read, files.fetched)


def text_chunks(texts: Iterable[Text], longest: int) -> Iterator[TextChunk]:
    """Gather texts that are not empty into chunks of about `longest` bytes in memory."""
    gathered: list[Text] = []
    nbytes = 0
    for i, text in enumerate(texts):
        size = nbytes_of(checked_text(text, f"text {i} of the source"))
        if not size:
            continue
        nbytes += size
        gathered.append(text)
        if nbytes + _OBJECT_BYTES * len(gathered) >= longest:
            yield TextChunk(tuple(gathered), nbytes, nbytes)
            gathered, nbytes = [], 0
    if gathered:
        yield TextChunk(tuple(gathered), nbytes, nbytes)


def read_documents(source: Source, separator: str | None) -> Iterator[Text]:
    """The documents of a source, one by one, empty ones left out.

    Args:
        source: a path, a list of paths, `text_files(...)`, or an iterable of texts. Files are read some
            megabytes at a time; the documents of plain text are `bytes`.
        separator: what stands between documents; `None` if a file, a record or a text is one document.
    """
    files = files_of(source)
    if files is None:
        for i, text in enumerate(source):  # type: ignore[arg-type]
            yield from _documents_in(checked_text(text, f"text {i} of the source"), separator)
        return
    for documents, _ in documents_by_chunk(files, separator):
        yield from documents


def documents_by_chunk(files: TextFiles, separator: str | None) -> Iterator[tuple[Iterable[Text], int]]:
    """The documents of each chunk of files, with how far it goes in them, as of `read_nbytes`."""
    separators = [] if separator is None else [separator]
    for chunk in file_chunks(files, separators, _READ_SIZE, safe_cuts=False):
        parts = (_documents_in(text, separator) for text, _ in chunk.read())
        yield itertools.chain.from_iterable(parts), chunk.read_nbytes


def _documents_in(text: Text, separator: str | None) -> Iterable[Text]:
    if separator is None:
        return [text] if text else []
    if isinstance(text, bytes):
        return filter(None, text.split(separator.encode("utf-8")))
    return filter(None, text.split(separator))


class SpooledTexts:
    """An iterable of texts that can be read again and again: it keeps them in a temporary file.

    Use it as a context manager; the file goes with it.
    """

    def __init__(self, texts: Iterable[Text]) -> None:
        self._file = tempfile.TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 (closed by __exit__)
        try:
            for i, text in enumerate(texts):
                characters = to_characters(checked_text(text, f"text {i} of the source"))
                self._file.write(json.dumps(characters) + "\n")
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> SpooledTexts:
        """The texts themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the temporary file."""
        self._file.close()

    def __iter__(self) -> Iterator[Text]:
        """The texts from the first, as `bytes`."""
        self._file.seek(0)
        for line in self._file:
            yield from_characters(json.loads(line))


def readable_again(source: Source) -> AbstractContextManager[Source]:
    """A source that can be read several times: an iterator's texts are kept in a temporary file."""
    if files_of(source) is None and iter(source) is iter(source):  # type: ignore[arg-type]
        return SpooledTexts(source)  # type: ignore[arg-type]
    return nullcontext(source)


def checked_text(text: object, what: str) -> Text:
    """`text` itself, or an error that names `what` if it is neither `str` nor `bytes`."""
    if isinstance(text, (str, bytes)):
        return text
    if isinstance(text, os.PathLike):
        raise InvalidArgumentError(f"{what} is a path; several paths are passed as a list: list(paths)")
    raise InvalidArgumentError(f"{what} must be str or bytes, not {type(text).__name__}")


def checked_texts(texts: Any) -> None:
    """An error if `texts` is no sequence of `str` and `bytes`."""
    if isinstance(texts, (str, bytes, bytearray, memoryview)):
        raise InvalidArgumentError("texts is one text; pass [text], or use encode or encode_result for it")
    if isinstance(texts, (Set, Mapping)) or not (hasattr(texts, "__len__") and hasattr(texts, "__getitem__")):
        raise InvalidArgumentError(
            f"texts must be a sequence, in which every text has its place, not a {type(texts).__name__}; "
            "pass list(texts)"
        )
    if not {str, bytes}.issuperset(map(type, texts)):
        for i, text in enumerate(texts):
            checked_text(text, f"text {i}")
