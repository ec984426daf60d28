"""Batches of arrays in memory.

`columns` is a pytree of arrays with the same number of rows. Scalars in it are not split into rows.
"""

import jax
import numpy as np


def take_rows(columns, rows):
    """Returns the given rows of every array; `rows` is a slice or an array of row indices."""
    return jax.tree.map(lambda column: column[rows] if column.ndim else column, columns)


def iter_batches(columns, size):
    """Yields batches of `size` consecutive rows; the last batch may have fewer."""
    starts = range(0, len(jax.tree.leaves(columns)[0]), size)
    return (take_rows(columns, slice(start, start + size)) for start in starts)


def iter_random_batches(columns, size, steps):
    """Yields `steps` batches of `size` random rows, from a fixed seed."""
    positions = np.random.default_rng(0).integers(len(jax.tree.leaves(columns)[0]), size=(steps, size))
    return (take_rows(columns, rows) for rows in positions)
