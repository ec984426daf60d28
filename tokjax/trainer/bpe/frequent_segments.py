"""Frequent segments: the parts of the pre-tokens in which all merges down to a minimum count happen.

A pair is frequent if its count is at least the minimum. A merge forms new pairs, which can be frequent too.
But between the two tokens of such a new pair, and inside of each of them, only frequent pairs were adjacent:
the new pair occurs wherever all of them do, and not more often. So the merges down to the minimum depend on
nothing but the frequent segments: the longest parts of pre-tokens in which all adjacent pairs are frequent.

An example with low (5 times), lower (2), newest (6) and widest (3). With the minimum 8, the frequent pairs
are e·s (9), s·t (9) and w·e (8)::

    pre-token   low    lower    newest     widest
    segment     none   w e      w e s t    e s t
    count              2        6          3

Merging them in order gives s·t (9) and e·st (9), which leaves w·e with 2. Equal segments of different
pre-tokens are merged once, with the sum of their counts. A pair that overlaps no other frequent pair, as w·e
in `lower`, is alone in its segment. It needs no merging, only its count is used. On a large corpus most pairs
are alone, or in segments that are equal to others, so tens of thousands of positions become a few hundred.

See docs/performance.md, section "Batched BPE training".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import argsort_integers, concatenate_ranges, group_equal_rows
from tokjax.trainer.bpe.linked_symbols import POSITION_BITS, REMOVED, Merges, PairPositions, sum_groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer.bpe.linked_symbols import Ids, LinkedPretokens, Positions

_HASH_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
"""Odd 64-bit constants of the hash that sorts segments."""


class DistinctSegments(NamedTuple):
    """The segments of more than one pair, each different one once.

    Attributes:
        ids: the symbols of all segments, concatenated, `int32`, shape `(symbols,)`.
        lengths: number of symbols of each segment, at least three, `int64`, shape `(segments,)`.
        counts: number of occurrences of each segment in the corpus, `int64`, shape `(segments,)`.
    """

    ids: Ids
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]


class FrequentSegments(NamedTuple):
    """All frequent segments of the pre-tokens.

    Attributes:
        alone: positions of the pairs that are alone in their segment.
        alone_counts: number of occurrences of each pair in the corpus where it is alone, `int64`, shape
            `(pairs,)`.
        positions: positions of the symbols of all other segments, concatenated, `int32`.
        lengths: number of symbols of each of these segments, `int64`, shape `(segments,)`.
        kinds: index of the equal segment in `distinct`, `int64`, shape `(segments,)`.
        distinct: these segments, each different one once.
    """

    alone: PairPositions
    alone_counts: NDArray[np.int64]
    positions: Positions
    lengths: NDArray[np.int64]
    kinds: NDArray[np.int64]
    distinct: DistinctSegments

    def find_merges(self, pair_ids: Ids, distinct_ids: Ids) -> Merges:
        """Returns the merges of all segments, from those of the distinct ones.

        Args:
            pair_ids: the id that each pair becomes, -1 for pairs that are not merged.
            distinct_ids: the symbols of the distinct segments after the merges. A merged token is at the
                position of its first symbol, and `REMOVED` is at the others.
        """
        alone_ids = np.repeat(pair_ids, self.alone.lengths)
        alone = np.flatnonzero(alone_ids >= 0)
        alone_at, alone_last = self.alone.at.take(alone), self.alone.after[alone]
        starts = np.cumsum(self.distinct.lengths) - self.distinct.lengths
        source = concatenate_ranges(starts.take(self.kinds), self.lengths)
        ids = distinct_ids.take(source)
        left = np.flatnonzero(ids >= 0)
        # A token that is left has the positions up to the next one: the first symbol of a segment is always
        # left.
        ends = np.append(left[1:], len(ids))[: len(left)] - 1
        is_merged = ends > left
        merged = left[is_merged]
        return Merges(
            np.concatenate([alone_at, self.positions.take(merged)]),
            np.concatenate([alone_ids.take(alone), ids.take(merged)]),
            np.concatenate([alone_last, self.positions.take(np.flatnonzero(ids == REMOVED))]),
            np.concatenate([alone_last, self.positions.take(ends[is_merged])]),
        )


def find_frequent_segments(pretokens: LinkedPretokens, positions: PairPositions) -> FrequentSegments:
    """Finds the frequent segments.

    Args:
        pretokens: the symbols of the corpus.
        positions: all positions of the frequent pairs.
    """
    order = argsort_integers(positions.at.astype(np.int64), POSITION_BITS)
    at, after = positions.at.take(order), positions.after[order]
    # In the order of positions, a pair that continues a segment comes right after the pair before it.
    continues = np.zeros(len(at) + 1, bool)
    np.equal(after[:-1], at[1:], out=continues[1:-1])
    is_in_segment = continues[:-1] | continues[1:]
    is_alone = np.empty(len(at), bool)
    is_alone[order] = ~is_in_segment
    alone = positions.select(np.flatnonzero(is_alone))
    alone_counts = sum_groups(pretokens.get_link_weights(alone.links), alone.lengths)
    rest = np.flatnonzero(is_in_segment)
    segment_positions, lengths = _join_pairs(at.take(rest), after.take(rest), ~continues.take(rest))
    starts = np.cumsum(lengths) - lengths
    ids = pretokens.symbol[segment_positions]
    counts = pretokens.get_weights(segment_positions.take(starts))
    kinds, distinct = _find_distinct(DistinctSegments(ids, lengths, counts))
    return FrequentSegments(alone, alone_counts, segment_positions, lengths, kinds, distinct)


def find_merges_of_pair(at: Positions, after: Positions, id_: int) -> Merges:
    """Returns the merges of one pair at all its positions.

    Positions of a pair of two equal symbols can overlap. Every other one is merged, from the left: in `aaaa`,
    a·a occurs at 0, 1 and 2, and is merged at 0 and 2.
    """
    order = np.argsort(at)
    at, after = at.take(order), after[order]
    overlaps = np.zeros(len(at), bool)
    overlaps[1:] = after[:-1] == at[1:]
    index = np.arange(len(at))
    since_run_start = index - np.maximum.accumulate(np.where(overlaps, 0, index))
    is_merged = since_run_start % 2 == 0
    at, after = at[is_merged], after[is_merged]
    return Merges(at, np.full(len(at), id_, np.int32), after, after)


def _join_pairs(
    at: Positions, after: Positions, is_first: NDArray[np.bool_]
) -> tuple[Positions, NDArray[np.int64]]:
    """Returns the positions of the symbols of segments, and their lengths.

    Args:
        at: positions of the left symbols of the pairs of all segments, ascending.
        after: positions of the right symbols.
        is_first: whether a pair is the first of its segment.
    """
    first = np.flatnonzero(is_first)
    lengths = np.diff(first, append=len(at)) + 1
    stops = np.cumsum(lengths)
    positions = np.empty(len(at) + len(first), np.int32)
    positions[np.arange(len(at)) + np.cumsum(is_first) - 1] = at
    last = np.append(first[1:], len(at))[: len(first)] - 1
    positions[stops - 1] = after.take(last)
    return positions, lengths


def _find_distinct(segments: DistinctSegments) -> tuple[NDArray[np.int64], DistinctSegments]:
    """Finds the distinct segments.

    Returns:
        For each segment the index of the distinct one, and the distinct segments with their total counts.
    """
    examples, kinds = group_equal_rows(segments.ids, segments.lengths, _hash_segments(segments))
    starts = np.cumsum(segments.lengths) - segments.lengths
    lengths = segments.lengths.take(examples)
    ids = segments.ids.take(concatenate_ranges(starts.take(examples), lengths))
    counts = np.bincount(kinds, segments.counts, len(examples)).astype(np.int64)
    return kinds, DistinctSegments(ids, lengths, counts)


def _hash_segments(segments: DistinctSegments) -> NDArray[np.uint64]:
    """Returns a hash of each segment. Different segments rarely have equal hashes."""
    starts = np.cumsum(segments.lengths) - segments.lengths
    offsets = np.arange(len(segments.ids)) - np.repeat(starts, segments.lengths)
    first, second = (np.uint64(multiplier) for multiplier in _HASH_MULTIPLIERS)
    terms = segments.ids.astype(np.uint64) * first
    terms ^= terms >> np.uint64(32)
    terms *= offsets.astype(np.uint64) * np.uint64(2) + second
    hashes: NDArray[np.uint64] = np.add.reduceat(terms, starts) if len(starts) else terms
    return hashes * first
