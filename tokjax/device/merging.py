"""Byte-pair merging of the words that are in no table, under `jax.jit`.

Words of up to 64 bytes are rows of a matrix of symbols, padded to the longest word of their class. In each
round, every row merges its pair of lowest rank, the leftmost one of equal ranks. Only the ranks of the pairs
beside the merge change. Rows that have no pair left drop out when half of the rows are done: the rest
continues in a matrix of half the size.

Longer words are parts of flat arrays. In each round, every word merges all pairs of its lowest rank, from
left to right, unless this makes a pair of an even lower or the same rank, which would have to be merged
earlier; then it merges the leftmost one only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tokjax.device.hash_table import ABSENT, BucketTable, find
from tokjax.device.scans import compact, cumulative_sum, running_maximum

if TYPE_CHECKING:
    from jax import Array

NO_RANK = np.int32(2**31 - 1)
"""Rank of pairs that do not merge."""
_MIN_ROWS = 256
"""Smallest number of rows that are divided again."""
_MIN_SYMBOLS = 1 << 12
"""Smallest length of flat arrays that are divided again."""


class MergeTables(NamedTuple):
    """Tables of the merge rules, a pytree of arrays.

    Attributes:
        pairs: ranks of pairs of symbols.
        merged: symbol that the pair of each rank becomes, `int32`, shape `(ranks,)`; `None` if it equals the
            rank.
        byte_symbols: symbol of each byte, `int32`, shape `(256,)`.
    """

    pairs: BucketTable
    merged: Any
    byte_symbols: Any


def find_ranks(tables: MergeTables, left: Array, right: Array) -> Array:
    """Returns the rank of pairs of symbols, `NO_RANK` for those that do not merge. Symbols may be -1."""
    ranks = find(tables.pairs, [left.astype(jnp.uint32), right.astype(jnp.uint32)])
    return jnp.where((ranks == ABSENT) | (left < 0) | (right < 0), NO_RANK, ranks)


def get_merged(tables: MergeTables, ranks: Array) -> Array:
    """Returns the symbols that pairs of these ranks become; any symbol for `NO_RANK`."""
    return ranks if tables.merged is None else tables.merged[jnp.minimum(ranks, tables.merged.shape[0] - 1)]


class _Rows(NamedTuple):
    """Rows of symbols. Symbols after the end of a row are -1.

    Attributes:
        symbols: shape `(rows, length)`.
        ranks: rank of the pair of each symbol and the next one, shape `(rows, length)`.
    """

    symbols: Array
    ranks: Array


def merge_rows(tables: MergeTables, symbols: Array) -> Array:
    """Merges rows of symbols, each by itself.

    Args:
        tables: the merge rules.
        symbols: symbols of the bytes of each word, -1 after its end; `int32`, shape `(rows, length)`.

    Returns:
        The symbols after all merges, -1 after the end; same shape.
    """
    following = jnp.pad(symbols[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    return _merge(tables, _Rows(symbols, find_ranks(tables, symbols, following))).symbols


def _merge(tables: MergeTables, rows: _Rows) -> _Rows:
    """Merges rows until none has a pair left, in matrices that shrink."""
    count = rows.symbols.shape[0]
    half = count // 2 if count >= 2 * _MIN_ROWS else 0

    def has_many(carry: _Rows) -> Array:
        return (carry.ranks.min(axis=1) != NO_RANK).sum() > half

    rows = jax.lax.while_loop(has_many, lambda carry: _merge_lowest(tables, carry), rows)
    if not half:
        return rows
    is_active = rows.ranks.min(axis=1) != NO_RANK
    chosen, _ = compact(is_active, half, count)
    part = _Rows(
        *(
            column.at[chosen].get(mode="fill", fill_value=fill)
            for column, fill in ((rows.symbols, -1), (rows.ranks, NO_RANK))
        )
    )
    part = _merge(tables, part)
    return _Rows(rows.symbols.at[chosen].set(part.symbols, mode="drop"), rows.ranks)


def _merge_lowest(tables: MergeTables, rows: _Rows) -> _Rows:
    """Merges the pair of lowest rank of each row."""
    symbols, ranks = rows
    count, length = symbols.shape
    column = jnp.arange(length, dtype=jnp.int32)
    lowest = ranks.min(axis=1)
    at = ranks.argmin(axis=1).astype(jnp.int32)
    goes = lowest != NO_RANK
    merged = get_merged(tables, lowest)
    row = jnp.arange(count)
    previous = jnp.where(at > 0, symbols[row, jnp.maximum(at - 1, 0)], -1)
    following = jnp.where(at + 2 < length, symbols[row, jnp.minimum(at + 2, length - 1)], -1)
    left, right = find_ranks(tables, previous, merged), find_ranks(tables, merged, following)
    at = jnp.where(goes, at, length)[:, None]
    shifted = jnp.pad(symbols[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    shifted_ranks = jnp.pad(ranks[:, 1:], ((0, 0), (0, 1)), constant_values=NO_RANK)
    symbols = jnp.where(column == at, merged[:, None], jnp.where(column > at, shifted, symbols))
    ranks = jnp.where(column > at, shifted_ranks, ranks)
    ranks = jnp.where(column == at, right[:, None], ranks)
    return _Rows(symbols, jnp.where(column == at - 1, left[:, None], ranks))


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
    part = length // 4 if length >= 4 * _MIN_SYMBOLS else 0

    def is_large(carry: _Flat) -> Array:
        return (carry.ranks != NO_RANK).any() & ((carry.words < num_words).sum() > part)

    flat = jax.lax.while_loop(is_large, lambda carry: _merge_flat_round(tables, carry, num_words), flat)
    if not part:
        return flat
    # The symbols in use are at the beginning.
    smaller = _merge_flat(tables, _Flat(*(column[:part] for column in flat)), num_words)
    is_done = (flat.words < num_words).sum() > part
    tails = (-1, num_words, NO_RANK)
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
    previous_at = position - 1 - before_is_second
    previous = merged[jnp.maximum(previous_at, 0)]
    has_previous = (previous_at >= 0) & (words[jnp.maximum(previous_at, 0)] == words)
    next_at = jnp.minimum(position + 2, length - 1)
    has_next = (position + 2 < length) & (words[next_at] == words)
    left = jnp.where(has_previous, find_ranks(tables, previous, merged), NO_RANK)
    right = jnp.where(has_next, find_ranks(tables, merged, symbols[next_at]), NO_RANK)
    return chosen & (jnp.minimum(left, right) <= lowest[words])


def fill_rows(tables: MergeTables, data: Array, starts: Array, lengths: Array, width: int) -> Array:
    """Returns the symbols of the bytes of words as rows of `width` symbols, -1 after the end of each word."""
    column = jnp.arange(width, dtype=jnp.int32)
    at = jnp.minimum(starts[:, None] + column, data.shape[0] - 1)
    inside = column < lengths[:, None]
    return jnp.where(inside, tables.byte_symbols[data[at].astype(jnp.int32)], -1)


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
