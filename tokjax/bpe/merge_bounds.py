"""Merge bounds: for two adjacent symbols, the lowest ranks of the merges that they can become part of.

Batched merging uses them to decide which pairs can be merged before all others. Three ranks are stored for
each pair of symbols:

    rank         the pair itself
    from_left    the lowest rank of all pairs (a token that ends with the left symbol, the right symbol):
                 the left neighbour can only take the right symbol with this rank or a higher one
    from_right   the lowest rank of all pairs (the left symbol, a token that begins with the right symbol):
                 the right neighbour can only take the left symbol with this rank or a higher one

An example, where merges make the tokens es (rank 256), er (257), ow (258), est (259), low (260), we (261)::

    pair   rank   from_left    from_right
    l·o     -        -         260 (l·ow)      l and o do not merge, but l and ow do
    o·w    258      258        258
    w·e    261      261        261
    e·s    256      256        256
    s·t     -       259 (es·t)  -              s and t do not merge, but es and t do

The bounds are computed once per vocabulary. A pair (left, right) of rank `r` lowers `from_left` of (s, right)
to `r`, for each token `s` that is a suffix of `left`; prefixes of `right` and `from_right` likewise. So
es·t with rank 259 gives s·t its bound. Pairs that are not in the table can never be part of a merge.

See docs/performance.md, section "Merge bounds".
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.bpe.hash_tables import ABSENT, HashTable, HashTables, Pretokens, make_pretokens
from tokjax.bpe.merge_rules import LONG_TOKEN
from tokjax.core.ragged import argsort_integers, concatenate_ranges, find_distinct
from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Keys
    from tokjax.bpe.merge_rules import MergeRules

    Ints = NDArray[np.int32]
    Packed = NDArray[np.int64]

END_RANK = np.int32((1 << ID_BITS) - 1)
"""Sentinel rank at the end of a pre-token, where no merge is possible. All ids are lower."""
NEVER_RANK = np.int32(END_RANK - 1)
"""Sentinel rank of two symbols that do not merge."""


class MergeBounds(NamedTuple):
    """The merge bounds of pairs of adjacent symbols; three `int32` arrays of the same shape.

    The three ranks of a pair are stored packed in one `int64`, so that they are looked up and moved as one
    number::

        bit   63 ... 42     41 ... 21    20 ... 0
              from_right    from_left    rank

    Attributes:
        rank: the rank of the pair, `NEVER_RANK` if it does not merge.
        from_left: the lowest rank with which symbols further left can take the right symbol: the minimum over
            all tokens that end with the left symbol.
        from_right: the lowest rank with which symbols further right can take the left symbol.
    """

    rank: Ints
    from_left: Ints
    from_right: Ints

    @property
    def packed(self) -> Packed:
        """The three ranks of each pair, packed in one `int64`."""
        rank, from_left, from_right = (column.astype(np.int64) for column in self)
        return from_right << (2 * ID_BITS) | from_left << ID_BITS | rank


END_BOUNDS = np.int64(MergeBounds(*np.full((3, 1), END_RANK)).packed[0])
"""Packed bounds at the end of a pre-token."""
_NO_MERGE_BOUNDS = np.int64(MergeBounds(*np.full((3, 1), NEVER_RANK)).packed[0])


class MergeBoundTables(NamedTuple):
    """The merge bounds of a vocabulary.

    Attributes:
        byte_symbols: the symbol of each byte, `int32`, shape `(256,)`.
        byte_pair_bounds: the packed bounds of two bytes, shape `(65536,)`. The index is
            `second << 8 | first`: the two bytes as they are read from memory.
        pair_bounds: hash table from two symbols to their packed bounds. It has all pairs that can ever be
            part of a merge.
        as_left: the lowest rank of the pairs whose left half is the symbol, `int32`, shape `(symbols,)`.
        as_right: the lowest rank of the pairs whose right half is the symbol, `int32`, shape `(symbols,)`.
    """

    byte_symbols: Ints
    byte_pair_bounds: Packed
    pair_bounds: HashTable
    as_left: Ints
    as_right: Ints

    def get_bounds(self, left: Ints, right: Ints) -> Packed:
        """Returns the packed bounds of adjacent symbols."""
        return _find_bounds(self.pair_bounds, left, right)

    def get_byte_bounds(self, text: NDArray[np.uint8], out: Packed) -> None:
        """Computes the packed bounds of each byte and the next. Writes them to `out`, of length `n - 1`."""
        pairs = text[1:].astype(np.uint16)
        pairs <<= 8
        pairs |= text[:-1]
        self.byte_pair_bounds.take(pairs, out=out, mode="clip")


class MergePairs(NamedTuple):
    """Pairs of symbols with a rank each; `int32` arrays, shape `(pairs,)`."""

    left: Ints
    right: Ints
    rank: Ints


class _TokenSplits(NamedTuple):
    """All ways to split each token in two: the symbols of the token, of its head and of its tail.

    `head` and `tail` are `ABSENT` where that part is not a token.
    """

    token: Ints
    head: Ints
    tail: Ints


def build_merge_bound_tables(rules: MergeRules) -> MergeBoundTables:
    """Computes the merge bounds of a vocabulary.

    Args:
        rules: the merge rules of the vocabulary.
    """
    symbols = rules.symbols
    splits = _split_all_tokens(symbols)
    pairs = _build_pairs(rules, splits)
    size = max(symbols.values()) + 1
    # The minimum over several pairs: in lists of merges, and where a token can be split in several ways.
    as_left, as_right = np.full(size, END_RANK), np.full(size, END_RANK)
    np.minimum.at(as_left, pairs.left, pairs.rank)
    np.minimum.at(as_right, pairs.right, pairs.rank)
    # Splits are in the order of head lengths. In reverse, the longest tail is the last one.
    suffixes = _find_longest(splits.token[::-1], splits.tail[::-1], size)
    keys, bounds = _build_all_bounds(pairs, suffixes, _find_longest(splits.token, splits.head, size))
    pair_bounds = HashTable(
        1, 2 * len(keys)
    )  # sparse: a third of the lookups is for pairs that are not there
    pair_bounds.add(keys, bounds)
    byte_symbols = np.array([symbols[bytes([i])] for i in range(256)], np.int32)
    # Every pre-token starts as bytes, so the bounds of two bytes are in an array that needs no hashing.
    second, first = np.divmod(np.arange(1 << 16), 256)
    byte_pair_bounds = _find_bounds(pair_bounds, byte_symbols[first], byte_symbols[second])
    return MergeBoundTables(byte_symbols, byte_pair_bounds, pair_bounds, as_left, as_right)


def find_pairs(rules: MergeRules) -> MergePairs:
    """Returns the pairs of symbols that merge, with their ranks."""
    return _build_pairs(rules, _split_all_tokens(rules.symbols))


def _build_pairs(rules: MergeRules, splits: _TokenSplits) -> MergePairs:
    """Returns the pairs that merge, with their ranks."""
    if rules.pairs is None:
        both = (splits.head != ABSENT) & (splits.tail != ABSENT)
        return MergePairs(splits.head[both], splits.tail[both], splits.token[both])
    symbols = rules.symbols
    count = len(rules.pairs)
    sides = (map(symbols.get, map(itemgetter(side), rules.pairs), repeat(ABSENT)) for side in (0, 1))
    left, right, rank = (np.fromiter(column, np.int32, count) for column in (*sides, rules.pairs.values()))
    # A half that no merge makes is not a symbol. Such a pair never occurs.
    occurs = (left != ABSENT) & (right != ABSENT)
    return MergePairs(left[occurs], right[occurs], rank[occurs])


def unpack_bounds(bounds: Packed) -> MergeBounds:
    """Returns the three ranks of packed bounds."""
    upper = bounds >> ID_BITS
    return MergeBounds(
        unpack_ranks(bounds),
        (upper & END_RANK).astype(np.int32),
        (upper >> ID_BITS).astype(np.int32),
    )


def unpack_ranks(bounds: Packed) -> Ints:
    """Returns only the ranks of the pairs of packed bounds."""
    return (bounds & END_RANK).astype(np.int32)


def _find_bounds(pair_bounds: HashTable, left: Ints, right: Ints) -> Packed:
    bounds = pair_bounds.find(_build_pair_keys(left, right))
    bounds[bounds == ABSENT] = _NO_MERGE_BOUNDS
    return bounds


def _build_pair_keys(left: Ints, right: Ints) -> Keys:
    """Returns the hash-table keys of pairs: both symbols in one number. 1 is added, since no key may be 0."""
    key = left.astype(np.uint64)
    key <<= np.uint64(32)
    key |= right.view(np.uint32)
    key += np.uint64(1)
    return key[:, None]


def _build_all_bounds(pairs: MergePairs, suffixes: Ints, prefixes: Ints) -> tuple[Keys, Packed]:
    """Returns the keys of all pairs of symbols that can be part of a merge, and their packed bounds.

    Args:
        pairs: the pairs that merge.
        suffixes: the longest proper suffix of each symbol that is a token, or else `ABSENT`.
        prefixes: the longest proper prefix of each symbol that is a token, or else `ABSENT`.
    """
    from_left = _add_shorter_tokens(pairs, suffixes, "left")
    from_right = _add_shorter_tokens(pairs, prefixes, "right")
    left, right = (
        np.concatenate([getattr(part, side) for part in (pairs, from_left, from_right)])
        for side in ("left", "right")
    )
    id_bits = len(suffixes).bit_length()
    pair_numbers = left.astype(np.int64) << id_bits | right
    order = argsort_integers(pair_numbers, 2 * id_bits)
    is_first = np.diff(pair_numbers.take(order), prepend=-1) != 0
    rows = np.empty(len(order), np.int64)
    rows[order] = np.cumsum(is_first) - 1
    distinct = order[is_first]
    keys = _build_pair_keys(left.take(distinct), right.take(distinct))
    # A pair of symbols can be reached from several pairs that merge. The lowest rank is the bound.
    columns, done = [], 0
    for part in (pairs, from_left, from_right):
        column = np.full(len(keys), NEVER_RANK)
        np.minimum.at(column, rows[done : done + len(part.rank)], part.rank)
        columns.append(column)
        done += len(part.rank)
    return keys, MergeBounds(*columns).packed


def _add_shorter_tokens(pairs: MergePairs, shorter: Ints, side: Literal["left", "right"]) -> MergePairs:
    """Returns the pairs, and copies of them whose token on one side is shortened in every possible way.

    A copy has the rank of the original pair. `shorter` leads from each token to the next shorter one, so each
    round follows it once: from lowest·x to west·x to est·x to t·x, for instance.
    """
    rounds = [pairs]
    while len(pairs.rank):
        ids = shorter[getattr(pairs, side)]
        rows = np.flatnonzero(ids != ABSENT)
        pairs = MergePairs(*(column.take(rows) for column in pairs))._replace(**{side: ids.take(rows)})
        rounds.append(pairs)
    return MergePairs(*(np.concatenate(columns) for columns in zip(*rounds, strict=True)))


def _find_longest(tokens: Ints, parts: Ints, size: int) -> Ints:
    """Returns, for each symbol, the last one of its parts that is a token, or `ABSENT`."""
    rows = np.flatnonzero(parts != ABSENT)
    longest = np.full(size, ABSENT, np.int32)
    longest[tokens[rows]] = parts[rows]
    return longest


def _split_all_tokens(symbols: Mapping[bytes, int]) -> _TokenSplits:
    """Splits each token in every way, in the order of increasing length of the head."""
    pretokens = make_pretokens(list(symbols))
    ids = np.fromiter(symbols.values(), np.int64, len(symbols))
    tables = HashTables(pretokens, ids)
    long = np.flatnonzero(pretokens.lengths > LONG_TOKEN)
    num_splits = np.where(pretokens.lengths > LONG_TOKEN, 0, pretokens.lengths - 1)
    rows, heads = np.repeat(np.arange(len(ids)), num_splits), concatenate_ranges(1, num_splits)
    if len(long):  # these are split where a part can be a token
        sizes = find_distinct(pretokens.lengths).tolist()
        cuts = [_find_splits(length, sizes) for length in pretokens.lengths.take(long).tolist()]
        rows = np.append(rows, np.repeat(long, list(map(len, cuts))))
        heads = np.append(heads, np.array([*chain.from_iterable(cuts)], np.int64))
    data, starts, lengths = pretokens.take(rows)
    return _TokenSplits(
        ids[rows].astype(np.int32),
        tables.find(Pretokens(data, starts, heads)).astype(np.int32),
        tables.find(Pretokens(data, starts + heads, lengths - heads)).astype(np.int32),
    )


def _find_splits(length: int, sizes: list[int]) -> list[int]:
    """Returns the positions, ascending, at which a token can be split so that a part has a token's length.

    Other positions need not be tried: neither part can be a token. This matters for very long tokens.
    """
    # The head has the length of a token, or the tail has.
    heads = sizes[: bisect_left(sizes, length)]
    return sorted({*heads, *(length - size for size in heads)})
