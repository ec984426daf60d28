"""Arrays as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def under(text: str, **rows: Iterable[Any]) -> str:
    """One sign of each row under each character of a text."""
    width = max(map(len, rows))
    signs = {"": text, **{name: "".join(map(str, row)) for name, row in rows.items()}}
    return "\n".join(f"{name:{width}}  {row}" for name, row in signs.items())


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows under headings; columns that hold numbers end where the longest does."""
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
