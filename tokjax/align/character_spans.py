"""Conversion of labelled spans between characters and bytes, for many texts at once."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.checks import check_choice, check_texts
from tokjax.align.spans import build_flat_spans
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters, to_characters, to_utf8
from tokjax.errors import InvalidArgumentError, OffsetsContractError
from tokjax.offsets import byte_to_char_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tokjax.align.spans import LabelledSpan
    from tokjax.core.utf8 import Text
    from tokjax.offsets import Spans

Unit: TypeAlias = Literal["codepoint", "utf16", "grapheme"]
"""The characters that positions count: those of Python, of JavaScript and Java, or those that readers see."""

UNITS: dict[Unit, str] = {
    "codepoint": "characters",
    "utf16": "UTF-16 code units",
    "grapheme": "graphemes",
}


def spans_from_characters(
    texts: Sequence[Text], spans: Sequence[Sequence[LabelledSpan]], *, unit: Unit = "codepoint"
) -> list[list[LabelledSpan]]:
    r"""Converts spans of 0-based characters (`text[start:stop]`) to spans of 1-based bytes.

    Args:
        texts: the texts that the spans refer to.
        spans: a list of spans `(start, stop, label)` for each text.
        unit: what the positions count: `"codepoint"` for the characters of Python; `"utf16"` for the code
            units of JavaScript and Java, as annotation tools in a browser do; or `"grapheme"` for
            user-perceived characters, `\X` of the package `regex`.

    Raises:
        OffsetsContractError: a span is outside its text, or starts or stops inside a surrogate pair of
            UTF-16. The message names the units in which the span is valid.
        InvalidArgumentError: a span is not such a triple, the unit is unknown, or the number of lists is not
            the number of texts.

    >>> spans_from_characters(["Zoë 🙃"], [[(0, 3, "PER"), (4, 5, "MISC")]])
    [[(1, 5, 'PER'), (6, 10, 'MISC')]]
    >>> spans_from_characters(["💩This"], [[(2, 6, "X")]], unit="utf16")
    [[(5, 9, 'X')]]
    """
    return _convert_spans(texts, spans, unit, unit_to_byte_spans, first=0)


def spans_to_characters(
    texts: Sequence[Text], spans: Sequence[Sequence[LabelledSpan]], *, unit: Unit = "codepoint"
) -> list[list[LabelledSpan]]:
    """Converts spans of 1-based bytes to spans of 0-based characters, for `text[start:stop]`.

    A span that starts or stops inside a character is rounded outward.

    Args:
        texts: the texts that the spans refer to.
        spans: a list of spans `(start, stop, label)` for each text.
        unit: what the positions of the result count, as in `spans_from_characters`.

    Raises:
        OffsetsContractError: a span is outside its text.
        InvalidArgumentError: a span is not such a triple, the unit is unknown, or the number of lists is not
            the number of texts.

    >>> spans_to_characters(["Zoë 🙃"], [[(1, 5, "PER"), (6, 10, "MISC")]])
    [[(0, 3, 'PER'), (4, 5, 'MISC')]]
    """
    return _convert_spans(texts, spans, unit, _byte_to_unit_spans, first=1)


def unit_to_byte_spans(text: Text, spans: Spans, unit: Unit = "codepoint") -> NDArray[np.int64]:
    """Converts spans as `char_to_byte_spans` does, from positions in any unit.

    Raises:
        OffsetsContractError: a span is outside the text, or starts or stops inside a surrogate pair.
    """
    bounds = np.asarray(spans, np.int64).reshape(-1, 2)
    table = _find_unit_bounds(text, unit)
    is_sentinel = (bounds == -1).all(axis=1)
    is_inside = is_sentinel | _is_in_text(bounds, 0, table.units[-1])
    index = np.searchsorted(table.units, bounds)
    is_valid = is_inside & (is_sentinel | (table.units.take(index, mode="clip") == bounds).all(axis=1))
    if not is_valid.all():
        span = int(np.argmin(is_valid))
        rule = "starts or stops inside a surrogate pair"
        if not is_inside[span]:
            rule = f"must keep 0 <= start <= stop <= {table.units[-1]} {UNITS[unit]}"
        others = [f"unit={other!r}" for other in UNITS if other != unit and _is_valid(text, bounds, other)]
        advice = f"; the spans of this text are valid with {' and '.join(others)}" if others else ""
        raise OffsetsContractError(f"span {span} is {tuple(bounds[span].tolist())}; it {rule}{advice}")
    converted: NDArray[np.int64] = table.positions.take(index, mode="clip") + 1
    converted[is_sentinel] = 0
    return converted


def _byte_to_unit_spans(text: Text, spans: Spans, unit: Unit) -> NDArray[np.int64]:
    """Converts 1-based byte spans to 0-based spans in a unit of characters, rounded outward."""
    characters = byte_to_char_spans(text, spans)
    if unit == "codepoint":
        return characters
    table, bounds = _find_unit_bounds(text, unit), np.asarray(spans, np.int64).reshape(-1, 2) - 1
    first = np.searchsorted(table.positions, bounds[:, 0], "right") - 1
    last = np.where(bounds[:, 0] == bounds[:, 1], first, np.searchsorted(table.positions, bounds[:, 1]))
    converted: NDArray[np.int64] = table.units[np.stack([first, last], axis=1)]
    converted[(bounds < 0).all(axis=1)] = -1
    return converted


class _UnitBounds(NamedTuple):
    """The positions between the characters of a text, in a unit and in bytes. The unit here is UTF-16.

        text           💩 T  h  i  s
        units          0  2  3  4  5  6
        bytes          0  4  5  6  7  8

    Attributes:
        units: number of units before each position, increasing, `int64`, shape `(n,)`.
        positions: number of bytes before each position, `int64`, shape `(n,)`.
    """

    units: NDArray[np.int64]
    positions: NDArray[np.int64]


def _find_unit_bounds(text: Text, unit: Unit) -> _UnitBounds:
    """Finds the positions at which a span can start or stop."""
    if unit == "grapheme":
        import regex  # noqa: PLC0415 (slow to import)

        graphemes = regex.findall(r"\X", to_characters(text))
        positions = make_row_splits([len(from_characters(grapheme)) for grapheme in graphemes])
    elif unit == "utf16":
        positions = find_character_starts(to_utf8(text))  # in which surrogate pairs are one character
        return _UnitBounds(make_row_splits(1 + (np.diff(positions) == 4)), positions)
    else:
        positions = find_character_starts(text)
    return _UnitBounds(np.arange(len(positions)), positions)


def _is_valid(text: Text, spans: NDArray[np.int64], unit: Unit) -> bool:
    """Returns whether all spans of a text can be in a unit."""
    units = _find_unit_bounds(text, unit).units
    return bool(_is_in_text(spans, 0, units[-1]).all() and np.isin(spans, units).all())


def _is_in_text(
    bounds: NDArray[np.int64], minimum: int, maximum: NDArray[np.int64] | int
) -> NDArray[np.bool_]:
    """Returns whether each span satisfies `minimum <= start <= stop <= maximum`."""
    starts, stops = bounds[:, 0], bounds[:, 1]
    return (starts >= minimum) & (starts <= stops) & (stops <= maximum)


def _convert_spans(
    texts: Sequence[Text],
    spans: Sequence[Sequence[LabelledSpan]],
    unit: Unit,
    convert: Callable[[Text, Any, Unit], NDArray[np.int64]],
    *,
    first: int,
) -> list[list[LabelledSpan]]:
    """Converts the spans of ASCII texts together, by a shift, and those of others one text at a time.

    Args:
        texts: the texts.
        spans: a list of spans `(start, stop, label)` for each text.
        unit: the unit of the characters.
        convert: conversion of the spans of one text, which also raises for invalid spans.
        first: first position of a text in `spans`, 0 for characters and 1 for bytes.
    """
    check_choice("unit", unit, UNITS)
    check_texts(texts)
    if not isinstance(spans, Collection):
        raise InvalidArgumentError(f"spans must be a list with the spans of each text, not {spans!r:.100}")
    if len(spans) != len(texts):
        raise InvalidArgumentError(
            f"spans has {len(spans)} rows, and there are {len(texts)} texts; pass one row for each text"
        )
    starts, stops, labels, row_splits = build_flat_spans(spans)
    rows = np.repeat(np.arange(len(texts)), np.diff(row_splits))
    inputs = np.stack([starts, stops], axis=1)
    # (a line break of two characters is one grapheme, also in ASCII)
    is_ascii = np.array([unit != "grapheme" and text.isascii() for text in texts], bool)
    ends = np.array([len(text) + first for text in texts], np.int64)
    is_converted = is_ascii[rows] & _is_in_text(inputs, first, ends[rows])
    bounds = inputs + 1 - 2 * first
    for row in np.unique(rows[~is_converted]).tolist():
        part = slice(*row_splits[row : row + 2])
        try:
            bounds[part] = convert(texts[row], inputs[part], unit)
        except OffsetsContractError as error:
            raise OffsetsContractError(f"text {row}: {error}") from error
    converted = [*zip(*bounds.T.tolist(), labels, strict=True)]
    return [converted[start:stop] for start, stop in pairwise(row_splits.tolist())]
