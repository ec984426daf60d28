"""Tests of hash tables that are looked up under jit, against a dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.variants import mark_slow_except
from tokjax.device.hash_table import build_table, find


def look_up(table, keys):
    columns = [jnp.asarray(column) for column in keys.T]
    return np.asarray(jax.jit(find)(jax.tree.map(jnp.asarray, table), columns)).tolist()


@pytest.mark.parametrize("columns", mark_slow_except([1, 2, 5], [2]))
def test_many_keys(columns):
    count = 20_000
    keys = np.zeros((count, columns), np.uint32)
    keys[:, -1] = np.arange(count)  # key 0 in all columns is a key, too
    table = build_table(keys, np.arange(count))
    assert look_up(table, keys) == list(range(count))
    assert set(look_up(table, keys + np.uint32(count))) == {-1}
