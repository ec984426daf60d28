"""Progress bars on standard error, drawn by rich."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class AdvanceProgress(Protocol):
    """Function that advances a progress bar."""

    def __call__(self, amount: int, note: str = "") -> None:
        """Adds `amount` to the completed work, and shows `note` beside the bar."""


@contextmanager
def show_progress_bar(
    description: str, total: int | None, *, unit: str, enabled: bool
) -> Iterator[AdvanceProgress]:
    """Shows a progress bar for one phase of work, and yields the function that advances it.

    Args:
        description: name of the phase, one or two words.
        total: total amount of work, or `None` if it is unknown.
        unit: name of the unit. `"bytes"` shows sizes such as `1.5/2.0 MB`; other names follow a plain count.
        enabled: if `False`, no bar is shown, and the function does nothing.
    """
    if not enabled:
        yield lambda amount, note="": None  # noqa: ARG005
        return
    from rich import progress as rich_progress  # noqa: PLC0415 (slow to import, and rarely needed)
    from rich.console import Console  # noqa: PLC0415

    amount_column: rich_progress.ProgressColumn = (
        rich_progress.DownloadColumn()
        if unit == "bytes"
        else rich_progress.TextColumn(f"{{task.completed:,.0f}} {unit}")
    )
    with rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        amount_column,
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(amount: int, note: str = "") -> None:
            bar.update(task, advance=amount, note=note)

        yield advance
