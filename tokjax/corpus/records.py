"""Records: their fields and texts, and the rows of files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tokjax._util.urls import get_path_or_url
from tokjax.core.utf8 import count_bytes
from tokjax.errors import Hint, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokjax.core.utf8 import Text

Choose: TypeAlias = "Callable[[list[str]], list[str]]"
"""Function of the names of all columns of a table that returns those to read."""
Records: TypeAlias = "Iterator[tuple[str, dict[str, Any] | SourceError]]"
"""Pairs `(location, record)`, or `(location, error)` for bad records; the location names it in errors."""
SizedRecords: TypeAlias = "Iterator[tuple[str, dict[str, Any] | SourceError, int, int]]"
"""The same with the approximate size of each record in memory, and the bytes of the file that were read."""
_MAX_ITEMS = 1 << 14
"""Number of texts or records that make a chunk: a record takes some hundred bytes more than its values."""
NAME_THE_FIELD = Hint("pass text_files(PATH, field=NAME)", "pass --text-column NAME")


def drop_bad_records(
    items: Iterable[Text | SourceError | None], bad: list[SourceError] | None
) -> list[tuple[Text, bool]]:
    """Returns `(text, True)` for each text: every text starts a document. Null is skipped.

    Args:
        items: texts, and the errors of bad records, which readers return in place of texts.
        bad: the list to which the errors are appended; `None` to raise the first one.

    Raises:
        SourceError: a record is bad, and `bad` is `None`.
    """
    texts: list[tuple[Text, bool]] = []
    for item in items:
        if isinstance(item, SourceError):
            if bad is None:
                raise item
            bad.append(item)
        elif item is not None:
            texts.append((item, True))
    return texts


def find_field(record: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], str]:
    """Returns the mapping that has a field, and the key of the field in this mapping.

    If there is no such field, the mapping does not have the key. A field of null is null, as in tables.

    >>> find_field({"meta": {"text": "a"}}, "meta.text")
    ({'text': 'a'}, 'text')
    >>> find_field({"meta": None}, "meta.text")
    ({'text': None}, 'text')
    """
    while name not in record:
        first, _, rest = name.partition(".")
        inner = record.get(first)
        if rest and inner is None and first in record:
            return {rest: None}, rest
        if not rest or not isinstance(inner, Mapping):
            break
        record, name = inner, rest
    return record, name


def parse_json_record(line: bytes, location: str, hint: Hint) -> dict[str, Any] | SourceError:
    """Parses a JSON object. Returns an error if the text is not JSON, or not an object.

    Args:
        line: the JSON text.
        location: the location of the record, for errors.
        hint: the advice if the text is not JSON.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return SourceError(f"{location}: not JSON: {error}", hint=hint)
    if not isinstance(record, dict):
        return SourceError(
            f"{location}: a JSON object is expected, not a {type(record).__name__}; write one object per line"
        )
    return record


def find_text(
    record: Mapping[str, Any] | SourceError,
    field: str,
    location: str,
    types: tuple[type, ...] = (str,),
    hint: Hint = NAME_THE_FIELD,
) -> Any:
    """Returns the text of a record, or `None` if it is null; for a bad record an error.

    A record is bad if it is an error itself, has no such field, or if its value is not a text.

    Args:
        record: the record.
        field: the name of the text field.
        location: the location of the record, for errors.
        types: the types of texts.
        hint: the advice if there is no such field.
    """
    if isinstance(record, SourceError):
        return record
    holder, key = find_field(record, field)
    if key not in holder:
        return SourceError(
            f"{location}: the record has no field {field!r}, it has {list(record)[:20]}", hint=hint
        )
    text = holder[key]
    if text is not None and not isinstance(text, types):
        return SourceError(f"{location}: the field {field!r} is a {type(text).__name__}, not a string")
    return text


def gather(
    parts: Iterable[tuple[Iterable[Any], int, int]], target_nbytes: int
) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Gathers texts or records.

    Args:
        parts: `(items, nbytes, read_nbytes)`: some items, their approximate size, and the bytes of the file
            that were read for them.
        target_nbytes: the minimum size in bytes of what is gathered, except at the end, or if there are very
            many items.

    Yields:
        The same for several parts.
    """
    gathered: list[Any] = []
    nbytes = read_nbytes = 0
    for items, new_nbytes, new_read_nbytes in parts:
        gathered += items
        nbytes += new_nbytes
        read_nbytes += new_read_nbytes
        if nbytes >= target_nbytes or len(gathered) >= _MAX_ITEMS:
            yield tuple(gathered), nbytes, read_nbytes
            gathered, nbytes, read_nbytes = [], 0, 0
    if gathered:
        yield tuple(gathered), nbytes, read_nbytes


@dataclass(frozen=True, slots=True)
class MemoryChunk:
    """Texts or records in memory.

    Attributes:
        items: complete documents, or pairs `(location, record)`; also the errors of bad records.
        nbytes: the approximate size of the items in bytes.
        read_nbytes: the number of bytes of the source that were read for this chunk, for a progress bar.
        location: the file and the position of the items, for error messages.
    """

    items: tuple[Any, ...]
    nbytes: int
    read_nbytes: int
    location: str = "texts in memory"

    def read(self, bad: list[SourceError] | None = None) -> list[tuple[Text, bool]]:
        """Returns `(text, True)` for each text, as `RowChunk.read`."""
        return drop_bad_records(self.items, bad)

    def read_records(self, _: object = None) -> Iterable[tuple[str, dict[str, Any] | SourceError]]:
        """Returns the records."""
        return self.items

    def load(self, _: object) -> MemoryChunk:
        """Returns the chunk."""
        return self


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Rows of a file, which are read when they are needed.

    Attributes:
        path: the path of the file.
        field: the name of the text field or column.
        start: the first part of the file: a row group of Parquet, a record of ArrayRecord.
        stop: the part after the last one.
        first_row: the number of the first row in the file.
        nbytes: the approximate size of the rows in bytes, before compression; `WHOLE_FILE` if only one
            process can read them, in parts.
        read_nbytes: the approximate number of bytes of the file that are read for this chunk, for a progress
            bar.
    """

    WHOLE_FILE: ClassVar[int] = 1 << 62
    missing_field_hint: ClassVar[Hint] = NAME_THE_FIELD
    path: Path
    field: str
    start: int
    stop: int
    first_row: int
    nbytes: int
    read_nbytes: int

    @property
    def location(self) -> str:
        """The file and the position of the rows, for error messages."""
        return f"{get_path_or_url(self.path)}, rows from {self.first_row}"

    def read(self, bad: list[SourceError] | None = None) -> list[tuple[Text, bool]]:
        """Returns `(text, True)` for each text: every text starts a document.

        Args:
            bad: the list to which the errors of bad records are appended; `None` to raise the first one.
        """
        return drop_bad_records(chain.from_iterable(texts for texts, _ in self.iter_texts()), bad)

    def iter_texts(self) -> Iterator[tuple[list[Text | SourceError], int]]:
        """Yields `(texts, read_nbytes)` for some rows at a time; errors instead of texts for bad records.

        Rows whose text is null are skipped.
        """
        for location, record, _, read_nbytes in self.iter_sized_records(list):
            text = find_text(record, self.field, location, (str, bytes), self.missing_field_hint)
            yield [] if text is None else [text], read_nbytes

    def read_records(self, choose: Choose) -> Records:
        """Yields the records of the rows."""
        for location, record, _, _ in self.iter_sized_records(choose):
            yield location, record

    def load(self, choose: Choose | None) -> MemoryChunk:
        """Returns a chunk with the records, or the texts, for a process that can't read the file."""
        items = chain.from_iterable(items for items, _, _ in self._iter_sized_items(choose))
        return MemoryChunk(tuple(items), self.nbytes, self.read_nbytes, self.location)

    def iter_parts(self, choose: Choose | None, target_nbytes: int) -> Iterator[MemoryChunk]:
        """Yields chunks of about `target_nbytes` bytes: of records with `choose`, and of texts without."""
        name, first = get_path_or_url(self.path), 0
        for items, nbytes, read_nbytes in gather(self._iter_sized_items(choose), target_nbytes):
            yield MemoryChunk(items, nbytes, read_nbytes, f"{name}, texts from {first}")
            first += len(items)

    def _iter_sized_items(self, choose: Choose | None) -> Iterator[tuple[list[Any], int, int]]:
        if choose is not None:
            for location, record, nbytes, read_nbytes in self.iter_sized_records(choose):
                yield [(location, record)], nbytes, read_nbytes
            return
        for texts, read_nbytes in self.iter_texts():
            nbytes = sum(count_bytes(text) for text in texts if not isinstance(text, SourceError))
            yield texts, nbytes, read_nbytes

    def iter_sized_records(self, choose: Choose) -> SizedRecords:
        """Yields the records of the rows, with their sizes."""
        raise NotImplementedError  # (only texts are read from CSV)
