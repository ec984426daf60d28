"""Labelled spans of texts: conversion from lists to arrays, and checks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.arrays import Array, as_integers
from tokjax._util.checks import check_iterable, is_iterable
from tokjax._util.display import short_repr
from tokjax.align.tagset import check_labels
from tokjax.core.ragged import make_row_splits
from tokjax.errors import InvalidArgumentError, OffsetsContractError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.align.flat_tokens import FlatTokens

LabelledSpan: TypeAlias = tuple[int, int, str]
"""A start, a stop and a label: 1-based bytes and half-open, unless documented otherwise."""


@short_repr
class SpanColumns(NamedTuple):
    """Labelled spans of many texts as flat columns: those of text `i` are `row_splits[i]:row_splits[i + 1]`.

    Attributes:
        starts: 1-based first byte of each span, `int64`, shape `(spans,)`.
        stops: one past the last byte of each span, `int64`, shape `(spans,)`.
        classes: index of the label of each span, `int32`, shape `(spans,)`.
        row_splits: index of the first span of each text, and the number of spans, `int64`, shape
            `(texts + 1,)`.
    """

    starts: Array
    stops: Array
    classes: Array
    row_splits: Array


def span_columns(spans: Iterable[Sequence[LabelledSpan]], labels: Sequence[str]) -> SpanColumns:
    """Converts lists of spans to columns.

    Call it once for spans that are aligned several times.

    Args:
        spans: a list of spans `(start, stop, label)` for each text, in 1-based bytes and in any order.
        labels: the labels that spans may have.

    Raises:
        InvalidArgumentError: a span is not such a triple, or its label is not in `labels`.

    >>> span_columns([[(1, 6, "PER")], []], ["PER"]).row_splits
    array([0, 1, 1])
    """
    rows = list(check_iterable("spans", spans))
    starts, stops, names, row_splits = build_flat_spans(rows)
    class_ids = {label: i for i, label in enumerate(check_labels(labels))}
    try:
        classes = np.fromiter(map(class_ids.__getitem__, names), np.int32, len(names))
    except (TypeError, KeyError):
        raise InvalidArgumentError(_describe_unknown_label(rows, class_ids)) from None
    return SpanColumns(starts, stops, classes, row_splits)


def check_columns(spans: SpanColumns) -> SpanColumns:
    """Returns the columns as NumPy arrays, or raises `InvalidArgumentError`."""
    if not isinstance(spans, SpanColumns):
        raise InvalidArgumentError(f"spans must come from span_columns(spans, labels), not {spans!r:.80}")
    starts, stops, splits = (
        as_integers(name, getattr(spans, name), np.int64) for name in ("starts", "stops", "row_splits")
    )
    columns = SpanColumns(starts, stops, as_integers("classes", spans.classes, np.int32), splits)
    has_splits = splits.ndim == 1 and len(splits) and splits[0] == 0 and (np.diff(splits) >= 0).all()
    if not has_splits or {column.shape for column in columns[:3]} != {(splits[-1],)}:
        shapes = ", ".join(f"{name} {column.shape}" for name, column in columns._asdict().items())
        raise InvalidArgumentError(
            f"the columns of spans do not match: {shapes}, row_splits from {splits[:1]} to {splits[-1:]}; "
            "make them with span_columns(spans, labels)"
        )
    return columns


def build_flat_spans(
    rows: Sequence[Any],
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Any], NDArray[np.int64]]:
    """Converts lists of triples to columns, which are not checked.

    Returns:
        Starts and stops, `int64`, shape `(spans,)`; labels; and the index of the first span of each row, and
        the number of spans, `int64`, shape `(rows + 1,)`.

    Raises:
        InvalidArgumentError: a span is not a triple of two integers and a label; the message quotes the
            first.
    """
    try:
        splits = make_row_splits(map(len, rows))
        flat = list(chain.from_iterable(rows))
        if sum(map(len, flat)) != 3 * len(flat):
            raise ValueError
        starts, stops = (as_integers("positions", [*map(itemgetter(i), flat)], np.int64) for i in (0, 1))
        if starts.ndim != 1 or stops.ndim != 1 or bool in {type(span[i]) for span in flat for i in (0, 1)}:
            raise ValueError
        return starts, stops, [*map(itemgetter(2), flat)], splits
    except (TypeError, ValueError, KeyError, IndexError, OverflowError):
        raise InvalidArgumentError(_describe_wrong_span(rows)) from None


def check_span_bounds(spans: SpanColumns, index_base: int) -> None:
    """Raises for the first span that violates `1 <= start < stop`.

    Raises:
        InvalidArgumentError: a span is empty.
        OffsetsContractError: a span starts before the text, or stops before it starts.
    """
    starts, stops = np.asarray(spans.starts), np.asarray(spans.stops)
    wrong = np.flatnonzero((starts < 1) | (starts >= stops))
    if not len(wrong):
        return
    span = int(wrong[0])
    where = f"text {find_span_row(spans, span)}: the span {format_span(spans, span, index_base)}"
    if starts[span] >= 1 and starts[span] == stops[span]:
        raise InvalidArgumentError(f"{where} is empty, and contains no token; leave it out")
    hint = "pass index_base=0 for 0-based bytes; " if index_base and starts[span] == 0 else ""
    raise OffsetsContractError(
        f"{where} violates {index_base} <= start < stop, for {index_base}-based bytes; {hint}for "
        "0-based characters pass spans_from_characters(texts, spans)"
    )


def compute_text_order(spans: SpanColumns, index_base: int) -> NDArray[np.int64]:
    """Returns the permutation that sorts spans by text, and by start within a text.

    Raises:
        InvalidArgumentError: two spans of one text overlap.
    """
    starts, stops = np.asarray(spans.starts), np.asarray(spans.stops)
    rows = np.repeat(np.arange(len(spans.row_splits) - 1), np.diff(spans.row_splits))
    order = np.arange(len(starts))
    if ((starts[1:] < starts[:-1]) & (rows[1:] == rows[:-1])).any():
        order = np.lexsort((starts, rows))
    overlap = (starts[order[1:]] < stops[order[:-1]]) & (rows[order[1:]] == rows[order[:-1]])
    if overlap.any():
        position = int(np.flatnonzero(overlap)[0])
        first, second = (
            format_span(spans, span, index_base) for span in order[position : position + 2].tolist()
        )
        raise InvalidArgumentError(
            f"text {rows[order[position]]}: the spans {first} and {second} overlap, but a token has one "
            "label; align them in separate calls of align_spans"
        )
    return order


def describe_span(spans: SpanColumns, span: int, labels: Sequence[str], index_base: int) -> str:
    """Returns a readable description of a span: its text, its start and stop, and its label."""
    position, label = format_span(spans, span, index_base), labels[int(spans.classes[span])]
    return f"text {find_span_row(spans, span)}: span {position} {label!r}"


def find_span_row(spans: SpanColumns, span: int) -> int:
    """Returns the index of the text of a span."""
    return int(np.searchsorted(spans.row_splits, span, "right")) - 1


def format_span(spans: SpanColumns, span: int, index_base: int) -> str:
    """Returns `"(start, stop)"` of a span in the index base of the caller."""
    return f"({spans.starts[span] - 1 + index_base}, {spans.stops[span] - 1 + index_base})"


def _describe_wrong_span(rows: Sequence[Any]) -> str:
    """Returns the error message for spans that cannot be converted to columns."""
    for row, value in enumerate(rows):
        if isinstance(value, (str, bytes)) or not is_iterable(value):
            return f"the spans of text {row} must be a list of (start, stop, label), not {value!r:.80}"
        for span in value:
            problem = describe_parts(span)
            if problem:
                return f"text {row}: {problem}"
            if not isinstance(span, Sequence) or isinstance(span, (str, bytes)) or len(span) != 3:
                return f"text {row}: a span is (start, stop, label), not {span!r:.80}"
            if not all(map(_is_position, span[:2])):
                return f"text {row}: the span {span!r:.80} has a start or stop that is not a valid integer"
    return "spans must be, for each text, a list of (start, stop, label)"


def describe_parts(span: Any) -> str | None:
    """Returns the error message for a discontinuous span, without its text; `None` for any other value."""
    if not isinstance(span, (list, tuple)) or len(span) < 2:
        return None
    pairs, label = span[:-1] if len(span) > 2 else span[0], span[-1]
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs
    ):
        return None
    parts = ", ".join(f"{(*pair, label)!r:.80}" for pair in pairs)
    return (
        f"the span {span!r:.80} is discontinuous; a span is (start, stop, label), so pass its parts as "
        f"separate spans: {parts}"
    )


def _is_position(value: Any) -> bool:
    """Returns whether a value is an integer that fits `int64`."""
    try:
        return not isinstance(value, bool) and abs(operator.index(value)) < 2**62
    except TypeError:
        return False


def _describe_unknown_label(rows: Sequence[Any], class_ids: dict[str, int]) -> str:
    """Returns the error message for the first span whose label is not in `class_ids`."""
    return next(
        f"text {row}: the span {span!r:.80} has a label that is not in {[*class_ids]}"
        for row, value in enumerate(rows)
        for span in value
        if not isinstance(span[2], str) or span[2] not in class_ids
    )


def check_rows(name: str, value: int, tokens: FlatTokens) -> None:
    """Raises `InvalidArgumentError` if the number of rows of an argument is not the number of texts."""
    if value == tokens.num_texts:
        return
    if tokens.text_ids is not None:
        raise InvalidArgumentError(
            f"{name} has {value} rows, and the windows belong to {tokens.num_texts} texts; pass one row "
            "for each text, or windows.batch and one row for each window"
        )
    raise InvalidArgumentError(
        f"{name} has {value} rows, and there are {tokens.num_texts} texts; pass one row for each text"
    )
