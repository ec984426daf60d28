"""Byte-pair merging of many words together, or of one that is huge: many merges of every word a round.

The rule is one merge at a time, always of the pair of lowest rank, the leftmost of equals. As long as a pair
of rank `r` stands there, all merges made have ranks up to `r`. So if everything that could ever take one of
its two symbols away needs a higher rank, the pair is sure to be merged. It can be merged at once, with all
others like it, unless that brings forth a pair of lower rank too early. Runs of equal ranks are merged from
the left, every other pair. The tables of `merge_bounds` tell what could take a symbol; one that nothing can
take any more, from neither side, is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.bpe.merge_bounds import END_BOUNDS, END_RANK, NEVER_RANK, build_merge_bound_tables, unpack_bounds
from tokjax.bpe.sequential_merging import merge_bytes
from tokjax.core.ragged import concatenate_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.bpe.hash_tables import Pretokens
    from tokjax.bpe.merge_bounds import MergeBounds, Packed
    from tokjax.bpe.merge_rules import MergeRules

    Ints = NDArray[np.int32]
    Positions = NDArray[np.int64]

_REACH, _FAR_REACH = 3, 64
"""How many symbols to each side are looked at for what could take a symbol: more where few words are left."""
_SYMBOLS_PER_BATCH = 1 << 16
_FEW_SYMBOLS = 48
"""Once so few are left, they are merged one pair at a time."""
_FEW_PRETOKENS = 16
"""So few words in which no pair is sure are merged one pair at a time, too."""
_MIN_MERGE_SHARE = 64
"""A round that merges less than one in so many symbols is not worth it, by itself: what it merges may be all
that others wait for."""
_MAX_POOR_ROUNDS = 4
"""So many of them in a row are tried."""


class MergedPretokens(NamedTuple):
    """The ids of words, laid end to end.

    Attributes:
        ids: `int32`, shape `(n,)`.
        counts: how many each word has, `int64`, shape `(pretokens,)`.
    """

    ids: Ints
    counts: Positions


NO_PRETOKENS = MergedPretokens(np.zeros(0, np.int32), np.zeros(0, np.int64))


class _Symbols(NamedTuple):
    """Symbols that are not done, laid end to end, with one more before the first and one behind the last.

    Attributes:
        ids: `int32`.
        positions: where the first byte of each stands among the bytes of all words, `int64`.
        bounds: that of each with the next, packed, `END_BOUNDS` where nothing merges any more.
    """

    ids: Ints
    positions: Positions
    bounds: Packed

    def take(self, at: Positions) -> _Symbols:
        """Some of the symbols."""
        return _Symbols(self.ids.take(at), self.positions.take(at), self.bounds.take(at))


class BatchMerger:
    """Merges words of one vocabulary that are not known as a whole.

    Args:
        rules: what merges.
    """

    def __init__(self, rules: MergeRules) -> None:
        self._rules = rules
        self._tables = build_merge_bound_tables(rules)

    def merge(self, pretokens: Pretokens) -> MergedPretokens:
        """Merge words."""
        stops = np.cumsum(pretokens.lengths)
        parts, first = [], 0
        while first < len(stops):
            done = int(stops[first - 1]) if first else 0
            last = max(int(np.searchsorted(stops, done + _SYMBOLS_PER_BATCH, "right")), first + 1)
            parts.append(self._merge_batch(pretokens.take(np.arange(first, last))))
            first = last
        if not parts:
            return NO_PRETOKENS
        return MergedPretokens(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _merge_batch(self, pretokens: Pretokens) -> MergedPretokens:
        stops = np.cumsum(pretokens.lengths)
        text = pretokens.data.take(concatenate_ranges(pretokens.starts, pretokens.lengths))
        done = np.full(
            len(text), -1, np.int32
        )  # by byte: the id of the symbol that starts there, if it is done
        symbols = self._build_symbols(text, stops)
        poor = 0
        while len(symbols.ids) > _FEW_SYMBOLS:
            after = self._merge_round(
                symbols, done, 0 if poor < _MAX_POOR_ROUNDS else len(symbols.ids) // _MIN_MERGE_SHARE
            )
            if after is None:
                break
            is_poor = len(symbols.ids) - len(after.ids) <= len(symbols.ids) // _MIN_MERGE_SHARE
            poor = poor + 1 if is_poor else 0
            symbols = after
        self._merge_rest(symbols, text, done)
        starts = np.flatnonzero(done >= 0)
        ids = self._rules.as_ids(done.take(starts))
        apart = np.flatnonzero(ids < 0)
        if len(apart):
            lengths = np.diff(starts, append=len(text)).take(apart)
            inside = concatenate_ranges(starts.take(apart), lengths)
            done[inside] = self._tables.byte_symbols.take(text.take(inside))
            starts = np.flatnonzero(done >= 0)
            ids = self._rules.as_ids(done.take(starts))
        counts = np.diff(np.searchsorted(starts, stops), prepend=0)
        return MergedPretokens(ids, counts)

    def _build_symbols(self, text: NDArray[np.uint8], stops: Positions) -> _Symbols:
        ids = np.zeros(len(text) + 2, np.int32)
        ids[1:-1] = self._tables.byte_symbols.take(text)
        pairs = text[1:].astype(np.uint16)
        pairs <<= 8
        pairs |= text[:-1]
        bounds = np.full(len(ids), END_BOUNDS)
        self._tables.byte_pair_bounds.take(pairs, out=bounds[1:-2], mode="clip")
        bounds[stops] = END_BOUNDS
        return _Symbols(ids, np.arange(-1, len(ids) - 1), bounds)

    def _merge_round(self, symbols: _Symbols, done: Ints, minimum: int) -> _Symbols | None:
        """One round: the symbols that are left after it, or `None` if no more than `minimum` pairs are sure."""
        bounds = unpack_bounds(symbols.bounds)
        left, right = _propagate_bounds(bounds, _REACH)
        sure = self._find_safe_pairs(symbols.ids, bounds.rank, left, right, _REACH)
        few = len(sure) // _MIN_MERGE_SHARE
        if np.count_nonzero(sure) <= few:
            sure = _find_lowest_pairs(bounds.rank)
        if np.count_nonzero(sure) <= max(few, _FEW_PRETOKENS):
            far = _propagate_bounds(bounds, _FAR_REACH)
            sure_from_afar = self._find_safe_pairs(symbols.ids, bounds.rank, *far, _FAR_REACH)
            if np.count_nonzero(sure_from_afar) >= np.count_nonzero(sure):
                sure = sure_from_afar
            if np.count_nonzero(sure) <= minimum:
                return None
        finished = np.zeros(len(left), bool)
        np.logical_and(left[:-2] >= NEVER_RANK, right[1:-1] >= NEVER_RANK, out=finished[1:-1])
        done_now = np.flatnonzero(finished)
        done[symbols.positions.take(done_now)] = symbols.ids.take(done_now)
        symbols.bounds[done_now - 1] = END_BOUNDS  # the joint of the last symbol before them that is kept
        at = np.flatnonzero(sure) + 1
        symbols.ids[at] = self._rules.get_made_symbols(bounds.rank.take(at))
        symbols.bounds[at] = symbols.bounds.take(at + 1)
        remaining = ~finished
        remaining[at + 1] = False
        now = np.cumsum(remaining).take(at) - 1
        remaining = np.flatnonzero(remaining)
        after = symbols.take(remaining)
        changed = np.concatenate([now, now - 1])
        changed = changed.take(np.flatnonzero(after.bounds.take(changed) != END_BOUNDS))
        after.bounds[changed] = self._tables.get_bounds(after.ids.take(changed), after.ids.take(changed + 1))
        return after

    def _find_safe_pairs(
        self, ids: Ints, ranks: Ints, left: Ints, right: Ints, reach: int
    ) -> NDArray[np.bool_]:
        """Pairs that can be merged before all others; no two of them overlap.

        What takes the right half with the same rank comes later, since it stands further right. What takes
        the left half with the same rank would come first: ties there have to be looked into.

        Args:
            ids: those of the symbols.
            ranks: those of the joints.
            left: as `_propagate_bounds` gives them, like `right`.
            right: as `left`.
            reach: as for `_propagate_bounds`.
        """
        rank, left_of, right_of = ranks[1:-1], left[:-2], right[2:]
        possible = (rank <= left_of) & (rank <= right_of) & (rank < NEVER_RANK)
        sure: NDArray[np.bool_] = possible & (rank < left_of)
        if np.count_nonzero(possible) > 2 * np.count_nonzero(sure):
            sure[self._find_chain_pairs(ids, ranks, np.minimum(left, right), possible, sure, reach)] = True
        at = np.flatnonzero(sure)
        sure[at] = self._is_in_time(ids, ranks, at + 1)
        ties = np.flatnonzero((rank[:-1] == rank[1:]) & (rank[1:] < NEVER_RANK))
        if len(ties):
            sure[self._find_run_pairs(ids, ranks, ties, left_of, right_of)] = True
        return sure

    def _find_chain_pairs(
        self,
        ids: Ints,
        ranks: Ints,
        competing_ranks: Ints,
        possible: NDArray[np.bool_],
        sure: NDArray[np.bool_],
        reach: int,
    ) -> Positions:
        """Pairs like `}*` in `}*}*}*`: only the merge of one just like it, further left, comes before each.

        That one is itself sure, or of the chain. Between the two nothing changes before it is merged, and
        what it becomes does not take the symbol behind it before all pairs of the chain are merged.

        Args:
            ids: those of the symbols.
            ranks: those of the joints.
            competing_ranks: the lowest ranks with which symbols at each joint can be taken.
            possible: pairs whose halves nothing takes with a lower rank.
            sure: those of them whose halves nothing takes first.
            reach: how far apart two of a chain may be.
        """
        rank = ranks[1:-1]
        at = np.flatnonzero(possible)
        at = at.take(np.argsort(rank.take(at), kind="stable"))
        before, here = at[:-1], at[1:]
        pretokens = np.cumsum(rank == END_RANK)
        linked = (rank[before] == rank[here]) & (pretokens[before] == pretokens[here])
        linked &= (here - before >= 2) & (here - before <= reach + 2)
        links = np.flatnonzero(linked)
        before, here = before[links], here[links]
        between = np.stack([before + 1, here], axis=1).reshape(-1)
        quiet = (
            np.minimum.reduceat(competing_ranks[1:-1], between)[::2] >= rank[here] if len(links) else links
        )
        following = self._tables.get_bounds(self._rules.get_made_symbols(rank[here]), ids[before + 3])
        linked[links] = quiet & (unpack_bounds(following).from_left > rank[here])
        index = np.arange(len(at))
        is_sure = sure[at]
        broken = ~is_sure
        broken[1:] &= ~linked
        last_sure = np.maximum.accumulate(np.where(is_sure, index, -1))
        last_broken = np.maximum.accumulate(np.where(broken, index, -1))
        return at[last_sure > last_broken]

    def _find_run_pairs(self, ids: Ints, ranks: Ints, ties: Positions, left: Ints, right: Ints) -> Positions:
        """Every other pair of runs of equal ranks; `ties` are those whose next pair has the same rank."""
        begins = np.flatnonzero(np.diff(ties, prepend=-2) > 1)
        first = ties[begins]
        pairs = np.diff(np.append(begins, len(ties))) + 1
        rank = ranks[first + 1]
        sure = (rank < left[first]) & (rank <= right[first + pairs - 1])
        first, merges = first[sure], (pairs[sure] + 1) // 2
        positions: Positions = np.repeat(first, merges) + 2 * concatenate_ranges(0, merges)
        late = np.cumsum(~self._is_in_time(ids, ranks, positions + 1))
        late_before = np.append(0, late)[np.cumsum(merges) - merges]
        in_time: Positions = positions[late == np.repeat(late_before, merges)]  # up to the first that is not
        return in_time

    def _is_in_time(self, ids: Ints, ranks: Ints, at: Positions) -> NDArray[np.bool_]:
        """Which merges bring forth no pair of lower rank than their own, whatever their neighbours become."""
        tables = self._tables
        rank = ranks.take(at)
        new = self._rules.get_made_symbols(rank)
        in_time = np.ones(len(at), bool)
        early = np.flatnonzero((tables.as_right.take(new) <= rank) & (ranks.take(at - 1) != END_RANK))
        if len(early):
            bounds = tables.get_bounds(ids.take(at.take(early) - 1), new.take(early))
            in_time[early] = unpack_bounds(bounds).from_left > rank.take(early)
        early = np.flatnonzero(
            in_time & (tables.as_left.take(new) <= rank) & (ranks.take(at + 1) != END_RANK)
        )
        if len(early):
            bounds = tables.get_bounds(new.take(early), ids.take(at.take(early) + 2))
            in_time[early] = unpack_bounds(bounds).from_right > rank.take(early)
        return in_time

    def _merge_rest(self, symbols: _Symbols, text: NDArray[np.uint8], done: Ints) -> None:
        """Finish what is left: most of it is done, and the rest is merged one pair at a time."""
        positions, every_rank = symbols.positions[1:-1], unpack_bounds(symbols.bounds).rank
        ranks = every_rank[1:-1]
        done[positions] = symbols.ids[1:-1]
        if ranks.min(initial=END_RANK) >= NEVER_RANK:
            return
        parts = np.cumsum(every_rank[:-2] == END_RANK)  # words, or parts of words that nothing joins
        alive = np.unique(parts[ranks < NEVER_RANK])
        first, last = np.searchsorted(parts, alive), np.searchsorted(parts, alive, "right") - 1
        starts = np.append(np.flatnonzero(done >= 0), len(text))
        stops = starts[np.searchsorted(starts, positions[last], "right")]
        for start, stop in zip(positions[first].tolist(), stops.tolist(), strict=True):
            done[start:stop] = -1
            tokens = merge_bytes(text[start:stop].tobytes(), self._rules)
            lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
            done[start + np.cumsum(lengths) - lengths] = list(map(self._rules.symbols.__getitem__, tokens))


def _propagate_bounds(bounds: MergeBounds, reach: int) -> tuple[Ints, Ints]:
    """The lowest ranks with which the symbols of each joint can be taken from the left and from the right.

    What stands further left can only take the right symbol by way of the left one: it takes that, or the pair
    is merged.
    """
    left, right = bounds.from_left.copy(), bounds.from_right.copy()
    for _ in range(reach):
        np.maximum(bounds.from_left[1:], np.minimum(bounds.rank[1:], left[:-1]), out=left[1:])
        np.maximum(bounds.from_right[:-1], np.minimum(bounds.rank[:-1], right[1:]), out=right[:-1])
    return left, right


def _find_lowest_pairs(ranks: Ints) -> NDArray[np.bool_]:
    """In each word, or part of one that nothing joins to others, the first pair of lowest rank."""
    starts = np.flatnonzero(ranks[:-1] == END_RANK)[:-1]  # in `ranks[1:-1]`
    ranks = ranks[1:-1]
    sizes = np.diff(starts, append=len(ranks))
    lowest = np.repeat(np.minimum.reduceat(ranks, starts), sizes)
    found = np.flatnonzero((ranks == lowest) & (ranks < NEVER_RANK))
    which = np.searchsorted(starts, found, "right")
    sure = np.zeros(len(ranks), bool)
    sure[found[np.diff(which, prepend=0) > 0]] = True
    return sure
