"""Byte-pair merging of the words that are in no table, under `jax.jit`.

First, characters of two and three bytes become the symbols that their own bytes merge to, where no merge with
the bytes around them can come before. So a Chinese word starts with one or two symbols per character.

Words of up to 128 symbols are columns of a matrix, padded to the longest word of their class. In each round,
every word merges its pair of lowest rank, the leftmost one of equal ranks. Only the ranks of the pairs beside
the merge change. When two thirds of the words have no pair left, the next words take their columns::

    words         low  new  the        after round 1        after round 2
    symbols        l    n    t          l    n    th         low  new  the
                   o    e    h          ow   ew   e           -    -    -
                   w    w    e          -    -    -           -    -    -

Longer words are parts of flat arrays. In each round, every word merges all pairs of its lowest rank, from
left to right, unless this makes a pair of an even lower or the same rank, which would have to be merged
earlier; then it merges the leftmost one only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tokjax.device.hash_table import ABSENT, HashTable, find
from tokjax.device.scans import (
    Neighbors,
    compact,
    copy_before_broadcast,
    count_before,
    cumulative_sum,
    find_true,
    make_mask,
    number_segments,
    pack,
    running_maximum,
    store,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

_ROW_BITS = 7
NO_RANK = np.int32(2 ** (31 - _ROW_BITS) - 1)
"""Rank of pairs that do not merge. A rank and a row of a column fit into one number."""
THREE_BYTES = 0x800
"""First code point of three bytes."""
_WIDTHS = (16, 32, 128)
"""Number of symbols of the columns in which words are merged. Longer words are merged in flat arrays."""


_CPU = (1 << 15, 1 << 14, 1 << 13), 1
_ACCELERATOR = (1 << 17, 1 << 17, 1 << 17), 8
"""Number of symbols of each width that are merged at the same time, and number of rounds between two checks
whether many words are done. On a CPU, they fit in the cache, and there are few long words. On others, a round
takes about as long for few symbols, and a check as long as a round."""
_LARGE_BATCH = 1 << 20
"""Number of symbols of all words from which on more are merged at the same time, in proportion."""
_MAX_SHARE = 4
"""At most one in this many of the words that fit is merged at the same time: few columns are empty."""


class MergeTables(NamedTuple):
    """Tables of the merge rules, a pytree of arrays.

    Attributes:
        pairs: ranks of pairs of symbols.
        merged: symbol that the pair of each rank becomes, `int32`, shape `(ranks,)`; `None` if it equals the
            rank.
        byte_symbols: symbol of each byte, `int32`, shape `(256,)`.
        joint_ranks: lowest rank of the pairs whose left symbol ends with one byte and whose right symbol
            begins with another, `NO_RANK` for none; `int32`, shape `(65536,)`, by `first << 8 | second`.
        characters: symbols that the bytes of each character of two or three bytes merge to, at the byte where
            they start; -1 for other bytes. `int32`, shape `(3 * 65536,)`.
        character_ranks: highest rank of the merges within each character, `NO_RANK` if there are none;
            `int32`, shape `(65536,)`.
    """

    pairs: HashTable
    merged: Any
    byte_symbols: Any
    joint_ranks: Any
    characters: Any
    character_ranks: Any


class WordSymbols(NamedTuple):
    """Symbols of all words, one after the other, `n` in total.

    Attributes:
        symbols: symbols, shape `(n,)`.
        ranks: rank of the pair of each symbol and the next one of its word, shape `(n,)`.
        starts: position of the first symbol of each word, shape `(words,)`. When words are merged, there are
            other symbols between them.
        counts: number of symbols of each word, 0 after the last word; shape `(words,)`.
    """

    symbols: Array
    ranks: Array
    starts: Array
    counts: Array


def find_ranks(tables: MergeTables, left: Array, right: Array) -> Array:
    """Returns the rank of pairs of symbols, `NO_RANK` for those that do not merge. Symbols may be -1."""
    ranks = find(tables.pairs, [left.astype(jnp.uint32), right.astype(jnp.uint32)])
    return jnp.where((ranks == ABSENT) | (left < 0) | (right < 0), NO_RANK, ranks)


def get_merged(tables: MergeTables, ranks: Array) -> Array:
    """Returns the symbols that pairs of these ranks become; any symbol for `NO_RANK`."""
    return ranks if tables.merged is None else tables.merged[jnp.minimum(ranks, tables.merged.shape[0] - 1)]


def merge_words(
    tables: MergeTables, data: Array, starts: Array, lengths: Array, num_bytes: int, num_long: int
) -> tuple[WordSymbols, Array]:
    """Merges words of any length. The time depends on their number, not on the capacity for words.

    Args:
        tables: the merge rules.
        data: bytes of all texts, `uint8`.
        starts: first byte of each word, shape `(words,)`.
        lengths: number of bytes of each word, 0 after the last one; shape `(words,)`.
        num_bytes: capacity for the bytes of all words.
        num_long: capacity for the symbols of words of more than 128 symbols.

    Returns:
        The symbols, `num_bytes` in total, and how many there are before merges in words of more than 128
        symbols, `int32`, shape `()`; it may exceed the capacity.
    """
    words = _make_symbols(tables, data, starts, lengths, num_bytes)
    merged, count = _merge_long(tables, words, num_long)
    merge = partial(_merge_short, tables, words.counts)
    merged = jax.lax.platform_dependent(
        merged, cpu=partial(merge, _CPU), default=partial(merge, _ACCELERATOR)
    )
    return merged, count


def _merge_short(
    tables: MergeTables, counts: Array, settings: tuple[tuple[int, ...], int], words: WordSymbols
) -> WordSymbols:
    """Merges words of few symbols in columns of each width. `counts` are the numbers of their symbols."""
    low = 1
    for width, at_once in zip(_WIDTHS, settings[0], strict=True):
        is_chosen = (counts > low) & (counts <= width)
        num_columns = at_once * max(words.symbols.shape[0], _LARGE_BATCH) // (_LARGE_BATCH * width)
        num_columns = min(num_columns, -(-counts.shape[0] // _MAX_SHARE))
        words = _merge_columns(tables, words, is_chosen, (width, num_columns), settings[1])
        low = width
    return words


def _make_symbols(
    tables: MergeTables, data: Array, starts: Array, lengths: Array, capacity: int
) -> WordSymbols:
    """Returns the symbols of words, after the merges within characters."""
    stops = cumulative_sum(lengths)
    begins = stops - lengths
    position = jnp.arange(capacity, dtype=jnp.int32)
    is_inside = position < stops[-1]
    word = number_segments(begins, lengths > 0, capacity)
    at = store(position + store(starts - begins)[word])
    bytes_ = store(jnp.where(is_inside, data.at[at].get(mode="clip"), np.uint8(0)))
    is_begin = store(~is_inside | make_mask(begins, lengths > 0, capacity))
    symbols = jnp.where(is_inside, _merge_characters(tables, bytes_, is_begin), -1)
    packed = pack(symbols >= 0)
    kept, count = find_true(packed, capacity, capacity), packed.num_true
    firsts = jnp.where(lengths > 0, count_before(packed, jnp.minimum(begins, capacity)), count)
    symbols = store(symbols.at[kept].get(mode="fill", fill_value=-1))
    is_first = store(is_begin.at[kept].get(mode="fill", fill_value=True))
    following = Neighbors(symbols, 0, 1).at(1)
    is_last = Neighbors(is_first, 0, 1).at(1)
    ranks = jnp.where(is_last, NO_RANK, find_ranks(tables, symbols, following))
    return WordSymbols(*store(symbols, ranks, firsts, jnp.append(firsts[1:], count) - firsts))


def _merge_characters(tables: MergeTables, data: Array, is_begin: Array) -> Array:
    """Returns the symbol that starts at each byte, -1 for none, after the merges within characters.

    They are made only if all of their ranks are lower than those of all merges across the two ends of the
    character. Then these cannot come before.

    Args:
        tables: the merge rules.
        data: bytes of all words.
        is_begin: whether a byte is the first one of a word, or after the last word.
    """
    byte_at = Neighbors(data, 1, 2).at
    begin_at = Neighbors(is_begin, 0, 2).at
    before, lead, second, third = (byte_at(i).astype(jnp.int32) for i in range(-1, 3))
    is_inner = (second & 0xC0 == 0x80) & ~begin_at(1)
    two = (lead & 0x1F) << 6 | (second & 0x3F)
    three = (lead & 0x0F) << 12 | (second & 0x3F) << 6 | (third & 0x3F)
    is_two = (lead & 0xE0 == 0xC0) & is_inner
    is_three = (lead & 0xF0 == 0xE0) & is_inner & (third & 0xC0 == 0x80) & ~begin_at(2)
    is_three &= three >= THREE_BYTES
    code = jnp.where(is_three, three, jnp.where(is_two, two, 0))
    left = store(jnp.where(is_begin, NO_RANK, tables.joint_ranks[before << 8 | lead]))
    left_at = Neighbors(left, 0, 3).at
    across = jnp.minimum(left, jnp.where(is_three, left_at(3), left_at(2)))
    is_merged = tables.character_ranks[code] < across
    index_at = Neighbors(store(jnp.where(is_merged, 3 * code, -1)), 2, 0).at
    index = index_at(0)
    index = jnp.where(index_at(-1) >= 0, index_at(-1) + 1, index)
    index = jnp.where(index_at(-2) >= 3 * THREE_BYTES, index_at(-2) + 2, index)
    return jnp.where(index >= 0, tables.characters[jnp.maximum(index, 0)], tables.byte_symbols[lead])


class _Columns(NamedTuple):
    """Words that are being merged, a column for each, so that the same position of all words is contiguous.

    Attributes:
        symbols: symbols, -1 after the end of a word; shape `(width, columns)`.
        ranks: rank of the pair of each symbol and the next one, shape `(width, columns)`.
        lowest: lowest rank of each word, and the first row that has it, as one number; shape `(columns,)`.
    """

    symbols: Array
    ranks: Array
    lowest: Array

    @property
    def is_done(self) -> Array:
        """Whether no pair of a word merges, shape `(columns,)`."""
        return self.lowest >> _ROW_BITS == NO_RANK


def _make_columns(symbols: Array, ranks: Array) -> _Columns:
    row = jnp.arange(symbols.shape[0], dtype=jnp.int32)[:, None]
    return _Columns(symbols, ranks, (ranks << _ROW_BITS | row).min(axis=0))


class _Work(NamedTuple):
    """Words that are being merged, and those that are done.

    Attributes:
        columns: the words that are being merged.
        words: number of the word of each column, shape `(columns,)`; the number of words where there is none.
        next_word: number of words of the class that have or had a column.
        symbols: symbols of all words, shape `(n,)`.
        counts: number of symbols of each word, shape `(words,)`.
    """

    columns: _Columns
    words: Array
    next_word: Array
    symbols: Array
    counts: Array


def _merge_columns(
    tables: MergeTables, words: WordSymbols, is_chosen: Array, shape: tuple[int, int], num_rounds: int
) -> WordSymbols:
    """Merges the chosen words in columns. The shape is the number of symbols of a column, and of columns."""
    num_words, num_symbols = words.starts.shape[0], words.symbols.shape[0]
    width, num_columns = shape
    chosen, count = compact(is_chosen, num_words, num_words)
    row = jnp.arange(width, dtype=jnp.int32)[:, None]

    def refill(work: _Work) -> _Work:
        """Stores the words that are done, and gives their columns to the next words."""
        symbols, ranks, _ = work.columns
        is_done = work.columns.is_done
        done = jnp.where(is_done, work.words, num_words)
        at = copy_before_broadcast(words.starts.at[done].get(mode="fill", fill_value=num_symbols)) + row
        at = jnp.where(symbols >= 0, at, num_symbols)
        all_symbols = work.symbols.at[at].set(symbols, mode="drop")
        all_counts = work.counts.at[done].set((symbols >= 0).sum(axis=0, dtype=jnp.int32), mode="drop")
        number = work.next_word + cumulative_sum(is_done) - 1
        new = chosen.at[jnp.where(is_done, number, num_words)].get(mode="fill", fill_value=num_words)
        starts = copy_before_broadcast(words.starts.at[new].get(mode="fill", fill_value=0))
        counts = copy_before_broadcast(words.counts.at[new].get(mode="fill", fill_value=0))
        at = jnp.minimum(starts + row, num_symbols - 1)
        is_symbol = row < counts
        filled = jnp.where(is_symbol, words.symbols[at], -1)
        filled_ranks = jnp.where(is_symbol, words.ranks[at], NO_RANK)
        columns = _make_columns(jnp.where(is_done, filled, symbols), jnp.where(is_done, filled_ranks, ranks))
        next_word = jnp.minimum(work.next_word + is_done.sum(dtype=jnp.int32), count)
        return _Work(columns, jnp.where(is_done, new, work.words), next_word, all_symbols, all_counts)

    def step(work: _Work) -> _Work:
        """Gives columns to words, and merges until two thirds of them are done, or all at the end."""
        work = refill(work)
        limit = jnp.where(work.next_word < count, num_columns // 3, 0)
        has_many: Callable[[_Columns], Array] = lambda columns: (~columns.is_done).sum() > limit  # noqa: E731
        return work._replace(columns=jax.lax.while_loop(has_many, merge, work.columns))

    def merge(columns: _Columns) -> _Columns:
        for _ in range(num_rounds):
            columns = _merge_lowest(tables, columns)
        return columns

    def has_words(work: _Work) -> Array:
        return (work.next_word < count) | (work.words < num_words).any()

    # Added to constants, so that they vary over the devices of `jax.shard_map` as the words do.
    zero = 0 * count
    empty = _make_columns(jnp.full(shape, -1, jnp.int32) + zero, jnp.full(shape, NO_RANK, jnp.int32) + zero)
    no_words = jnp.full(num_columns, num_words, jnp.int32) + zero
    work = jax.lax.while_loop(has_words, step, _Work(empty, no_words, zero, words.symbols, words.counts))
    return words._replace(symbols=work.symbols, counts=work.counts)


@jax.jit
def _merge_lowest(tables: MergeTables, columns: _Columns) -> _Columns:
    """Merges the leftmost pair of lowest rank of each word."""
    symbols, ranks, _ = columns
    width, count = symbols.shape
    row = jnp.arange(width, dtype=jnp.int32)[:, None]
    lowest, at = columns.lowest >> _ROW_BITS, columns.lowest & (1 << _ROW_BITS) - 1
    column = jnp.arange(count, dtype=jnp.int32)
    flat = symbols.reshape(-1)
    previous = jnp.where(at > 0, flat[jnp.maximum(at - 1, 0) * count + column], -1)
    following = jnp.where(at + 2 < width, flat[jnp.minimum(at + 2, width - 1) * count + column], -1)
    merged = get_merged(tables, lowest)
    left, right = find_ranks(tables, jnp.stack([previous, merged]), jnp.stack([merged, following]))
    merged, left, right = (copy_before_broadcast(values) for values in (merged, left, right))
    at = jnp.where(lowest == NO_RANK, width, at)
    shifted = jnp.pad(symbols[1:], ((0, 1), (0, 0)), constant_values=-1)
    shifted_ranks = jnp.pad(ranks[1:], ((0, 1), (0, 0)), constant_values=NO_RANK)
    symbols = jnp.where(row == at, merged, jnp.where(row > at, shifted, symbols))
    ranks = jnp.where(row > at, shifted_ranks, ranks)
    ranks = jnp.where(row == at, right, jnp.where(row == at - 1, left, ranks))
    return _make_columns(symbols, ranks)


class _Flat(NamedTuple):
    """Long words as one flat array.

    Attributes:
        symbols: symbols of all words, -1 after the last one; shape `(n,)`.
        words: number of the word of each symbol, ascending; shape `(n,)`, the capacity after the last word.
        ranks: rank of the pair of each symbol and the next one of its word, shape `(n,)`.
    """

    symbols: Array
    words: Array
    ranks: Array


def _merge_long(tables: MergeTables, words: WordSymbols, capacity: int) -> tuple[WordSymbols, Array]:
    """Merges words of more symbols than columns have. Also returns the number of these symbols."""
    num_symbols = words.symbols.shape[0]
    num_words = capacity // _WIDTHS[-1] + 1
    is_long = words.counts > _WIDTHS[-1]
    count = jnp.where(is_long, words.counts, 0).sum(dtype=jnp.int32)
    long, _ = compact(is_long, num_words, is_long.shape[0])
    starts = words.starts.at[long].get(mode="fill", fill_value=0)
    counts = words.counts.at[long].get(mode="fill", fill_value=0)
    stops = cumulative_sum(counts)
    begins = stops - counts
    position = jnp.arange(capacity, dtype=jnp.int32)
    is_inside = position < stops[-1]
    word = number_segments(begins, counts > 0, capacity)
    chosen = jnp.where(is_inside, position + (starts - begins)[word], num_symbols)
    flat = _Flat(
        words.symbols.at[chosen].get(mode="fill", fill_value=-1),
        jnp.where(is_inside, word, num_words),
        words.ranks.at[chosen].get(mode="fill", fill_value=NO_RANK),
    )
    flat = jax.lax.while_loop(
        lambda flat: (flat.ranks != NO_RANK).any(),
        lambda flat: _merge_flat_round(tables, flat, num_words),
        flat,
    )
    counts = jnp.zeros(num_words, jnp.int32).at[flat.words].add(1, mode="drop")
    shifts = (starts - cumulative_sum(counts) + counts).at[flat.words].get(mode="clip")
    at = jnp.where(flat.words < num_words, position + shifts, num_symbols)
    symbols = words.symbols.at[at].set(flat.symbols, mode="drop")
    return words._replace(symbols=symbols, counts=words.counts.at[long].set(counts, mode="drop")), count


def _compute_flat_ranks(tables: MergeTables, symbols: Array, words: Array) -> Array:
    following = jnp.pad(symbols[1:], (0, 1), constant_values=-1)
    same = words == jnp.pad(words[1:], (0, 1), constant_values=-1)
    return jnp.where(same, find_ranks(tables, symbols, following), NO_RANK)


def _merge_flat_round(tables: MergeTables, flat: _Flat, num_words: int) -> _Flat:
    """Merges all pairs of the lowest rank of each word, or only the first of them."""
    symbols, words, ranks = flat
    length = symbols.shape[0]
    position = jnp.arange(length, dtype=jnp.int32)
    merging = jnp.where(ranks == NO_RANK, num_words + 1, words)
    lowest = jnp.full(num_words + 1, NO_RANK).at[merging].min(ranks, mode="drop")
    is_lowest = (ranks == lowest[words]) & (ranks != NO_RANK)
    # In a run of overlapping pairs, such as those of "aaaa", every second one is merged.
    run_start = running_maximum(jnp.where(is_lowest, -1, position)) + 1
    chosen = is_lowest & ((position - run_start) % 2 == 0)
    merged = jnp.where(chosen, get_merged(tables, lowest[words]), symbols)
    is_second = jnp.pad(chosen[:-1], (1, 0))
    of_word = jnp.where(chosen, words, num_words + 1)
    first_of_word = jnp.full(num_words + 1, length, jnp.int32).at[of_word].min(position, mode="drop")
    is_early = _find_early_pairs(tables, flat, merged, chosen, is_second, lowest)
    early_word = jnp.where(is_early, words, num_words + 1)
    has_early = jnp.zeros(num_words + 1, bool).at[early_word].set(True, mode="drop")
    chosen &= ~has_early[words] | (position == first_of_word[words])
    is_second = jnp.pad(chosen[:-1], (1, 0))
    symbols = jnp.where(chosen, merged, symbols)
    kept, _ = compact(~is_second & (words < num_words), length, length)
    symbols = symbols.at[kept].get(mode="fill", fill_value=-1)
    words = words.at[kept].get(mode="fill", fill_value=num_words)
    return _Flat(symbols, words, _compute_flat_ranks(tables, symbols, words))


def _find_early_pairs(
    tables: MergeTables, flat: _Flat, merged: Array, chosen: Array, is_second: Array, lowest: Array
) -> Array:
    """Returns at which merges a pair arises that would have to be merged before the others of the round.

    Merges are made from left to right. So on its left a merge meets the merges of this round, and on its
    right the symbols as they were.
    """
    symbols, words, _ = flat
    length = symbols.shape[0]
    position = jnp.arange(length, dtype=jnp.int32)
    # The symbol before a merge is two positions before it, if that was merged, too.
    before_is_second = jnp.pad(is_second[:-1], (1, 0))
    previous_at = position - 1 - before_is_second.astype(jnp.int32)
    previous = merged[jnp.maximum(previous_at, 0)]
    has_previous = (previous_at >= 0) & (words[jnp.maximum(previous_at, 0)] == words)
    next_at = jnp.minimum(position + 2, length - 1)
    has_next = (position + 2 < length) & (words[next_at] == words)
    pairs = jnp.stack([previous, merged]), jnp.stack([merged, symbols[next_at]])
    ranks = jnp.where(jnp.stack([has_previous, has_next]), find_ranks(tables, *pairs), NO_RANK)
    return chosen & (ranks.min(axis=0) <= lowest[words])
