"""Hash tables from pre-tokens to 64-bit values, with lookups of whole arrays.

The key of a pre-token is its bytes, as one or more 64-bit numbers, so no string is created. Pre-tokens of up
to 8, 16, 32, 64 and 128 bytes have keys of 1, 2, 4, 8 and 16 numbers, with a separate `HashTable` for each
width. Bytes after the end of the pre-token are zero. So a pre-token with a zero byte has no unambiguous key,
and is in no table, like those of more than 128 bytes.

A table uses open addressing with linear probing. The first slot of a key is given by the highest bits of the
key times a random odd factor. With 16 slots and the factor 0x9E3779B97F4A7C15::

    pre-token   key                  first slot   slot
    low         0000000000776f6c         6          6
    new         000000000077656e         7          7
    est         0000000000747365         7          9     slots 7 and 8 hold other keys
    lowest      0000747365776f6c         8          8

A lookup reads the first slots of all keys at once. The keys that were not there look at their next slot,
again all at once, until each of them is found or meets a free slot. The four keys are inserted together:
`new` gets slot 7 because it is before `est`.

See docs/performance.md, section "Hash table".
"""

from __future__ import annotations

import os
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
"""The value of keys that are not in a table."""
_NARROW = 2
"""Narrow keys have at most this many columns. Their tables are sparser, and none of their columns is 0."""


class _Slots:
    """The slots of a table: one row per slot, with the columns of the key and then the value.

    A slot is free if its first column is 0. The value of a free slot is `ABSENT`, and the first column of a
    slot is written last. So a thread that looks up a key while another thread writes it does not find the
    key.
    """

    def __init__(self, bits: int, columns: int) -> None:
        self.shift = np.uint64(64 - bits)
        self.mask = (1 << bits) - 1
        self.rows = np.zeros((1 << bits, columns + 1), np.uint64)
        self.rows.view(np.int64)[:, -1] = ABSENT
        # The rows as records, so that `compare` takes each row as one item.
        self._records = self.rows.view(f"V{self.rows.itemsize * (columns + 1)}").reshape(-1)

    def __len__(self) -> int:
        return len(self.rows)

    def compare(self, at: NDArray[np.int64], keys: Keys) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Compares keys with the keys in the given slots.

        Args:
            at: the slot for each key, `int64`, shape `(keys,)`.
            keys: the keys.

        Returns:
            Whether each slot holds the key, and the rows of the slots.
        """
        rows = self._records.take(at, mode="clip").view(np.int64).reshape(len(at), self.rows.shape[1])
        same: NDArray[np.bool_] = rows[:, 0] == keys[:, 0].view(np.int64)
        for i in range(1, keys.shape[1]):
            same &= rows[:, i] == keys[:, i].view(np.int64)
        return same, rows


class HashTable:
    """Hash table from keys of a fixed width to 64-bit values. Reading takes no lock.

    Args:
        columns: number of 64-bit numbers in a key.
        capacity: expected number of keys. The table grows if there are more.
    """

    def __init__(self, columns: int, capacity: int = 256) -> None:
        # The sparser the table, the fewer keys need a second look. Wide rows would take too much memory.
        self._slots_per_key = 4 if columns <= _NARROW else 2
        # The factors are random for each table, so nobody can construct a text whose pre-tokens all have the
        # same first slot.
        self._factors = [np.uint64(int.from_bytes(os.urandom(8), "little") | 1) for _ in range(columns)]
        self._slots = _Slots((self._slots_per_key * capacity).bit_length(), columns)
        self._used = 0
        self._lock = ThreadLock()

    def __len__(self) -> int:
        """Returns the number of keys."""
        return self._used

    @property
    def nbytes(self) -> int:
        """Minimum memory for this number of keys, in bytes. The table takes up to twice as much."""
        return self._used * self._slots_per_key * self._slots.rows.itemsize * (len(self._factors) + 1)

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Returns the value of each key, `ABSENT` for keys that are not in the table."""
        slots = self._slots
        at = self._compute_first_slots(slots, keys)
        same, rows = slots.compare(at, keys)
        values = rows[:, -1].copy()
        remaining = np.flatnonzero(~same)
        if len(remaining):
            self._probe(slots, keys, at, values, remaining)
        if len(self._factors) > _NARROW:
            # A wide row that is read while another thread writes it may look like a shorter key, which has
            # zeros in its last columns. The first column, which is written last, was there. So the row is
            # complete now: compare it again.
            values[~slots.compare(at, keys)[0]] = ABSENT
        return values

    def add(self, keys: Keys, values: NDArray[np.int64]) -> None:
        """Inserts keys. Existing keys keep their values. Of duplicate keys, the first is inserted.

        Args:
            keys: the keys, `uint64`, shape `(keys, columns)`.
            values: the value of each key, `int64`, shape `(keys,)`.
        """
        with self._lock.current:
            needed = self._slots_per_key * (self._used + len(values))
            if needed > len(self._slots):
                self._grow(needed)
            self._used += self._insert(self._slots, keys, values)

    def hash_keys(self, keys: Keys) -> NDArray[np.uint64]:
        """Returns a hash of each key, `uint64`, shape `(keys,)`. Different keys rarely have equal hashes."""
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
        remaining: NDArray[np.int64],
    ) -> None:
        """Finds the keys that are not in their first slot.

        Args:
            slots: the slots of the table.
            keys: all keys of the lookup.
            at: the first slot of each key. Output: its slot, or the free slot where the search ended.
            values: output: the value of each remaining key.
            remaining: indices of the keys that are not in their first slot.
        """
        current, sought = at.take(remaining), keys.take(remaining, axis=0)
        while True:
            same, rows = slots.compare(current, sought)
            values[remaining] = np.where(same, rows[:, -1], ABSENT)
            undecided = np.flatnonzero((rows[:, 0] != 0) & ~same)
            if not len(undecided):
                return
            remaining = remaining.take(undecided)
            current, sought = current.take(undecided) + 1 & slots.mask, sought.take(undecided, axis=0)
            at[remaining] = current

    def _insert(self, slots: _Slots, keys: Keys, values: NDArray[np.int64]) -> int:
        """Writes keys to free slots, each different key once. Returns the number of keys written.

        Several keys may need the same free slot. `claims` decides between them: each key writes its index to
        the slot that it needs, in reverse order, so the index of the first key remains.
        """
        at = self._compute_first_slots(slots, keys)
        claims = np.empty(len(slots), np.int32)
        is_remaining = np.ones(len(values), bool)
        remaining, num_inserted = np.arange(len(values)), 0
        while len(remaining):
            claimants = remaining[slots.rows[at.take(remaining), 0] == 0]
            claims[at[claimants[::-1]]] = claimants[::-1]
            winners = claimants[claims[at[claimants]] == claimants]
            free = at[winners]
            # The order matters to threads that read: the first column, which makes the row valid, comes last.
            slots.rows.view(np.int64)[free, -1] = values[winners]
            slots.rows[free, 1:-1] = keys[winners, 1:]
            slots.rows[free, 0] = keys[winners, 0]
            num_inserted += len(winners)
            is_remaining[winners] = False
            remaining = remaining[is_remaining[remaining]]
            # Drop the keys that are in their slot by now: they are duplicates, or were in the table before.
            remaining = remaining[~slots.compare(at.take(remaining), keys.take(remaining, axis=0))[0]]
            at[remaining] = at[remaining] + 1 & slots.mask
        return num_inserted

    def _grow(self, slots: int) -> None:
        """Moves all keys to a larger array of at least `slots` slots. Threads that read use the old one."""
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
"""Maximum length of the pre-tokens in the tables, in bytes. None of them has a zero byte."""
_MASKS = {
    columns: (np.tri(8 * columns + 1, 8 * columns, -1, np.uint8) * np.uint8(0xFF)).view(np.uint64)
    for columns in _COLUMNS
}
"""For each number of columns, the mask of each length: that many bytes of ones, followed by zeros."""
_SHORT_MASKS = _MASKS[1].reshape(-1)
_LINE_FEED_KEY = np.uint64(ord("\n"))


class Pretokens(NamedTuple):
    """Pre-tokens as slices of one array of bytes.

    Attributes:
        data: the text, `uint8`. At least `MAX_PRETOKEN_BYTES` more bytes follow the last pre-token, so that
            keys of any width can be read.
        starts: index of the first byte of each pre-token, `int64`, shape `(pretokens,)`.
        lengths: number of bytes of each pre-token, at least 1, `int64`, shape `(pretokens,)`.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def take(self, indices: NDArray[np.int64]) -> Pretokens:
        """Returns the pre-tokens at the indices."""
        return Pretokens(self.data, self.starts.take(indices), self.lengths.take(indices))

    def iter_bytes(self) -> Iterator[bytes]:
        """Iterates over the bytes of each pre-token."""
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.data[start : start + length].tobytes()


def make_pretokens(texts: Sequence[bytes]) -> Pretokens:
    """Concatenates byte strings to pre-tokens."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    data = np.frombuffer(b"".join(texts) + bytes(MAX_PRETOKEN_BYTES), np.uint8)
    return Pretokens(data, np.cumsum(lengths) - lengths, lengths)


def concatenate_pretokens(parts: Sequence[Pretokens]) -> Pretokens:
    """Returns the pre-tokens of several arrays in one array that contains nothing else."""
    texts = [part.data.take(concatenate_ranges(part.starts, part.lengths)) for part in parts]
    lengths = np.concatenate([part.lengths for part in parts])
    data = np.concatenate([*texts, np.zeros(MAX_PRETOKEN_BYTES, np.uint8)])
    return Pretokens(data, np.cumsum(lengths) - lengths, lengths)


class HashTables:
    """Hash tables from pre-tokens of up to `MAX_PRETOKEN_BYTES` bytes to values, one for each width of keys.

    Args:
        pretokens: the first pre-tokens. They should include a line feed: `find` looks it up in the narrowest
            table in place of each longer pre-token, which is fastest if the line feed is there.
        values: the values of these pre-tokens, `int64`, shape `(pretokens,)`.
    """

    def __init__(self, pretokens: Pretokens, values: NDArray[np.int64]) -> None:
        self._tables = [HashTable(columns) for columns in _COLUMNS]
        self.add(pretokens, values)

    @property
    def nbytes(self) -> int:
        """Memory of the tables in bytes, to within a factor of two."""
        return sum(table.nbytes for table in self._tables)

    def find(self, pretokens: Pretokens) -> NDArray[np.int64]:
        """Returns the value of each pre-token, `ABSENT` for those that are not in the tables."""
        # Most pre-tokens are short. Looking up all of them in the narrowest table avoids selecting the short
        # ones, which would cost more than the useless lookups of the longer ones.
        keys = _build_short_keys(pretokens)
        longer = np.flatnonzero(pretokens.lengths > _COLUMN_BYTES)
        keys[longer] = _LINE_FEED_KEY  # any key that is in the table: the values are overwritten
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
        """Inserts pre-tokens. Existing ones keep their values. Those that no table can hold are skipped."""
        storable = np.flatnonzero(can_hold(pretokens))
        pretokens, values = pretokens.take(storable), values.take(storable)
        for table, columns, indices in self._iter_tables(pretokens, 0):
            table.add(_build_keys(pretokens.take(indices), columns), values.take(indices))

    def unique(self, pretokens: Pretokens) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Finds the different pre-tokens, in no particular order.

        Args:
            pretokens: pre-tokens for which `can_hold` is true.

        Returns:
            The index of one occurrence of each different pre-token, `int64`, shape `(unique,)`; and for each
            pre-token, which of the different ones it equals, `int64`, shape `(pretokens,)`.
        """
        inverse = np.empty(len(pretokens.starts), np.int64)
        examples: list[NDArray[np.int64]] = []
        count = 0
        for table, columns, indices in self._iter_tables(pretokens, 0):
            example, group_indices = _group_keys(table, _build_keys(pretokens.take(indices), columns))
            examples.append(indices[example])
            inverse[indices] = group_indices + count
            count += len(example)
        return np.concatenate(examples), inverse

    def _iter_tables(
        self, pretokens: Pretokens, first: int
    ) -> Iterator[tuple[HashTable, int, NDArray[np.int64]]]:
        """Iterates over the tables from number `first` on that hold some of the pre-tokens.

        Yields:
            A table, the number of columns of its keys, and the indices of the pre-tokens of that width.
        """
        columns = -(-pretokens.lengths // _COLUMN_BYTES)
        below = 0 if first == 0 else _COLUMNS[first - 1]
        for table, width in zip(self._tables[first:], _COLUMNS[first:], strict=True):
            indices = np.flatnonzero((columns > below) & (columns <= width))
            if len(indices):
                yield table, width, indices
            below = width


def can_hold(pretokens: Pretokens) -> NDArray[np.bool_]:
    """Returns which pre-tokens a table can hold: up to `MAX_PRETOKEN_BYTES` bytes, and no zero byte."""
    is_storable: NDArray[np.bool_] = pretokens.lengths <= MAX_PRETOKEN_BYTES
    is_storable[_find_zero_bytes(pretokens)] = False
    return is_storable


def _build_keys(pretokens: Pretokens, columns: int) -> Keys:
    """Returns the keys of pre-tokens of any width: their bytes, followed by zeros."""
    size = columns * _COLUMN_BYTES
    # A view of the text as overlapping records, one from each byte on.
    records = np.ndarray((len(pretokens.data) - size + 1,), f"V{size}", pretokens.data, 0, (1,))
    keys = records[pretokens.starts].view(np.uint64).reshape(-1, columns)
    keys &= _MASKS[columns].take(pretokens.lengths, axis=0)
    return keys


def _build_short_keys(pretokens: Pretokens) -> Keys:
    """Returns the keys of the first eight bytes of each pre-token.

    Each key is put together from the two aligned 64-bit numbers that contain its bytes::

        aligned numbers    |......lo|west....|
        key                       lowest          the bytes after its end are masked
    """
    aligned = pretokens.data[: len(pretokens.data) // _COLUMN_BYTES * _COLUMN_BYTES].view(np.uint64)
    at = pretokens.starts >> 3
    keys = aligned.take(at, mode="clip")
    following = aligned[1:].take(at, mode="clip")
    shifts = pretokens.starts.view(np.uint64) << np.uint64(3)
    shifts &= np.uint64(56)
    keys >>= shifts
    np.subtract(np.uint64(64), shifts, out=shifts)
    following <<= shifts  # a shift by 64, of an aligned key, gives 0 in NumPy
    keys |= following
    keys &= _SHORT_MASKS.take(pretokens.lengths, mode="clip")
    return keys[:, None]


def _find_zero_bytes(pretokens: Pretokens) -> NDArray[np.int64]:
    """Returns the indices of the pre-tokens that contain a zero byte. Few texts have any."""
    text = pretokens.data[:-MAX_PRETOKEN_BYTES]
    if not len(pretokens.starts) or text.min():
        return np.zeros(0, np.int64)
    zeros = np.flatnonzero(text == 0)
    before = np.searchsorted(zeros, pretokens.starts)
    return np.flatnonzero(np.searchsorted(zeros, pretokens.starts + pretokens.lengths) > before)


def _group_keys(table: HashTable, keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Finds the different keys. Sorting hashes is faster than sorting keys of several columns.

    Returns:
        The index of one occurrence of each different key; and for each key, the number of its group.
    """
    hashes = table.hash_keys(keys)
    order = np.argsort(hashes)
    ordered = keys.take(order, axis=0)
    is_new = np.ones(len(order), bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.cumsum(is_new) - 1
    return order[is_new], inverse
