"""Tests of sorting integers, and of grouping equal rows."""

import numpy as np
from hypothesis import given, strategies as st

from tokjax.core.ragged import argsort_integers, group_equal_rows


@given(st.lists(st.integers(0, 2**62 - 1), max_size=50), st.sampled_from([3, 20, 55, 62]))
def test_argsort_is_stable(values, bits):
    """With 62 bits there is no space for the index in the same number."""
    keys = np.array(values, np.int64) & ((1 << bits) - 1)
    assert argsort_integers(keys, bits).tolist() == np.argsort(keys, kind="stable").tolist()


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=40),
    st.sampled_from([0, 1, 2**64 - 1]),
)
def test_groups_are_equal_rows(rows, mask):
    """Hashes that collide change nothing."""
    data = np.array([value for row in rows for value in row], np.int32)
    lengths = np.array([len(row) for row in rows], np.int64)
    hashes = np.array([hash(tuple(row)) & mask & (2**64 - 1) for row in rows], np.uint64)
    examples, groups = group_equal_rows(data, lengths, hashes << np.uint64(63) if mask == 1 else hashes)
    assert [rows[examples[group]] for group in groups.tolist()] == rows
    assert len(examples) == len(set(map(tuple, rows)))
