"""Batches of rows in memory: of pytrees of arrays with a row each, in which numbers stay as they are."""

import jax
import numpy as np


def take_rows(columns, rows):
    return jax.tree.map(lambda column: column[rows] if column.ndim else column, columns)


def iter_batches(columns, size):
    """All rows in their order; the last batch may have fewer."""
    starts = range(0, len(jax.tree.leaves(columns)[0]), size)
    return (take_rows(columns, slice(start, start + size)) for start in starts)


def iter_random_batches(columns, size, steps):
    """So many batches of rows drawn at random, the same each time."""
    positions = np.random.default_rng(0).integers(len(jax.tree.leaves(columns)[0]), size=(steps, size))
    return (take_rows(columns, rows) for rows in positions)
