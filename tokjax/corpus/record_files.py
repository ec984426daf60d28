"""Files of records with random access: ArrayRecord, MDS shards of MosaicML Streaming, chunks of litdata.

A chunk is a range of records, which workers read themselves:

    records     0 to 999                         1000 to 1999
    chunk       RecordFileChunk(start=0,         RecordFileChunk(start=1000,
                                stop=1000)                       stop=2000)

Records are split evenly. A compressed shard is one chunk, because it has no random access.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from tokjax._util.urls import get_path_or_url
from tokjax.corpus import array_record, litdata, mds
from tokjax.corpus.record_fields import NAME_THE_FIELD, drop_bad_records, find_text
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokjax.core.utf8 import Text

RECORD_FORMATS = {"array_record": array_record, "mds": mds, "litdata": litdata}
"""The module that reads each format."""


@dataclass(frozen=True, slots=True)
class RecordFileChunk:
    """The records `[start, stop)` of a file. They are read when they are needed.

    Attributes:
        path: the path of the file.
        kind: the format, a key of `RECORD_FORMATS`.
        field: the name of the text field.
        start: the number of the first record.
        stop: the number after that of the last record.
        nbytes: the approximate size of the records in bytes.
        read_nbytes: the approximate number of bytes of the file that are read for this chunk.
    """

    path: Path
    kind: str
    field: str
    start: int
    stop: int
    nbytes: int
    read_nbytes: int

    @property
    def first_row(self) -> int:
        """The number of the first record in the file."""
        return self.start

    def read(self, bad: list[SourceError] | None = None) -> list[tuple[Text, bool]]:
        """Returns `(text, True)` for each text: every text starts a document.

        Args:
            bad: the list to which the errors of bad records are appended; `None` to raise the first one.
        """
        texts = chain.from_iterable(texts for texts, _ in self.iter_texts())
        return [(text, True) for text in drop_bad_records(texts, bad)]

    def iter_texts(self) -> Iterator[tuple[list[Text | SourceError], int]]:
        """Yields `(texts, read_nbytes)` for each record; errors instead of texts for bad records.

        Records whose text is null are skipped.
        """

        def choose(names: list[str]) -> list[str]:
            chosen = [name for name in names if self.field == name or self.field.startswith(f"{name}.")]
            if not chosen:
                raise SourceError(
                    f"{get_path_or_url(self.path)}: there is no column {self.field!r}, of {names[:20]}",
                    hint=NAME_THE_FIELD,
                )
            return chosen

        for location, record, _, read_nbytes in self.iter_sized_records(choose):
            text = find_text(record, self.field, location, (str, bytes))
            yield [] if text is None else [text], read_nbytes

    def read_records(
        self, choose: Callable[[list[str]], list[str]]
    ) -> Iterator[tuple[str, dict[str, Any] | SourceError]]:
        """Yields `(location, record)` for each record, or `(location, error)` for a bad one.

        Args:
            choose: function of the names of all columns that returns those to read, for formats that have
                columns.
        """
        for location, record, _, _ in self.iter_sized_records(choose):
            yield location, record

    def iter_sized_records(
        self, choose: Callable[[list[str]], list[str]]
    ) -> Iterator[tuple[str, dict[str, Any] | SourceError, int, int]]:
        """Yields `(location, record, nbytes, read_nbytes)` for each record; the sizes are mean values."""
        records = RECORD_FORMATS[self.kind].iter_records(self.path, self.start, self.stop, choose)
        count = self.stop - self.start
        reported = 0
        for i, (location, record) in enumerate(records, 1):
            position = self.read_nbytes * i // count
            yield location, record, self.nbytes // count, position - reported
            reported = position


def plan_record_chunks(path: Path, kind: str, field: str, target_nbytes: int) -> Iterator[RecordFileChunk]:
    """Yields the chunks of a file, of about `target_nbytes` bytes. A compressed file is one chunk.

    Args:
        path: the path of the file.
        kind: the format, a key of `RECORD_FORMATS`.
        field: the name of the text field.
        target_nbytes: the target size of a chunk in bytes.

    Raises:
        SourceError: the file is damaged.
    """
    count, nbytes, has_random_access = RECORD_FORMATS[kind].measure(path)
    file_nbytes = path.stat().st_size
    step = max(target_nbytes * count // max(nbytes, 1) if has_random_access else count, 1)
    for start in range(0, count, step):
        stop = min(start + step, count)
        sizes = (size * stop // count - size * start // count for size in (nbytes, file_nbytes))
        yield RecordFileChunk(path, kind, field, start, stop, *sizes)
