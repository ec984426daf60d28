"""Words of a text, found in tables by their bytes: one table for each width of words."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax.core.ragged import concatenate_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]
    """Shape `(pretokens, columns)`; the first column is never 0."""


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


class HashTable:
    """Keys to values. Reading needs no lock.

    Args:
        columns: how many 64-bit numbers a key has.
        pretokens: how many words there will be at least.
    """

    def __init__(self, columns: int, pretokens: int = 256) -> None:
        self._slots_per_key = 4 if columns <= _NARROW else 2  # the emptier, the sooner a word is found
        # Drawn anew for each table, so that no text can be made whose words all want the same slots.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(columns)]
        self._slots = _Slots((self._slots_per_key * pretokens).bit_length(), columns)
        self._used = 0
        self._lock = ThreadLock()

    def __len__(self) -> int:
        """How many words are known."""
        return self._used

    @property
    def nbytes(self) -> int:
        """The least memory for so many words; with room to grow it takes up to twice as much."""
        return self._used * self._slots_per_key * self._slots.rows.itemsize * (len(self._factors) + 1)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The value of each word, `ABSENT` for those that are not known."""
        slots = self._slots
        at = self._compute_first_slots(slots, keys)
        same, rows = slots.compare(at, keys)
        values = rows[:, -1].copy()
        left = np.flatnonzero(~same)
        if len(left):
            self._probe(slots, keys, at, values, left)
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
            wanted = self._slots_per_key * (self._used + len(values))
            if wanted > len(self._slots):
                self._grow(wanted)
            self._used += self._insert(self._slots, keys, values)

    def hash_keys(self, keys: Keys) -> NDArray[np.uint64]:
        """A number for each key, equal for equal keys, and seldom for others."""
        hashes: NDArray[np.uint64] = keys[:, 0] * self._factors[0]
        for i, factor in enumerate(self._factors[1:], 1):
            hashes += keys[:, i] * factor
        return hashes

    def _probe(
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

    def _insert(self, slots: _Slots, keys: Keys, values: NDArray[np.int64]) -> int:
        """Put words into free slots, each once: how many. Of several that want one, the first gets it."""
        at = self._compute_first_slots(slots, keys)
        claims = np.empty(len(slots), np.int32)
        is_left = np.ones(len(values), bool)
        left, num_inserted = np.arange(len(values)), 0
        while len(left):
            wanting = left[slots.rows[at.take(left), 0] == 0]
            claims[at[wanting[::-1]]] = wanting[::-1]
            winners = wanting[claims[at[wanting]] == wanting]
            where = at[winners]
            slots.rows.view(np.int64)[where, -1] = values[winners]
            slots.rows[where, 1:-1] = keys[winners, 1:]
            slots.rows[where, 0] = keys[winners, 0]
            num_inserted += len(winners)
            is_left[winners] = False
            left = left[is_left[left]]
            left = left[~slots.compare(at.take(left), keys.take(left, axis=0))[0]]
            at[left] = at[left] + 1 & slots.mask
        return num_inserted

    def _grow(self, slots: int) -> None:
        """Move to at least so many slots."""
        old, columns = self._slots.rows, len(self._factors)
        grown = _Slots(slots.bit_length(), columns)
        old = old.take(np.flatnonzero(old[:, 0]), axis=0)
        self._insert(grown, old[:, :-1], old[:, -1].view(np.int64))
        self._slots = grown

    def _compute_first_slots(self, slots: _Slots, keys: Keys) -> NDArray[np.int64]:
        hashes = self.hash_keys(keys)
        hashes >>= slots.shift
        return hashes.view(np.int64)


_COLUMNS = (1, 2, 4, 8, 16)
_COLUMN_BYTES = 8
MAX_PRETOKEN_BYTES = _COLUMN_BYTES * _COLUMNS[-1]
"""Longer words, in bytes, are in no table; nor are words with a zero byte."""
_MASKS = {
    columns: (np.tri(8 * columns + 1, 8 * columns, -1, np.uint8) * np.uint8(0xFF)).view(np.uint64)
    for columns in _COLUMNS
}
"""By columns, for each length: as many bytes that are all ones, and zeros behind them."""
_SHORT_MASKS = _MASKS[1].reshape(-1)
_LINE_FEED_KEY = np.uint64(ord("\n"))


class Pretokens(NamedTuple):
    """Where words stand in a text.

    Attributes:
        data: `uint8`; behind the last word are `MAX_PRETOKEN_BYTES` more bytes.
        starts: where each word starts, `int64`, shape `(pretokens,)`.
        lengths: how many bytes each has, at least 1, `int64`, shape `(pretokens,)`.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def take(self, indices: NDArray[np.int64]) -> Pretokens:
        """Some of the words."""
        return Pretokens(self.data, self.starts.take(indices), self.lengths.take(indices))

    def iter_bytes(self) -> Iterator[bytes]:
        """The bytes of each word."""
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.data[start : start + length].tobytes()


def make_pretokens(texts: Sequence[bytes]) -> Pretokens:
    """Words laid end to end."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    data = np.frombuffer(b"".join(texts) + bytes(MAX_PRETOKEN_BYTES), np.uint8)
    return Pretokens(data, np.cumsum(lengths) - lengths, lengths)


def concatenate_pretokens(parts: Sequence[Pretokens]) -> Pretokens:
    """Words of several texts, laid end to end."""
    texts = [part.data.take(concatenate_ranges(part.starts, part.lengths)) for part in parts]
    lengths = np.concatenate([part.lengths for part in parts])
    data = np.concatenate([*texts, np.zeros(MAX_PRETOKEN_BYTES, np.uint8)])
    return Pretokens(data, np.cumsum(lengths) - lengths, lengths)


class HashTables:
    """Values of words of up to `MAX_PRETOKEN_BYTES` bytes. A line feed is known from the first.

    Args:
        pretokens: those that are known from the first.
        values: their values, `int64`, shape `(pretokens,)`.
    """

    def __init__(self, pretokens: Pretokens, values: NDArray[np.int64]) -> None:
        self._tables = [HashTable(columns) for columns in _COLUMNS]
        self.add(pretokens, values)

    @property
    def nbytes(self) -> int:
        """How much memory the words take, to within a factor of two."""
        return sum(table.nbytes for table in self._tables)

    def find(self, pretokens: Pretokens) -> NDArray[np.int64]:
        """The value of each word, `ABSENT` for those that are not known."""
        keys = _build_short_keys(pretokens)
        longer = np.flatnonzero(pretokens.lengths > _COLUMN_BYTES)
        keys[longer] = _LINE_FEED_KEY  # whatever is found for them is overwritten
        values = self._tables[0].find(keys)
        if len(longer):
            values[longer] = self._find_longer(pretokens.take(longer))
        zeros = _find_zero_bytes(pretokens)
        if len(zeros):
            values[zeros] = ABSENT
        return values

    def _find_longer(self, pretokens: Pretokens) -> NDArray[np.int64]:
        values = np.full(len(pretokens.starts), ABSENT)
        for table, columns, indices in self._iter_tables(pretokens, 1):
            values[indices] = table.find(_build_keys(pretokens.take(indices), columns))
        return values

    def add(self, pretokens: Pretokens, values: NDArray[np.int64]) -> None:
        """Remember words. Those that are known stay as they are; what no table can hold is left out."""
        held = np.flatnonzero(can_hold(pretokens))
        pretokens, values = pretokens.take(held), values.take(held)
        for table, columns, indices in self._iter_tables(pretokens, 0):
            table.add(_build_keys(pretokens.take(indices), columns), values.take(indices))

    def unique(self, pretokens: Pretokens) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One place of each different word, and for all words which of those it is like.

        Args:
            pretokens: of them `can_hold` is true.
        """
        which = np.empty(len(pretokens.starts), np.int64)
        examples: list[NDArray[np.int64]] = []
        count = 0
        for table, columns, indices in self._iter_tables(pretokens, 0):
            example, group_indices = _group_keys(table, _build_keys(pretokens.take(indices), columns))
            examples.append(indices[example])
            which[indices] = group_indices + count
            count += len(example)
        return np.concatenate(examples), which

    def _iter_tables(
        self, pretokens: Pretokens, first: int
    ) -> Iterator[tuple[HashTable, int, NDArray[np.int64]]]:
        """Each table, from the first that counts, with the places of the words that are its own."""
        columns = -(-pretokens.lengths // _COLUMN_BYTES)
        below = 0 if first == 0 else _COLUMNS[first - 1]
        for table, width in zip(self._tables[first:], _COLUMNS[first:], strict=True):
            indices = np.flatnonzero((columns > below) & (columns <= width))
            if len(indices):
                yield table, width, indices
            below = width


def can_hold(pretokens: Pretokens) -> NDArray[np.bool_]:
    """Which words a table can hold: those of up to `MAX_PRETOKEN_BYTES` bytes, none of them zero."""
    held: NDArray[np.bool_] = pretokens.lengths <= MAX_PRETOKEN_BYTES
    held[_find_zero_bytes(pretokens)] = False
    return held


def _build_keys(pretokens: Pretokens, columns: int) -> Keys:
    """The bytes of each word, with zeros behind its end."""
    size = columns * _COLUMN_BYTES
    from_anywhere = np.ndarray((len(pretokens.data) - size + 1,), f"V{size}", pretokens.data, 0, (1,))
    keys = from_anywhere[pretokens.starts].view(np.uint64).reshape(-1, columns)
    keys &= _MASKS[columns].take(pretokens.lengths, axis=0)
    return keys


def _build_short_keys(pretokens: Pretokens) -> Keys:
    """The same of the first eight bytes of many words."""
    aligned = pretokens.data[: len(pretokens.data) // _COLUMN_BYTES * _COLUMN_BYTES].view(np.uint64)
    at = pretokens.starts >> 3
    keys = aligned.take(at, mode="clip")
    following = aligned[1:].take(at, mode="clip")
    shifts = pretokens.starts.view(np.uint64) << np.uint64(3)
    shifts &= np.uint64(56)
    keys >>= shifts
    np.subtract(np.uint64(64), shifts, out=shifts)
    following <<= shifts
    keys |= following
    keys &= _SHORT_MASKS.take(pretokens.lengths, mode="clip")
    return keys[:, None]


def _find_zero_bytes(pretokens: Pretokens) -> NDArray[np.int64]:
    """Which words hold a zero byte: seldom any."""
    text = pretokens.data[:-MAX_PRETOKEN_BYTES]
    if not len(pretokens.starts) or text.min():
        return np.zeros(0, np.int64)
    zeros = np.flatnonzero(text == 0)
    after = np.searchsorted(zeros, pretokens.starts)
    return np.flatnonzero(np.searchsorted(zeros, pretokens.starts + pretokens.lengths) > after)


def _group_keys(table: HashTable, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One place of each different key, and for all places which of those it is like."""
    hashes = table.hash_keys(keys)
    order = np.argsort(hashes)
    ordered = keys.take(order, axis=0)
    new = np.ones(len(order), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    return order[new], which
