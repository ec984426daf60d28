"""How often each different word was seen, for words that come as arrays."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax.bpe.hash_tables import ABSENT, Words, WordTables, can_hold, joined, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LEARN_AT_ONCE = 1 << 15


class Counted(NamedTuple):
    """Different words, and how often each was seen.

    Attributes:
        words: no two of them alike.
        counts: `int64`, shape `(words,)`.
    """

    words: Words
    counts: NDArray[np.int64]


class WordCounter:
    """Counts words. Its memory is bounded by the different ones, and threads can share it.

    New words wait until there are many of them, since it is quicker to learn many at once.
    """

    def __init__(self) -> None:
        self._lock = ThreadLock()
        known = words_of([b"\n"])  # tables know it from the first
        self._tables = WordTables(known, np.zeros(1, np.int64))
        self._known = [known]
        self._counts = np.zeros(1, np.int64)
        self._others: Counter[bytes] = Counter()  # words that no table holds
        self._waiting: list[Counted] = []
        self._num_waiting = 0

    def __len__(self) -> int:
        """How many different words there are, about."""
        return len(self._counts) + len(self._others)

    def add(self, words: Words) -> None:
        """Count each of some words once more."""
        places = self._tables.find(words)
        absent = np.flatnonzero(places == ABSENT)
        if len(absent):
            places = places.take(np.flatnonzero(places != ABSENT))
            self._wait(Counted(words.take(absent), np.ones(len(absent), np.int64)))
        times = np.bincount(places)
        with self._lock.current:
            self._counts[: len(times)] += times

    def merge(self, counted: Counted) -> None:
        """Take in what another counter has seen."""
        self._wait(counted)

    def counted(self) -> Counted:
        """Every word that was seen."""
        self._learn_waiting()
        seen = np.flatnonzero(self._counts)
        held = joined(self._known).take(seen)
        others = words_of(list(self._others))
        counts = [self._counts.take(seen), np.fromiter(self._others.values(), np.int64, len(self._others))]
        return Counted(joined([held, others]), np.concatenate(counts))

    def _wait(self, new: Counted) -> None:
        """Keep words that no table has until there are enough of them."""
        words, counts = new
        can_be_held = can_hold(words)
        held = np.flatnonzero(can_be_held)
        kept = Counted(joined([words.take(held)]), counts.take(held))
        others = np.flatnonzero(~can_be_held)
        texts = list(zip(words.take(others).texts(), counts.take(others).tolist(), strict=True))
        with self._lock.current:
            for text, count in texts:
                self._others[text] += count
            if len(held):
                self._waiting.append(kept)
                self._num_waiting += len(held)
            enough = self._num_waiting >= _LEARN_AT_ONCE
        if enough:
            self._learn_waiting()

    def _learn_waiting(self) -> None:
        """Give a place to each word that waits, one to all that are alike, and count them."""
        with self._lock.current:
            waiting, self._waiting, self._num_waiting = self._waiting, [], 0
        if not waiting:
            return
        words = joined([part.words for part in waiting])
        example, which = self._tables.different(words)
        different = words.take(example)
        with self._lock.current:
            places = self._places_of(different)
            counts = np.concatenate([part.counts for part in waiting])
            np.add.at(self._counts, places.take(which), counts)

    def _places_of(self, different: Words) -> NDArray[np.int64]:
        """The places of words, new ones for those that have none; no two of them are alike."""
        places = self._tables.find(different)  # some were learned while they waited
        absent = np.flatnonzero(places == ABSENT)
        first = len(self._counts)
        places[absent] = np.arange(first, first + len(absent))
        new = joined([different.take(absent)])
        self._known.append(new)
        self._counts = np.concatenate([self._counts, np.zeros(len(absent), np.int64)])
        self._tables.add(new, places[absent])
        return places
