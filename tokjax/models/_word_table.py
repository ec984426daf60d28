"""An open-addressed table of arrays, which looks up all words of a chunk at once.

A word *is* its key: one or more 64-bit numbers that hold its bytes, with zeros behind them. Keys are compared
whole, so there is no collision to fear; words that hold a zero byte themselves are kept out.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]
    """Shape `(words, columns)`; the first column is never 0."""

ABSENT = -1
_SLOTS_PER_WORD = 4


class _Slots(NamedTuple):
    """One size of the table. The first column of a key is 0 where a slot is free."""

    keys: Keys
    values: NDArray[np.int32]

    @property
    def shift(self) -> np.uint64:
        return np.uint64(64 - (len(self.values).bit_length() - 1))


class WordTable:
    """Keys to values. Reading needs no lock: a slot's first column is written after everything else.

    Args:
        columns: how many 64-bit numbers a key has.
        words: how many words there will be at least.
    """

    def __init__(self, columns: int, words: int = 256) -> None:
        # Drawn anew for each table, so that no text can be made whose words all want the same slots.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(columns)]
        self._slots = self._empty((_SLOTS_PER_WORD * words).bit_length())
        self._used = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many words are known."""
        return self._used

    def find(self, keys: Keys) -> NDArray[np.int32]:
        """The value of each word, `ABSENT` for those that are not known."""
        slots = self._slots
        at = self._first_slots(slots, keys)
        same = _equal(slots.keys.take(at, axis=0), keys)
        values = slots.values.take(at)
        left = np.flatnonzero(~same)
        if len(left):
            self._probe_on(slots, keys, at, values, left)
        return values

    def add(self, keys: Keys, values: NDArray[np.int32]) -> None:
        """Remember words. Those that are known stay as they are; of equal words, the first counts.

        Args:
            keys: the words.
            values: theirs. Small numbers should stand for frequent words: those are found soonest.
        """
        with self._lock:
            new = np.flatnonzero(self.find(keys) == ABSENT)
            keys, values = keys.take(new, axis=0), values.take(new)
            while _SLOTS_PER_WORD * (self._used + len(new)) > len(self._slots.values):
                self._grow()
            self._used += self._place(self._slots, keys, values)

    def mixed(self, keys: Keys) -> NDArray[np.uint64]:
        """A number for each key, equal for equal keys, and seldom for others."""
        mixed: NDArray[np.uint64] = keys[:, 0] * self._factors[0]
        for i, factor in enumerate(self._factors[1:], 1):
            mixed += keys[:, i] * factor
        return mixed

    def _probe_on(
        self,
        slots: _Slots,
        keys: Keys,
        at: NDArray[np.int64],
        values: NDArray[np.int32],
        left: NDArray[np.int64],
    ) -> None:
        """Look at the next slots for the words that were not in their first one."""
        mask = len(slots.values) - 1
        here, wanted = at.take(left), keys.take(left, axis=0)
        while True:
            found = slots.keys.take(here, axis=0)
            same, taken = _equal(found, wanted), found[:, 0] != 0
            values[left] = np.where(same, slots.values.take(here), ABSENT)
            on = np.flatnonzero(taken & ~same)
            if not len(on):
                return
            left, here, wanted = left.take(on), here.take(on) + 1 & mask, wanted.take(on, axis=0)

    def _place(self, slots: _Slots, keys: Keys, values: NDArray[np.int32]) -> int:
        """Put words into free slots, each word once: how many. Of several that want a slot, the first gets it."""
        mask = len(slots.values) - 1
        at = self._first_slots(slots, keys)
        claims = np.empty(len(slots.values), np.int32)
        left, placed = np.arange(len(values)), 0
        while len(left):
            wanting = left[slots.keys[at.take(left), 0] == 0]
            claims[at[wanting[::-1]]] = wanting[::-1]
            winners = wanting[claims[at[wanting]] == wanting]
            where = at[winners]
            slots.values[where] = values[winners]
            slots.keys[where, 1:] = keys[winners, 1:]
            slots.keys[where, 0] = keys[winners, 0]
            placed += len(winners)
            left = left[~_equal(slots.keys.take(at.take(left), axis=0), keys.take(left, axis=0))]
            at[left] = at[left] + 1 & mask
        return placed

    def _grow(self) -> None:
        """Move to twice as many slots, small values first."""
        old = self._slots
        grown = self._empty(len(old.values).bit_length())
        taken = np.flatnonzero(old.keys[:, 0])
        taken = taken[np.argsort(np.abs(old.values[taken]), kind="stable")]
        self._place(grown, old.keys.take(taken, axis=0), old.values.take(taken))
        self._slots = grown

    def _first_slots(self, slots: _Slots, keys: Keys) -> NDArray[np.int64]:
        mixed = self.mixed(keys)
        mixed >>= slots.shift
        return mixed.view(np.int64)

    def _empty(self, bits: int) -> _Slots:
        keys = np.zeros((1 << bits, len(self._factors)), np.uint64)
        return _Slots(keys, np.full(1 << bits, ABSENT, np.int32))


def _equal(left: Keys, right: Keys) -> NDArray[np.bool_]:
    """Which keys are equal."""
    alike = left == right
    same: NDArray[np.bool_] = alike[:, 0]
    for i in range(1, alike.shape[1]):
        same &= alike[:, i]
    return same
