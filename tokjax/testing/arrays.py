"""Compliance checks for array functions and batches.

Array functions give equal results in NumPy, eager JAX, `jit` and `vmap`. Batches are pytrees that JAX can
slice by rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def check_array_function(function: Callable[..., Any], *arrays: Any) -> None:
    """Checks that the results of a function are bit-identical in NumPy, in eager JAX, under `jit` and `vmap`.

    All array functions of `tokjax` guarantee this. Run the check on a custom one, such as an objective that
    is a function of ids and random draws.

    Args:
        function: function of arrays or pytrees of arrays that returns a pytree of arrays. Bind its other
            arguments with `functools.partial`.
        *arrays: arguments of the function: NumPy arrays of any shapes, or pytrees of them.

    Raises:
        AssertionError: the function modifies its arguments, returns NumPy arrays for JAX arrays or the
            reverse, or its result differs in structure, shape, dtype or value; the message names the case.
            Note that JAX has no `int64` and `float64` by default, so the function must not return them.
            Errors of the function are not caught.

    >>> check_array_function(lambda ids: ids[..., ::-1], np.arange(6, dtype=np.int32).reshape(2, 3))
    """
    import jax  # noqa: PLC0415 (`import tokjax.testing` loads no JAX)
    import jax.numpy as jnp  # noqa: PLC0415

    for index, leaf in enumerate(jax.tree.leaves(arrays)):
        assert isinstance(leaf, np.ndarray), (
            f"array {index} is a {type(leaf).__name__}, not a NumPy array; bind other arguments with "
            "functools.partial"
        )
    before = jax.tree.map(np.copy, arrays)
    expected = function(*arrays)
    assert jax.tree.leaves(expected), f"the function returns no arrays, but {expected!r:.80}"
    check_same("the arguments after the call", before, arrays, np.ndarray)
    check_same("NumPy, second call", expected, function(*arrays), (np.ndarray, np.generic))
    device_arrays = jax.tree.map(jnp.asarray, arrays)
    check_same("eager JAX", expected, function(*device_arrays), jax.Array)
    check_same("jax.jit", expected, jax.jit(function)(*device_arrays), jax.Array)
    stacked = jax.tree.map(lambda array: jnp.stack([array, array]), device_arrays)
    mapped = jax.jit(jax.vmap(function))(*stacked)
    for row in (0, 1):
        part = jax.tree.map(lambda array: array[row], mapped)  # noqa: B023 (called here)
        check_same("jax.vmap", expected, part, jax.Array)


def check_same(case: str, expected: Any, actual: Any, array_type: Any) -> None:
    """Checks that two pytrees have the same structure, shapes, dtypes and values.

    Args:
        case: description of the compared operation, for error messages.
        expected: expected pytree.
        actual: pytree to check.
        array_type: required type of the arrays in `actual`, as in `isinstance`.

    Raises:
        AssertionError: the pytrees differ.
    """
    import jax  # noqa: PLC0415

    expected_structure, structure = jax.tree.structure(expected), jax.tree.structure(actual)
    assert str(expected_structure) == str(structure), (
        f"{case}: the structure is {structure}, not {expected_structure}"
    )
    leaves = zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True)
    for index, (left, right) in enumerate(leaves):
        label = f"{case}: array {index}"
        assert isinstance(right, array_type), f"{label} is a {type(right).__name__}"
        described = [f"{array.dtype}{list(array.shape)}" for array in (left, right)]
        assert described[0] == described[1], f"{label} is {described[1]}, not {described[0]}"
        # Bytes are compared, so that `nan` equals itself and `0.0` differs from `-0.0`.
        same = np.asarray(left).tobytes() == np.asarray(right).tobytes()
        assert same, f"{label} is {np.asarray(right)}, not {np.asarray(left)}"


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
    halves = slice(num_rows // 2), slice(num_rows // 2, None)
    head, tail = (jax.tree.map(lambda a, part=part: a[part], batch) for part in halves)
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


def _identity(batch: Any) -> Any:
    return batch


def _import_old_shard_map() -> Any:
    from jax.experimental.shard_map import shard_map  # noqa: PLC0415 (before JAX 0.8)

    return shard_map
