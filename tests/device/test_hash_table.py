"""Tests of hash tables that are looked up under jit, against a dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tokjax.device.hash_table import build_table, find


def look_up(table, keys):
    """Looks up keys, padded to few different shapes."""
    padded = np.pad(keys, ((0, -len(keys) % 64), (0, 0)))
    columns = [jnp.asarray(column) for column in padded.T]
    return np.asarray(find(jax.tree.map(jnp.asarray, table), columns))[: len(keys)].tolist()


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_many_keys(columns):
    count = 20_000
    keys = np.zeros((count, columns), np.uint32)
    keys[:, -1] = np.arange(count)  # key 0 in all columns is a key, too
    table = build_table(keys, np.arange(count))
    assert look_up(table, keys) == list(range(count))
    assert set(look_up(table, keys + np.uint32(count))) == {-1}
