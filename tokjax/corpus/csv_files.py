"""Texts of one column of CSV and TSV files."""

from __future__ import annotations

import csv
import io
import itertools
from typing import TYPE_CHECKING, BinaryIO

from tokjax._util.locks import ThreadLock
from tokjax.core.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax.core.utf8 import Text

_ROWS_AT_ONCE = 64
_LONGEST_FIELD = 1 << 28
_limit_lock = ThreadLock()


def read_csv_column(stream: BinaryIO, column: str, delimiter: str, name: str) -> Iterator[list[Text]]:
    r"""Reads the texts of a column, those of some rows at a time; blank lines are skipped.

    Args:
        stream: the file, decompressed, with a header row. Fields may be quoted, as Excel quotes them.
        column: the name of the column in the header.
        delimiter: what separates fields.
        name: what errors call the file.

    Raises:
        SourceError: there is no such column, or several; a row has more or fewer fields than the header; a
            quote is not closed; a byte is not UTF-8.

    >>> list(read_csv_column(io.BytesIO(b'id,text\n1,"one, two"\n2,three\n'), "text", ",", "a.csv"))
    [['one, two', 'three']]
    """
    lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = next(iter(_next_rows(reader, 1)), list[str]())
        if header.count(column) != 1:
            many = "there are several columns" if column in header else "there is no column"
            raise SourceError(
                f"{name}: {many} {column!r}, of {header[:20]}; pass text_files(PATH, field=NAME)"
            )
        index, width = header.index(column), len(header)
        done = 0
        while rows := _next_rows(reader, _ROWS_AT_ONCE):
            for i, row in enumerate(rows, done + 1):
                if len(row) not in (0, width):
                    raise SourceError(
                        f"{name}: row {i} has {len(row)} fields, the header has {width}: {row!r:.200}"
                    )
            yield [row[index] for row in rows if row]
            done += len(rows)
    except csv.Error as error:
        raise SourceError(
            f"{name}, line {reader.line_num}: {error}; is a quote not closed, or is the file no CSV?"
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{name}, after line {reader.line_num}: not valid UTF-8: {error}") from error
    finally:
        lines.detach()  # (it would close the stream)


def _next_rows(reader: Iterator[list[str]], count: int) -> list[list[str]]:
    """Reads rows whose fields may be longer than the limit of the csv module, which all threads share."""
    with _limit_lock.current:
        limit = csv.field_size_limit(_LONGEST_FIELD)
        try:
            return list(itertools.islice(reader, count))
        finally:
            csv.field_size_limit(limit)
