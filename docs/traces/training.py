"""What the trainer merges in each step, and what it knew when it decided."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.timing import measure_seconds
from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer import count_pretokens
from tokjax.trainer.bpe.batched_merging import TrainingRules, _Merger
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
    """A pair that might be merged.

    Attributes:
        pair: its two tokens.
        frequency: how often it stands, when the step begins.
        newcomers: how often any pair can stand at most that comes up when this one is merged; `None`
            where a token was made anew, after which these bounds are counted anew.
        turn: which merge of the step it is, from 1; 0 if it waits.
    """

    pair: str
    frequency: int
    newcomers: int | None
    turn: int


class _RecordingMerger(_Merger):
    """A trainer that keeps what it ranked last."""

    def _rank_pairs(
        self, best: BestPairs, limit: int
    ) -> tuple[RankedPairs, NDArray[np.int64]]:
        self.ranked, rows = super()._rank_pairs(best, limit)
        return self.ranked, rows


def measure_counting_seconds(texts: Sequence[str], workers: int) -> float:
    """How long it takes to count the words of texts: the least of some rounds."""
    count = partial(count_pretokens, texts, workers=workers, progress=False)
    return min(measure_seconds(count) for _ in range(_ROUNDS))


def iter_training_steps(
    counts: PretokenCounts, limit: int
) -> Iterator[list[Candidate]]:
    """The most frequent pairs of each step, in order, until `limit` tokens are made or no pair is left."""
    rules = TrainingRules(
        _NO_SPECIAL_TOKENS,
        min_frequency=1,
        tie_break="lexicographic",
        max_token_length=None,
    )
    merger = _RecordingMerger(Checkpoint((), make_symbols(counts)), rules)
    while merger.num_new < limit:
        before = len(merger.merged.made)
        if merger._step(limit - merger.num_new) is None:
            return
        made = [
            left << ID_BITS | right for left, right, _ in merger.merged.made[before:]
        ]
        turns = {key: turn for turn, key in enumerate(made, 1)}
        yield [
            Candidate(
                _format_pair(merger, key),
                -order[0],
                merger._batches._newcomers.get(key),
                turns.get(key, 0),
            )
            for key, order in zip(merger.ranked.keys, merger.ranked.order, strict=True)
        ]


def _format_pair(merger: _Merger, key: int) -> str:
    tokens = (merger.merged.token[id_] for id_ in (key >> ID_BITS, key & RIGHT))
    return "·".join(
        token.decode("utf-8", "backslashreplace").replace(" ", "␣") for token in tokens
    )
