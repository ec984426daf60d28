"""All words that an engine remembers, and what it does with those that it meets for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax.bpe.batch_merging import NO_WORDS, MergedWords
from tokjax.bpe.hash_tables import ABSENT, WordTables, can_hold, joined, words_of
from tokjax.core.ragged import ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Words

MAX_KNOWN_BYTES = 1 << 26
"""How much memory words may take before all but the vocabulary is forgotten; it is up to four times as much
while a table grows."""
MAX_KNOWN_TOKENS = 1 << 23
"""How many ids of words are remembered at most, about."""
# A word's value: where in the pool its first id is, and how many it has.
_COUNT = 32
_PLACE = np.int64((1 << _COUNT) - 1)
_NOWHERE = np.zeros(0, np.int64)


class Ids(NamedTuple):
    """The ids of words, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        ends: how many ids there are up to the end of each word, `int64`, shape `(words,)`.
    """

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]

    @property
    def begins_word(self) -> NDArray[np.bool_]:
        """Which of them begin a word, shape `(n,)`."""
        begins = np.zeros(len(self.ids), bool)
        begins[:1] = True
        begins[self.ends[:-1]] = True
        return begins


class Found(NamedTuple):
    """Words that were looked up.

    Attributes:
        known: where.
        words: the words.
        values: what stands for their ids, `int64`, shape `(words,)`.
        absent: the words that have to be learned, `int64`, shape `(absent,)`.
        apart: the words that no table can hold, `int64`, shape `(apart,)`.
    """

    known: _Known
    words: Words
    values: NDArray[np.int64]
    absent: NDArray[np.int64]
    apart: NDArray[np.int64]


class Merger(Protocol):
    """Says which ids new words have."""

    def merge(self, words: Words) -> MergedWords:
        """The ids of words, at least one of each."""


class KnownWords:
    """The words of a vocabulary, and others that were merged once.

    Threads can share it: reading takes no lock.

    Args:
        whole: bytes to id, of words that are one token.
        merger: what knows the ids of all others.
    """

    def __init__(self, whole: Mapping[bytes, int], merger: Merger) -> None:
        self._whole = whole
        self._lock = ThreadLock()
        self._known = _Known(whole)
        self._merger = merger

    def find(self, words: Words) -> Found:
        """Look words up."""
        return self._known.find(words)

    def learn(self, parts: list[Found]) -> list[Found]:
        """Merge the words that are absent, each once, and remember them.

        The more are merged together, the less each of them costs.

        Returns:
            The same parts, with nothing absent.
        """
        if not parts:
            return []
        known = self._room()
        parts = [found if found.known is known else known.find(found.words) for found in parts]
        absent = joined([found.words.take(found.absent) for found in parts])
        if len(absent.starts):
            values = self._values_of(known, absent)
            stops = np.cumsum([len(found.absent) for found in parts])
            for found, of_part in zip(parts, np.split(values, stops[:-1]), strict=True):
                found.values[found.absent] = of_part
        return [found._replace(absent=_NOWHERE) for found in parts]

    def ids_of(self, found: Found) -> Ids:
        """The ids of words of which none is absent."""
        merged = self._merge_apart(found.words.take(found.apart)) if len(found.apart) else NO_WORDS
        return found.known.pool.expanded(found.values, found.apart, merged)

    def _values_of(self, known: _Known, words: Words) -> NDArray[np.int64]:
        """The values of words, of which those that are not known are learned."""
        example, which = known.tables.different(words)
        different = words.take(example)
        values = known.tables.find(different)  # another thread may have learned some in the meantime
        absent = np.flatnonzero(values == ABSENT)
        new = different.take(absent)
        merged = self._merger.merge(new)
        with self._lock.current:
            of_new = known.pool.add(merged)
        known.tables.add(new, of_new)
        values[absent] = of_new
        return values.take(which)

    def _merge_apart(self, words: Words) -> MergedWords:
        """The ids of words that no table can hold: they are merged each time."""
        texts = list(words.texts())
        different = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        which = np.fromiter(map(different.__getitem__, texts), np.int64, len(texts))
        id_of = np.array([self._whole.get(text, ABSENT) for text in different], np.int32)
        is_token = id_of != ABSENT
        others = [text for text, known in zip(different, is_token.tolist(), strict=True) if not known]
        merged = self._merger.merge(words_of(others))
        counts = np.ones(len(different), np.int64)
        counts[~is_token] = merged.counts
        ids = np.repeat(id_of, counts)
        ids[np.repeat(~is_token, counts)] = merged.ids
        lengths = counts[which]
        return MergedWords(ids[ranges((np.cumsum(counts) - counts)[which], lengths)], lengths)

    def _room(self) -> _Known:
        """What is known; nothing but the vocabulary, after a time when too much was."""
        known = self._known
        if known.is_full:
            known = self._known = _Known(self._whole)
        return known


class _Known:
    """What is remembered at a time, from the vocabulary on."""

    def __init__(self, whole: Mapping[bytes, int]) -> None:
        ids = np.fromiter(whole.values(), np.int32, len(whole))
        self.pool = _Pool()
        self.tables = WordTables(
            words_of(list(whole)), self.pool.add(MergedWords(ids, np.ones(len(ids), np.int64)))
        )
        self._vocabulary = self.tables.nbytes

    def find(self, words: Words) -> Found:
        """Look words up."""
        values = self.tables.find(words)
        missing = np.flatnonzero(values == ABSENT)
        held = can_hold(words.take(missing)) if len(missing) else np.ones(0, bool)
        return Found(self, words, values, missing[held], missing[~held])

    @property
    def is_full(self) -> bool:
        """Whether it is time to forget."""
        return self.tables.nbytes > self._vocabulary + MAX_KNOWN_BYTES or self.pool.used > MAX_KNOWN_TOKENS


class _Pool:
    """The ids of all words, each word's side by side."""

    def __init__(self) -> None:
        self.ids = np.zeros(1 << 12, np.int32)
        self.used = 0

    def add(self, merged: MergedWords) -> NDArray[np.int64]:
        """Remember the ids of words; the values that stand for them."""
        start, stop = self.used, self.used + len(merged.ids)
        if stop > len(self.ids):
            self.ids = np.concatenate([self.ids, np.zeros(stop, np.int32)])
        self.ids[start:stop] = merged.ids
        self.used = stop
        return _values(merged, start)

    def expanded(self, values: NDArray[np.int64], apart: NDArray[np.int64], merged: MergedWords) -> Ids:
        """The ids that values stand for.

        Args:
            values: those of all words of a chunk.
            apart: the words that are in no table, whatever their values.
            merged: their ids.
        """
        values[apart] = merged.counts << _COUNT
        counts = values >> _COUNT
        ends = np.cumsum(counts)
        starts = ends - counts
        places = values & _PLACE
        places -= starts
        places = np.repeat(places, counts)
        places += np.arange(len(places))
        ids = self.ids.take(places, mode="clip")
        ids[ranges(starts.take(apart), merged.counts)] = merged.ids
        return Ids(ids, ends)


def _values(merged: MergedWords, start: int) -> NDArray[np.int64]:
    """What stands for words whose ids lie end to end in a pool, from `start` on."""
    return merged.counts << _COUNT | start + np.cumsum(merged.counts) - merged.counts
