"""Hash tables from pre-tokens to 64-bit values, with lookups of whole arrays.

The key of a pre-token is its bytes, as one or two 64-bit numbers, so no string is created. Pre-tokens of up
to 7 and of up to 15 bytes have separate tables. Bytes after the end of the pre-token are zero, but the last
one, which is the length plus 1: zero bytes can be part of a pre-token. The key of a longer pre-token is a
hash of its bytes, which are stored, and compared; see `LongPretokens`.

A table uses open addressing with linear probing. The first slot of a key is given by the highest bits of the
key times a random odd factor. With 16 slots and the factor 0x9E3779B97F4A7C15::

    pre-token   key                  first slot   slot
    low         0400000000776f6c         11        11
    new         040000000077656e         12        12
    newer       060000726577656e         13        13
    est         0400000000747365         13        14     slot 13 holds another key

A lookup reads the first slots of all keys at once. The keys that were not there look at their next slot,
again all at once, until each of them is found or meets a free slot. The four keys are inserted together:
`newer` gets slot 13 because it is before `est`.

See docs/performance.md, section "Hash table".
"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.locks import ThreadLock
from tokjax._util.permutation import mix_bits
from tokjax.core.ragged import concatenate_ranges, group_equal_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Keys = NDArray[np.uint64]
    """Shape `(pretokens, columns)`; the first column is never 0."""


ABSENT = -1
"""The value of keys that are not in a table."""
_SLOTS_PER_KEY = 2
"""Minimum number of slots for each key. The sparser a table, the fewer keys need a second look."""


class HashTable:
    """Hash table from keys of a fixed width to 64-bit values. Reading takes no lock.

    There is one row for each slot, with the columns of the key and then the value. A slot is free if its
    first column is 0, whatever its value is. The first column of a slot is written last. So a thread that
    looks up a key while another thread writes it does not find the key.

    Args:
        columns: number of 64-bit numbers in a key.
        capacity: expected number of keys. The table grows if there are more.
    """

    def __init__(self, columns: int, capacity: int = 256) -> None:
        # The factors are random for each table, so nobody can construct a text whose pre-tokens all have the
        # same first slot.
        self._factors = [np.uint64(int.from_bytes(os.urandom(8), "little") | 1) for _ in range(columns)]
        self._rows = np.zeros((1 << (_SLOTS_PER_KEY * capacity).bit_length(), columns + 1), np.uint64)
        self._used = 0
        self._lock = ThreadLock()

    def __len__(self) -> int:
        """Returns the number of keys."""
        return self._used

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields, with the rows as they are now, for copies and for pickles, which come later."""
        return vars(self) | {"_rows": self._rows.copy()}

    @property
    def nbytes(self) -> int:
        """Minimum memory for this number of keys, in bytes. The table takes up to twice as much."""
        return self._used * _SLOTS_PER_KEY * self._rows.itemsize * self._rows.shape[1]

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Returns the value of each key, `ABSENT` for keys that are not in the table."""
        table = self._rows
        at = self._compute_first_slots(table, keys)
        same, rows = _compare(table, at, keys)
        values: NDArray[np.int64] = np.where(same, rows[:, -1], ABSENT)
        undecided = np.flatnonzero((rows[:, 0] != 0) & ~same)
        remaining = undecided
        while len(remaining):  # these keys look at their next slots, until they are found or meet a free one
            at, keys = at.take(undecided) + 1 & len(table) - 1, keys.take(undecided, axis=0)
            same, rows = _compare(table, at, keys)
            values[remaining] = np.where(same, rows[:, -1], ABSENT)
            undecided = np.flatnonzero((rows[:, 0] != 0) & ~same)
            remaining = remaining.take(undecided)
        return values

    def add(self, keys: Keys, values: NDArray[np.int64]) -> None:
        """Inserts keys. Existing keys keep their values. Of duplicate keys, the first is inserted.

        Args:
            keys: the keys, `uint64`, shape `(keys, columns)`.
            values: the value of each key, `int64`, shape `(keys,)`.
        """
        with self._lock.current:
            needed = _SLOTS_PER_KEY * (self._used + len(values))
            if needed > len(self._rows):
                self._grow(needed)
            self._used += self._insert(self._rows, keys, values)

    def hash_keys(self, keys: Keys) -> NDArray[np.uint64]:
        """Returns a hash of each key, `uint64`, shape `(keys,)`. Different keys rarely have equal hashes."""
        hashes: NDArray[np.uint64] = keys[:, 0] * self._factors[0]
        for i, factor in enumerate(self._factors[1:], 1):
            # Products mix upwards only: keys that differ in the last bytes of both columns would collide.
            hashes ^= hashes >> np.uint64(32)
            hashes += keys[:, i]
            hashes *= factor
        return hashes

    def _insert(self, table: NDArray[np.uint64], keys: Keys, values: NDArray[np.int64]) -> int:
        """Writes keys to free slots, each different key once. Returns the number of keys written."""
        at = self._compute_first_slots(table, keys)
        remaining, num_inserted = np.arange(len(values)), 0
        stored_values = table.view(np.int64)[:, -1]
        while len(remaining):
            same, rows = _compare(table, at, keys.take(remaining, axis=0))
            # Several keys may need the same free slot. Each writes its number there, the first key last, and
            # the key whose number remains gets the slot. Threads that read ignore the value of a free slot.
            is_free = rows[:, 0] == 0
            candidates = np.flatnonzero(is_free)
            wanted, numbers = at.take(candidates), remaining.take(candidates)
            stored_values[wanted[::-1]] = numbers[::-1]
            has_won = stored_values[wanted] == numbers
            free, written = wanted[has_won], numbers[has_won]
            # The order matters to threads that read: the first column, which makes the row valid, comes last.
            stored_values[free] = values.take(written)
            for column in reversed(range(keys.shape[1])):
                table[free, column] = keys[written, column]
            num_inserted += len(written)
            # The other keys look at this slot again if it was free, and at the next slot if it was not. Keys
            # that are in the slot are duplicates, or were in the table before.
            same[candidates[has_won]] = True
            others = np.flatnonzero(~same)
            at, remaining = at.take(others) + ~is_free.take(others) & len(table) - 1, remaining.take(others)
        return num_inserted

    def _grow(self, slots: int) -> None:
        """Moves all keys to a larger array of at least `slots` slots. Threads that read use the old one."""
        old = self._rows
        grown = np.zeros((1 << slots.bit_length(), old.shape[1]), np.uint64)
        old = old.take(np.flatnonzero(old[:, 0]), axis=0)
        self._insert(grown, old[:, :-1], old[:, -1].view(np.int64))
        self._rows = grown

    def _compute_first_slots(self, table: NDArray[np.uint64], keys: Keys) -> NDArray[np.int64]:
        hashes = self.hash_keys(keys)
        hashes >>= np.uint64(65 - len(table).bit_length())
        return hashes.view(np.int64)


def _compare(
    table: NDArray[np.uint64], at: NDArray[np.int64], keys: Keys
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Compares keys with the keys in the given slots of a table.

    Args:
        table: the rows of the table.
        at: the slot for each key, `int64`, shape `(keys,)`.
        keys: the keys.

    Returns:
        Whether each slot holds the key, and the rows of the slots.
    """
    # As records, of which `take` copies each as one item.
    records = table.view(f"V{table.itemsize * table.shape[1]}").reshape(-1)
    rows = records.take(at, mode="clip").view(np.int64).reshape(len(at), table.shape[1])
    same: NDArray[np.bool_] = rows[:, 0] == keys[:, 0].view(np.int64)
    for i in range(1, keys.shape[1]):
        same &= rows[:, i] == keys[:, i].view(np.int64)
    return same, rows


_WORD_BYTES = 8
"""Number of bytes of a column of a key."""
_MAX_COLUMNS = 2
PADDING_BYTES = _WORD_BYTES
"""Number of bytes after the last pre-token, so that a word can be read at any byte of each."""
_MASKS = (np.tri(_WORD_BYTES + 1, _WORD_BYTES, -1, np.uint8) * np.uint8(0xFF)).view(np.uint64).reshape(-1)
"""For each length, the mask of that many bytes, followed by zeros."""
_LENGTHS = np.append(np.arange(1, _WORD_BYTES + 1), 0).astype(np.uint64) << np.uint64(56)
"""For each length below 8, the length plus 1 in the highest byte, so that no key is 0; and 0 for 8."""
_DENSE = 12
"""If there is one pre-token in at most this many bytes, it is faster to read a word at each byte."""
_LINE_FEED_KEY = _LENGTHS[1] | np.uint64(ord("\n"))


class Pretokens(NamedTuple):
    """Pre-tokens as slices of one array of bytes.

    Attributes:
        data: the text, `uint8`. At least `PADDING_BYTES` more bytes follow the last pre-token.
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
    data = np.frombuffer(b"".join(texts) + bytes(PADDING_BYTES), np.uint8)
    return Pretokens(data, np.cumsum(lengths) - lengths, lengths)


def concatenate_pretokens(parts: Sequence[Pretokens]) -> Pretokens:
    """Returns the pre-tokens of several arrays in one array that contains nothing else."""
    texts = map(_join_bytes, parts)
    lengths = np.concatenate([part.lengths for part in parts])
    data = np.concatenate([*texts, np.zeros(PADDING_BYTES, np.uint8)])
    return Pretokens(data, np.cumsum(lengths) - lengths, lengths)


def _join_bytes(pretokens: Pretokens) -> NDArray[np.uint8]:
    """Returns the bytes of all pre-tokens, concatenated: a view if they are contiguous already."""
    data, starts, lengths = pretokens
    if len(starts) and (starts[1:] == starts[:-1] + lengths[:-1]).all():
        return data[starts[0] : starts[-1] + lengths[-1]]
    return data.take(concatenate_ranges(starts, lengths))


class LongPretokens:
    """Table of pre-tokens of any length. The keys are hashes of 64 bits, which are compared in full.

    The bytes of all pre-tokens are stored in one array of 64-bit words, each pre-token from a new word on. A
    pre-token whose hash equals that of another one is not found, even after it was added. Threads can read
    while another one adds, and can pickle the table.
    """

    def __init__(self) -> None:
        self._hashes = HashTable(1)
        self._seed = np.frombuffer(os.urandom(_WORD_BYTES), np.uint64)
        self._words = np.zeros(1 << 8, np.uint64)
        self._rows = np.zeros((1 << 5, 3), np.int64)  # first word, number of bytes, and value
        self._num_words: int = 0
        self._num_rows: int = 0
        self._lock = ThreadLock()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields. The rows to which the hashes lead are all there, as no thread adds any now."""
        with self._lock.current:
            return vars(self) | {"_hashes": copy.copy(self._hashes)}

    @property
    def nbytes(self) -> int:
        """Memory of the table in bytes, to within a factor of two."""
        return self._hashes.nbytes + self._num_words * _WORD_BYTES + self._num_rows * self._rows.itemsize * 3

    def find(self, pretokens: Pretokens) -> NDArray[np.int64]:
        """Returns the value of each pre-token, `ABSENT` for those that are not in the table."""
        words, num_words, hashes = self._read_words(pretokens)
        number = self._hashes.find(hashes[:, None])
        values = np.full(len(number), ABSENT)
        # These arrays are read after the numbers, so they have the rows of the numbers.
        known_rows, known_words = self._rows, self._words
        hits = np.flatnonzero(number != ABSENT)
        starts, lengths, known_values = known_rows.take(number.take(hits), axis=0).T
        is_equal = lengths == pretokens.lengths.take(hits)
        hits, starts = hits[is_equal], starts[is_equal]
        if len(hits):
            first, counts = (np.cumsum(num_words) - num_words).take(hits), num_words.take(hits)
            same = words.take(concatenate_ranges(first, counts)) == known_words.take(
                concatenate_ranges(starts, counts)
            )
            is_same = np.logical_and.reduceat(same, np.cumsum(counts) - counts)
            values[hits[is_same]] = known_values[is_equal][is_same]
        return values

    def add(self, pretokens: Pretokens, values: NDArray[np.int64]) -> None:
        """Inserts pre-tokens. Existing ones keep their values. Of duplicates, the first is inserted."""
        words, num_words, hashes = self._read_words(pretokens)
        rows = np.stack([np.cumsum(num_words) - num_words, pretokens.lengths, values], axis=1)
        with self._lock.current:
            rows[:, 0] += self._num_words
            self._words = append_rows(self._words, self._num_words, words)
            self._rows = append_rows(self._rows, self._num_rows, rows)
            self._hashes.add(hashes[:, None], np.arange(self._num_rows, self._num_rows + len(rows)))
            self._num_words += len(words)
            self._num_rows += len(rows)

    def unique(self, pretokens: Pretokens) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Finds the different pre-tokens, as `HashTables.unique`."""
        return group_equal_rows(*self._read_words(pretokens))

    def _read_words(
        self, pretokens: Pretokens
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint64]]:
        """Returns the words of all pre-tokens, the number of words of each, and the hash of each.

        The last word has less than 8 bytes, and their number: different pre-tokens have different words.
        """
        num_words = (pretokens.lengths >> 3) + 1
        if not len(num_words):
            return np.zeros(0, np.uint64), num_words, np.zeros(0, np.uint64)
        index = concatenate_ranges(0, num_words)
        offsets = index * _WORD_BYTES
        words = _read_keys(
            Pretokens(
                pretokens.data,
                np.repeat(pretokens.starts, num_words) + offsets,
                np.repeat(pretokens.lengths, num_words) - offsets,
            )
        )
        factors = mix_bits(self._seed + np.arange(num_words.max(), dtype=np.uint64)).take(index) | np.uint64(
            1
        )
        terms = words * factors
        terms ^= terms >> np.uint64(32)  # the factors mix only upwards
        terms *= factors
        hashes: NDArray[np.uint64] = np.add.reduceat(terms, np.cumsum(num_words) - num_words)
        return words, num_words, hashes | np.uint64(1)  # no key may be 0


class HashTables:
    """Hash tables from pre-tokens to values.

    Args:
        pretokens: the first pre-tokens. They should include a line feed: `find` looks it up in the narrowest
            table in place of each longer pre-token, which is fastest if the line feed is there.
        values: the values of these pre-tokens, `int64`, shape `(pretokens,)`.
    """

    def __init__(self, pretokens: Pretokens, values: NDArray[np.int64]) -> None:
        self._short, self._medium, self._long = HashTable(1), HashTable(2), LongPretokens()
        self.add(pretokens, values)

    @property
    def nbytes(self) -> int:
        """Memory of the tables in bytes, to within a factor of two."""
        return self._short.nbytes + self._medium.nbytes + self._long.nbytes

    def find(self, pretokens: Pretokens) -> NDArray[np.int64]:
        """Returns the value of each pre-token, `ABSENT` for those that are not in the tables."""
        # Most pre-tokens are short. Looking up all of them in the narrowest table avoids selecting the short
        # ones, which would cost more than the useless lookups of the longer ones.
        keys = _read_keys(pretokens)
        longer = np.flatnonzero(pretokens.lengths >= _WORD_BYTES)
        first_words = keys.take(longer)
        keys[longer] = _LINE_FEED_KEY  # any key that is in the table: the values are overwritten
        values = self._short.find(keys[:, None])
        is_medium = pretokens.lengths.take(longer) < 2 * _WORD_BYTES
        medium, long = longer[is_medium], longer[~is_medium]
        if len(medium):
            last_words = _read_keys(_skip_word(pretokens.take(medium)))
            values[medium] = self._medium.find(np.stack([last_words, first_words[is_medium]], axis=1))
        if len(long):
            values[long] = self._long.find(pretokens.take(long))
        return values

    def add(self, pretokens: Pretokens, values: NDArray[np.int64]) -> None:
        """Inserts pre-tokens. Existing ones keep their values."""
        num_words = np.minimum(pretokens.lengths // _WORD_BYTES, 2)
        short, medium, long = (np.flatnonzero(num_words == number) for number in range(3))
        self._short.add(_read_keys(pretokens.take(short))[:, None], values.take(short))
        if len(medium):
            of_medium = pretokens.take(medium)
            keys = np.stack([_read_keys(_skip_word(of_medium)), _read_keys(of_medium)], axis=1)
            self._medium.add(keys, values.take(medium))
        if len(long):
            self._long.add(pretokens.take(long), values.take(long))

    def unique(self, pretokens: Pretokens) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Finds the different pre-tokens, in no particular order.

        Returns:
            The index of one occurrence of each different pre-token, `int64`, shape `(unique,)`; and for each
            pre-token, which of the different ones it equals, `int64`, shape `(pretokens,)`.
        """
        return self._long.unique(pretokens)


def append_rows(array: NDArray[Any], used: int, rows: NDArray[Any]) -> NDArray[Any]:
    """Returns an array with rows written after the used ones: the same, or a larger one if it is full."""
    stop = used + len(rows)
    if stop > len(array):
        # A new array: threads that read the old one are not disturbed.
        array = np.concatenate([array, np.zeros((stop, *array.shape[1:]), array.dtype)])
    array[used:stop] = rows
    return array


def _skip_word(pretokens: Pretokens) -> Pretokens:
    """Returns pre-tokens without their first 8 bytes."""
    return Pretokens(pretokens.data, pretokens.starts + _WORD_BYTES, pretokens.lengths - _WORD_BYTES)


def _read_keys(pretokens: Pretokens) -> NDArray[np.uint64]:
    """Returns the keys of pre-tokens of 0 to 7 bytes, or the first words of longer ones."""
    keys = _read_first_words(pretokens)
    keys |= _LENGTHS.take(pretokens.lengths, mode="clip")
    return keys


def _read_first_words(pretokens: Pretokens) -> NDArray[np.uint64]:
    """Returns the first eight bytes of each pre-token as one number, shape `(pretokens,)`.

    The bytes after its end are zero.
    """
    data, starts = pretokens.data, pretokens.starts
    # The 64-bit number that starts at each byte. These numbers overlap.
    at_each_byte = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", data, strides=(1,))
    if len(starts) > len(data) // _DENSE:
        words: NDArray[np.uint64] = at_each_byte.take(starts, mode="clip")  # copies all numbers first
    else:
        words = at_each_byte[starts]
    words &= _MASKS.take(pretokens.lengths, mode="clip")
    return words
