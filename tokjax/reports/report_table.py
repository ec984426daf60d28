"""Tables of reports: rows of plain values, which `rich` prints, or as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.display import make_visible

if TYPE_CHECKING:
    from rich.table import Table


class Share(float):
    """A share from 0 to 1, which is printed in percent."""


class ReportTable(NamedTuple):
    """Rows of a report. Print tables with `rich.print(*tables)`.

    Attributes:
        title: title of the table.
        columns: names of the columns.
        rows: values of each row, `str`, `int`, `float` or `Share`.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the values of each row by column, as plain JSON values; `nan` becomes `None`."""
        return [
            {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]

    def __rich__(self) -> Table:
        """Returns the table for a terminal."""
        from rich.table import Table  # noqa: PLC0415 (slow to import)
        from rich.text import Text  # noqa: PLC0415

        title = Text(_format_value(self.title))
        # Otherwise rich wraps a title that is wider than the columns.
        table = Table(title=title, title_justify="left", min_width=title.cell_len, box=None, pad_edge=False)
        table.show_header = any(self.columns)
        for i, name in enumerate(self.columns):
            is_text = all(isinstance(row[i], str) for row in self.rows)
            heading = Text(_format_value(name), "bold")
            table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(_format_value(value)) for value in row))
        return table


def _format_value(value: Any) -> str:
    """Returns a value as text: a count, a share in percent or a ratio; `nan` becomes a dash."""
    if isinstance(value, str):  # (no text can send control sequences to a terminal)
        return value if value.isprintable() else make_visible(value)
    if math.isnan(value):
        return "–"
    return format(value, ".2%" if isinstance(value, Share) else "," if isinstance(value, int) else ".3f")
