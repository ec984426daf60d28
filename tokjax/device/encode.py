"""Encoding and decoding of byte-level BPE under `jax.jit`, with static shapes.

    bytes ──▶ characters ──▶ starts of pre-tokens ──▶ words ──▶ lookup in a hash table
              (`boundaries.py`)                       │               │ found: ids
                                                      │               ▼ not found
                                                      │          merging (`merging.py`)
                                                      ▼               ▼
                                                 ids and spans of all tokens

Every array has a capacity, since shapes are static. `Capacities` has them all. If a text needs more, the
result says so (`exceeded`), and how much of each is needed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tokjax._util.arrays import with_auto_axes
from tokjax._util.checks import check_int
from tokjax._util.display import short_repr
from tokjax.device.boundaries import SplitTables, decode_characters, find_starts
from tokjax.device.hash_table import ABSENT, HashTable, compute_hashes, find
from tokjax.device.merging import MergeTables, merge_words
from tokjax.device.scans import (
    ALIGNMENT,
    compact,
    count_before,
    cumulative_sum,
    find_true,
    number_segments,
    pack,
    store,
)
from tokjax.device.special import SpecialTables, find_special
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from jax import Array

KEY_BYTES = 16
"""Maximum number of bytes of words in the table."""
COUNT_BITS = 5
"""Bits of the number of ids in the values of the table. The other bits are the position of the first id."""


@short_repr
class TokenizerTables(NamedTuple):
    """Tables of a tokenizer for `encode_jit` and `decode_jit`, a pytree of arrays. See `tokenizer_tables`.

    Attributes:
        split: tables of each step of the split pattern.
        words: table from words to the position of their ids in `word_ids`.
        word_ids: ids of all words of the table, `int32`.
        merges: the merge rules.
        symbol_ids: id of each symbol, `int32`; `None` if the symbols are the ids.
        token_bytes: bytes of all tokens, `uint8`.
        token_splits: position of the bytes of each id, `int32`, shape `(ids + 1,)`.
        special: special tokens that are recognized in texts; `None` for none.
    """

    split: tuple[SplitTables, ...]
    words: HashTable
    word_ids: Any
    merges: MergeTables
    symbol_ids: Any
    token_bytes: Any
    token_splits: Any
    special: SpecialTables | None


class Capacities(NamedTuple):
    """Static sizes of the arrays of `encode_jit`, or the sizes that a text needs.

    Attributes:
        tokens: number of tokens.
        words: number of pre-tokens.
        misses: number of pre-tokens that are not in the table.
        miss_bytes: number of bytes of these together, without repeated pre-tokens of up to 16 bytes.
        long_symbols: number of symbols of those of more than 128 symbols. Most characters are one or two
            symbols.
        places: number of places that the automaton of the split pattern has to decide.
        special: number of places at which special tokens are looked for.
    """

    tokens: Any
    words: Any
    misses: Any
    miss_bytes: Any
    long_symbols: Any
    places: Any
    special: Any


@short_repr
class DeviceTokens(NamedTuple):
    """Tokens of several texts, a pytree of arrays of static shapes.

    Attributes:
        ids: token ids, `int32`, shape `(tokens,)`; -1 after the last one.
        offsets: span of each token in the bytes of its text, 1-based and half-open, `int32`, shape
            `(tokens, 2)`; `(0, 0)` after the last one.
        row_splits: first token of each text, and the end, `int32`, shape `(rows + 1,)`.
        num_tokens: number of tokens, `int32`, shape `()`.
        exceeded: whether a capacity was exceeded, or the row splits are invalid, `bool`, shape `()`. Then the
            tokens are not valid.
        needed: the capacities that the texts need, `int32`. Where another capacity was exceeded before, a
            number can be too small.
    """

    ids: Array
    offsets: Array
    row_splits: Array
    num_tokens: Array
    exceeded: Array
    needed: Capacities


def suggest_capacities(num_bytes: int, *, any_text: bool = False) -> Capacities:
    """Returns capacities for a number of bytes of text.

    By default they are for prose and source code in languages that the vocabulary was trained on. They do not
    hold text of many long words, or of many words that are not in the table, such as Chinese or Russian text
    with the vocabulary of GPT-2.

    Args:
        num_bytes: number of bytes of all texts together, with padding.
        any_text: whether the capacities are enough for any text of this size. The program then needs more
            memory and time.
    """
    num_bytes = _align(check_int("num_bytes", num_bytes, minimum=1))
    if any_text:  # no array has more entries than there are bytes
        return Capacities(*[num_bytes] * len(Capacities._fields))
    return Capacities(
        tokens=num_bytes // 2 + 64,
        words=num_bytes * 9 // 32 + 64,
        misses=num_bytes // 12 + 64,
        miss_bytes=num_bytes // 4 + 256,
        long_symbols=num_bytes // 64 + 1024,
        places=num_bytes // 256 + 64,
        special=num_bytes // 256 + 64,
    )


def _align(number: int) -> int:
    return number + -number % ALIGNMENT


@partial(jax.jit, static_argnames="capacities")
@with_auto_axes
def encode_jit(
    tables: TokenizerTables, data: Array, row_splits: Array, *, capacities: Capacities | None = None
) -> DeviceTokens:
    """Encodes texts on a device, as a pure function of arrays.

    The ids and spans are those of `encode_batch_result(..., add_special_tokens=False)`. Invalid UTF-8 is
    handled in the same way.

    Args:
        tables: tables of the tokenizer, from `tokenizer_tables`.
        data: bytes of all texts, one after the other, `uint8`, shape `(n,)`. Bytes after the last text are
            padding.
        row_splits: first byte of each text, and the end of the last one, integers, shape `(rows + 1,)`. It
            starts with 0. Equal numbers are empty texts.
        capacities: static sizes; `suggest_capacities(n)` by default.

    Returns:
        The tokens. If `exceeded` is true, call again with larger capacities: `needed` has the numbers, and
        `suggest_capacities(n, any_text=True)` is always enough. If `row_splits` decrease, or exceed `n`,
        `exceeded` is true, and all numbers of `needed` are -1. For functions of rows, make a `Ragged` of
        them: `tokjax.pad_ragged(tokjax.Ragged(tokens.ids, tokens.row_splits), ...)`.
    """
    if not data.shape[0]:
        raise InvalidArgumentError("data must have at least one byte; pass padding after the texts")
    num_bytes = data.shape[0]
    limits = suggest_capacities(num_bytes) if capacities is None else capacities
    sizes = Capacities(*(_align(max(limit, 1)) for limit in limits))._replace(tokens=max(limits.tokens, 1))
    data = jnp.pad(data, (0, -data.shape[0] % ALIGNMENT))
    length = data.shape[0]
    splits = jnp.asarray(row_splits).astype(jnp.int32)
    position = jnp.arange(length, dtype=jnp.int32)
    is_cut = jnp.zeros(length, bool).at[splits].set(True, mode="drop") | (position == 0)
    special_ids, needed_special = None, jnp.int32(0)
    is_inside = position >= splits[-1]
    if tables.special is not None:
        matches = find_special(tables.special, data, is_cut, sizes.special)
        special_ids, needed_special = matches.ids, matches.needed
        is_cut, is_inside = is_cut | matches.is_cut, is_inside | matches.is_inside
    is_cut = store(is_cut)
    characters = decode_characters(data, is_cut)
    starts, needed_places = find_starts(tables.split, characters, is_cut, sizes.places)
    words = _find_words(data, starts & ~is_inside, splits, sizes.words, special_ids)
    keys = _get_keys(data, words)
    found = store(jnp.where(words.lengths > KEY_BYTES, ABSENT, find(tables.words, keys)))
    merged = _merge_misses(tables, data, words, keys, found, sizes)
    tokens = _assemble(tables, words, merged, splits, sizes.tokens)
    needed = Capacities(
        tokens=tokens.num_tokens,
        words=words.num_words,
        misses=merged.needed[0],
        miss_bytes=merged.needed[1],
        long_symbols=merged.needed[2],
        places=needed_places,
        special=needed_special,
    )
    exceeded = jnp.stack([need > size for need, size in zip(needed, limits, strict=True)]).any()
    is_valid = (splits[0] == 0) & (splits[1:] >= splits[:-1]).all() & (splits[-1] <= num_bytes)
    needed = Capacities(*(jnp.where(is_valid, need, -1) for need in needed))
    return tokens._replace(exceeded=exceeded | ~is_valid, needed=needed)


class _Words(NamedTuple):
    """Pre-tokens. Arrays of shape `(capacity,)`; lengths are 0 after the last one.

    Attributes:
        starts: first byte.
        lengths: number of bytes.
        special_ids: id of a special token, -1 for ordinary words; `None` if there are no special tokens.
        rows_before: number of words before each row, and in total, shape `(rows + 1,)`.
        num_words: number of words, `int32`, shape `()`; may exceed the capacity.
    """

    starts: Array
    lengths: Array
    special_ids: Array | None
    rows_before: Array
    num_words: Array


class _Sources(NamedTuple):
    """Where the ids of words are, in `pool`. Arrays of shape `(words,)`.

    Attributes:
        firsts: position of the first id.
        counts: number of ids.
        pool: ids.
        needed: numbers of misses, of their bytes and of their long symbols, see `Capacities`.
    """

    firsts: Array
    counts: Array
    pool: Array
    needed: tuple[Array, Array, Array]


def _find_words(
    data: Array, starts: Array, splits: Array, capacity: int, special_ids: Array | None
) -> _Words:
    """Returns the words that start at the given bytes."""
    length = data.shape[0]
    packed = pack(starts)
    first = store(jnp.minimum(find_true(packed, capacity, length), splits[-1]))
    stop = jnp.append(first[1:], splits[-1])
    before = count_before(packed, splits)
    special = None
    if special_ids is not None:
        special = jnp.where(stop > first, special_ids[jnp.minimum(first, length - 1)], -1)
    return _Words(first, stop - first, special, before, packed.num_true)


def _get_keys(data: Array, words: _Words) -> list[Array]:
    """Returns the columns of the keys of words: their first 16 bytes and their lengths, `uint32`."""
    # Four bytes are read from two aligned numbers of four bytes each.
    aligned = jnp.pad(data, (0, -data.shape[0] % 4)).reshape(-1, 4)
    aligned = jax.lax.bitcast_convert_type(aligned, jnp.uint32)
    starts = words.starts.astype(jnp.uint32)
    shift = np.uint32(8) * (starts & np.uint32(3))
    keys = []
    for first in range(0, KEY_BYTES, 4):
        number = starts // np.uint32(4) + np.uint32(first // 4)
        low = aligned.at[number].get(mode="clip") >> shift
        high = aligned.at[number + np.uint32(1)].get(mode="clip") << (np.uint32(31) - shift) << np.uint32(1)
        rest = jnp.clip(words.lengths - first, 0, 4)
        mask = jnp.where(rest == 4, ~np.uint32(0), ~(~np.uint32(0) << (8 * rest).astype(jnp.uint32)))
        keys.append((low | high) & mask)
    return [*keys, words.lengths.astype(jnp.uint32)]


def _merge_misses(
    tables: TokenizerTables,
    data: Array,
    words: _Words,
    keys: list[Array],
    found: Array,
    sizes: Capacities,
) -> _Sources:
    """Merges the words that were not found."""
    is_miss = (found == ABSENT) & (words.lengths > 0)
    if words.special_ids is not None:
        is_miss &= words.special_ids < 0
    chosen, count = compact(is_miss, sizes.misses, found.shape[0])
    chosen_keys = [key.at[chosen].get(mode="fill", fill_value=0) for key in keys]
    order, rows = _find_different(chosen_keys)
    different = chosen.at[order].get(mode="fill", fill_value=found.shape[0])
    starts = words.starts.at[different].get(mode="fill", fill_value=0)
    lengths = words.lengths.at[different].get(mode="fill", fill_value=0)
    merged, num_long = merge_words(tables.merges, data, starts, lengths, sizes.miss_bytes, sizes.long_symbols)
    symbols = merged.symbols
    if tables.symbol_ids is not None:
        symbols = tables.symbol_ids[jnp.maximum(symbols, 0)]
    counts = jnp.where(is_miss | (words.lengths == 0), 0, found & (1 << COUNT_BITS) - 1)
    if words.special_ids is not None:
        counts = jnp.where(words.special_ids >= 0, 1, counts)
    return _Sources(
        (found >> COUNT_BITS).at[chosen].set(tables.word_ids.shape[0] + merged.starts[rows], mode="drop"),
        counts.at[chosen].set(merged.counts[rows], mode="drop"),
        jnp.concatenate([tables.word_ids, symbols]),
        (count, lengths.sum(dtype=jnp.int32), num_long),
    )


def _find_different(keys: list[Array]) -> tuple[Array, Array]:
    """Finds the words that occur several times, most of which have to be merged only once.

    Each word writes its index to a table at the hash of its key. Words that find the index of an equal word
    there take the row of that word. Words that find another word, since the hashes are equal, have a row of
    their own, and so do words that are longer than their keys.

    Args:
        keys: columns of the keys, `uint32`, shape `(n,)`. The last one is the length, 0 for missing words.

    Returns:
        The indices of the words that have rows, in order, and the row of each word; shapes `(n,)`.
    """
    lengths = keys[-1]
    size = lengths.shape[0]
    number = jnp.arange(size, dtype=jnp.int32)
    num_slots = 1 << (2 * size - 1).bit_length()
    hashes, _ = compute_hashes(keys, np.uint32(0))
    is_whole = (lengths > 0) & (lengths <= KEY_BYTES)
    slot = jnp.where(is_whole, hashes & np.uint32(num_slots - 1), np.uint32(num_slots)).astype(jnp.int32)
    table = jnp.full(num_slots, size, jnp.int32).at[slot].min(number, mode="drop")
    first = jnp.minimum(table.at[slot].get(mode="clip"), size - 1)
    is_equal = jnp.stack([key[first] == key for key in keys]).all(axis=0)
    first = jnp.where(is_equal & is_whole, first, number)
    has_row = (lengths > 0) & (first == number)
    order, _ = compact(has_row, size, size)
    rows = cumulative_sum(has_row) - 1
    return order, jnp.maximum(rows[first], 0)


def _assemble(
    tables: TokenizerTables, words: _Words, sources: _Sources, splits: Array, capacity: int
) -> DeviceTokens:
    """Writes the ids of all words one after the other, and computes the spans."""
    num_words = words.starts.shape[0]
    stops = cumulative_sum(sources.counts)
    begins = stops - sources.counts
    num_tokens = stops[-1]
    position = jnp.arange(capacity, dtype=jnp.int32)
    inside = position < num_tokens
    # All words have tokens, so that the segments are not empty.
    word = number_segments(begins, sources.counts > 0, capacity)
    index = position + store(sources.firsts - begins)[word]
    ids = sources.pool.at[index].get(mode="clip")
    if words.special_ids is not None:
        at = jnp.where(words.special_ids >= 0, begins, capacity)
        ids = ids.at[at].set(words.special_ids, mode="drop")
    ids = store(jnp.where(inside, ids, -1))
    # The bytes of tokens are those of the texts, without gaps. So spans are sums of lengths, in each row.
    lengths = store(jnp.where(inside, _get_lengths(tables, ids), 0))
    row_splits = jnp.append(begins, num_tokens)[jnp.minimum(words.rows_before, num_words)]
    steps = lengths.at[row_splits[1:]].add(splits[:-1] - splits[1:], mode="drop")
    ends = cumulative_sum(steps) + 1
    offsets = jnp.where(inside[:, None], jnp.stack([ends - lengths, ends], axis=1), 0)
    return DeviceTokens(
        ids, offsets, row_splits, num_tokens, jnp.bool_(False), Capacities(*[0] * len(Capacities._fields))
    )


def _get_lengths(tables: TokenizerTables, ids: Array) -> Array:
    """Returns the number of bytes of tokens; any number for ids below 0."""
    lengths: Array = store(tables.token_splits[1:] - tables.token_splits[:-1])[jnp.maximum(ids, 0)]
    return lengths


@short_repr
class DeviceBytes(NamedTuple):
    """Bytes of several texts, a pytree of arrays of static shapes.

    Attributes:
        data: bytes of all texts, one after the other, `uint8`, shape `(capacity,)`; 0 after the last one.
        row_splits: first byte of each text, and the end, `int32`, shape `(rows + 1,)`.
        num_bytes: number of bytes, `int32`, shape `()`; may exceed the capacity.
        exceeded: whether the capacity was exceeded, `bool`, shape `()`. Then the last bytes are missing.
    """

    data: Array
    row_splits: Array
    num_bytes: Array
    exceeded: Array


@partial(jax.jit, static_argnames="capacity")
@with_auto_axes
def decode_jit(tables: TokenizerTables, ids: Array, row_splits: Array, *, capacity: int) -> DeviceBytes:
    """Decodes tokens on a device: the exact inverse of `encode_jit`.

    Args:
        tables: tables of the tokenizer, from `tokenizer_tables`.
        ids: token ids, integers, shape `(n,)`. Ids that the tokenizer does not have, such as -1, have no
            bytes.
        row_splits: first token of each text, and the end of the last one, integers, shape `(rows + 1,)`.
        capacity: static size of the bytes.

    Returns:
        The bytes, which can be encoded again by `encode_jit(tables, result.data, result.row_splits)`.
    """
    num_ids = tables.token_splits.shape[0] - 1
    number = jnp.arange(ids.shape[0], dtype=jnp.int32)
    splits = jnp.asarray(row_splits).astype(jnp.int32)
    valid = (ids >= 0) & (ids < num_ids) & (number >= splits[0]) & (number < splits[-1])
    safe = jnp.where(valid, ids, 0).astype(jnp.int32)
    lengths = jnp.where(valid, _get_lengths(tables, safe), 0)
    stops = store(cumulative_sum(lengths))
    begins = stops - lengths
    chosen, _ = compact(lengths > 0, ids.shape[0], 0)
    segment = number_segments(begins, lengths > 0, capacity)
    shifts = store(tables.token_splits[safe] - begins)
    position = jnp.arange(capacity, dtype=jnp.int32)
    index = position + store(shifts[chosen])[segment]
    data = jnp.where(position < stops[-1], tables.token_bytes.at[index].get(mode="clip"), np.uint8(0))
    byte_splits = jnp.append(begins, stops[-1])[jnp.minimum(splits, ids.shape[0])]
    return DeviceBytes(data, byte_splits - byte_splits[0], stops[-1], stops[-1] > capacity)
