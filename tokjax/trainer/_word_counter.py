"""How often each different word was seen, for words that come as arrays."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.models._word_table import ABSENT
from tokjax.models._word_tables import Words, WordTables, can_hold, joined, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Counted(NamedTuple):
    """Different words, and how often each was seen.

    Attributes:
        words: no two of them alike.
        counts: `int64`, shape `(words,)`.
    """

    words: Words
    counts: NDArray[np.int64]


class WordCounter:
    """Counts words. Its memory is bounded by the different ones, and threads can share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        known = words_of([b"\n"])  # tables know it from the first
        self._tables = WordTables(known, np.zeros(1, np.int64))
        self._known = [known]
        self._counts = np.zeros(1, np.int64)
        self._others: Counter[bytes] = Counter()  # words that no table holds

    def __len__(self) -> int:
        """How many different words there are, about."""
        return len(self._counts) + len(self._others)

    def add(self, words: Words) -> None:
        """Count each of some words once more."""
        places, others = self._places_of(words)
        texts = list(words.take(others).texts())
        with self._lock:
            np.add.at(self._counts, places, 1)
            self._others.update(texts)

    def merge(self, counted: Counted) -> None:
        """Take in what another counter has seen."""
        words, counts = counted
        places, others = self._places_of(words)
        held = np.ones(len(counts), bool)
        held[others] = False
        with self._lock:
            self._counts[places] += counts[held]
            for word, count in zip(words.take(others).texts(), counts.take(others).tolist(), strict=True):
                self._others[word] += count

    def counted(self) -> Counted:
        """Every word that was seen."""
        seen = np.flatnonzero(self._counts)
        held = joined(self._known).take(seen)
        others = words_of(list(self._others))
        counts = [self._counts.take(seen), np.fromiter(self._others.values(), np.int64, len(self._others))]
        return Counted(joined([held, others]), np.concatenate(counts))

    def _places_of(self, words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the counts of the words are, but for those that no table holds; and which words those are."""
        places = self._tables.find(words)
        absent = np.flatnonzero(places == ABSENT)
        if not len(absent):
            return places, absent
        can_be_held = can_hold(words.take(absent))
        new, others = absent[can_be_held], absent[~can_be_held]
        if len(new):
            places[new] = self._learned(words.take(new))
        return np.delete(places, others), others

    def _learned(self, words: Words) -> NDArray[np.int64]:
        """Places for words that had none, one for all that are alike."""
        example, which = self._tables.different(words)
        different = words.take(example)
        with self._lock:
            places = self._tables.find(different)  # another thread may have learned some in the meantime
            absent = np.flatnonzero(places == ABSENT)
            first = len(self._counts)
            places[absent] = np.arange(first, first + len(absent))
            new = joined([different.take(absent)])
            self._known.append(new)
            self._counts = np.concatenate([self._counts, np.zeros(len(absent), np.int64)])
            self._tables.add(new, places[absent])
        return places.take(which)
