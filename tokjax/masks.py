"""Attention masks of shape `(..., 1, queries, keys)`, true where a query attends to a key.

The axis of length 1 is broadcast over attention heads, as in `jax.nn.dot_product_attention` and most models.
Combine masks with `&` and `|`; they broadcast, since masks that are equal for all rows have no other leading
axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    as_mask,
    as_size,
    get_namespace,
    is_traced,
    jit_eager,
    make_positions,
    prepend_axes,
    scatter,
    to_host,
)
from tokjax._util.checks import MAX_INT32, check_id, check_int
from tokjax._util.imports import mark_namespace
from tokjax.core.array_inputs import as_tokens, check_length_axis
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "additive_mask",
    "causal_mask",
    "create_attention_mask",
    "create_causal_mask",
    "find_document_boundaries",
    "make_attention_mask",
    "padding_mask",
    "prefix_mask",
    "segment_mask",
    "sliding_window_mask",
    "unmask_empty_rows",
]
mark_namespace(__name__)


FLOATS = ("float16", "bfloat16", "float32", "float64")


@jit_eager
def padding_mask(attention_mask: Array) -> Array:
    """Returns a mask in which all queries attend to all keys except padding.

    Args:
        attention_mask: 1 on tokens and 0 on padding, `(..., length)`.

    Returns:
        `bool`, `(..., 1, 1, length)`.
    """
    name = "attention_mask"
    present = check_length_axis(name, as_mask(get_namespace(attention_mask), name, attention_mask))
    return present[..., None, None, :]  # type: ignore[no-any-return]


def causal_mask(length: int) -> NDArray[np.bool_]:
    """Returns a mask in which each query attends to itself and to earlier positions.

    Args:
        length: number of positions.

    Returns:
        `bool`, `(1, length, length)`: a NumPy constant, also under `jax.jit`, where it becomes a part of the
        compiled program. For long rows use `make_attention_mask`, which computes the mask on the device.

    >>> causal_mask(2).tolist()
    [[[True, False], [True, True]]]
    """
    return _build_causal_mask(np, check_int("length", length, minimum=0, maximum=MAX_INT32))  # type: ignore[no-any-return]


def sliding_window_mask(length: int, window: int) -> NDArray[np.bool_]:
    """Returns a mask in which each query attends to itself and to the `window - 1` positions before it.

    Args:
        length: number of positions.
        window: maximum number of positions that a query attends to, at least 1.

    Returns:
        `bool`, `(1, length, length)`: a NumPy constant, as for `causal_mask`.
    """
    check_int("length", length, minimum=0, maximum=MAX_INT32)
    return _build_causal_mask(np, length, check_int("window", window, minimum=1))  # type: ignore[no-any-return]


def _build_causal_mask(xp: Any, length: int, window: int | None = None, always_visible: Any = None) -> Any:
    """Returns the causal mask, `bool`, `(..., 1, length, length)`.

    Args:
        xp: NumPy or `jax.numpy`.
        length: number of positions.
        window: maximum number of positions that a query attends to, itself included; `None` for no limit.
        always_visible: keys that all queries attend to, `bool`, `(..., 1, 1, length)`; `None` for none.
    """
    position = xp.arange(length, dtype=np.int32)
    query = position[:, None]
    visible = query >= position[None, :]
    if window is not None:
        visible &= query - np.int32(min(window, np.iinfo(np.int32).max)) < position[None, :]
    if always_visible is None:
        return visible[None]
    return prepend_axes(always_visible.ndim, visible) | always_visible


def _unmask_diagonal(xp: Any, visible: Any, queries: Any) -> Any:
    """Returns a mask in which some queries also attend to themselves.

    Args:
        xp: NumPy or `jax.numpy`.
        visible: the mask, `bool`, `(..., length, length)`.
        queries: whether to unmask each query, `bool`, `(..., length, 1)`.
    """
    return visible | (queries & prepend_axes(visible.ndim, xp.eye(visible.shape[-1], dtype=bool)))


@jit_eager
def prefix_mask(in_prefix: Array) -> Array:
    """Returns a mask in which all queries attend to the prefix, and to themselves and earlier positions.

    Args:
        in_prefix: 1 on the prefix, `(..., length)`; `create_attention_mask` computes it from lengths. In
            packed rows each segment may have a prefix; combine the mask with `segment_mask`.

    Returns:
        `bool`, `(..., 1, length, length)`.
    """
    prefix = padding_mask(in_prefix)
    return _build_causal_mask(get_namespace(prefix), prefix.shape[-1], always_visible=prefix)  # type: ignore[no-any-return]


@jit_eager
def segment_mask(segment_ids: Array, key_segment_ids: Array | None = None) -> Array:
    """Returns a block-diagonal mask in which each query attends to the keys of its segment.

    Padding, which is segment 0, attends to padding, so that no row of the mask is empty.

    Args:
        segment_ids: segment ids of the queries, integers, `(..., queries)`.
        key_segment_ids: segment ids of the keys, integers, `(..., keys)`; `None` to use `segment_ids`.

    Returns:
        `bool`, `(..., 1, queries, keys)`.
    """
    queries = as_tokens(segment_ids, "segment_ids")
    keys = queries if key_segment_ids is None else as_tokens(key_segment_ids, "key_segment_ids")
    if queries.shape[:-1] != keys.shape[:-1]:
        raise InvalidArgumentError(
            f"segment_ids and key_segment_ids have shapes {queries.shape} and {keys.shape}, which must be "
            "equal except for the last axis"
        )
    return queries[..., None, :, None] == keys[..., None, None, :]  # type: ignore[no-any-return]


@jit_eager
def unmask_empty_rows(mask: Array) -> Array:
    """Returns a mask in which queries without visible keys attend to themselves.

    Without it, attention kernels return NaN for these queries.

    Args:
        mask: the mask, `bool`, `(..., length, length)`.

    Returns:
        `bool`, of the same shape.
    """
    xp = get_namespace(mask)
    visible = as_mask(xp, "mask", mask)
    length = visible.shape[-1]
    if visible.ndim < 2 or visible.shape[-2] not in (1, length):
        raise InvalidArgumentError(f"mask must have shape (..., length, length), not {visible.shape}")
    return _unmask_diagonal(xp, visible, ~visible.any(axis=-1, keepdims=True))  # type: ignore[no-any-return]


@jit_eager
def make_attention_mask(
    *,
    attention_mask: Array | None = None,
    segment_ids: Array | None = None,
    in_prefix: Array | None = None,
    causal: bool = True,
    window: int | None = None,
) -> Array:
    """Returns the self-attention mask of a batch.

    Every query attends to at least one key: tokens and padding attend to themselves. A query without keys
    would give NaN in attention kernels.

    Args:
        attention_mask: 1 on tokens and 0 on padding, `(..., length)`.
        segment_ids: segment ids of the documents of packed rows, 0 on padding, integers, `(..., length)`.
        in_prefix: 1 on positions that all queries attend to, as in `prefix_mask`, `(..., length)`. It has no
            effect without `causal`.
        causal: whether queries attend only to themselves, earlier positions and the prefix.
        window: maximum number of positions that a query attends to, itself included; a prefix stays visible
            beyond it. `None` for no limit.

    Returns:
        `bool`, `(..., 1, length, length)`, for `jax.nn.dot_product_attention(..., mask=)`.

    Raises:
        InvalidArgumentError: no array is passed, arrays have different shapes, or `window` is set without
            `causal`.

    >>> make_attention_mask(attention_mask=np.array([[1, 1, 0]])).astype(int).tolist()
    [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    """
    named = {"attention_mask": attention_mask, "segment_ids": segment_ids, "in_prefix": in_prefix}
    shapes = {name: np.shape(array) for name, array in named.items() if array is not None}
    if not shapes:
        raise InvalidArgumentError(
            "pass attention_mask, segment_ids or in_prefix; or call causal_mask(length) for a length alone"
        )
    if len(set(shapes.values())) > 1 or () in shapes.values():
        raise InvalidArgumentError(
            f"arrays of a batch must have the same shape (..., length), and these have {shapes}"
        )
    if window is not None and not causal:
        raise InvalidArgumentError("window limits a causal mask; pass causal=True, or no window")
    shape = next(iter(shapes.values()))
    length = shape[-1]
    xp = get_namespace(*named.values())
    parts: list[Any] = []
    if causal:
        max_visible = None if window is None else check_int("window", window, minimum=1)
        prefix = None if in_prefix is None else padding_mask(in_prefix)
        parts.append(prepend_axes(len(shape) + 2, _build_causal_mask(xp, length, max_visible, prefix)))
    if segment_ids is not None:
        parts.append(segment_mask(segment_ids))
    if attention_mask is not None:
        parts.append(padding_mask(attention_mask))
    mask = parts[0] if parts else xp.ones((*shape[:-1], 1, length, length), bool)
    for part in parts[1:]:
        mask = mask & part
    if attention_mask is None:
        return mask  # type: ignore[no-any-return]
    is_padding = ~as_mask(xp, "attention_mask", attention_mask)[..., None, :, None]
    return _unmask_diagonal(xp, mask, is_padding)  # type: ignore[no-any-return]


@jit_eager
def additive_mask(mask: Array, dtype: Any = np.float32) -> Array:
    """Converts a mask to a mask to add to logits: 0 where true, a large negative number where false.

    The number is half the minimum of the dtype. It stays finite when logits are added to it, also in
    `bfloat16` and `float16`, so that a query without keys does not give NaN.

    Args:
        mask: the mask, `bool`, any shape.
        dtype: floating-point dtype of the logits.

    Returns:
        An array of that dtype, of the same shape. (JAX returns `float32` for `float64`, unless x64 is
        enabled.)

    >>> additive_mask(np.array([True, False])).tolist()
    [0.0, -1.7014117331926443e+38]
    """
    xp = get_namespace(mask)
    float_dtype = _get_float_dtype(xp, dtype)
    # `np.finfo` does not know bfloat16, which has 7 mantissa bits.
    minimum = (
        -(2 - 2.0**-7) * 2.0**127 if float_dtype.name == "bfloat16" else float(np.finfo(float_dtype).min)
    )
    zero, masked = xp.zeros((), float_dtype), xp.asarray(minimum / 2, float_dtype)
    return xp.where(as_mask(xp, "mask", mask), zero, masked)  # type: ignore[no-any-return]


def _get_float_dtype(xp: Any, dtype: Any) -> np.dtype[Any]:
    """Returns the dtype of result arrays: in JAX `float32` for `float64`, unless x64 is enabled."""
    import ml_dtypes  # noqa: PLC0415 (NumPy does not know bfloat16 without it)

    try:
        result: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    except TypeError:
        result = np.dtype(object)
    if result.name not in FLOATS:
        raise InvalidArgumentError(f"dtype must be one of {', '.join(FLOATS)}, not {dtype!r}")
    if xp is np:
        return result
    import jax  # noqa: PLC0415 (loaded already)

    return np.dtype(jax.dtypes.canonicalize_dtype(result))


@jit_eager
def create_attention_mask(length: int | Array, max_length: int) -> Array:
    """Returns a mask with 1 on the first `length` positions and 0 on the padding after them.

    Args:
        length: number of tokens, an integer or an array of integers of any shape `(...)`.
        max_length: number of positions; static under `jax.jit`.

    Returns:
        `int32`, shape `(..., max_length)`.

    >>> create_attention_mask(2, 4)
    array([1, 1, 0, 0], dtype=int32)
    """
    xp = get_namespace(length)
    check_int("max_length", max_length, minimum=0, maximum=MAX_INT32)
    lengths = as_int32("length", length)
    return (make_positions(xp, max_length, lengths.ndim + 1) < lengths[..., None]).astype(np.int32)  # type: ignore[no-any-return]


def create_causal_mask(seq_length: int) -> NDArray[np.float32]:
    """Returns the additive causal mask: 0 where a query attends to a key, minus infinity elsewhere.

    Args:
        seq_length: number of positions.

    Returns:
        `float32`, shape `(seq_length, seq_length)`: row `i` attends to columns `0` to `i`. A NumPy constant,
        also under `jax.jit`.

    >>> create_causal_mask(2)
    array([[  0., -inf],
           [  0.,   0.]], dtype=float32)
    """
    allowed = _build_causal_mask(np, check_int("seq_length", seq_length, minimum=0))[0]
    return np.where(allowed, np.float32(0), np.float32(-np.inf))


def find_document_boundaries(input_ids: Array, eos_token: int, *, max_documents: int | None = None) -> Array:
    """Finds the boundaries of documents in a stream in which each document ends with an EOS id.

    The EOS belongs to the document that it ends; the last document may lack it.

    Args:
        input_ids: token ids, integers, shape `(n,)`.
        eos_token: id at the end of a document.
        max_documents: number of rows of the result. It is required, and static, under `jax.jit`, where the
            number of documents is unknown; further documents are dropped there, and raise elsewhere.

    Returns:
        Starts and stops, 0-based and half-open, `int32`, shape `(documents, 2)`, or `(max_documents, 2)` with
        unused rows `(n, n)`.

    Raises:
        InvalidArgumentError: there are more than `max_documents` documents, `max_documents` is missing under
            `jax.jit`, or an argument has another shape or type.

    >>> find_document_boundaries(np.array([5, 6, 0, 7, 0, 8]), 0)
    array([[0, 3],
           [3, 5],
           [5, 6]], dtype=int32)
    """
    check_id("eos_token", eos_token)
    ids = as_int32("input_ids", input_ids)
    if ids.ndim != 1:
        raise InvalidArgumentError(f"input_ids must have shape (n,), not {ids.shape}; use jax.vmap for rows")
    if max_documents is not None:
        check_int("max_documents", max_documents, minimum=0)
    ends = _mark_ends(ids, eos_token)
    if not is_traced(ends):
        num_documents = int(to_host(ends.sum()))
        if max_documents is not None and num_documents > max_documents:
            raise InvalidArgumentError(
                f"there are {num_documents} documents, more than max_documents={max_documents}"
            )
        return _compute_boundaries(ends, num_documents if max_documents is None else max_documents)
    if max_documents is None:
        raise InvalidArgumentError(
            "the number of documents is unknown under jax.jit; pass max_documents=NUMBER"
        )
    return _compute_boundaries(ends, max_documents)


@jit_eager
def _mark_ends(ids: Any, eos_token: int) -> Any:
    """Returns whether each position is the last one of a document, `bool`, shape `(n,)`."""
    xp = get_namespace(ids, eos_token)
    position, size = xp.arange(ids.shape[0], dtype=np.int32), as_size(xp, ids.shape[0])
    return (ids == xp.asarray(eos_token, dtype=np.int32)) | (position == size - np.int32(1))


@jit_eager
def _compute_boundaries(ends: Any, count: int) -> Array:
    """Returns the boundaries of the first `count` documents, with `(n, n)` after the last one."""
    xp = get_namespace(ends)
    size = ends.shape[0]
    stops = as_size(xp, size) * xp.ones(count, np.int32)
    if xp is np:
        indices = np.flatnonzero(ends)
        stops[: len(indices)] = indices + 1
    else:
        order = xp.cumsum(ends, dtype=np.int32) - np.int32(1)
        stops = scatter(
            stops, order, xp.arange(1, size + 1, dtype=np.int32), ends & (order < np.int32(count))
        )
    starts = xp.concatenate([xp.zeros(1, np.int32), stops])[:count]
    return xp.stack([starts, stops], axis=1)  # type: ignore[no-any-return]
