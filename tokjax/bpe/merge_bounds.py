"""What merging asks of a vocabulary: for any two symbols side by side, which merges they can be part of."""

from __future__ import annotations

from bisect import bisect_left
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.bpe.hash_tables import (
    ABSENT,
    MAX_PRETOKEN_BYTES,
    HashTable,
    HashTables,
    Pretokens,
    make_pretokens,
)
from tokjax.core.ragged import concatenate_ranges
from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Keys
    from tokjax.bpe.merge_rules import MergeRules

    Ints = NDArray[np.int32]
    Packed = NDArray[np.int64]

END_RANK = np.int32((1 << ID_BITS) - 1)
"""Stands for the rank where no merge is possible because a word ends; all ids are lower."""
NEVER_RANK = np.int32(END_RANK - 1)
"""Stands for the rank of two symbols that make no token."""


class MergeBounds(NamedTuple):
    """Places where two symbols meet; `int32` each, all of one shape.

    They are kept packed, the three in one `int64`, so that a joint is looked up and moved as one number.

    Attributes:
        rank: of the pair of the two.
        from_left: the lowest rank with which the right one can be taken by what stands left of it: of all
            pairs of a token that ends like the left one, and the right one.
        from_right: the same of the left one, taken by what stands right of it.
    """

    rank: Ints
    from_left: Ints
    from_right: Ints

    @property
    def packed(self) -> Packed:
        """All three in one number each."""
        rank, from_left, from_right = (column.astype(np.int64) for column in self)
        return from_right << (2 * ID_BITS) | from_left << ID_BITS | rank


END_BOUNDS = np.int64(MergeBounds(*np.full((3, 1), END_RANK)).packed[0])
"""A joint, packed, at which a word ends."""
_NO_MERGE_BOUNDS = np.int64(MergeBounds(*np.full((3, 1), NEVER_RANK)).packed[0])


class MergeBoundTables(NamedTuple):
    """All joints of a vocabulary.

    Attributes:
        byte_symbols: the symbol of each byte, `int32`, shape `(256,)`.
        byte_pair_bounds: the joints of two bytes, packed, shape `(65536,)`, the first byte low.
        pair_bounds: those of two ids where anything can ever merge, packed.
        as_left: the lowest rank of all pairs whose left half is an id, `int32`, shape `(ids,)`.
        as_right: the same of right halves.
    """

    byte_symbols: Ints
    byte_pair_bounds: Packed
    pair_bounds: HashTable
    as_left: Ints
    as_right: Ints

    def get_bounds(self, left: Ints, right: Ints) -> Packed:
        """The joints of ids side by side, packed."""
        return _find_bounds(self.pair_bounds, left, right)


class _Pairs(NamedTuple):
    """Two ids side by side, and a rank."""

    left: Ints
    right: Ints
    rank: Ints


class _TokenSplits(NamedTuple):
    """Tokens cut in two in every way: the ids of the token and of its parts, `ABSENT` where they are none."""

    token: Ints
    head: Ints
    tail: Ints


def build_merge_bound_tables(rules: MergeRules) -> MergeBoundTables:
    """The joints of a vocabulary.

    Args:
        rules: what merges.
    """
    symbols = rules.symbols
    parts = _split_all_tokens(symbols)
    pairs = _build_pairs(rules, parts)
    size = max(symbols.values()) + 1
    as_left, as_right = np.full(size, END_RANK), np.full(size, END_RANK)
    np.minimum.at(as_left, pairs.left, pairs.rank)
    np.minimum.at(as_right, pairs.right, pairs.rank)
    keys, bounds = _build_all_bounds(
        pairs, _find_longest_suffixes(parts, size), _find_longest_prefixes(parts, size)
    )
    pair_bounds = HashTable(1, len(keys))
    pair_bounds.add(keys, bounds)
    byte_symbols = np.array([symbols[bytes([i])] for i in range(256)], np.int32)
    second, first = np.divmod(np.arange(1 << 16), 256)
    byte_pair_bounds = _find_bounds(pair_bounds, byte_symbols[first], byte_symbols[second])
    return MergeBoundTables(byte_symbols, byte_pair_bounds, pair_bounds, as_left, as_right)


def _build_pairs(rules: MergeRules, parts: _TokenSplits) -> _Pairs:
    """The pairs that merge."""
    if rules.pairs is None:
        both = (parts.head != ABSENT) & (parts.tail != ABSENT)
        return _Pairs(parts.head[both], parts.tail[both], parts.token[both])
    symbols = rules.symbols
    count = len(rules.pairs)
    sides = (map(symbols.get, map(itemgetter(side), rules.pairs), repeat(ABSENT)) for side in (0, 1))
    left, right, rank = (np.fromiter(column, np.int32, count) for column in (*sides, rules.pairs.values()))
    meet = (left != ABSENT) & (right != ABSENT)
    return _Pairs(left[meet], right[meet], rank[meet])


def unpack_bounds(bounds: Packed) -> MergeBounds:
    """The three numbers of each joint."""
    of_left = bounds >> ID_BITS
    return MergeBounds(
        (bounds & END_RANK).astype(np.int32),
        (of_left & END_RANK).astype(np.int32),
        (of_left >> ID_BITS).astype(np.int32),
    )


def _find_bounds(pair_bounds: HashTable, left: Ints, right: Ints) -> Packed:
    found = pair_bounds.find(_build_pair_keys(left, right))
    found[found == ABSENT] = _NO_MERGE_BOUNDS
    return found


def _build_pair_keys(left: Ints, right: Ints) -> Keys:
    """Two ids in one number that is never 0, as the key of a table."""
    key = left.astype(np.uint64)
    key <<= np.uint64(32)
    key |= right.view(np.uint32)
    key += np.uint64(1)
    return key[:, None]


def _build_all_bounds(pairs: _Pairs, ends: Ints, beginnings: Ints) -> tuple[Keys, Packed]:
    """Every joint at which anything can merge, packed, by the key of its two ids."""
    from_left = _add_shorter_tokens(pairs, ends, "left")
    from_right = _add_shorter_tokens(pairs, beginnings, "right")
    keys, where = np.unique(
        np.concatenate([_build_pair_keys(p.left, p.right)[:, 0] for p in (pairs, from_left, from_right)]),
        return_inverse=True,
    )
    columns, done = [], 0
    for part in (pairs, from_left, from_right):
        column = np.full(len(keys), NEVER_RANK)
        np.minimum.at(column, where[done : done + len(part.rank)], part.rank)
        columns.append(column)
        done += len(part.rank)
    return keys[:, None], MergeBounds(*columns).packed


def _add_shorter_tokens(pairs: _Pairs, shorter: Ints, side: Literal["left", "right"]) -> _Pairs:
    """The pairs, and all others with a shorter token in place of the one on one side, with the same rank."""
    rounds = [pairs]
    while len(pairs.rank):
        ids = shorter[getattr(pairs, side)]
        on = np.flatnonzero(ids != ABSENT)
        pairs = _Pairs(*(column.take(on) for column in pairs))._replace(**{side: ids.take(on)})
        rounds.append(pairs)
    return _Pairs(*(np.concatenate(columns) for columns in zip(*rounds, strict=True)))


def _find_longest_suffixes(parts: _TokenSplits, size: int) -> Ints:
    """For each id, the longest other token that its own ends with."""
    pair_bounds = np.flatnonzero(parts.tail != ABSENT)[::-1]  # the longest tail of each comes last, and stays
    longest = np.full(size, ABSENT, np.int32)
    longest[parts.token[pair_bounds]] = parts.tail[pair_bounds]
    return longest


def _find_longest_prefixes(parts: _TokenSplits, size: int) -> Ints:
    """For each id, the longest other token that its own begins with."""
    pair_bounds = np.flatnonzero(parts.head != ABSENT)
    longest = np.full(size, ABSENT, np.int32)
    longest[parts.token[pair_bounds]] = parts.head[pair_bounds]
    return longest


def _split_all_tokens(symbols: Mapping[bytes, int]) -> _TokenSplits:
    """All cuts of all tokens, each token's from the first byte to the last."""
    in_tables = [token for token in symbols if len(token) <= MAX_PRETOKEN_BYTES and 0 not in token]
    pretokens = make_pretokens(in_tables)
    ids = np.fromiter(map(symbols.__getitem__, in_tables), np.int64, len(in_tables))
    tables = HashTables(pretokens, ids)
    num_splits = pretokens.lengths - 1
    which = np.repeat(np.arange(len(num_splits)), num_splits)
    at = concatenate_ranges(1, num_splits)
    starts, lengths = pretokens.starts[which], pretokens.lengths[which]
    found = _TokenSplits(
        ids[which].astype(np.int32),
        tables.find(Pretokens(pretokens.data, starts, at)).astype(np.int32),
        tables.find(Pretokens(pretokens.data, starts + at, lengths - at)).astype(np.int32),
    )
    others = [token for token in symbols if len(token) > MAX_PRETOKEN_BYTES or 0 in token]
    sizes = sorted({len(token) for token in symbols})
    rows = [
        (symbols[token], symbols.get(token[:split], ABSENT), symbols.get(token[split:], ABSENT))
        for token in others
        for split in _find_splits(len(token), sizes)
    ]
    one_by_one = np.array(rows, np.int32).reshape(-1, 3).T
    return _TokenSplits(*(np.concatenate(columns) for columns in zip(found, one_by_one, strict=True)))


def _find_splits(length: int, sizes: list[int]) -> list[int]:
    """Where a token can be cut so that one part has a size that some token has, rising."""
    heads = sizes[: bisect_left(sizes, length)]
    return sorted({*heads, *(length - size for size in heads)})
