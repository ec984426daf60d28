"""Bits per byte: the loss per byte of text, which can be compared between tokenizers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tokjax._util.arrays import Array, as_int32, get_namespace, take_or_fill
from tokjax._util.checks import check_id
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import check_length_axis
from tokjax.errors import InvalidArgumentError

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_BITS_PER_NAT = np.float32(math.log2(math.e))


@jit_eager
def label_byte_lengths(labels: Array, byte_lengths: Array, *, ignore_index: int = -100) -> Array:
    """Returns the number of bytes of text of each label, for `bits_per_byte`.

    Args:
        labels: ids of target tokens, or `ignore_index`; integers, any shape.
        byte_lengths: number of bytes of each token id, `tokjax.token_byte_lengths(tokenizer)`, shape
            `(vocab_size,)`.
        ignore_index: label of positions without a target.

    Returns:
        `int32`, the shape of `labels`; 0 where the label is `ignore_index` or a special token. A JAX array if
        one of the inputs is, else a NumPy array.

    Raises:
        InvalidArgumentError: `byte_lengths` is not one-dimensional, or a label is neither an id nor
            `ignore_index` (which is not checked in JAX arrays).

    >>> label_byte_lengths(np.array([2, 1, -100]), np.array([0, 4, 3]))
    array([3, 4, 0], dtype=int32)
    """
    xp = get_namespace(labels, byte_lengths, ignore_index)
    check_id("ignore_index", ignore_index)
    targets, table = as_int32("labels", labels), as_int32("byte_lengths", byte_lengths)
    if table.ndim != 1:
        raise InvalidArgumentError(
            f"byte_lengths must have shape (vocab_size,), not {table.shape}; pass "
            "tokjax.token_byte_lengths(tokenizer)"
        )
    is_target = targets != xp.asarray(ignore_index, dtype=np.int32)
    if xp is np:
        unknown = targets[is_target & ((targets < 0) | (targets >= len(table)))]
        if unknown.size:
            raise InvalidArgumentError(
                f"labels contains {unknown.flat[0]}, which is neither ignore_index={ignore_index} nor an id "
                f"below {len(table)}"
            )
    return take_or_fill("byte_lengths", table, targets, is_target, 0)


@jit_eager
def bits_per_byte(nll: Array, num_bytes: Array) -> Array:
    """Computes the bits per byte of each row: the sum of its losses in bits, divided by its bytes of text.

    Positions with 0 bytes are left out of both sums: ignored labels and special tokens. So the loss may have
    any value there. For one number over several rows, flatten both arrays, since a mean over rows would give
    the bytes of short rows more weight. Over several batches, pass the sums of each batch: `nll` summed where
    `num_bytes` is not 0, and `num_bytes` summed.

    Args:
        nll: negative log-likelihood of each label in nats, such as
            `optax.softmax_cross_entropy_with_integer_labels` returns, floats, shape `(..., length)`. It is
            converted to `float32`.
        num_bytes: number of bytes of each label, `label_byte_lengths(labels, byte_lengths)`, integers, shape
            `(..., length)`; less than 2**31 per row.

    Returns:
        Bits per byte, `float32`, shape `(...)`; NaN for rows without bytes. A JAX array if one of the inputs
        is, else a NumPy array. Sums are pairwise, in the same order in NumPy and in JAX.

    Raises:
        InvalidArgumentError: `nll` holds integers, or the shapes differ.

    >>> num_bytes = label_byte_lengths(np.array([[2, 1, -100]]), np.array([0, 4, 3]))
    >>> bits_per_byte(np.log(np.float32([[8, 16, 1]])), num_bytes)
    array([1.], dtype=float32)
    """
    xp = get_namespace(nll, num_bytes)
    losses, sizes = xp.asarray(nll), as_int32("num_bytes", num_bytes)
    if losses.dtype.name not in _FLOATS:
        raise InvalidArgumentError(f"nll must be floats, the loss of each label in nats, not {losses.dtype}")
    check_length_axis("nll", losses)
    if losses.shape != sizes.shape:
        raise InvalidArgumentError(
            f"nll has shape {losses.shape}, and num_bytes {sizes.shape}; the shapes must be equal"
        )
    counted = xp.where(sizes > 0, losses.astype(np.float32), np.float32(0))
    bits = _sum_pairwise(xp, counted) * _BITS_PER_NAT
    total = sizes.sum(axis=-1, dtype=np.int32)
    quotient = bits / xp.maximum(total, np.int32(1)).astype(np.float32)
    return xp.where(total > 0, quotient, np.float32(np.nan))  # type: ignore[no-any-return]


def _sum_pairwise(xp: Any, values: Any) -> Any:
    """Sums the last axis by adding its second half to its first half until one value is left.

    The order of additions, and so the rounding, depends on the length alone. `sum` has another order in each
    library.
    """
    length = values.shape[-1]
    if not isinstance(length, int):
        raise InvalidArgumentError(
            f"rows have the symbolic length {length}, but bits_per_byte adds in an order that depends on the "
            "length; export it with a fixed length"
        )
    if length == 0:
        return values.sum(axis=-1)
    while length > 1:
        half = length // 2
        folded = values[..., :half] + values[..., length - half :]
        values = xp.concatenate([folded, values[..., half : length - half]], axis=-1)
        length -= half
    return values[..., 0]
