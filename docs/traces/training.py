"""Trace of the BPE trainer: the candidates and the merges of each step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.timing import measure_seconds
from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer import count_pretokens
from tokjax.trainer.bpe.batched_training import TrainingRules, _Merger
from tokjax.trainer.bpe.checkpoints import Checkpoint
from tokjax.trainer.bpe.linked_symbols import RIGHT, make_symbols

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokjax.trainer import PretokenCounts
    from tokjax.trainer.bpe.pair_table import BestPairs
    from tokjax.trainer.bpe.safe_batch import RankedPairs

_NO_SPECIAL_TOKENS = 256
_ROUNDS = 3


class Candidate(NamedTuple):
    """A pair that is a candidate for the next merge.

    Attributes:
        pair: its two tokens.
        count: the number of its occurrences when the step begins.
        new_pair_bound: the highest count that a pair can have which appears when this one is merged. `None`
            after a step that made an existing token again, since the bounds are then computed again.
        order: the position of the merge in its step, from 1; 0 if the pair waits.
    """

    pair: str
    count: int
    new_pair_bound: int | None
    order: int


class _RecordingMerger(_Merger):
    """A trainer that stores its last ranking."""

    def _rank_pairs(
        self, best: BestPairs, limit: int
    ) -> tuple[RankedPairs, NDArray[np.int64]]:
        self.ranked, rows = super()._rank_pairs(best, limit)
        return self.ranked, rows


def measure_counting_seconds(texts: Sequence[str], workers: int) -> float:
    """Measures the seconds that it takes to count the pre-tokens of texts: the minimum of several rounds."""
    count = partial(count_pretokens, texts, workers=workers, progress=False)
    return min(measure_seconds(count) for _ in range(_ROUNDS))


def iter_training_steps(
    counts: PretokenCounts, limit: int
) -> Iterator[list[Candidate]]:
    """Iterates over the steps of training, until there are `limit` tokens or no pair is left.

    Yields:
        The most frequent pairs of a step, in descending order.
    """
    rules = TrainingRules(
        _NO_SPECIAL_TOKENS,
        min_frequency=1,
        tie_break="lexicographic",
        max_token_length=None,
    )
    merger = _RecordingMerger(Checkpoint((), make_symbols(counts)), rules)
    while merger.num_new < limit:
        before = len(merger.result.id_merges)
        if merger._step(limit - merger.num_new) is None:
            return
        made = [
            left << ID_BITS | right
            for left, right, _ in merger.result.id_merges[before:]
        ]
        orders = {key: order for order, key in enumerate(made, 1)}
        yield [
            Candidate(
                _format_pair(merger, key),
                -sort_key[0],
                merger._batches._new_pair_bounds.get(key),
                orders.get(key, 0),
            )
            for key, sort_key in zip(
                merger.ranked.keys, merger.ranked.order, strict=True
            )
        ]


def _format_pair(merger: _Merger, key: int) -> str:
    tokens = (merger.result.token[id_] for id_ in (key >> ID_BITS, key & RIGHT))
    return "·".join(
        token.decode("utf-8", "backslashreplace").replace(" ", "␣") for token in tokens
    )
