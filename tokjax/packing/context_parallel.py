"""Order of tokens for context parallelism, where each device holds a part of every row.

A causal query attends to all positions before it, so the second half of a row takes three quarters of the
work. If each device got consecutive tokens, the last one would be the slowest. Two orders share the work,
here for two devices and eight tokens:

    dual chunk     0 1 6 7 | 2 3 4 5     device r holds chunks r and 2 * cp_size - 1 - r
    striped        0 2 4 6 | 1 3 5 7     device r holds tokens r, r + cp_size, r + 2 * cp_size, ...
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from tokjax._util.arrays import get_namespace, is_jax, jit_eager
from tokjax._util.checks import check_choice, check_int
from tokjax.errors import InvalidArgumentError

Batch = TypeVar("Batch")
ContextParallelOrder: TypeAlias = Literal["dual_chunk", "striped"]


def reorder_for_context_parallel(
    batch: Batch, cp_size: int, *, strategy: ContextParallelOrder = "dual_chunk", axis: int = -1
) -> Batch:
    """Reorders the tokens of each row, so that each device gets an equal part of the attention's work.

    Reorder ids, positions, segment ids and labels together, after the labels were computed. Then shard the
    axis over `cp_size` devices. The attention must compare positions or know the order: a causal mask of
    indices is wrong for reordered rows.

    | strategy | device r holds | also known as |
    |---|---|---|
    | `"dual_chunk"` | chunks `r` and `2 * cp_size - 1 - r` of `2 * cp_size` | zigzag, head-tail, load-balanced; Transformer Engine's `DualChunkSwap`, MaxText's `reorder_causal_load_balanced` |
    | `"striped"` | tokens `r`, `r + cp_size`, `r + 2 * cp_size` and so on | striped attention; Transformer Engine's `Striped` with stripes of one token |

    `"dual_chunk"` balances rows of one document. In packed rows, use `"striped"`, which balances each
    document.

    Args:
        batch: an array, or a dict, `NamedTuple`, tuple or list of arrays, such as `PackedBlocks`; arrays of any
            dtype and shape with the axis of tokens, such as `(..., length)`. `None` is kept.
        cp_size: number of devices that share a row; static under `jax.jit`.
        strategy: order of the tokens.
        axis: axis of the tokens in all arrays.

    Returns:
        The batch with arrays of the same shapes and dtypes.

    Raises:
        InvalidArgumentError: the length is not divisible by `2 * cp_size` (dual chunk) or `cp_size` (striped),
            an array has no such axis, or the batch holds something other than arrays.

    >>> reorder_for_context_parallel(np.arange(8), 2)
    array([0, 1, 6, 7, 2, 3, 4, 5])
    >>> reorder_for_context_parallel(np.arange(8), 2, strategy="striped")
    array([0, 2, 4, 6, 1, 3, 5, 7])
    """  # noqa: E501 (a row of a table is one line)
    return _reorder_batch(batch, _check_options(cp_size, strategy), strategy, axis, False)  # type: ignore[no-any-return]


def restore_context_parallel_order(
    batch: Batch, cp_size: int, *, strategy: ContextParallelOrder = "dual_chunk", axis: int = -1
) -> Batch:
    """Restores the order of tokens before `reorder_for_context_parallel`, for instance of logits.

    Args:
        batch: reordered arrays, as for `reorder_for_context_parallel`.
        cp_size: number of devices that share a row; static under `jax.jit`.
        strategy: order of the tokens.
        axis: axis of the tokens in all arrays; 1 for logits of shape `(batch, length, vocab_size)`.

    Returns:
        The batch with arrays of the same shapes and dtypes.

    Raises:
        InvalidArgumentError: as for `reorder_for_context_parallel`.

    >>> restore_context_parallel_order(np.array([0, 1, 6, 7, 2, 3, 4, 5]), 2)
    array([0, 1, 2, 3, 4, 5, 6, 7])
    """
    return _reorder_batch(batch, _check_options(cp_size, strategy), strategy, axis, True)  # type: ignore[no-any-return]


def _check_options(cp_size: int, strategy: str) -> int:
    check_choice("strategy", strategy, ("dual_chunk", "striped"))
    return check_int("cp_size", cp_size, minimum=1)


def _reorder_batch(batch: Any, cp_size: int, strategy: str, axis: int, inverse: bool) -> Any:
    """Reorders all arrays of a batch, without `jax.tree.map`: worker processes never load JAX."""

    def reorder(value: Any) -> Any:
        return _reorder_batch(value, cp_size, strategy, axis, inverse)

    if batch is None:
        return None
    if isinstance(batch, np.ndarray) or is_jax(batch):
        return _reorder_array(batch, cp_size, strategy, axis, inverse)
    if isinstance(batch, dict):
        return {name: reorder(value) for name, value in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*map(reorder, batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map(reorder, batch))
    raise InvalidArgumentError(
        f"batch must be an array, or a dict, tuple or list of arrays, not {batch!r:.80}; use jax.tree.map "
        "for other pytrees"
    )


@jit_eager
def _reorder_array(array: Any, cp_size: int, strategy: str, axis: int, inverse: bool) -> Any:
    if not -array.ndim <= check_int("axis", axis) < array.ndim:
        raise InvalidArgumentError(f"an array of shape {array.shape} has no axis {axis}; pass axis=")
    first = axis % array.ndim
    parts = 2 * cp_size if strategy == "dual_chunk" else cp_size
    length = array.shape[first]
    if length % parts != 0:
        raise InvalidArgumentError(
            f"the length {length} (axis {axis} of shape {array.shape}) is not divisible by {parts}, as "
            f"strategy={strategy!r} needs with cp_size={cp_size}; pad the rows to a multiple of {parts}"
        )
    reorder = _reorder_chunks if strategy == "dual_chunk" else _reorder_stripes
    return reorder(array, cp_size, first, inverse).reshape(array.shape)


def _reorder_chunks(array: Any, cp_size: int, axis: int, inverse: bool) -> Any:
    """Pairs each chunk of the first half with one of the reversed second half, or separates the pairs."""
    xp = get_namespace(array)
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    chunk = array.shape[axis] // (2 * cp_size)
    every = (slice(None),) * axis
    if inverse:
        pairs = array.reshape(*before, cp_size, 2, chunk, *after)
        return xp.concatenate(
            [pairs[(*every, slice(None), 0)], pairs[(*every, slice(None, None, -1), 1)]], axis
        )
    chunks = array.reshape(*before, 2 * cp_size, chunk, *after)
    head, reversed_tail = chunks[(*every, slice(cp_size))], chunks[(*every, slice(None, cp_size - 1, -1))]
    return xp.stack([head, reversed_tail], axis + 1)


def _reorder_stripes(array: Any, cp_size: int, axis: int, inverse: bool) -> Any:
    """Transposes rows of `cp_size` consecutive tokens, or the tokens of `cp_size` devices."""
    stripe = array.shape[axis] // cp_size
    sides = (cp_size, stripe) if inverse else (stripe, cp_size)
    return array.reshape(*array.shape[:axis], *sides, *array.shape[axis + 1 :]).swapaxes(axis, axis + 1)
