"""Progress bars on standard error, by rich; silent where the caller wants silence."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class AdvanceProgress(Protocol):
    """Reports that work was done."""

    def __call__(self, amount: int, note: str = "") -> None:
        """Add `amount` to what is done, and show `note` beside the bar."""


@contextmanager
def show_progress_bar(
    description: str, total: int | None, *, unit: str, enabled: bool
) -> Iterator[AdvanceProgress]:
    """A bar for one phase of work; yields the function that advances it.

    Args:
        description: what the phase does, in a word or two.
        total: how much there is to do, or `None` where that is not known.
        unit: `"bytes"` shows sizes, anything else plain counts with that name.
        enabled: `False` gives a function that does nothing.
    """
    if not enabled:
        yield lambda amount, note="": None  # noqa: ARG005
        return
    from rich import progress as rich_progress  # noqa: PLC0415 (slow to import, often not wanted)
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


@contextmanager
def show_spinner(description: str, *, enabled: bool) -> Iterator[None]:
    """A sign that work goes on whose extent is not known, and for how long it has.

    Args:
        description: what the work is, in a word or two.
        enabled: `False` shows nothing.
    """
    if not enabled:
        yield
        return
    from rich import progress as rich_progress  # noqa: PLC0415 (slow to import, often not wanted)
    from rich.console import Console  # noqa: PLC0415

    with rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.SpinnerColumn(finished_text=""),
        rich_progress.TimeElapsedColumn(),
        console=Console(stderr=True),
    ) as shown:
        task = shown.add_task(description, total=None)
        yield
        shown.update(task, total=1, completed=1)
