"""Attention masks, and where documents end in a stream of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.array_namespace import Array, as_int32, is_traced, namespace, to_host
from tokjax._util.arrays import as_size, places, put
from tokjax._util.checks import check_id, checked_int
from tokjax._util.compiling import compiled
from tokjax.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
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
    xp = namespace(length)
    checked_int("max_length", max_length, least=0)
    lengths = as_int32("length", length)
    return (places(xp, max_length, lengths.ndim + 1) < lengths[..., None]).astype(np.int32)  # type: ignore[no-any-return]


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
    allowed = np.tri(checked_int("seq_length", seq_length, least=0), dtype=bool)
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
        checked_int("max_documents", max_documents, least=0)
    ends = _ends(ids, eos_token)
    if not is_traced(ends):
        found = int(to_host(ends.sum()))
        if max_documents is not None and found > max_documents:
            raise InvalidArgumentError(
                f"there are {found} documents, more than max_documents={max_documents}"
            )
        return _boundaries(ends, found if max_documents is None else max_documents)
    if max_documents is None:
        raise InvalidArgumentError(
            "the number of documents is not known under jax.jit; pass max_documents=NUMBER"
        )
    return _boundaries(ends, max_documents)


@compiled
def _ends(ids: Any, eos_token: int) -> Any:
    """Whether each position is the last one of a document."""
    xp = namespace(ids, eos_token)
    place, size = xp.arange(ids.shape[0], dtype=np.int32), as_size(xp, ids.shape[0])
    return (ids == xp.asarray(eos_token, dtype=np.int32)) | (place == size - np.int32(1))


@compiled
def _boundaries(ends: Any, count: int) -> Array:
    """The first `count` documents; `(n, n)` past the last."""
    xp = namespace(ends)
    size = ends.shape[0]
    stops = as_size(xp, size) * xp.ones(count, np.int32)
    if xp is np:
        found = np.flatnonzero(ends)
        stops[: len(found)] = found + 1
    else:
        order = xp.cumsum(ends, dtype=np.int32) - np.int32(1)
        stops = put(stops, order, xp.arange(1, size + 1, dtype=np.int32), ends & (order < np.int32(count)))
    starts = xp.concatenate([xp.zeros(1, np.int32), stops])[:count]
    return xp.stack([starts, stops], axis=1)  # type: ignore[no-any-return]
