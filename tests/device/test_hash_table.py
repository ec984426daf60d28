"""Tests of hash tables that are looked up under jit, against a dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.hypothesis_profiles import get_max_examples
from tokjax.device.hash_table import build_table, find

numbers = st.integers(0, 2**32 - 1)


def look_up(table, keys):
    """Looks up keys, padded to few different shapes."""
    padded = np.pad(keys, ((0, -len(keys) % 64), (0, 0)))
    columns = [jnp.asarray(column) for column in padded.T]
    return np.asarray(find(jax.tree.map(jnp.asarray, table), columns))[: len(keys)].tolist()


@get_max_examples(20)
@given(
    st.dictionaries(st.tuples(numbers, numbers), st.integers(0, 2**31 - 2), max_size=40),
    st.lists(st.tuples(numbers, numbers), max_size=5),
)
def test_lookups_equal_those_of_a_dictionary(mapping, others):
    keys = np.array([*mapping, *others], np.uint32).reshape(-1, 2)
    table = build_table(keys[: len(mapping)], np.array([*mapping.values()], np.int64))
    expected = [mapping.get(tuple(key), -1) for key in keys.tolist()]
    assert look_up(table, keys) == expected


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_many_keys(columns):
    count = 20_000
    keys = np.zeros((count, columns), np.uint32)
    keys[:, -1] = np.arange(count)  # key 0 in all columns is a key, too
    table = build_table(keys, np.arange(count))
    assert look_up(table, keys) == list(range(count))
    assert set(look_up(table, keys + np.uint32(count))) == {-1}
