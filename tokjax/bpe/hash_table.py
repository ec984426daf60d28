"""An open-addressed table of arrays, which looks up all words of a chunk at once.

A word *is* its key: one or more 64-bit numbers that hold its bytes, with zeros behind them. Keys are compared
whole, so there is no collision to fear; words that hold a zero byte themselves are kept out.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.locks import ThreadLock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]
    """Shape `(words, columns)`; the first column is never 0."""

ABSENT = -1
_NARROW = 2


class _Slots:
    """One size of the table: rows of a key and its value. A row is free where its first column is 0.

    A word that is read while it is being written is not found, since the value of a free row is `ABSENT`.
    """

    def __init__(self, bits: int, columns: int) -> None:
        self.shift = np.uint64(64 - bits)
        self.mask = (1 << bits) - 1
        self.rows = np.zeros((1 << bits, columns + 1), np.uint64)
        self.rows.view(np.int64)[:, -1] = ABSENT
        self._records = self.rows.view(f"V{self.rows.itemsize * (columns + 1)}").reshape(-1)

    def __len__(self) -> int:
        return len(self.rows)

    def compare(self, at: NDArray[np.int64], keys: Keys) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which slots hold the keys; and the slots' rows."""
        rows = self._records.take(at, mode="clip").view(np.int64).reshape(len(at), self.rows.shape[1])
        same: NDArray[np.bool_] = rows[:, 0] == keys[:, 0].view(np.int64)
        for i in range(1, keys.shape[1]):
            same &= rows[:, i] == keys[:, i].view(np.int64)
        return same, rows


class WordTable:
    """Keys to values. Reading needs no lock.

    Args:
        columns: how many 64-bit numbers a key has.
        words: how many words there will be at least.
    """

    def __init__(self, columns: int, words: int = 256) -> None:
        self._slots_per_word = 4 if columns <= _NARROW else 2  # the emptier, the sooner a word is found
        # Drawn anew for each table, so that no text can be made whose words all want the same slots.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(columns)]
        self._slots = _Slots((self._slots_per_word * words).bit_length(), columns)
        self._used = 0
        self._lock = ThreadLock()

    def __len__(self) -> int:
        """How many words are known."""
        return self._used

    @property
    def nbytes(self) -> int:
        """The least memory for so many words; with room to grow it takes up to twice as much."""
        return self._used * self._slots_per_word * self._slots.rows.itemsize * (len(self._factors) + 1)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The value of each word, `ABSENT` for those that are not known."""
        slots = self._slots
        at = self._first_slots(slots, keys)
        same, rows = slots.compare(at, keys)
        values = rows[:, -1].copy()
        left = np.flatnonzero(~same)
        if len(left):
            self._probe_on(slots, keys, at, values, left)
        if len(self._factors) > _NARROW:
            # A row that was half read while it was written may look like another word. Its first column,
            # which is written last, was there: what is read now is whole.
            values[~slots.compare(at, keys)[0]] = ABSENT
        return values

    def add(self, keys: Keys, values: NDArray[np.int64]) -> None:
        """Remember words. Those that are known stay as they are; of equal words, the first counts.

        Args:
            keys: the words.
            values: theirs.
        """
        with self._lock.current:
            wanted = self._slots_per_word * (self._used + len(values))
            if wanted > len(self._slots):
                self._grow(wanted)
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
        values: NDArray[np.int64],
        left: NDArray[np.int64],
    ) -> None:
        """Look at the next slots for the words that were not in their first one."""
        here, wanted = at.take(left), keys.take(left, axis=0)
        while True:
            same, rows = slots.compare(here, wanted)
            values[left] = np.where(same, rows[:, -1], ABSENT)
            on = np.flatnonzero((rows[:, 0] != 0) & ~same)
            if not len(on):
                return
            left, here, wanted = left.take(on), here.take(on) + 1 & slots.mask, wanted.take(on, axis=0)
            at[left] = here

    def _place(self, slots: _Slots, keys: Keys, values: NDArray[np.int64]) -> int:
        """Put words into free slots, each once: how many. Of several that want one, the first gets it."""
        at = self._first_slots(slots, keys)
        claims = np.empty(len(slots), np.int32)
        is_left = np.ones(len(values), bool)
        left, placed = np.arange(len(values)), 0
        while len(left):
            wanting = left[slots.rows[at.take(left), 0] == 0]
            claims[at[wanting[::-1]]] = wanting[::-1]
            winners = wanting[claims[at[wanting]] == wanting]
            where = at[winners]
            slots.rows.view(np.int64)[where, -1] = values[winners]
            slots.rows[where, 1:-1] = keys[winners, 1:]
            slots.rows[where, 0] = keys[winners, 0]
            placed += len(winners)
            is_left[winners] = False
            left = left[is_left[left]]
            left = left[~slots.compare(at.take(left), keys.take(left, axis=0))[0]]
            at[left] = at[left] + 1 & slots.mask
        return placed

    def _grow(self, slots: int) -> None:
        """Move to at least so many slots."""
        old, columns = self._slots.rows, len(self._factors)
        grown = _Slots(slots.bit_length(), columns)
        old = old.take(np.flatnonzero(old[:, 0]), axis=0)
        self._place(grown, old[:, :-1], old[:, -1].view(np.int64))
        self._slots = grown

    def _first_slots(self, slots: _Slots, keys: Keys) -> NDArray[np.int64]:
        mixed = self.mixed(keys)
        mixed >>= slots.shift
        return mixed.view(np.int64)
