"""Who attends to whom: masks of shape `(..., 1, queries, keys)`, true where a query sees a key.

The axis of length 1 is that of the heads, as `jax.nn.dot_product_attention` and most models want it. Masks
are combined with `&` and `|`, and broadcast: those that are the same for all rows have no other leading axes.
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
    positions,
    prepend_axes,
    scatter,
    to_host,
)
from tokjax._util.checks import check_id, check_int
from tokjax._util.eager_jit import jit_eager
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


_FLOATS = ("float16", "bfloat16", "float32", "float64")


@jit_eager
def padding_mask(attention_mask: Array) -> Array:
    """All see the keys that are no padding.

    Args:
        attention_mask: 1 on tokens and 0 on padding, `(..., length)`.

    Returns:
        `bool`, `(..., 1, 1, length)`.
    """
    name = "attention_mask"
    present = check_length_axis(name, as_mask(get_namespace(attention_mask), name, attention_mask))
    return present[..., None, None, :]  # type: ignore[no-any-return]


def causal_mask(length: int) -> NDArray[np.bool_]:
    """Each sees itself and what comes before.

    Args:
        length: how many positions there are.

    Returns:
        `bool`, `(1, length, length)`: a NumPy constant, under `jax.jit` too, where it becomes a part of the
        compiled program. `make_attention_mask` makes it there instead, which long rows need.

    >>> causal_mask(2).tolist()
    [[[True, False], [True, True]]]
    """
    return _build_causal_mask(np, check_int("length", length, minimum=0))  # type: ignore[no-any-return]


def sliding_window_mask(length: int, window: int) -> NDArray[np.bool_]:
    """Each sees itself and the `window - 1` positions before.

    Args:
        length: how many positions there are.
        window: how many positions each sees at most, at least 1.

    Returns:
        `bool`, `(1, length, length)`: a NumPy constant, as `causal_mask` is.
    """
    check_int("length", length, minimum=0)
    return _build_causal_mask(np, length, check_int("window", window, minimum=1))  # type: ignore[no-any-return]


def _build_causal_mask(xp: Any, length: int, window: int | None = None, seen_by_all: Any = None) -> Any:
    """Returns the mask in which each sees itself and what comes before, `(..., 1, length, length)`.

    Args:
        xp: the array library.
        length: number of positions.
        window: how many positions each sees at most; `None` for all.
        seen_by_all: keys that all see in any case, `(..., 1, 1, length)`; `None` for none.
    """
    position = xp.arange(length, dtype=np.int32)
    query = position[:, None]
    visible = query >= position[None, :]
    if window is not None:
        visible &= query - np.int32(min(window, np.iinfo(np.int32).max)) < position[None, :]
    if seen_by_all is None:
        return visible[None]
    return prepend_axes(seen_by_all.ndim, visible) | seen_by_all


def _with_diagonal(xp: Any, visible: Any, queries: Any) -> Any:
    """Returns a mask in which some queries also see themselves.

    Args:
        xp: the array library.
        visible: the mask, `bool`, `(..., length, length)`.
        queries: which queries, `bool`, `(..., length, 1)`.
    """
    return visible | (queries & prepend_axes(visible.ndim, xp.eye(visible.shape[-1], dtype=bool)))


@jit_eager
def prefix_mask(in_prefix: Array) -> Array:
    """All see the keys of a prefix, and of what follows each sees itself and what comes before.

    Args:
        in_prefix: 1 on the prefix, `(..., length)`; from lengths it is made by `create_attention_mask`. In
            packed rows each segment may have a prefix; combine with `segment_mask`.

    Returns:
        `bool`, `(..., 1, length, length)`.
    """
    marked = padding_mask(in_prefix)
    return _build_causal_mask(get_namespace(marked), marked.shape[-1], seen_by_all=marked)  # type: ignore[no-any-return]


@jit_eager
def segment_mask(segment_ids: Array, key_segment_ids: Array | None = None) -> Array:
    """Each sees its own segment: block-diagonal. Padding, segment 0, sees padding, so that no row is empty.

    Args:
        segment_ids: of the queries, `(..., queries)`.
        key_segment_ids: of the keys, `(..., keys)`; `None` for those of the queries.

    Returns:
        `bool`, `(..., 1, queries, keys)`.
    """
    queries = as_tokens(segment_ids, "segment_ids")
    keys = queries if key_segment_ids is None else as_tokens(key_segment_ids, "key_segment_ids")
    if queries.shape[:-1] != keys.shape[:-1]:
        raise InvalidArgumentError(
            f"segment_ids and key_segment_ids are for other rows: they have shapes {queries.shape} and "
            f"{keys.shape}, which may differ in the last axis only"
        )
    return queries[..., None, :, None] == keys[..., None, None, :]  # type: ignore[no-any-return]


@jit_eager
def unmask_empty_rows(mask: Array) -> Array:
    """Let queries that see nothing see themselves: a kernel would give NaN for them.

    Args:
        mask: `bool`, `(..., length, length)`.

    Returns:
        `bool`, of the same shape.
    """
    xp = get_namespace(mask)
    visible = as_mask(xp, "mask", mask)
    length = visible.shape[-1]
    if visible.ndim < 2 or visible.shape[-2] not in (1, length):
        raise InvalidArgumentError(f"mask must have shape (..., length, length), not {visible.shape}")
    return _with_diagonal(xp, visible, ~visible.any(axis=-1, keepdims=True))  # type: ignore[no-any-return]


@jit_eager
def make_attention_mask(
    *,
    attention_mask: Array | None = None,
    segment_ids: Array | None = None,
    in_prefix: Array | None = None,
    causal: bool = True,
    window: int | None = None,
) -> Array:
    """The mask of self-attention from what is known of a batch.

    No query sees nothing at all, which gives NaN in kernels: tokens see themselves, and so does padding.

    Args:
        attention_mask: 1 on tokens and 0 on padding, `(..., length)`.
        segment_ids: the documents of packed rows, 0 on padding, `(..., length)`.
        in_prefix: 1 where all may look, as in `prefix_mask`, `(..., length)`. Without `causal` all look
            there in any case.
        causal: whether a query sees nothing that comes after (but for a prefix).
        window: how many positions each sees at most, itself and those before; of a prefix, all stay visible.

    Returns:
        `bool`, `(..., 1, length, length)`, for `jax.nn.dot_product_attention(..., mask=)`.

    Raises:
        InvalidArgumentError: nothing is given that tells the length, or a window without `causal`.

    >>> make_attention_mask(attention_mask=np.array([[1, 1, 0]])).astype(int).tolist()
    [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    """
    named = {"attention_mask": attention_mask, "segment_ids": segment_ids, "in_prefix": in_prefix}
    shapes = {name: np.shape(array) for name, array in named.items() if array is not None}
    if not shapes:
        raise InvalidArgumentError(
            "give attention_mask, segment_ids or in_prefix; a mask of the length alone is causal_mask(length)"
        )
    if len(set(shapes.values())) > 1 or () in shapes.values():
        raise InvalidArgumentError(
            f"arrays of a batch must have one shape (..., length), and these have {shapes}"
        )
    if window is not None and not causal:
        raise InvalidArgumentError("window is how far back a causal mask looks; pass causal=True")
    shape = next(iter(shapes.values()))
    length = shape[-1]
    xp = get_namespace(*named.values())
    parts: list[Any] = []
    if causal:
        reach = None if window is None else check_int("window", window, minimum=1)
        marked = None if in_prefix is None else padding_mask(in_prefix)
        parts.append(prepend_axes(len(shape) + 2, _build_causal_mask(xp, length, reach, marked)))
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
    return _with_diagonal(xp, mask, is_padding)  # type: ignore[no-any-return]


@jit_eager
def additive_mask(mask: Array, dtype: Any = np.float32) -> Array:
    """A mask to be added to logits: 0 where a query sees a key, a large negative number where not.

    The number is finite, and stays so when logits are added to it, in `bfloat16` and `float16` too: a query
    that sees nothing gives no NaN.

    Args:
        mask: `bool`, of any shape.
        dtype: the float type of the logits.

    Returns:
        Of that type, and the shape of `mask`. (JAX gives `float32` for `float64`, unless x64 is enabled.)

    >>> additive_mask(np.array([True, False])).tolist()
    [0.0, -1.7014117331926443e+38]
    """
    xp = get_namespace(mask)
    made = _get_float_dtype(xp, dtype)
    lowest = -(2 - 2.0**-7) * 2.0**127 if made.name == "bfloat16" else float(np.finfo(made).min)
    return xp.where(as_mask(xp, "mask", mask), xp.zeros((), made), xp.asarray(lowest / 2, made))  # type: ignore[no-any-return]


def _get_float_dtype(xp: Any, dtype: Any) -> np.dtype[Any]:
    """The type that arrays will have: JAX makes `float32` of `float64`, unless it was told to keep it."""
    import ml_dtypes  # noqa: PLC0415 (without it NumPy does not know bfloat16)

    try:
        made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    except TypeError:
        made = np.dtype(object)
    if made.name not in _FLOATS:
        raise InvalidArgumentError(f"dtype must be one of {', '.join(_FLOATS)}, not {dtype!r}")
    if xp is np:
        return made
    import jax  # noqa: PLC0415 (loaded already)

    return np.dtype(jax.dtypes.canonicalize_dtype(made))


@jit_eager
def create_attention_mask(length: int | Array, max_length: int) -> Array:
    """1 on the first `length` positions, 0 on the padding that follows.

    Args:
        length: how many tokens there are; an integer, or an array of any shape.
        max_length: the width of the mask; static under `jax.jit`.

    Returns:
        `int32`, of the shape of `length` and then `max_length`.

    >>> create_attention_mask(2, 4)
    array([1, 1, 0, 0], dtype=int32)
    """
    xp = get_namespace(length)
    check_int("max_length", max_length, minimum=0)
    lengths = as_int32("length", length)
    return (positions(xp, max_length, lengths.ndim + 1) < lengths[..., None]).astype(np.int32)  # type: ignore[no-any-return]


def create_causal_mask(seq_length: int) -> NDArray[np.float32]:
    """The additive mask of causal attention: 0 where a position may look, minus infinity where not.

    Args:
        seq_length: how many positions there are.

    Returns:
        `float32`, shape `(seq_length, seq_length)`: row `i` sees columns up to `i`. A NumPy constant,
        under `jax.jit` too.

    >>> create_causal_mask(2)
    array([[  0., -inf],
           [  0.,   0.]], dtype=float32)
    """
    allowed = _build_causal_mask(np, check_int("seq_length", seq_length, minimum=0))[0]
    return np.where(allowed, np.float32(0), np.float32(-np.inf))


def find_document_boundaries(input_ids: Array, eos_token: int, *, max_documents: int | None = None) -> Array:
    """Where documents start and stop in a stream whose documents end with an EOS id.

    The EOS belongs to the document that it ends; a last document may lack it.

    Args:
        input_ids: integers, shape `(n,)`.
        eos_token: the id that ends a document.
        max_documents: how many rows to give. Under `jax.jit`, where the number of documents is not known,
            it must be given, and is static; documents past it are left out there, and an error elsewhere.

    Returns:
        `int32`, shape `(documents, 2)`: 0-based, half-open. With `max_documents` that many rows, those
        that are not needed `(n, n)`.

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
    ends = _find_ends(ids, eos_token)
    if not is_traced(ends):
        found = int(to_host(ends.sum()))
        if max_documents is not None and found > max_documents:
            raise InvalidArgumentError(
                f"there are {found} documents, more than max_documents={max_documents}"
            )
        return _compute_boundaries(ends, found if max_documents is None else max_documents)
    if max_documents is None:
        raise InvalidArgumentError(
            "the number of documents is not known under jax.jit; pass max_documents=NUMBER"
        )
    return _compute_boundaries(ends, max_documents)


@jit_eager
def _find_ends(ids: Any, eos_token: int) -> Any:
    """Whether each position is the last one of a document."""
    xp = get_namespace(ids, eos_token)
    position, size = xp.arange(ids.shape[0], dtype=np.int32), as_size(xp, ids.shape[0])
    return (ids == xp.asarray(eos_token, dtype=np.int32)) | (position == size - np.int32(1))


@jit_eager
def _compute_boundaries(ends: Any, count: int) -> Array:
    """The first `count` documents; `(n, n)` past the last."""
    xp = get_namespace(ends)
    size = ends.shape[0]
    stops = as_size(xp, size) * xp.ones(count, np.int32)
    if xp is np:
        found = np.flatnonzero(ends)
        stops[: len(found)] = found + 1
    else:
        order = xp.cumsum(ends, dtype=np.int32) - np.int32(1)
        stops = scatter(
            stops, order, xp.arange(1, size + 1, dtype=np.int32), ends & (order < np.int32(count))
        )
    starts = xp.concatenate([xp.zeros(1, np.int32), stops])[:count]
    return xp.stack([starts, stops], axis=1)  # type: ignore[no-any-return]
