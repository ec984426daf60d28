"""Batched BPE merging: merges many pairs of many pre-tokens per round, or of one very long pre-token.

The rule of BPE is sequential: always merge the pair of lowest rank, and of equal ranks the leftmost. While a
pair of rank `r` is there, every merge has a rank of at most `r`. So a pair will certainly be merged if every
merge that could take one of its two symbols has a higher rank. Such a pair is safe. A round merges all safe
pairs together. The ranks of competing merges come from `merge_bounds`.

An example, with the tokens es (rank 256), er (257), ow (258), est (259), low (260), we (261)::

    pair of "lowest"                  l·o    o·w    w·e    e·s    s·t
    rank                               -     258    261    256     -
    left half can be taken at rank     -      -     258    261    256
    right half can be taken at rank   258    261    256     -      -
    safe                               no    yes    no     yes    no

    start      l·o·w·e·s·t
    round 1    l·ow·es·t        o·w and e·s are merged together
    round 2    low·est          l·ow and es·t likewise

Merging one pair at a time takes four steps for this pre-token. Here all pre-tokens of a batch take two
rounds.

There is a second condition: the merge must not form a pair of lower rank with a neighbour too early.
With the tokens abc (rank 256), cd (257) and ab (258), no merge takes the a or the b of a·b. But if a·b were
merged at once, ab·c would take the c before c·d, which has to be merged first::

    right      a·b·c·d    a·b·cd     ab·cd
    wrong      a·b·c·d    ab·c·d     abc·d

Two cases have separate code: runs of pairs of equal rank (`aaaa`), of which every other pair is merged from
the left; and the few pairs that remain at the end, or that wait for one another (`}*}*}*`), which are merged
one at a time. A symbol that nothing can take, from either side, is finished. It leaves the arrays, so rounds
become shorter.

See docs/performance.md, sections "Merge bounds" and "Batched merging".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.bpe.merge_bounds import (
    END_BOUNDS,
    END_RANK,
    NEVER_RANK,
    build_merge_bound_tables,
    unpack_bounds,
    unpack_ranks,
)
from tokjax.bpe.sequential_merging import RepetitiveMerger, is_repetitive
from tokjax.core.ragged import concatenate_ranges, find_distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.bpe.merge_bounds import MergeBounds, Packed
    from tokjax.bpe.merge_rules import MergeRules

    Ints = NDArray[np.int32]
    Positions = NDArray[np.int64]

_REACH = 3
"""Number of symbols in each direction that are searched for competing merges."""
_SYMBOLS_PER_BATCH = 3 << 17
_FEW_SYMBOLS = 48
"""With at most this many symbols left, rounds end and pairs are merged one at a time."""
_MIN_MERGE_SHARE = 64
"""A round is poor if it removes at most 1 symbol in this many. A single poor round may still be worthwhile,
since many other pairs may wait for the pairs that it merges."""
_MAX_POOR_ROUNDS = 4
"""After this many poor rounds in a row, another poor round ends batched merging."""


class PretokenIds(NamedTuple):
    """The ids of several pre-tokens, concatenated.

    Attributes:
        ids: token ids, `int32`, shape `(num_tokens,)`.
        counts: number of ids of each pre-token, `int32` or `int64`, shape `(pretokens,)`.
    """

    ids: Ints
    counts: NDArray[Any]


NO_IDS = PretokenIds(np.zeros(0, np.int32), np.zeros(0, np.int64))


class Symbols(NamedTuple):
    """The unfinished symbols of all pre-tokens, concatenated, with one sentinel before and one after them.

    Attributes:
        ids: the symbols, `int32`, shape `(symbols + 2,)`.
        positions: index of the first byte of each symbol in the bytes of all pre-tokens, `int64`.
        bounds: packed merge bounds of each symbol and the next. `END_BOUNDS` after the last symbol of a
            pre-token, and where the next symbol is finished.
    """

    ids: Ints
    positions: Positions
    bounds: Packed

    def take(self, indices: Positions) -> Symbols:
        """Returns the symbols at the indices."""
        return Symbols(self.ids.take(indices), self.positions.take(indices), self.bounds.take(indices))


class BatchMerger:
    """Merges pre-tokens of a vocabulary that are not in the cache.

    Attributes:
        rules: the merge rules of the vocabulary.
        tables: the merge bounds of the vocabulary.
    """

    def __init__(self, rules: MergeRules) -> None:
        self.rules = rules
        self.tables = build_merge_bound_tables(rules)

    def merge(self, pretokens: Pretokens) -> PretokenIds:
        """Returns the ids of pre-tokens, as merging one pair at a time would make them."""
        stops = np.cumsum(pretokens.lengths)
        parts, first = [], 0
        while first < len(stops):
            done = int(stops[first - 1]) if first else 0
            last = max(int(np.searchsorted(stops, done + _SYMBOLS_PER_BATCH, "right")), first + 1)
            parts.append(self._merge_batch(pretokens.take(np.arange(first, last))))
            first = last
        if not parts:
            return NO_IDS
        return PretokenIds(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _merge_batch(self, pretokens: Pretokens) -> PretokenIds:
        stops = np.cumsum(pretokens.lengths)
        text = pretokens.data.take(concatenate_ranges(pretokens.starts, pretokens.lengths))
        # For each byte of the text: the finished symbol that starts at the byte, or -1.
        finished_ids = np.full(len(text), -1, np.int32)
        symbols = self.build_symbols(text, stops)
        num_poor = 0
        while len(symbols.ids) > _FEW_SYMBOLS:
            next_symbols = self._merge_round(
                symbols,
                finished_ids,
                0 if num_poor < _MAX_POOR_ROUNDS else len(symbols.ids) // _MIN_MERGE_SHARE,
            )
            if next_symbols is None:
                break
            is_poor = len(symbols.ids) - len(next_symbols.ids) <= len(symbols.ids) // _MIN_MERGE_SHARE
            num_poor = num_poor + 1 if is_poor else 0
            symbols = next_symbols
            if is_poor and is_repetitive(symbols.ids.tobytes()):
                break  # a long run of equal symbols that wait for one another
        self._merge_rest(symbols, text, finished_ids)
        return self.collect_ids(finished_ids, text, stops)

    def collect_ids(self, finished_ids: Ints, text: NDArray[np.uint8], stops: Positions) -> PretokenIds:
        """Returns the token ids of finished symbols.

        Args:
            finished_ids: the symbol that starts at each byte, or -1, `int32`, shape `(bytes,)`. It is changed
                in place.
            text: the bytes of all pre-tokens, concatenated.
            stops: the end of each pre-token in `text`, `int64`, shape `(pretokens,)`.
        """
        starts = np.flatnonzero(finished_ids >= 0)
        ids = self.rules.as_ids(finished_ids.take(starts))
        without_id = np.flatnonzero(ids < 0)
        if len(without_id):
            # Merging can end at a symbol that is not a token of the vocabulary: replace it by its bytes.
            lengths = np.diff(starts, append=len(text)).take(without_id)
            byte_positions = concatenate_ranges(starts.take(without_id), lengths)
            finished_ids[byte_positions] = self.tables.byte_symbols.take(text.take(byte_positions))
            starts = np.flatnonzero(finished_ids >= 0)
            ids = self.rules.as_ids(finished_ids.take(starts))
        counts = np.diff(np.searchsorted(starts, stops), prepend=0)
        return PretokenIds(ids, counts)

    def build_symbols(self, text: NDArray[np.uint8], stops: Positions) -> Symbols:
        """Returns the bytes of pre-tokens as symbols. The arguments are those of `collect_ids`."""
        ids = np.zeros(len(text) + 2, np.int32)
        ids[1:-1] = self.tables.byte_symbols.take(text)
        bounds = np.full(len(ids), END_BOUNDS)
        self.tables.get_byte_bounds(text, out=bounds[1:-2])
        bounds[stops] = END_BOUNDS
        return Symbols(ids, np.arange(-1, len(ids) - 1), bounds)

    def _merge_round(self, symbols: Symbols, finished_ids: Ints, minimum: int) -> Symbols | None:
        """Merges all safe pairs, and removes finished symbols.

        Args:
            symbols: the unfinished symbols. They are changed in place.
            finished_ids: output: finished symbols are written at their first byte.
            minimum: number of safe pairs that is too small for a round.

        Returns:
            The symbols that remain, or `None` if no more than `minimum` pairs are safe.
        """
        bounds = unpack_bounds(symbols.bounds)
        left, right = _propagate_bounds(bounds)
        safe = self._find_safe_pairs(symbols.ids, bounds.rank, left, right)
        if np.count_nonzero(safe) <= len(safe) // _MIN_MERGE_SHARE:
            # The pair of lowest rank comes first by definition. One per pre-token is better than almost none.
            safe = _find_lowest_pairs(bounds.rank)
            if np.count_nonzero(safe) <= minimum:
                return None
        is_finished = np.zeros(len(left), bool)
        np.logical_and(left[:-2] >= NEVER_RANK, right[1:-1] >= NEVER_RANK, out=is_finished[1:-1])
        finished = np.flatnonzero(is_finished)
        finished_ids[symbols.positions.take(finished)] = symbols.ids.take(finished)
        # The symbol before a finished one now ends a part of a pre-token that merges separately.
        symbols.bounds[finished - 1] = END_BOUNDS
        at = (
            np.flatnonzero(safe) + 1
        )  # the left symbols; `safe` starts at the first symbol after the sentinel
        return self.merge_pairs(symbols, at, ~is_finished)

    def merge_pairs(self, symbols: Symbols, at: Positions, remains: NDArray[np.bool_]) -> Symbols:
        """Merges pairs that do not overlap, and removes other symbols.

        Args:
            symbols: the symbols. They are changed in place: the left symbols become the merged ones.
            at: indices of the left symbols, ascending.
            remains: mask of the symbols that are not removed. It is changed in place.

        Returns:
            The symbols that remain.
        """
        symbols.ids[at] = self.rules.get_merged_symbols(unpack_ranks(symbols.bounds.take(at)))
        symbols.bounds[at] = symbols.bounds.take(at + 1)
        remains[at + 1] = False
        merged = np.cumsum(remains).take(at) - 1  # the indices of the merged symbols among those that remain
        remaining = symbols.take(np.flatnonzero(remains))
        # Only the bounds on the two sides of a merged symbol change.
        changed = np.concatenate([merged, merged - 1])
        changed = changed.take(np.flatnonzero(remaining.bounds.take(changed) != END_BOUNDS))
        remaining.bounds[changed] = self.tables.get_bounds(
            remaining.ids.take(changed), remaining.ids.take(changed + 1)
        )
        return remaining

    def _find_safe_pairs(self, ids: Ints, ranks: Ints, left: Ints, right: Ints) -> NDArray[np.bool_]:
        """Returns a mask of the pairs that can be merged before all others. No two of them overlap.

        A competing merge of the same rank that takes the right half comes later, since it is further right.
        One that takes the left half would come first. These ties are examined separately.

        Args:
            ids: the symbols, with sentinels.
            ranks: the rank of each symbol and the next.
            left: lowest ranks from the left, as `_propagate_bounds` returns them.
            right: lowest ranks from the right, as `_propagate_bounds` returns them.

        Returns:
            A mask of shape `(symbols,)`, without the sentinels.
        """
        rank, left_bound, right_bound = ranks[1:-1], left[:-2], right[2:]
        safe: NDArray[np.bool_] = (rank < left_bound) & (rank <= right_bound) & (rank < NEVER_RANK)
        at = np.flatnonzero(safe)
        safe[at] = self._is_in_time(ids, ranks, at + 1)
        ties = np.flatnonzero((rank[:-1] == rank[1:]) & (rank[1:] < NEVER_RANK))
        if len(ties):
            safe[self._find_run_pairs(ids, ranks, ties, left_bound, right_bound)] = True
        return safe

    def _find_run_pairs(
        self, ids: Ints, ranks: Ints, ties: Positions, left_bound: Ints, right_bound: Ints
    ) -> Positions:
        """Returns every other pair of each run of pairs of equal rank, from the left.

        Five times a, with the token aa, has a run of four pairs, of which the first and third are merged::

            a·a·a·a·a    aa·aa·a

        Args:
            ids: the symbols, with sentinels.
            ranks: the rank of each symbol and the next.
            ties: the pairs whose next pair has the same rank, ascending.
            left_bound: the lowest rank with which the left half of each pair can be taken.
            right_bound: the lowest rank with which the right half of each pair can be taken.
        """
        run_starts = np.flatnonzero(np.diff(ties, prepend=-2) > 1)
        first = ties[run_starts]
        num_pairs = np.diff(np.append(run_starts, len(ties))) + 1
        rank = ranks[first + 1]
        is_safe = (rank < left_bound[first]) & (rank <= right_bound[first + num_pairs - 1])
        first, num_merges = first[is_safe], (num_pairs[is_safe] + 1) // 2
        positions: Positions = np.repeat(first, num_merges) + 2 * concatenate_ranges(0, num_merges)
        # A run ends at its first pair that is not in time: the pairs after it wait as well.
        num_late = np.cumsum(~self._is_in_time(ids, ranks, positions + 1))
        late_before_run = np.append(0, num_late)[np.cumsum(num_merges) - num_merges]
        in_time: Positions = positions[num_late == np.repeat(late_before_run, num_merges)]
        return in_time

    def _is_in_time(self, ids: Ints, ranks: Ints, at: Positions) -> NDArray[np.bool_]:
        """Returns which merges form no pair of lower or equal rank, whatever their neighbours become.

        `as_left` and `as_right` answer this for most merges without a lookup of the neighbours.

        Args:
            ids: the symbols, with sentinels.
            ranks: the rank of each symbol and the next.
            at: the indices of the left symbols of the merges, sentinels counted.
        """
        tables = self.tables
        rank = ranks.take(at)
        merged = self.rules.get_merged_symbols(rank)
        in_time = np.ones(len(at), bool)
        early = np.flatnonzero((tables.as_right.take(merged) <= rank) & (ranks.take(at - 1) != END_RANK))
        if len(early):
            bounds = tables.get_bounds(ids.take(at.take(early) - 1), merged.take(early))
            in_time[early] = unpack_bounds(bounds).from_left > rank.take(early)
        early = np.flatnonzero(
            in_time & (tables.as_left.take(merged) <= rank) & (ranks.take(at + 1) != END_RANK)
        )
        if len(early):
            bounds = tables.get_bounds(merged.take(early), ids.take(at.take(early) + 2))
            in_time[early] = unpack_bounds(bounds).from_right > rank.take(early)
        return in_time

    def _merge_rest(self, symbols: Symbols, text: NDArray[np.uint8], finished_ids: Ints) -> None:
        """Finishes the remaining symbols: merges pairs one at a time in the parts that can still merge.

        Args:
            symbols: the unfinished symbols.
            text: the bytes of all pre-tokens.
            finished_ids: output: the symbols are written at their first byte.
        """
        positions, all_ranks = symbols.positions[1:-1], unpack_bounds(symbols.bounds).rank
        ranks = all_ranks[1:-1]
        finished_ids[positions] = symbols.ids[1:-1]
        if ranks.min(initial=END_RANK) >= NEVER_RANK:
            return
        parts = np.cumsum(all_ranks[:-2] == END_RANK)  # number of the pre-token, or of the part of one
        mergeable = find_distinct(parts[ranks < NEVER_RANK])
        first, last = np.searchsorted(parts, mergeable), np.searchsorted(parts, mergeable, "right") - 1
        starts = np.append(np.flatnonzero(finished_ids >= 0), len(text))
        stops = starts[np.searchsorted(starts, positions[last], "right")]
        merger = RepetitiveMerger(self.rules)
        for start, stop in zip(positions[first].tolist(), stops.tolist(), strict=True):
            # Merge the part from its bytes again. This gives the same tokens, and needs no other algorithm.
            finished_ids[start:stop] = -1
            tokens = merger.merge(text[start:stop].tobytes())
            lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
            symbol_ids = list(map(self.rules.symbols.__getitem__, tokens))
            finished_ids[start + np.cumsum(lengths) - lengths] = symbol_ids


def _propagate_bounds(bounds: MergeBounds) -> tuple[Ints, Ints]:
    """Returns the lowest ranks with which merges can take a symbol of each pair, from the left and the right.

    A symbol further left can only take the right half of a pair by way of its left half: either the pair is
    merged (with its rank), or its left half is taken first (with the bound of the pair before it). Each
    iteration adds one more symbol in each direction.

    Args:
        bounds: the merge bounds of each symbol and the next, shape `(symbols + 2,)`.

    Returns:
        The lowest ranks with which symbols further left can take the right half of each pair, and with which
        symbols further right can take the left half, of the same shape.
    """
    left, right = bounds.from_left.copy(), bounds.from_right.copy()
    for _ in range(_REACH):
        np.maximum(bounds.from_left[1:], np.minimum(bounds.rank[1:], left[:-1]), out=left[1:])
        np.maximum(bounds.from_right[:-1], np.minimum(bounds.rank[:-1], right[1:]), out=right[:-1])
    return left, right


def _find_lowest_pairs(ranks: Ints) -> NDArray[np.bool_]:
    """Returns a mask of the first pair of lowest rank in each pre-token, or in each separate part of one."""
    starts = np.flatnonzero(ranks[:-1] == END_RANK)[:-1]  # in `ranks[1:-1]`
    ranks = ranks[1:-1]
    sizes = np.diff(starts, append=len(ranks))
    lowest = np.repeat(np.minimum.reduceat(ranks, starts), sizes)
    candidates = np.flatnonzero((ranks == lowest) & (ranks < NEVER_RANK))
    parts = np.searchsorted(starts, candidates, "right")
    is_lowest = np.zeros(len(ranks), bool)
    is_lowest[candidates[np.diff(parts, prepend=0) > 0]] = True
    return is_lowest
