"""How often each different word was seen, for words that come as arrays."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax.bpe.hash_tables import (
    ABSENT,
    HashTables,
    Pretokens,
    can_hold,
    concatenate_pretokens,
    make_pretokens,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


_INSERT_BATCH_SIZE = 1 << 15


class CountedPretokens(NamedTuple):
    """Different words, and how often each was seen.

    Attributes:
        words: no two of them alike.
        counts: `int64`, shape `(words,)`.
    """

    words: Pretokens
    counts: NDArray[np.int64]


class PretokenCounter:
    """Counts words. Its memory is bounded by the different ones, and threads can share it.

    New words wait until there are many of them, since it is quicker to learn many at once.
    """

    def __init__(self) -> None:
        self._lock = ThreadLock()
        initial = make_pretokens([b"\n"])  # tables know it from the first
        self._tables = HashTables(initial, np.zeros(1, np.int64))
        self._inserted = [initial]
        self._counts = np.zeros(1, np.int64)
        self._others: Counter[bytes] = Counter()  # words that no table holds
        self._waiting: list[CountedPretokens] = []
        self._num_waiting = 0

    def __len__(self) -> int:
        """How many different words there are, about."""
        return len(self._counts) + len(self._others)

    def add(self, words: Pretokens) -> None:
        """Count each of some words once more."""
        slots = self._tables.find(words)
        absent = np.flatnonzero(slots == ABSENT)
        if len(absent):
            slots = slots.take(np.flatnonzero(slots != ABSENT))
            self._wait(CountedPretokens(words.take(absent), np.ones(len(absent), np.int64)))
        times = np.bincount(slots)
        with self._lock.current:
            self._counts[: len(times)] += times

    def merge(self, counted: CountedPretokens) -> None:
        """Take in what another counter has seen."""
        self._wait(counted)

    def counted(self) -> CountedPretokens:
        """Every word that was seen."""
        self._insert_waiting()
        seen = np.flatnonzero(self._counts)
        storable = concatenate_pretokens(self._inserted).take(seen)
        others = make_pretokens(list(self._others))
        counts = [self._counts.take(seen), np.fromiter(self._others.values(), np.int64, len(self._others))]
        return CountedPretokens(concatenate_pretokens([storable, others]), np.concatenate(counts))

    def _wait(self, new: CountedPretokens) -> None:
        """Keep words that no table has until there are enough of them."""
        words, counts = new
        fits_table = can_hold(words)
        storable = np.flatnonzero(fits_table)
        new_counts = CountedPretokens(concatenate_pretokens([words.take(storable)]), counts.take(storable))
        others = np.flatnonzero(~fits_table)
        texts = list(zip(words.take(others).iter_bytes(), counts.take(others).tolist(), strict=True))
        with self._lock.current:
            for text, count in texts:
                self._others[text] += count
            if len(storable):
                self._waiting.append(new_counts)
                self._num_waiting += len(storable)
            enough = self._num_waiting >= _INSERT_BATCH_SIZE
        if enough:
            self._insert_waiting()

    def _insert_waiting(self) -> None:
        """Give a place to each word that waits, one to all that are alike, and count them."""
        with self._lock.current:
            waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        if not waiting:
            return
        words = concatenate_pretokens([part.words for part in waiting])
        example, which = self._tables.unique(words)
        unique = words.take(example)
        with self._lock.current:
            slots = self._get_or_add_slots(unique)
            counts = np.concatenate([part.counts for part in waiting])
            np.add.at(self._counts, slots.take(which), counts)

    def _get_or_add_slots(self, unique: Pretokens) -> NDArray[np.int64]:
        """The places of words, new ones for those that have none; no two of them are alike."""
        slots = self._tables.find(unique)  # some were learned while they waited
        absent = np.flatnonzero(slots == ABSENT)
        first = len(self._counts)
        slots[absent] = np.arange(first, first + len(absent))
        new = concatenate_pretokens([unique.take(absent)])
        self._inserted.append(new)
        self._counts = np.concatenate([self._counts, np.zeros(len(absent), np.int64)])
        self._tables.add(new, slots[absent])
        return slots
