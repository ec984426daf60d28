"""Trace of the BPE trainer: the frequent pairs, the segments and the merges of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer.bpe.batched_training import TrainingRules, _Merger
from tokjax.trainer.bpe.linked_symbols import RIGHT, make_symbols

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokjax.trainer import PretokenCounts
    from tokjax.trainer.bpe.frequent_segments import FrequentSegments
    from tokjax.trainer.bpe.pair_table import FrequentPairs

_NO_SPECIAL_TOKENS = 256


class Step(NamedTuple):
    """A step of the trainer.

    Attributes:
        minimum: the count that makes a pair frequent.
        pairs: the frequent pairs, with their counts.
        segments: the distinct segments of more than one pair, with their counts.
        merges: the merged pairs, in order.
        num_positions: number of positions of the frequent pairs.
        num_symbols: number of symbols of the distinct segments.
    """

    minimum: int
    pairs: list[str]
    segments: list[str]
    merges: list[str]
    num_positions: int
    num_symbols: int


class _RecordingMerger(_Merger):
    """A trainer that stores the pairs and segments of its last step."""

    def _merge_in_order(
        self, pairs: FrequentPairs, segments: FrequentSegments, limit: int
    ) -> int:
        self.pairs, self.segments = pairs, segments
        return super()._merge_in_order(pairs, segments, limit)


def iter_training_steps(
    counts: PretokenCounts, limit: int, width: int | None = None
) -> Iterator[Step]:
    """Iterates over the steps of training, until there are `limit` tokens or no pair is left.

    Args:
        counts: the pre-tokens and their counts.
        limit: maximum number of new tokens.
        width: approximate number of frequent pairs of each step; `None` for that of the trainer.
    """
    rules = TrainingRules(_NO_SPECIAL_TOKENS, 1, "lexicographic")
    merger = _RecordingMerger(make_symbols(counts), rules)
    while merger.num_new < limit:
        before = len(merger.result.id_merges)
        merger._width = width or merger._width
        if merger.advance(limit - merger.num_new) is None:
            return
        yield _make_step(merger, before)


def _make_step(merger: _RecordingMerger, before: int) -> Step:
    pairs, segments = merger.pairs, merger.segments
    by_count = sorted(
        zip(pairs.counts.tolist(), pairs.keys.tolist(), strict=True), reverse=True
    )
    distinct = segments.distinct
    rows = iter(distinct.ids.tolist())
    texts = [
        " ".join(_format_token(merger, next(rows)) for _ in range(length))
        for length in distinct.lengths.tolist()
    ]
    return Step(
        pairs.minimum,
        [
            f"{_format_pair(merger, key >> ID_BITS, key & RIGHT)} {count}"
            for count, key in by_count
        ],
        [
            f"{text} ({count})"
            for text, count in zip(texts, distinct.counts.tolist(), strict=True)
        ],
        [
            _format_pair(merger, left, right)
            for left, right, _ in merger.result.id_merges[before:]
        ],
        len(pairs.positions.at),
        len(distinct.ids),
    )


def _format_pair(merger: _Merger, left: int, right: int) -> str:
    return f"{_format_token(merger, left)}·{_format_token(merger, right)}"


def _format_token(merger: _Merger, id_: int) -> str:
    token = merger.result.token[id_]
    return token.decode("utf-8", "backslashreplace").replace(" ", "␣")
