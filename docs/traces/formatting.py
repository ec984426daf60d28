"""Arrays formatted as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def format_rows_below(text: str, **rows: Iterable[Any]) -> str:
    """Formats rows that have one sign for each character of a text, below the text."""
    width = max(map(len, rows))
    signs = {"": text, **{name: "".join(map(str, row)) for name, row in rows.items()}}
    return "\n".join(f"{name:{width}}  {row}" for name, row in signs.items())


def format_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Formats rows below headings. Columns with numbers are aligned to the right."""
    lines = [list(map(str, row)) for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    has_numbers = [
        any(type(cell) is int for cell in column) for column in zip(*rows, strict=True)
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, has_numbers, strict=True)
        ).rstrip()
        for line in lines
    )
