"""Fill in the middle: documents are cut in three, and the middle is said last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, as_int32, get_namespace, is_traced, take_or_fill, to_host
from tokjax._util.checks import check_float, check_id, check_int
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import COLUMNS, Ragged
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.random_draws import check_draws, draws_to_integers

if TYPE_CHECKING:
    from tokjax.core.records import Results

_INSERTED_VALUES = {
    "ids": 0,
    "offsets": 0,
    "special_tokens_mask": 1,
    "token_type_ids": 0,
    "word_ids": -1,
    "sequence_ids": -1,
}
_MIN_TOKENS = 3


def fill_in_the_middle(
    results: Results,
    draws: Array,
    *,
    prefix_id: int,
    middle_id: int,
    suffix_id: int,
    rate: float = 0.5,
    spm_rate: float = 0.5,
    size: int | None = None,
) -> Ragged:
    """Cut documents at two random places, and put the middle last.

    A document that is chosen becomes `prefix_id` prefix `suffix_id` suffix `middle_id` middle (PSM) or
    `prefix_id suffix_id` suffix `middle_id` prefix middle (SPM), and so three tokens longer. Cuts are equally
    likely before, between and behind all tokens, so that parts may be empty. Documents of fewer than three
    tokens stay as they are. Do this to documents without BOS and EOS, before they are packed.

    Args:
        results: the documents, as `pack_blocks` takes them. Offsets, word ids and other columns go with
            their tokens.
        draws: `draw_uniform(source, (rows, 4))`: whether the document is cut, in which order it is put, and
            the two cuts.
        prefix_id: the id before the prefix.
        middle_id: the id before the middle.
        suffix_id: the id before the suffix.
        rate: the share of documents that are cut.
        spm_rate: the share of these that are put in SPM order.
        size: the number of ids of the result. By default as many as there are; under `jax.jit`, where that is
            not known, it must be given, and is static. The number of tokens and three a row is always
            enough; what is left over is 0 and of no row, and rows that reach past it are cut there.

    Returns:
        A `Ragged` of `int32` arrays with the same rows and columns. Inserted ids are special tokens, with
        offsets `(0, 0)` and word ids -1.

    Raises:
        InvalidArgumentError: `size` is not given under `jax.jit`, or is too small where that can be seen.

    >>> from tokjax.core.ragged import ragged_from_rows
    >>> documents = ragged_from_rows([[11, 12, 13, 14], [15]])
    >>> draws = np.float32([[0, 0.9, 0.25, 0.7], [0, 0, 0, 0]])
    >>> fill_in_the_middle(documents, draws, prefix_id=1, middle_id=2, suffix_id=3).ids
    array([ 1, 11,  3, 14,  2, 12, 13, 15], dtype=int32)
    """
    for name, value in (("prefix_id", prefix_id), ("middle_id", middle_id), ("suffix_id", suffix_id)):
        check_id(name, value)
    split_share, spm_share = (
        np.float32(check_float(name, value, minimum=0, maximum=1))
        for name, value in (("rate", rate), ("spm_rate", spm_rate))
    )
    ragged = as_ragged(results)
    draws = check_draws(draws, (ragged.num_rows, 4))
    new_splits, orders = _plan_documents(
        as_int32("row_splits", ragged.row_splits), draws, split_share, spm_share
    )
    size = _check_size(new_splits, size)
    return _rearrange_documents(ragged, new_splits, orders, (prefix_id, middle_id, suffix_id), size)


@jit_eager
def _plan_documents(splits: Any, draws: Any, split_share: Any, spm_share: Any) -> tuple[Any, _DocumentOrder]:
    """Where the new documents begin, and how each of them is put."""
    xp = get_namespace(splits, draws)
    lengths = splits[1:] - splits[:-1]
    changed = (draws[:, 0] < split_share) & (lengths >= _MIN_TOKENS)
    new_splits = _compute_splits(xp, lengths + np.int32(3) * changed.astype(np.int32))
    split_points = draws_to_integers(draws[:, 2:], lengths[:, None] + np.int32(1))
    return new_splits, _compute_orders(xp, lengths, split_points, changed, draws[:, 1] < spm_share)


@jit_eager
def _rearrange_documents(
    ragged: Ragged, new_splits: Any, orders: _DocumentOrder, inserted_ids: tuple[int, int, int], size: int
) -> Ragged:
    xp = get_namespace(*ragged, new_splits, *orders, *inserted_ids)
    splits = as_int32("row_splits", ragged.row_splits)
    position = xp.arange(size, dtype=np.int32)
    row = xp.searchsorted(new_splits, position, side="right").astype(np.int32) - np.int32(1)
    order = _DocumentOrder(*(_append_zero(xp, part)[row] for part in orders))
    within = position - new_splits[row]
    inserted = _compute_inserted(xp, within, order, *inserted_ids)
    from_text = (position < new_splits[-1]) & ~inserted.is_inserted
    source = _append_zero(xp, splits[:-1])[row] + _map_to_document(xp, within, order)
    columns = {
        name: take_or_fill(name, column, source, from_text, _INSERTED_VALUES[name])
        for name in COLUMNS
        if (column := getattr(ragged, name)) is not None
    }
    columns["ids"] = xp.where(inserted.is_inserted, inserted.ids, columns["ids"])
    return Ragged(row_splits=xp.minimum(new_splits, np.int32(position.shape[0])), **columns)


class _DocumentOrder(NamedTuple):
    """How the documents are put; arrays of one shape.

    Attributes:
        changed: whether the document is cut at all.
        suffix: the place of the suffix id in the new document; past all where it is not cut.
        middle: the place of the middle id; likewise.
        high: where the suffix begins in the old document.
        tail: where what follows the middle id begins in it.
    """

    changed: Any
    suffix: Any
    middle: Any
    high: Any
    tail: Any


class _InsertedIds(NamedTuple):
    is_inserted: Any
    ids: Any


def _compute_orders(xp: Any, lengths: Any, split_points: Any, changed: Any, spm: Any) -> _DocumentOrder:
    low, high = xp.min(split_points, axis=1), xp.max(split_points, axis=1)
    suffix = xp.where(spm, np.int32(1), low + np.int32(1))
    middle = suffix + np.int32(1) + lengths - high
    past = np.int32(np.iinfo(np.int32).max)
    return _DocumentOrder(
        changed,
        xp.where(changed, suffix, past),
        xp.where(changed, middle, past),
        high,
        xp.where(spm, np.int32(0), low),
    )


def _map_to_document(xp: Any, within: Any, order: _DocumentOrder) -> Any:
    """Where the old document has what stands at a place of the new one, if that is none of the three ids."""
    in_suffix = order.high + within - order.suffix - np.int32(1)
    in_tail = order.tail + within - order.middle - np.int32(1)
    later = xp.where(within < order.middle, in_suffix, in_tail)
    return xp.where(within < order.suffix, within - order.changed.astype(np.int32), later)


def _compute_inserted(
    xp: Any, within: Any, order: _DocumentOrder, prefix_id: int, middle_id: int, suffix_id: int
) -> _InsertedIds:
    is_suffix, is_middle = within == order.suffix, within == order.middle
    is_inserted = order.changed & ((within == 0) | is_suffix | is_middle)
    prefix, middle, suffix = (xp.asarray(id_, dtype=np.int32) for id_ in (prefix_id, middle_id, suffix_id))
    return _InsertedIds(is_inserted, xp.where(is_suffix, suffix, xp.where(is_middle, middle, prefix)))


def _compute_splits(xp: Any, lengths: Any) -> Any:
    ends = as_int32("the new row_splits", xp.cumsum(lengths))
    return xp.concatenate([xp.zeros(1, np.int32), ends])


def _append_zero(xp: Any, values: Any) -> Any:
    """With a zero for the places that are behind all rows."""
    return xp.concatenate([values, xp.zeros(1, values.dtype)])


def _check_size(splits: Any, size: int | None) -> int:
    if is_traced(splits):
        if size is None:
            raise InvalidArgumentError(
                "how many documents are cut is not known under jax.jit; pass size=NUMBER: the number of ids "
                "and three a row are always enough"
            )
        return check_int("size", size, minimum=0)
    total = int(to_host(splits)[-1])
    if size is not None and check_int("size", size, minimum=0) < total:
        raise InvalidArgumentError(
            f"size is {size}, and the documents have {total} ids now; give that at least"
        )
    return total if size is None else size
