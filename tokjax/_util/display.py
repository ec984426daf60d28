"""Display of tokens, batches and progress in a terminal, and with colours in a notebook."""

from __future__ import annotations

import reprlib
import textwrap
from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import fields
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tokjax._util.checks import check_bool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_SHADES = ("#cfe8fc", "#d9f2d0", "#fdecc8", "#f5d5e0", "#e2d9f3")
_SPECIAL_SHADE = "#d0d0d0"
_MAX_TOKENS = 500
_MAX_CHARACTERS = 40
_MAX_ELEMENTS = 4
_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 2 * _MAX_CHARACTERS
_LINE_WIDTH = 88
_VISIBLE_WHITESPACE = {"\n": "\u21b5", "\t": "\u21e5", "\r": "\u240d", " ": "\u2423"}


def render_tokens_html(
    tokens: Sequence[str],
    ids: NDArray[Any],
    offsets: NDArray[Any] | None,
    special_tokens_mask: NDArray[Any] | None,
) -> str:
    """Returns HTML of one coloured box for each token, with id and span on hover.

    All text is escaped. At most the first 500 tokens are shown.

    Args:
        tokens: readable forms of the tokens.
        ids: token ids, shape `(n,)`.
        offsets: 1-based byte spans, shape `(n, 2)`, or `None`.
        special_tokens_mask: 1 on special tokens, shape `(n,)`, or `None`.
    """
    boxes = []
    for i, token in enumerate(tokens[:_MAX_TOKENS]):
        special = special_tokens_mask is not None and bool(special_tokens_mask[i])
        shade = _SPECIAL_SHADE if special else _SHADES[i % len(_SHADES)]
        title = f"id {int(ids[i])}"
        if offsets is not None:
            title += f", bytes [{int(offsets[i][0])}, {int(offsets[i][1])})"
        boxes.append(
            f'<span title="{title}" style="background:{shade};color:#000;padding:1px 2px;border-radius:3px;'
            f'white-space:pre-wrap">{escape(make_visible(token))}</span>'
        )
    more = f" and {len(tokens) - _MAX_TOKENS} more tokens" if len(tokens) > _MAX_TOKENS else ""
    return f'<div style="font-family:monospace;line-height:1.8">{"".join(boxes)}{more}</div>'


def make_visible(token: str) -> str:
    r"""Replaces whitespace by symbols and control characters by escapes. An empty token becomes `∅`.

    A text can therefore not send control sequences to a terminal.

    >>> make_visible("a\n"), make_visible("\x1b[2J")
    ('a↵', '\\x1b[2J')
    """
    return (
        "".join(_VISIBLE_WHITESPACE.get(c, c if c.isprintable() else _escape_character(c)) for c in token)
        or "\u2205"
    )


def describe_leaf(leaf: Any) -> str:
    """Describes a value: dtype and shape of arrays, length of large collections, the start of another `repr`.

    >>> import numpy as np
    >>> describe_leaf(np.zeros((2, 3), np.int32)), describe_leaf("right"), describe_leaf(tuple(range(99)))
    ('int32[2,3]', "'right'", 'tuple[99]')
    """
    if type(leaf) is dict and all(hasattr(value, "shape") for value in leaf.values()):
        return f"{{{', '.join(f'{name!r}: {describe_leaf(value)}' for name, value in leaf.items())}}}"
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        weak = "weak " if getattr(leaf, "weak_type", False) else ""
        return f"{weak}{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
    shown = _SHORT_REPR.repr(leaf)
    is_collection = isinstance(leaf, Collection) and not isinstance(leaf, (str, bytes))
    if is_collection and len(leaf) > _MAX_ELEMENTS:
        return f"{type(leaf).__name__}[{len(leaf)}]"
    return shown if len(shown) <= _MAX_CHARACTERS else shown[: _MAX_CHARACTERS - 3] + "..."


def describe_record(record: Any) -> str:
    """Returns a short `repr` of a `NamedTuple` or a dataclass: no array values, no fields that are `None`."""
    names = getattr(record, "_fields", None) or [each.name for each in fields(record) if each.repr]
    leaves = {name: getattr(record, name) for name in names}
    described = [f"{name}={describe_leaf(leaf)}" for name, leaf in leaves.items() if leaf is not None]
    text = f"{type(record).__name__}({', '.join(described)})"
    return textwrap.fill(
        text, _LINE_WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def render_html(value: Any) -> str | None:
    """Returns HTML of a batch, a dataset, a loader or a tokenizer for notebooks, as `show_batch` renders it.

    The classes assign this function to `_repr_html_`. The renderer is in a higher layer and found by name.

    Returns:
        The HTML, or `None` to display the `repr` instead.
    """
    shown: str | None = import_module("tokjax.reports.show_batch").render_html(value)
    return shown


_Class = TypeVar("_Class", bound=type)


def short_repr(record_type: _Class) -> _Class:
    """Decorates a `NamedTuple` or a dataclass of large values: its `repr` is that of `describe_record`."""
    record_type.__repr__ = describe_record  # type: ignore[assignment]
    return record_type


def display_batch(batch_type: _Class) -> _Class:
    """Decorates the `NamedTuple` or the dataclass of a batch: a short `repr`, and tokens in notebooks."""
    batch_type._repr_html_ = render_html  # type: ignore[attr-defined]
    return short_repr(batch_type)


def get_function_name(function: object) -> str:
    """Returns the name of a function, of the function in a partial, or of the type of another callable."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


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
    check_bool("progress", enabled)
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
