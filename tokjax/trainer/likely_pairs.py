"""Pairs of symbols with how likely they are to stand together: the next to be merged, at any time.

The score of a pair `ab` is `count(ab) / (count(a) * count(b))`. It rises and falls whenever one of its
symbols is merged with others, so it is worked out anew for all pairs that share one with what was merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

# A score is rounded three times: two of them that are not further apart may be in the wrong order, or equal.
_AS_GOOD_AS_EQUAL = 1 - 2.0**-50
_SHIFT = 32
_NEVER = -1.0


class LikelyPairs:
    """All pairs of neighbours, one a row, and where each of them came up.

    Args:
        forms: the token of each symbol, which grows as symbols do.
        counts: how often each symbol stands, `int64`, with room for all that there will be.
        min_frequency: rarer pairs are never the best.
    """

    def __init__(self, forms: Sequence[str], counts: NDArray[np.int64], min_frequency: int) -> None:
        self._forms = forms
        self._counts = counts
        self._min_frequency = min_frequency
        self._row_of: dict[int, int] = {}
        self._places: list[list[NDArray[np.int32]]] = []
        self._left = np.zeros(1024, np.int32)
        self._right = np.zeros(1024, np.int32)
        self._count = np.zeros(1024, np.int64)
        self._score = np.full(1024, _NEVER)

    def __len__(self) -> int:
        """How many pairs there ever were."""
        return len(self._places)

    def best(self) -> int | None:
        """The row of the likeliest pair; of equally likely ones the most frequent; of those the first.

        `None` where no pair is frequent enough.
        """
        score = self._score[: len(self)]
        if not len(score):
            return None
        row = int(score.argmax())
        highest = float(score[row])
        if highest == _NEVER:
            return None
        rows = np.flatnonzero(score >= highest * _AS_GOOD_AS_EQUAL)
        return row if len(rows) == 1 else self._best_of(rows)

    def pair(self, row: int) -> tuple[int, int]:
        """The two symbols of a row."""
        return int(self._left[row]), int(self._right[row])

    def take_places(self, row: int) -> NDArray[np.int32]:
        """Where the pair of a row came up (it may have gone since); forgotten, as it is merged now."""
        places, self._places[row] = self._places[row], []
        return np.concatenate(places)

    def remove(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        """Pairs that are no longer there, each so often."""
        different, first, which = np.unique(keys, return_index=True, return_inverse=True)
        rows = [self._row_of[key] for key in different.tolist()]
        self._count[rows] -= np.bincount(which, weights, len(first)).astype(np.int64)

    def add(self, keys: NDArray[np.int64], weights: NDArray[np.int64], at: NDArray[np.int32]) -> None:
        """Pairs that came up, each so often, at some places."""
        if not len(keys):
            return
        order = np.argsort(keys, kind="stable")
        keys, at = keys[order], at[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        rows = [self._row(key) for key in keys[first].tolist()]
        self._count[rows] += np.add.reduceat(weights[order], first)
        for row, places in zip(rows, np.split(at, first[1:]), strict=True):
            self._places[row].append(places)

    def rescore(self, *symbols: int) -> None:
        """Work out anew how likely all pairs are that have one of the symbols."""
        left, right = self._left[: len(self)], self._right[: len(self)]
        touched = np.zeros(len(self), bool)
        for symbol in symbols:
            touched |= left == symbol
            touched |= right == symbol
        self._score_rows(np.flatnonzero(touched))

    def rescore_all(self) -> None:
        """The same for all pairs."""
        self._score_rows(np.arange(len(self)))

    def _score_rows(self, rows: Rows) -> None:
        of_pair = self._count[rows]
        alone = self._counts[self._left[rows]].astype(np.float64) * self._counts[self._right[rows]]
        frequent = of_pair >= self._min_frequency
        self._score[rows] = np.where(frequent, of_pair / np.where(frequent, alone, 1), _NEVER)

    def _best_of(self, rows: Rows) -> int:
        """The same among rows of about one score, in whole numbers."""
        count = self._count[rows].tolist()
        left, right = (self._counts[side[rows]].tolist() for side in (self._left, self._right))
        fractions = [(n, a * b) for n, a, b in zip(count, left, right, strict=True)]
        best_n, best_ab = fractions[0]
        for n, ab in set(fractions):
            ahead = n * best_ab - best_n * ab
            if ahead > 0 or (ahead == 0 and n > best_n):
                best_n, best_ab = n, ab
        equal = [
            row
            for row, (n, ab) in zip(rows.tolist(), fractions, strict=True)
            if n == best_n and ab == best_ab
        ]
        first: int = min(equal, key=self._form_of)
        return first

    def _form_of(self, row: int) -> tuple[str, str]:
        return self._forms[self._left[row]], self._forms[self._right[row]]

    def _row(self, key: int) -> int:
        """The row of a pair, a new one if need be."""
        row = self._row_of.setdefault(key, len(self))
        if row == len(self):
            self._places.append([])
            if row == len(self._left):
                self._grow()
            self._left[row], self._right[row] = key >> _SHIFT, key & (1 << _SHIFT) - 1
        return row

    def _grow(self) -> None:
        self._left, self._right, self._count = (
            np.concatenate([column, np.zeros_like(column)])
            for column in (self._left, self._right, self._count)
        )
        self._score = np.concatenate([self._score, np.full(len(self._score), _NEVER)])


def key_of(left: NDArray[np.int32], right: NDArray[np.int32]) -> NDArray[np.int64]:
    """Two symbols in one number."""
    return left.astype(np.int64) << _SHIFT | right
