"""Byte-pair merging of the words that are in no table, under `jax.jit`.

Words of up to 128 bytes are columns of a matrix of symbols, padded to the longest word of their class. In
each round, every word merges its pair of lowest rank, the leftmost one of equal ranks. Only the ranks of the
pairs beside the merge change. When half of the words have no pair left, the next words take their columns::

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
from tokjax.device.scans import compact, copy_before_broadcast, cumulative_sum, running_maximum, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

NO_RANK = np.int32(2**31 - 1)
"""Rank of pairs that do not merge."""
_SYMBOLS = 1 << 16
"""Maximum number of symbols of the words that are merged at the same time."""
_MAX_SHARE = 4
"""At most one in this many of the words that fit is merged at the same time: few columns are empty."""
_MIN_SYMBOLS = 1 << 12
"""Smallest length of flat arrays that are divided again."""


class MergeTables(NamedTuple):
    """Tables of the merge rules, a pytree of arrays.

    Attributes:
        pairs: ranks of pairs of symbols.
        merged: symbol that the pair of each rank becomes, `int32`, shape `(ranks,)`; `None` if it equals the
            rank.
        byte_symbols: symbol of each byte, `int32`, shape `(256,)`.
        byte_ranks: rank of each pair of bytes, `NO_RANK` for those that do not merge, `int32`, shape
            `(65536,)`.
    """

    pairs: HashTable
    merged: Any
    byte_symbols: Any
    byte_ranks: Any


def find_ranks(tables: MergeTables, left: Array, right: Array) -> Array:
    """Returns the rank of pairs of symbols, `NO_RANK` for those that do not merge. Symbols may be -1."""
    ranks = find(tables.pairs, [left.astype(jnp.uint32), right.astype(jnp.uint32)])
    return jnp.where((ranks == ABSENT) | (left < 0) | (right < 0), NO_RANK, ranks)


def get_merged(tables: MergeTables, ranks: Array) -> Array:
    """Returns the symbols that pairs of these ranks become; any symbol for `NO_RANK`."""
    return ranks if tables.merged is None else tables.merged[jnp.minimum(ranks, tables.merged.shape[0] - 1)]


class _Columns(NamedTuple):
    """Words that are being merged, a column for each, so that the same position of all words is contiguous.

    Attributes:
        symbols: symbols, -1 after the end of a word; shape `(width, columns)`.
        ranks: rank of the pair of each symbol and the next one, shape `(width, columns)`.
        lowest: lowest rank of each word, shape `(columns,)`.
    """

    symbols: Array
    ranks: Array
    lowest: Array


class _Work(NamedTuple):
    """Words that are being merged, and those that are done.

    Attributes:
        columns: the words that are being merged.
        words: number of the word of each column, shape `(columns,)`; the number of words where there is none.
        next_word: number of the first word that has no column yet.
        symbols: symbols of the words that are done, shape `(words, width)`.
    """

    columns: _Columns
    words: Array
    next_word: Array
    symbols: Array


def merge_words(
    tables: MergeTables, data: Array, starts: Array, lengths: Array, count: Array, width: int
) -> Array:
    """Merges the first `count` words of several. The time depends on this number.

    Args:
        tables: the merge rules.
        data: bytes of all texts, `uint8`.
        starts: first byte of each word, shape `(words,)`.
        lengths: number of bytes of each word, at most `width`; shape `(words,)`.
        count: number of words to merge.
        width: static number of symbols of a word.

    Returns:
        The symbols of each word after all merges, `int32`, shape `(words, width)`; -1 after the last one.
    """
    num_words = starts.shape[0]
    num_columns = min(_SYMBOLS // width, -(-num_words // _MAX_SHARE))
    count = jnp.minimum(count, num_words)

    def refill(work: _Work) -> _Work:
        """Stores the words that are done, and gives their columns to the next words."""
        is_done = work.columns.lowest == NO_RANK
        done, _ = compact(is_done, num_columns, num_columns)
        finished = work.columns.symbols.T.at[done].get(mode="fill", fill_value=-1)
        words = work.words.at[done].get(mode="fill", fill_value=num_words)
        symbols = work.symbols.at[words].set(finished, mode="drop")
        rank = cumulative_sum(is_done) - 1
        new = jnp.where(is_done & (rank < count - work.next_word), work.next_word + rank, num_words)
        new_starts = copy_before_broadcast(starts.at[new].get(mode="fill", fill_value=0))
        new_lengths = copy_before_broadcast(lengths.at[new].get(mode="fill", fill_value=0))
        filled, ranks = _fill_columns(tables, data, new_starts, new_lengths, width)
        columns = work.columns
        merged = _Columns(
            jnp.where(is_done, filled, columns.symbols),
            jnp.where(is_done, ranks, columns.ranks),
            jnp.where(is_done, ranks.min(axis=0), columns.lowest),
        )
        next_word = jnp.minimum(work.next_word + is_done.sum(dtype=jnp.int32), count)
        return _Work(merged, jnp.where(is_done, new, work.words), next_word, symbols)

    def merge(work: _Work) -> _Work:
        """Merges until half of the words are done, or all at the end."""
        limit = jnp.where(work.next_word < count, num_columns // 2, 0)
        has_many: Callable[[_Columns], Array] = lambda columns: (columns.lowest != NO_RANK).sum() > limit  # noqa: E731
        columns = jax.lax.while_loop(has_many, partial(_merge_lowest, tables), work.columns)
        return refill(work._replace(columns=columns))

    # Added to constants, so that they vary over the devices of `jax.shard_map` as the words do.
    zero = 0 * count
    shape = (width, num_columns)
    empty = _Columns(
        jnp.full(shape, -1, jnp.int32) + zero,
        jnp.full(shape, NO_RANK, jnp.int32) + zero,
        jnp.full(num_columns, NO_RANK, jnp.int32) + zero,
    )
    no_words = jnp.full(num_columns, num_words, jnp.int32) + zero
    work = _Work(empty, no_words, zero, jnp.full((num_words, width), -1, jnp.int32) + zero)
    has_words: Callable[[_Work], Array] = lambda work: (work.words < num_words).any()  # noqa: E731
    return jax.lax.while_loop(has_words, merge, refill(work)).symbols


def _fill_columns(
    tables: MergeTables, data: Array, starts: Array, lengths: Array, width: int
) -> tuple[Array, Array]:
    """Returns the symbols of the bytes of words, and the ranks of their pairs; shapes `(width, words)`."""
    row = jnp.arange(width, dtype=jnp.int32)[:, None]
    at = jnp.minimum(starts + row, data.shape[0] - 1)
    bytes_ = data[at].astype(jnp.int32)
    following = jnp.pad(bytes_[1:], ((0, 1), (0, 0)))
    symbols = jnp.where(row < lengths, tables.byte_symbols[bytes_], -1)
    return symbols, jnp.where(row + 1 < lengths, tables.byte_ranks[bytes_ << 8 | following], NO_RANK)


def _merge_lowest(tables: MergeTables, columns: _Columns) -> _Columns:
    """Merges the leftmost pair of lowest rank of each word."""
    symbols, ranks, lowest = columns
    width, count = symbols.shape
    row = jnp.arange(width, dtype=jnp.int32)[:, None]
    at = store(jnp.where(ranks == lowest, row, width).min(axis=0))
    column = jnp.arange(count, dtype=jnp.int32)
    flat = symbols.reshape(-1)
    previous = jnp.where(at > 0, flat[jnp.maximum(at - 1, 0) * count + column], -1)
    following = jnp.where(at + 2 < width, flat[jnp.minimum(at + 2, width - 1) * count + column], -1)
    merged = get_merged(tables, lowest)
    left, right = find_ranks(tables, previous, merged), find_ranks(tables, merged, following)
    merged, left, right = store(merged, left, right)
    at = jnp.where(lowest == NO_RANK, width, at)
    shifted = jnp.pad(symbols[1:], ((0, 1), (0, 0)), constant_values=-1)
    shifted_ranks = jnp.pad(ranks[1:], ((0, 1), (0, 0)), constant_values=NO_RANK)
    symbols = jnp.where(row == at, merged, jnp.where(row > at, shifted, symbols))
    ranks = jnp.where(row > at, shifted_ranks, ranks)
    ranks = jnp.where(row == at, right, jnp.where(row == at - 1, left, ranks))
    return _Columns(symbols, ranks, ranks.min(axis=0))


class _Flat(NamedTuple):
    """Long words as one flat array.

    Attributes:
        symbols: symbols of all words, shape `(n,)`.
        words: number of the word of each symbol, ascending; shape `(n,)`, the capacity after the last word.
        ranks: rank of the pair of each symbol and the next one of its word, shape `(n,)`.
    """

    symbols: Array
    words: Array
    ranks: Array


def merge_flat(tables: MergeTables, symbols: Array, words: Array, num_words: int) -> tuple[Array, Array]:
    """Merges words of any length.

    Args:
        tables: the merge rules.
        symbols: symbols of the bytes of all words, `int32`, shape `(n,)`; -1 after the last word.
        words: number of the word of each symbol, ascending; `num_words` after the last word.
        num_words: maximum number of words.

    Returns:
        The symbols after all merges, -1 after the last one, and the words of these; shapes `(n,)`.
    """
    start = _Flat(symbols, words, _compute_flat_ranks(tables, symbols, words))
    merged = _merge_flat(tables, start, num_words)
    return merged.symbols, merged.words


def _compute_flat_ranks(tables: MergeTables, symbols: Array, words: Array) -> Array:
    following = jnp.pad(symbols[1:], (0, 1), constant_values=-1)
    same = words == jnp.pad(words[1:], (0, 1), constant_values=-1)
    return jnp.where(same, find_ranks(tables, symbols, following), NO_RANK)


def _merge_flat(tables: MergeTables, flat: _Flat, num_words: int) -> _Flat:
    """Merges words until none has a pair left, in arrays that shrink with the number of symbols in use."""
    length = flat.symbols.shape[0]
    part = length // 8 if length >= 8 * _MIN_SYMBOLS else 0

    def is_large(carry: _Flat) -> Array:
        return (carry.ranks != NO_RANK).any() & ((carry.words < num_words).sum() > part)

    flat = jax.lax.while_loop(is_large, lambda carry: _merge_flat_round(tables, carry, num_words), flat)
    if not part:
        return flat
    # The symbols in use are at the beginning.
    smaller = _merge_flat(tables, _Flat(*(column[:part] for column in flat)), num_words)
    is_done = (flat.words < num_words).sum() > part
    tails: tuple[Any, ...] = (-1, num_words, NO_RANK)
    return _Flat(
        *(
            jnp.where(is_done, old, jnp.full_like(old, tail).at[:part].set(new))
            for old, new, tail in zip(flat, smaller, tails, strict=True)
        )
    )


def _merge_flat_round(tables: MergeTables, flat: _Flat, num_words: int) -> _Flat:
    """Merges all pairs of the lowest rank of each word, or only the first of them."""
    symbols, words, ranks = flat
    length = symbols.shape[0]
    position = jnp.arange(length, dtype=jnp.int32)
    lowest = jnp.full(num_words + 1, NO_RANK).at[words].min(ranks, mode="drop")
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
    left = jnp.where(has_previous, find_ranks(tables, previous, merged), NO_RANK)
    right = jnp.where(has_next, find_ranks(tables, merged, symbols[next_at]), NO_RANK)
    return chosen & (jnp.minimum(left, right) <= lowest[words])


def fill_flat(
    tables: MergeTables, data: Array, starts: Array, lengths: Array, capacity: int
) -> tuple[Array, Array]:
    """Returns the symbols of the bytes of words as a flat array, and the word of each.

    Args:
        tables: the merge rules.
        data: bytes of all texts.
        starts: first byte of each word, shape `(words,)`.
        lengths: number of bytes of each word, 0 for missing words; shape `(words,)`.
        capacity: number of symbols.
    """
    num_words = starts.shape[0]
    stops = cumulative_sum(lengths)
    begins = stops - lengths
    position = jnp.arange(capacity, dtype=jnp.int32)
    marks = (
        jnp.full(capacity, -1, jnp.int32)
        .at[jnp.where(lengths > 0, begins, capacity)]
        .max(jnp.arange(num_words, dtype=jnp.int32), mode="drop")
    )
    words = running_maximum(marks)
    inside = (position < stops[-1]) & (words >= 0)
    words = jnp.where(inside, words, num_words)
    safe = jnp.minimum(words, num_words - 1)
    at = jnp.minimum(starts[safe] + position - begins[safe], data.shape[0] - 1)
    symbols = jnp.where(inside, tables.byte_symbols[data[at].astype(jnp.int32)], -1)
    return symbols, words
