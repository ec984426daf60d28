"""What merging asks of a vocabulary: for any two symbols side by side, which merges they can be part of."""

from __future__ import annotations

from bisect import bisect_left
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.bpe.hash_tables import ABSENT, LONGEST, Words, WordTable, WordTables, words_of
from tokjax.core.ragged import ranges
from tokjax.core.vocabulary import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Keys
    from tokjax.bpe.merge_rules import MergeRules

    Ints = NDArray[np.int32]
    Packed = NDArray[np.int64]

END = np.int32((1 << ID_BITS) - 1)
"""Stands for the rank where no merge is possible because a word ends; all ids are lower."""
NEVER = np.int32(END - 1)
"""Stands for the rank of two symbols that make no token."""


class Joints(NamedTuple):
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


ENDS = np.int64(Joints(*np.full((3, 1), END)).packed[0])
"""A joint, packed, at which a word ends."""
_NOTHING_MERGES = np.int64(Joints(*np.full((3, 1), NEVER)).packed[0])


class JointTables(NamedTuple):
    """All joints of a vocabulary.

    Attributes:
        of_byte: the symbol of each byte, `int32`, shape `(256,)`.
        of_bytes: the joints of two bytes, packed, shape `(65536,)`, the first byte low.
        known: those of two ids where anything can ever merge, packed.
        as_left: the lowest rank of all pairs whose left half is an id, `int32`, shape `(ids,)`.
        as_right: the same of right halves.
    """

    of_byte: Ints
    of_bytes: Packed
    known: WordTable
    as_left: Ints
    as_right: Ints

    def of_ids(self, left: Ints, right: Ints) -> Packed:
        """The joints of ids side by side, packed."""
        return _joints_of(self.known, left, right)


class _Pairs(NamedTuple):
    """Two ids side by side, and a rank."""

    left: Ints
    right: Ints
    rank: Ints


class _Parts(NamedTuple):
    """Tokens cut in two in every way: the ids of the token and of its parts, `ABSENT` where they are none."""

    whole: Ints
    head: Ints
    tail: Ints


def joint_tables(rules: MergeRules) -> JointTables:
    """The joints of a vocabulary.

    Args:
        rules: what merges.
    """
    symbols = rules.symbols
    parts = _all_parts(symbols)
    pairs = _pairs_of(rules, parts)
    size = max(symbols.values()) + 1
    as_left, as_right = np.full(size, END), np.full(size, END)
    np.minimum.at(as_left, pairs.left, pairs.rank)
    np.minimum.at(as_right, pairs.right, pairs.rank)
    keys, joints = _all_joints(pairs, _longest_ends(parts, size), _longest_beginnings(parts, size))
    known = WordTable(1, len(keys))
    known.add(keys, joints)
    of_byte = np.array([symbols[bytes([i])] for i in range(256)], np.int32)
    second, first = np.divmod(np.arange(1 << 16), 256)
    of_bytes = _joints_of(known, of_byte[first], of_byte[second])
    return JointTables(of_byte, of_bytes, known, as_left, as_right)


def _pairs_of(rules: MergeRules, parts: _Parts) -> _Pairs:
    """The pairs that merge."""
    if rules.pairs is None:
        both = (parts.head != ABSENT) & (parts.tail != ABSENT)
        return _Pairs(parts.head[both], parts.tail[both], parts.whole[both])
    symbols = rules.symbols
    count = len(rules.pairs)
    sides = (map(symbols.get, map(itemgetter(side), rules.pairs), repeat(ABSENT)) for side in (0, 1))
    left, right, rank = (np.fromiter(column, np.int32, count) for column in (*sides, rules.pairs.values()))
    meet = (left != ABSENT) & (right != ABSENT)
    return _Pairs(left[meet], right[meet], rank[meet])


def unpacked(joints: Packed) -> Joints:
    """The three numbers of each joint."""
    of_left = joints >> ID_BITS
    return Joints(
        (joints & END).astype(np.int32),
        (of_left & END).astype(np.int32),
        (of_left >> ID_BITS).astype(np.int32),
    )


def _joints_of(known: WordTable, left: Ints, right: Ints) -> Packed:
    found = known.find(_key_of_pair(left, right))
    found[found == ABSENT] = _NOTHING_MERGES
    return found


def _key_of_pair(left: Ints, right: Ints) -> Keys:
    """Two ids in one number that is never 0, as the key of a table."""
    key = left.astype(np.uint64)
    key <<= np.uint64(32)
    key |= right.view(np.uint32)
    key += np.uint64(1)
    return key[:, None]


def _all_joints(pairs: _Pairs, ends: Ints, beginnings: Ints) -> tuple[Keys, Packed]:
    """Every joint at which anything can merge, packed, by the key of its two ids."""
    from_left = _with_shorter(pairs, ends, "left")
    from_right = _with_shorter(pairs, beginnings, "right")
    keys, where = np.unique(
        np.concatenate([_key_of_pair(p.left, p.right)[:, 0] for p in (pairs, from_left, from_right)]),
        return_inverse=True,
    )
    columns, done = [], 0
    for part in (pairs, from_left, from_right):
        column = np.full(len(keys), NEVER)
        np.minimum.at(column, where[done : done + len(part.rank)], part.rank)
        columns.append(column)
        done += len(part.rank)
    return keys[:, None], Joints(*columns).packed


def _with_shorter(pairs: _Pairs, shorter: Ints, side: Literal["left", "right"]) -> _Pairs:
    """The pairs, and all others with a shorter token in place of the one on one side, with the same rank."""
    rounds = [pairs]
    while len(pairs.rank):
        ids = shorter[getattr(pairs, side)]
        on = np.flatnonzero(ids != ABSENT)
        pairs = _Pairs(*(column.take(on) for column in pairs))._replace(**{side: ids.take(on)})
        rounds.append(pairs)
    return _Pairs(*(np.concatenate(columns) for columns in zip(*rounds, strict=True)))


def _longest_ends(parts: _Parts, size: int) -> Ints:
    """For each id, the longest other token that its own ends with."""
    known = np.flatnonzero(parts.tail != ABSENT)[::-1]  # the longest tail of each comes last, and stays
    longest = np.full(size, ABSENT, np.int32)
    longest[parts.whole[known]] = parts.tail[known]
    return longest


def _longest_beginnings(parts: _Parts, size: int) -> Ints:
    """For each id, the longest other token that its own begins with."""
    known = np.flatnonzero(parts.head != ABSENT)
    longest = np.full(size, ABSENT, np.int32)
    longest[parts.whole[known]] = parts.head[known]
    return longest


def _all_parts(symbols: Mapping[bytes, int]) -> _Parts:
    """All cuts of all tokens, each token's from the first byte to the last."""
    in_tables = [token for token in symbols if len(token) <= LONGEST and 0 not in token]
    words = words_of(in_tables)
    ids = np.fromiter(map(symbols.__getitem__, in_tables), np.int64, len(in_tables))
    tables = WordTables(words, ids)
    cuts = words.lengths - 1
    which = np.repeat(np.arange(len(cuts)), cuts)
    at = ranges(1, cuts)
    starts, lengths = words.starts[which], words.lengths[which]
    found = _Parts(
        ids[which].astype(np.int32),
        tables.find(Words(words.data, starts, at)).astype(np.int32),
        tables.find(Words(words.data, starts + at, lengths - at)).astype(np.int32),
    )
    others = [token for token in symbols if len(token) > LONGEST or 0 in token]
    sizes = sorted({len(token) for token in symbols})
    rows = [
        (symbols[token], symbols.get(token[:cut], ABSENT), symbols.get(token[cut:], ABSENT))
        for token in others
        for cut in _cuts_to_sizes(len(token), sizes)
    ]
    one_by_one = np.array(rows, np.int32).reshape(-1, 3).T
    return _Parts(*(np.concatenate(columns) for columns in zip(found, one_by_one, strict=True)))


def _cuts_to_sizes(length: int, sizes: list[int]) -> list[int]:
    """Where a token can be cut so that one part has a size that some token has, rising."""
    heads = sizes[: bisect_left(sizes, length)]
    return sorted({*heads, *(length - size for size in heads)})
