"""Fill in the middle: documents are cut in three, and the middle is said last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.array_namespace import Array, as_int32, is_traced, namespace, to_host
from tokjax._util.arrays import take_or_fill
from tokjax._util.checks import check_id, checked_float, checked_int
from tokjax._util.compiling import compiled
from tokjax.batching.inputs import as_ragged
from tokjax.batching.objectives.random_draws import below, checked_draws
from tokjax.core.errors import InvalidArgumentError
from tokjax.core.ragged import COLUMNS, Ragged

if TYPE_CHECKING:
    from tokjax.core.records import Results

_INSERTED = {
    "ids": 0,
    "offsets": 0,
    "special_tokens_mask": 1,
    "token_type_ids": 0,
    "word_ids": -1,
    "sequence_ids": -1,
}
_SHORTEST = 3


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
    cut_share, spm_share = (
        np.float32(checked_float(name, value, least=0, most=1))
        for name, value in (("rate", rate), ("spm_rate", spm_rate))
    )
    ragged = as_ragged(results)
    draws = checked_draws(draws, (ragged.num_rows, 4))
    new_splits, orders = _planned(as_int32("row_splits", ragged.row_splits), draws, cut_share, spm_share)
    size = _checked_size(new_splits, size)
    return _rearranged(ragged, new_splits, orders, (prefix_id, middle_id, suffix_id), size)


@compiled
def _planned(splits: Any, draws: Any, cut_share: Any, spm_share: Any) -> tuple[Any, _Order]:
    """Where the new documents begin, and how each of them is put."""
    xp = namespace(splits, draws)
    lengths = splits[1:] - splits[:-1]
    changed = (draws[:, 0] < cut_share) & (lengths >= _SHORTEST)
    new_splits = _splits(xp, lengths + np.int32(3) * changed.astype(np.int32))
    cuts = below(draws[:, 2:], lengths[:, None] + np.int32(1))
    return new_splits, _orders(xp, lengths, cuts, changed, draws[:, 1] < spm_share)


@compiled
def _rearranged(
    ragged: Ragged, new_splits: Any, orders: _Order, inserted_ids: tuple[int, int, int], size: int
) -> Ragged:
    xp = namespace(*ragged, new_splits, *orders, *inserted_ids)
    splits = as_int32("row_splits", ragged.row_splits)
    place = xp.arange(size, dtype=np.int32)
    row = xp.searchsorted(new_splits, place, side="right").astype(np.int32) - np.int32(1)
    order = _Order(*(_with_none_behind(xp, part)[row] for part in orders))
    within = place - new_splits[row]
    inserted = _inserted(xp, within, order, *inserted_ids)
    from_text = (place < new_splits[-1]) & ~inserted.here
    source = _with_none_behind(xp, splits[:-1])[row] + _place_in_document(xp, within, order)
    columns = {
        name: take_or_fill(name, column, source, from_text, _INSERTED[name])
        for name in COLUMNS
        if (column := getattr(ragged, name)) is not None
    }
    columns["ids"] = xp.where(inserted.here, inserted.ids, columns["ids"])
    return Ragged(row_splits=xp.minimum(new_splits, np.int32(place.shape[0])), **columns)


class _Order(NamedTuple):
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


class _Inserted(NamedTuple):
    here: Any
    ids: Any


def _orders(xp: Any, lengths: Any, cuts: Any, changed: Any, spm: Any) -> _Order:
    low, high = xp.min(cuts, axis=1), xp.max(cuts, axis=1)
    suffix = xp.where(spm, np.int32(1), low + np.int32(1))
    middle = suffix + np.int32(1) + lengths - high
    past = np.int32(np.iinfo(np.int32).max)
    return _Order(
        changed,
        xp.where(changed, suffix, past),
        xp.where(changed, middle, past),
        high,
        xp.where(spm, np.int32(0), low),
    )


def _place_in_document(xp: Any, within: Any, order: _Order) -> Any:
    """Where the old document has what stands at a place of the new one, if that is none of the three ids."""
    in_suffix = order.high + within - order.suffix - np.int32(1)
    in_tail = order.tail + within - order.middle - np.int32(1)
    later = xp.where(within < order.middle, in_suffix, in_tail)
    return xp.where(within < order.suffix, within - order.changed.astype(np.int32), later)


def _inserted(
    xp: Any, within: Any, order: _Order, prefix_id: int, middle_id: int, suffix_id: int
) -> _Inserted:
    is_suffix, is_middle = within == order.suffix, within == order.middle
    here = order.changed & ((within == 0) | is_suffix | is_middle)
    prefix, middle, suffix = (xp.asarray(id_, dtype=np.int32) for id_ in (prefix_id, middle_id, suffix_id))
    return _Inserted(here, xp.where(is_suffix, suffix, xp.where(is_middle, middle, prefix)))


def _splits(xp: Any, lengths: Any) -> Any:
    ends = as_int32("the new row_splits", xp.cumsum(lengths))
    return xp.concatenate([xp.zeros(1, np.int32), ends])


def _with_none_behind(xp: Any, values: Any) -> Any:
    """With a zero for the places that are behind all rows."""
    return xp.concatenate([values, xp.zeros(1, values.dtype)])


def _checked_size(splits: Any, size: int | None) -> int:
    if is_traced(splits):
        if size is None:
            raise InvalidArgumentError(
                "how many documents are cut is not known under jax.jit; pass size=NUMBER: the number of ids "
                "and three a row are always enough"
            )
        return checked_int("size", size, least=0)
    total = int(to_host(splits)[-1])
    if size is not None and checked_int("size", size, least=0) < total:
        raise InvalidArgumentError(
            f"size is {size}, and the documents have {total} ids now; give that at least"
        )
    return total if size is None else size
