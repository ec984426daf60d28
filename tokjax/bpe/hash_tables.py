"""Words of a text, found in tables by their bytes: one table for each width of words."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax.core.ragged import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


_COLUMNS = (1, 2, 4, 8, 16)
_COLUMN_BYTES = 8
LONGEST = _COLUMN_BYTES * _COLUMNS[-1]
"""Longer words, in bytes, are in no table; nor are words with a zero byte."""
_MASKS = {
    columns: (np.tri(8 * columns + 1, 8 * columns, -1, np.uint8) * np.uint8(0xFF)).view(np.uint64)
    for columns in _COLUMNS
}
"""By columns, for each length: as many bytes that are all ones, and zeros behind them."""
_SHORT_MASKS = _MASKS[1].reshape(-1)
_KEY_OF_LINE_FEED = np.uint64(ord("\n"))


class Words(NamedTuple):
    """Where words stand in a text.

    Attributes:
        data: `uint8`; behind the last word are `LONGEST` more bytes.
        starts: where each word starts, `int64`, shape `(words,)`.
        lengths: how many bytes each has, at least 1, `int64`, shape `(words,)`.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def take(self, places: NDArray[np.int64]) -> Words:
        """Some of the words."""
        return Words(self.data, self.starts.take(places), self.lengths.take(places))

    def texts(self) -> Iterator[bytes]:
        """The bytes of each word."""
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.data[start : start + length].tobytes()


def words_of(texts: Sequence[bytes]) -> Words:
    """Words laid end to end."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    data = np.frombuffer(b"".join(texts) + bytes(LONGEST), np.uint8)
    return Words(data, np.cumsum(lengths) - lengths, lengths)


def joined(parts: Sequence[Words]) -> Words:
    """Words of several texts, laid end to end."""
    texts = [part.data.take(ranges(part.starts, part.lengths)) for part in parts]
    lengths = np.concatenate([part.lengths for part in parts])
    data = np.concatenate([*texts, np.zeros(LONGEST, np.uint8)])
    return Words(data, np.cumsum(lengths) - lengths, lengths)


class WordTables:
    """Values of words of up to `LONGEST` bytes. A line feed is known from the first.

    Args:
        words: those that are known from the first.
        values: their values, `int64`, shape `(words,)`.
    """

    def __init__(self, words: Words, values: NDArray[np.int64]) -> None:
        self._tables = [WordTable(columns) for columns in _COLUMNS]
        self.add(words, values)

    @property
    def nbytes(self) -> int:
        """How much memory the words take, to within a factor of two."""
        return sum(table.nbytes for table in self._tables)

    def find(self, words: Words) -> NDArray[np.int64]:
        """The value of each word, `ABSENT` for those that are not known."""
        keys = _short_keys(words)
        longer = np.flatnonzero(words.lengths > _COLUMN_BYTES)
        keys[longer] = _KEY_OF_LINE_FEED  # whatever is found for them is overwritten
        values = self._tables[0].find(keys)
        if len(longer):
            values[longer] = self._find_longer(words.take(longer))
        zeros = _with_zero_byte(words)
        if len(zeros):
            values[zeros] = ABSENT
        return values

    def _find_longer(self, words: Words) -> NDArray[np.int64]:
        values = np.full(len(words.starts), ABSENT)
        for table, columns, places in self._by_width(words, 1):
            values[places] = table.find(_keys(words.take(places), columns))
        return values

    def add(self, words: Words, values: NDArray[np.int64]) -> None:
        """Remember words. Those that are known stay as they are; what no table can hold is left out."""
        held = np.flatnonzero(can_hold(words))
        words, values = words.take(held), values.take(held)
        for table, columns, places in self._by_width(words, 0):
            table.add(_keys(words.take(places), columns), values.take(places))

    def different(self, words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One place of each different word, and for all words which of those it is like.

        Args:
            words: of them `can_hold` is true.
        """
        which = np.empty(len(words.starts), np.int64)
        examples: list[NDArray[np.int64]] = []
        count = 0
        for table, columns, places in self._by_width(words, 0):
            example, of_places = _grouped(table, _keys(words.take(places), columns))
            examples.append(places[example])
            which[places] = of_places + count
            count += len(example)
        return np.concatenate(examples), which

    def _by_width(self, words: Words, first: int) -> Iterator[tuple[WordTable, int, NDArray[np.int64]]]:
        """Each table, from the first that counts, with the places of the words that are its own."""
        columns = -(-words.lengths // _COLUMN_BYTES)
        below = 0 if first == 0 else _COLUMNS[first - 1]
        for table, width in zip(self._tables[first:], _COLUMNS[first:], strict=True):
            places = np.flatnonzero((columns > below) & (columns <= width))
            if len(places):
                yield table, width, places
            below = width


def can_hold(words: Words) -> NDArray[np.bool_]:
    """Which words a table can hold: those of up to `LONGEST` bytes, none of them zero."""
    held: NDArray[np.bool_] = words.lengths <= LONGEST
    held[_with_zero_byte(words)] = False
    return held


def _keys(words: Words, columns: int) -> Keys:
    """The bytes of each word, with zeros behind its end."""
    size = columns * _COLUMN_BYTES
    from_anywhere = np.ndarray((len(words.data) - size + 1,), f"V{size}", words.data, 0, (1,))
    keys = from_anywhere[words.starts].view(np.uint64).reshape(-1, columns)
    keys &= _MASKS[columns].take(words.lengths, axis=0)
    return keys


def _short_keys(words: Words) -> Keys:
    """The same of the first eight bytes of many words."""
    aligned = words.data[: len(words.data) // _COLUMN_BYTES * _COLUMN_BYTES].view(np.uint64)
    at = words.starts >> 3
    keys = aligned.take(at, mode="clip")
    behind = aligned[1:].take(at, mode="clip")
    shifts = words.starts.view(np.uint64) << np.uint64(3)
    shifts &= np.uint64(56)
    keys >>= shifts
    np.subtract(np.uint64(64), shifts, out=shifts)
    behind <<= shifts
    keys |= behind
    keys &= _SHORT_MASKS.take(words.lengths, mode="clip")
    return keys[:, None]


def _with_zero_byte(words: Words) -> NDArray[np.int64]:
    """Which words hold a zero byte: seldom any."""
    text = words.data[:-LONGEST]
    if not len(words.starts) or text.min():
        return np.zeros(0, np.int64)
    zeros = np.flatnonzero(text == 0)
    after = np.searchsorted(zeros, words.starts)
    return np.flatnonzero(np.searchsorted(zeros, words.starts + words.lengths) > after)


def _grouped(table: WordTable, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One place of each different key, and for all places which of those it is like."""
    mixed = table.mixed(keys)
    order = np.argsort(mixed)
    ordered = keys.take(order, axis=0)
    new = np.ones(len(order), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    return order[new], which
