"""Apportionment of rows to sources: how many of the first `n` rows are from each source, for any `n`.

Sources are the leaves of a binary tree. A node that has received `n` rows gives its left child the share of
`n` rounded to an integer, and the right child the rest. Both counts never decrease as `n` grows, and each
differs from its share by at most half a row at one node. Example with the shares 1/2, 3/10 and 1/5, in a
tree of (1/2) and (3/10, 1/5):

    rows   0  1  2  3  4  5  6  7  8  9  10      shares of 10 rows
    left   0  1  1  2  2  3  3  4  4  5  5       5
    right  0  0  1  1  2  2  3  3  4  4  5       divided again, in shares 3/5 and 2/5:
      3/10 0  0  1  1  1  1  2  2  2  2  3       3
      1/5  0  0  0  0  1  1  1  1  2  2  2       2

The counts of step 10**9 are computed as directly as those of step 1. Shares may change at given rows. A
node then rounds the sum of its shares of all periods, so that errors do not add up.

All numbers are integers: shares are multiples of `1 / ONE`, and sums are Python integers. So the counts are
the same on every machine, and off by no rounding error after any number of rows that a run can reach.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

Tree: TypeAlias = "int | list[Tree]"
"""A source, or a group of sources, nested to any depth."""
ONE = 1 << 64
"""Number that stands for one row."""


class Apportionment:
    """Number of rows of each source among the first rows.

    A count differs from the exact share by less than 1 with up to three sources, and by less than 2 with any
    number of them in one group. Where all shares are whole numbers of rows, the counts equal them.

    Args:
        tree: the sources, numbered from 0, in groups.
        first_rows: row at which each period starts, ascending from 0.
        shares: share of each source in each period; at least 0, with sum 1.

    >>> from fractions import Fraction
    >>> halves = Apportionment([0, 1], [0], [[Fraction(3, 4), Fraction(1, 4)]])
    >>> [halves.count(rows) for rows in range(5)]
    [[0, 0], [1, 0], [2, 0], [2, 1], [3, 1]]
    """

    def __init__(self, tree: Tree, first_rows: Sequence[int], shares: Sequence[Sequence[Fraction]]) -> None:
        periods = [_round_shares(each) for each in shares]
        self._num_sources = len(shares[0])
        self._first_rows = list(first_rows)
        self._root = _build_node(tree, self._first_rows, periods)

    def count(self, rows: int) -> list[int]:
        """Returns the number of rows of each source among the first `rows` rows."""
        counts = [0] * self._num_sources
        self._root.divide(rows, counts)
        return counts


class _Leaf:
    """One source.

    Attributes:
        slopes: share of each period, in multiples of `1 / ONE`.
    """

    def __init__(self, source: int, slopes: list[int]) -> None:
        self.slopes = slopes
        self._source = source

    def divide(self, rows: int, counts: list[int]) -> None:
        """Writes the number of rows of the source."""
        counts[self._source] = rows


class _Pair:
    """Two nodes that divide the rows of their parent.

    The exact share of the left child of the first `n` rows of the parent is piecewise linear in `n`. The ends
    of its pieces are stored, without the periods in which neither child has a share.

    Attributes:
        slopes: share of each period of both children together, in multiples of `1 / ONE`.
    """

    def __init__(self, left: _Node, right: _Node, first_rows: list[int]) -> None:
        self.slopes: list[int] = [a + b for a, b in zip(left.slopes, right.slopes, strict=True)]
        self._left: _Node = left
        self._right: _Node = right
        self._starts: list[int] = []  # exact shares of both children at the start of each period
        self._left_starts: list[int] = []
        self._ratios: list[tuple[int, int]] = []  # share of the left child, and of both
        both_sum = left_sum = 0
        for i, slope in enumerate(self.slopes):
            if slope:
                self._starts.append(both_sum)
                self._left_starts.append(left_sum)
                self._ratios.append((left.slopes[i], slope))
            if i + 1 < len(first_rows):
                length = first_rows[i + 1] - first_rows[i]
                both_sum += length * slope
                left_sum += length * left.slopes[i]

    def divide(self, rows: int, counts: list[int]) -> None:
        """Writes the number of rows of each source below this node, of `rows` rows in total."""
        left = self._compute_left(rows) if rows else 0
        self._left.divide(left, counts)
        self._right.divide(rows - left, counts)

    def _compute_left(self, rows: int) -> int:
        """Returns the share of the left child, rounded to an integer; halves are rounded up."""
        due = rows * ONE
        period = max(bisect_right(self._starts, due) - 1, 0)
        share, total = self._ratios[period]
        numerator = self._left_starts[period] * total + (due - self._starts[period]) * share
        return (2 * numerator + ONE * total) // (2 * ONE * total)


_Node: TypeAlias = "_Leaf | _Pair"


def _build_node(tree: Tree, first_rows: list[int], periods: list[list[int]]) -> _Node:
    """Builds the binary tree. In a group, the two nodes with the smallest shares are joined first.

    This is Huffman's algorithm. It keeps large shares near the root, where counts are most exact. Shares are
    summed over periods.
    """
    if isinstance(tree, int):
        return _Leaf(tree, [shares[tree] for shares in periods])
    nodes = [_build_node(child, first_rows, periods) for child in tree]
    heap = [(sum(node.slopes), i, node) for i, node in enumerate(nodes)]
    heapq.heapify(heap)
    while len(heap) > 1:
        right_share, _, right = heapq.heappop(heap)
        left_share, order, left = heapq.heappop(heap)
        heapq.heappush(heap, (left_share + right_share, order + len(nodes), _Pair(left, right, first_rows)))
    return heap[0][2]


def _round_shares(shares: Sequence[Fraction]) -> list[int]:
    """Returns shares as multiples of `1 / ONE` with the sum `ONE`. The largest share takes the remainder."""
    rounded = [share.numerator * ONE // share.denominator for share in shares]
    largest = max(range(len(rounded)), key=rounded.__getitem__)
    rounded[largest] += ONE - sum(rounded)
    return rounded
