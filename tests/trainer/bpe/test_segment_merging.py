"""Tests of the sequential merging of frequent segments."""

import numpy as np
import pytest

from tokjax.core.vocabulary import ID_BITS
from tokjax.trainer.bpe.frequent_segments import DistinctSegments, FrequentSegments
from tokjax.trainer.bpe.linked_symbols import RIGHT, PairPositions
from tokjax.trainer.bpe.segment_merging import SegmentMerger

NAMES = ["l", "o", "w", "n", "e", "est"]
COUNTS = {"l o": 7, "o w": 7, "n e": 6, "e w": 6, "w est": 6}
MERGES = ["l o", "lo w", "w est", "n e", "ne west"]


def make_key(pair):
    left, right = map(NAMES.index, pair.split())
    return left << ID_BITS | right


@pytest.mark.parametrize("limit", [1, 2, 5, 9])
def test_example_of_the_module(limit):
    """The segments are `l o w` (7 times) and `n e w est` (6). The minimum is 6."""
    nothing, zeros = np.zeros(0, np.int32), np.zeros(len(COUNTS), np.int64)
    ids = [NAMES.index(name) for name in ["l", "o", "w", "n", "e", "w", "est"]]
    distinct = DistinctSegments(np.array(ids, np.int32), np.array([3, 4]), np.array([7, 6]))
    alone = PairPositions(nothing, np.zeros((0, 4), np.int32), zeros)
    segments = FrequentSegments(alone, zeros, nothing, nothing, nothing, distinct)
    tie_keys = {id_: id_ for id_ in range(20)}
    merger = SegmentMerger(
        segments, [*map(make_key, COUNTS)], [*COUNTS.values()], 6, tie_keys, lambda _: True
    )
    names, merges = list(NAMES), []

    def record(key):
        left, right = names[key >> ID_BITS], names[key & RIGHT]
        names.append(left + right)
        merges.append(f"{left} {right}")
        return len(names) - 1, len(merges) == limit

    merger.merge_frequent(record)
    assert merges == MERGES[:limit]
    assert list(merger.merged.values()) == list(range(len(NAMES), len(names)))
    left = [names[id_] for id_ in merger.get_ids() if id_ >= 0]
    assert left == (["lo", "w"] if limit == 1 else ["low"]) + (
        ["n", "e", "w", "est"] if limit < 5 else ["newest"]
    )
    if limit > 2:
        assert merger.rare.items() >= {make_key("o w"): 0, make_key("e w"): 0}.items()
