"""Nested and overlapping spans, apart in layers that have none."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from tokjax.align.spans import build_flat_spans
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokjax.align.spans import LabelledSpan


def split_layers(spans: Iterable[LabelledSpan]) -> list[list[LabelledSpan]]:
    """The spans of one text, apart so that in no layer two of them overlap.

    The longest come first, of equal ones the earliest, then the one given first; each goes into the first
    layer that has room for it. So outer spans come before those nested in them.

    Args:
        spans: `(start, stop, label)`, in any order; bytes or characters.

    Returns:
        As many layers as are needed, each in the order of the text; none for no spans.

    Raises:
        InvalidArgumentError: a span is no such triple, or is empty.

    >>> split_layers([(12, 18, "LOC"), (1, 18, "ORG"), (20, 24, "PER")])
    [[(1, 18, 'ORG'), (20, 24, 'PER')], [(12, 18, 'LOC')]]
    """
    given = [*spans]
    flat = build_flat_spans([given])
    empty = np.flatnonzero(flat.starts >= flat.stops)
    if len(empty):
        raise InvalidArgumentError(f"the span {given[empty[0]]!r:.80} must keep start < stop; leave it out")
    edges = np.unique(np.append(flat.starts, flat.stops))
    first, last = np.searchsorted(edges, flat.starts), np.searchsorted(edges, flat.stops) - 1
    layers: list[list[LabelledSpan]] = []
    taken = _Taken(len(edges))
    longest_first = np.lexsort((flat.starts, flat.starts - flat.stops))
    for number, low, high in zip(
        *(array[longest_first].tolist() for array in (np.arange(len(given)), first, last)), strict=True
    ):
        # Spans that are in layers already are as long: one that meets this has its first place or its last.
        layer = _lowest_clear_bit(taken.at(low) | taken.at(high))
        if layer == len(layers):
            layers.append([])
        layers[layer].append(given[number])
        taken.add(low, high, layer)
    return [sorted(layer, key=itemgetter(0)) for layer in layers]


class _Taken:
    """The layers that have a span at each place, as bits: a binary tree, whose nodes stand for all below."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._nodes = [0] * (2 * places)

    def at(self, place: int) -> int:
        """The layers that have a span there."""
        node, layers = place + self._places, 0
        while node:
            layers |= self._nodes[node]
            node >>= 1
        return layers

    def add(self, first: int, last: int, layer: int) -> None:
        """A span of a layer, from its first place to its last."""
        low, high = first + self._places, last + self._places + 1
        while low < high:
            if low & 1:
                self._nodes[low] |= 1 << layer
                low += 1
            if high & 1:
                high -= 1
                self._nodes[high] |= 1 << layer
            low >>= 1
            high >>= 1


def _lowest_clear_bit(bits: int) -> int:
    return (~bits & (bits + 1)).bit_length() - 1
