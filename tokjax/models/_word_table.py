"""An open-addressed table of arrays, which looks up all words of a chunk at once.

A word of up to 15 bytes *is* its key: one or two 64-bit numbers that hold its bytes and its length. Keys are
compared whole, so there is no collision to fear.
"""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]

ABSENT = -1


class _Slots(NamedTuple):
    """One size of the table. `tail` is 0 where a slot is free, since it holds the length of a word."""

    head: Keys
    tail: Keys
    values: NDArray[np.int32]

    @property
    def shift(self) -> np.uint64:
        return np.uint64(64 - (len(self.tail).bit_length() - 1))


class WordTable:
    """Keys to values. Reading needs no lock: a slot's value is there before its key is.

    Args:
        two_keys: whether words have a head and a tail (8 to 15 bytes), or a tail alone (up to 7).
        bits: the table starts with `2**bits` slots, and doubles when it gets too full.
        slots_per_word: how many slots there are at least for each word. With more, a word that is absent is
            sooner known to be.
    """

    def __init__(self, *, two_keys: bool, bits: int = 12, slots_per_word: int = 2) -> None:
        self._two_keys = two_keys
        # Drawn anew for each table, so that no text can be made whose words all want the same slots.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(3)]
        self._slots_per_word = slots_per_word
        self._slots = self._empty(bits)
        self._used = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many words are known."""
        return self._used

    def find(self, head: Keys, tail: Keys) -> NDArray[np.int32]:
        """The value of each word, `ABSENT` for those that are not known.

        Args:
            head: the first 8 bytes of each word; without meaning in a table of one key.
            tail: the other bytes, and the length.
        """
        slots = self._slots
        at = self._first_slot(slots, head, tail)
        same = slots.tail.take(at) == tail
        if self._two_keys:
            same &= slots.head.take(at) == head
        values = slots.values.take(at)
        left = np.flatnonzero(~same)
        if len(left):
            self._probe_on(slots, head, tail, at, values, left)
        return values

    def add(self, head: Keys, tail: Keys, values: NDArray[np.int32]) -> None:
        """Remember words, all different; those that are known already stay as they are."""
        with self._lock:
            new = self.find(head, tail) == ABSENT
            head, tail, values = head[new], tail[new], values[new]
            while self._slots_per_word * (self._used + len(tail)) > len(self._slots.tail):
                self._grow()
            self._place(self._slots, head, tail, values)
            self._used += len(tail)

    def _probe_on(
        self,
        slots: _Slots,
        head: Keys,
        tail: Keys,
        at: NDArray[np.int64],
        values: NDArray[np.int32],
        left: NDArray[np.int64],
    ) -> None:
        mask = len(slots.tail) - 1
        here, wanted_head, wanted_tail = at[left], head[left] if self._two_keys else head, tail[left]
        while len(left):
            found = slots.tail.take(here)
            same = found == wanted_tail
            if self._two_keys:
                same &= slots.head.take(here) == wanted_head
            free = found == 0
            values[left[same]] = slots.values.take(here[same])
            values[left[free]] = ABSENT
            on = np.flatnonzero(~(same | free))
            left, here, wanted_tail = left[on], (here[on] + 1) & mask, wanted_tail[on]
            if self._two_keys:
                wanted_head = wanted_head[on]

    def _place(self, slots: _Slots, head: Keys, tail: Keys, values: NDArray[np.int32]) -> None:
        """Put different new words into free slots; of several that want one slot, one gets it."""
        mask = len(slots.tail) - 1
        at = self._first_slot(slots, head, tail)
        left = np.arange(len(tail))
        while len(left):
            free = np.flatnonzero(slots.tail.take(at[left]) == 0)
            _, first = np.unique(at[left[free]], return_index=True)
            winners = left[free[first]]
            where = at[winners]
            slots.values[where] = values[winners]
            if self._two_keys:
                slots.head[where] = head[winners]
            slots.tail[where] = tail[winners]
            lost = np.ones(len(left), bool)
            lost[free[first]] = False
            left = left[lost]
            at[left] = (at[left] + 1) & mask

    def _grow(self) -> None:
        old = self._slots
        grown = self._empty(len(old.tail).bit_length())
        taken = np.flatnonzero(old.tail)
        head = old.head.take(taken) if self._two_keys else old.head
        self._place(grown, head, old.tail.take(taken), old.values.take(taken))
        self._slots = grown

    def _first_slot(self, slots: _Slots, head: Keys, tail: Keys) -> NDArray[np.int64]:
        mixed = tail * self._factors[0]
        if self._two_keys:
            mixed += head * self._factors[1]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self._factors[2]
        mixed >>= slots.shift
        return mixed.view(np.int64)

    def _empty(self, bits: int) -> _Slots:
        size = 1 << bits
        head = np.zeros(size if self._two_keys else 0, np.uint64)
        return _Slots(head, np.zeros(size, np.uint64), np.full(size, ABSENT, np.int32))
