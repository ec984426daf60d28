"""Compliance checks for batches: pytrees that JAX can slice by rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.testing.functions import check_same

if TYPE_CHECKING:
    from collections.abc import Callable


def check_batch(batch: Any, *functions: Callable[[Any], Any]) -> None:
    """Checks that a batch is a pytree whose arrays all have rows as their first axis.

    A training loop can slice such a batch, concatenate it, reshape it to microbatches, donate it, shard it by
    rows over a mesh, and use `jax.vmap`, `jax.lax.scan` and `jax.shard_map` over its rows. The check runs all
    of these.

    Args:
        batch: pytree of NumPy arrays of shape `(num_rows, ...)` with at least 2 rows, for example a
            `NamedTuple` or a dataclass registered with JAX.
        *functions: functions of the batch that treat each row independently, such as its methods. Each must
            return arrays of shape `(num_rows, ...)`, with equal results for single rows, for microbatches and
            on a mesh.

    Raises:
        AssertionError: an array has no row axis, or the result of an operation differs; the message names the
            array or the operation. Errors of the functions are not caught.

    >>> import tokjax
    >>> blocks = tokjax.pack_blocks(tokjax.ragged_from_rows([[5, 6, 7], [8]]), block_size=2, pad_id=0)
    >>> check_batch(blocks, tokjax.PackedBlocks.causal_lm_labels)
    """
    import jax  # noqa: PLC0415 (`import tokjax.testing` loads no JAX)

    num_rows = _check_leaves(batch)
    head, tail = (jax.tree.map(lambda a, part=part: a[part], batch) for part in _get_halves(num_rows))
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), head, tail)
    check_same("two slices, concatenated", batch, joined, np.ndarray)
    donated = jax.jit(_identity, donate_argnums=0)(jax.device_put(batch))
    check_same("jax.jit with donate_argnums", batch, donated, jax.Array)
    for function in (_identity, *functions):
        _check_function(batch, function, num_rows)


def _check_leaves(batch: Any) -> int:
    """Checks that all leaves are arrays with the same number of rows, and returns this number."""
    import jax  # noqa: PLC0415

    leaves = jax.tree_util.tree_leaves_with_path(batch)
    assert leaves, f"the batch has no arrays: {batch!r:.80}"
    counts = {}
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path)
        assert isinstance(leaf, np.ndarray), f"{name} is a {type(leaf).__name__}, not a NumPy array"
        assert leaf.ndim, f"{name} has shape () and no row axis; compute it in a property"
        counts[name] = leaf.shape[0]
    assert len(set(counts.values())) == 1, f"arrays have different numbers of rows: {counts}"
    num_rows: int = next(iter(counts.values()))
    assert num_rows >= 2, f"the batch has {num_rows} rows; pass a batch of at least 2"
    return num_rows


def _check_function(batch: Any, function: Callable[[Any], Any], num_rows: int) -> None:
    """Checks that a function gives the same result under each transformation, on slices and on a mesh."""
    import jax  # noqa: PLC0415

    name = getattr(function, "__name__", "the function")
    expected = function(batch)
    half = num_rows // 2
    even = 2 * half

    def run_transformations(device_batch: Any) -> dict[str, Any]:
        microbatches = jax.tree.map(lambda a: a[:even].reshape(2, half, *a.shape[1:]), device_batch)
        return {
            "jax.jit": function(device_batch),
            "jax.vmap over rows": jax.vmap(function)(device_batch),
            "jax.lax.scan over rows": jax.lax.scan(lambda _, row: (None, function(row)), None, device_batch)[
                1
            ],
            "microbatches (steps, rows, ...)": _flatten_microbatches(function(microbatches)),
            "jax.lax.scan over microbatches": _flatten_microbatches(
                jax.lax.scan(lambda _, part: (None, function(part)), None, microbatches)[1]
            ),
            "a slice of the batch": function(jax.tree.map(lambda a: a[:half], device_batch)),
        }

    for transformation, actual in jax.jit(run_transformations)(jax.device_put(batch)).items():
        # Microbatches lack the last row of an odd number, and a slice has half of the rows.
        rows = jax.tree.leaves(actual)[0].shape[0]
        part = jax.tree.map(lambda a, rows=rows: a[:rows], expected)
        check_same(f"{name}, {transformation}", part, actual, jax.Array)
    count = max(n for n in range(1, jax.device_count() + 1) if num_rows % n == 0)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:count]), ("data",))
    spec: Any = jax.sharding.PartitionSpec("data")  # type: ignore[no-untyped-call]
    sharded = jax.device_put(batch, jax.sharding.NamedSharding(mesh, spec))
    check_same(f"{name}, rows on {count} devices", expected, jax.jit(function)(sharded), jax.Array)
    shard_map = jax.shard_map if hasattr(jax, "shard_map") else _import_old_shard_map()
    mapped = jax.jit(shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec))
    check_same(f"{name}, jax.shard_map", expected, mapped(sharded), jax.Array)


def _flatten_microbatches(result: Any) -> Any:
    """Reshapes results of microbatches, `(steps, rows, ...)`, to `(steps * rows, ...)`."""
    import jax  # noqa: PLC0415

    return jax.tree.map(lambda a: a.reshape(a.shape[0] * a.shape[1], *a.shape[2:]), result)


def _get_halves(num_rows: int) -> tuple[slice, slice]:
    return slice(num_rows // 2), slice(num_rows // 2, None)


def _identity(batch: Any) -> Any:
    return batch


def _import_old_shard_map() -> Any:
    from jax.experimental.shard_map import shard_map  # noqa: PLC0415 (before JAX 0.8)

    return shard_map
