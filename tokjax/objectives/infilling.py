"""Fill in the middle: documents are split into three parts, and the middle part is moved to the end.

Example: the document `11 12 13 14`, split at 1 and 3 into prefix `11`, middle `12 13` and suffix `14`:

                        new position    0      1      2      3      4      5      6
    PSM                                 <pre>  11     <suf>  14     <mid>  12     13
        position in the old document    .      0      .      3      .      1      2

    SPM                                 <pre>  <suf>  14     <mid>  11     12     13
        position in the old document    .      .      3      .      0      1      2

In both orders, three contiguous ranges of the old document are copied. So five values per document describe
its new order (`_DocumentOrder`), and each new position computes which old position it copies. This is a
gather with a static output size, which works under `jax.jit`:

                        suffix_position   middle_position   suffix_start   tail_start
    PSM                 2                 4                 3              1
    SPM                 1                 3                 3              0

See docs/objectives.md, section "Fill in the middle".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, as_int32, get_namespace, is_traced, jit_eager, take_or_fill, to_host
from tokjax._util.checks import check_float, check_id, check_int
from tokjax.batching.collate import FILL_VALUES
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import COLUMNS, Ragged
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.random_draws import check_draws, draws_to_integers

if TYPE_CHECKING:
    from tokjax.core.records import Results

_INSERTED_VALUES = {**FILL_VALUES, "ids": 0, "special_tokens_mask": 1}
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
    """Splits documents at two random positions, and moves the middle part to the end.

    A document that is split becomes `prefix_id` prefix `suffix_id` suffix `middle_id` middle (PSM order), or
    `prefix_id suffix_id` suffix `middle_id` prefix middle (SPM order), which is three tokens longer. Split
    positions are equally likely before, between and after all tokens, so parts may be empty. Documents of
    fewer than three tokens are not changed. Call it on documents without BOS and EOS, before they are packed.

    Args:
        results: documents, as for `pack_blocks`. Offsets, word ids and other columns are moved with their
            tokens.
        draws: random numbers, `draw_uniform(source, (rows, 4))`. The four numbers of a row decide whether the
            document is split, its order, and the two split positions.
        prefix_id: id before the prefix.
        middle_id: id before the middle.
        suffix_id: id before the suffix.
        rate: fraction of documents that are split.
        spm_rate: fraction of the split documents that are in SPM order.
        size: number of ids of the result. The default is the exact number. Under `jax.jit` this number is
            unknown, so `size` is required, and static. `tokens + 3 * rows` is always enough. Surplus ids are
            0 and belong to no row. Ids after `size` are dropped, and rows are truncated there.

    Returns:
        A `Ragged` of `int32` arrays with the same rows and columns. Inserted ids are special tokens, with
        offsets `(0, 0)` and word ids -1.

    Raises:
        InvalidArgumentError: `size` is missing under `jax.jit`, or it is too small and the number of ids is
            known.

    >>> from tokjax.core.ragged import ragged_from_rows
    >>> documents = ragged_from_rows([[11, 12, 13, 14], [15]])
    >>> draws = np.float32([[0, 0.9, 0.25, 0.7], [0, 0, 0, 0]])
    >>> fill_in_the_middle(documents, draws, prefix_id=1, middle_id=2, suffix_id=3).ids
    array([ 1, 11,  3, 14,  2, 12, 13, 15], dtype=int32)
    """
    for name, value in (("prefix_id", prefix_id), ("middle_id", middle_id), ("suffix_id", suffix_id)):
        check_id(name, value)
    split_rate, spm_bound = (
        np.float32(check_float(name, value, minimum=0, maximum=1))
        for name, value in (("rate", rate), ("spm_rate", spm_rate))
    )
    ragged = as_ragged(results)
    draws = check_draws(draws, (ragged.num_rows, 4))
    new_splits, orders = _plan_documents(
        as_int32("row_splits", ragged.row_splits), draws, split_rate, spm_bound
    )
    size = _check_size(new_splits, size)
    return _rearrange_documents(ragged, new_splits, orders, (prefix_id, middle_id, suffix_id), size)


@jit_eager
def _plan_documents(splits: Any, draws: Any, split_rate: Any, spm_bound: Any) -> tuple[Any, _DocumentOrder]:
    """Computes the row splits and the order of the new documents."""
    xp = get_namespace(splits, draws)
    lengths = splits[1:] - splits[:-1]
    is_split = (draws[:, 0] < split_rate) & (lengths >= _MIN_TOKENS)
    ends = xp.cumsum(lengths + np.int32(3) * is_split.astype(np.int32))
    new_splits = xp.concatenate([xp.zeros(1, np.int32), as_int32("the new row_splits", ends)])
    split_points = draws_to_integers(draws[:, 2:], lengths[:, None] + np.int32(1))
    return new_splits, _compute_orders(xp, lengths, split_points, is_split, draws[:, 1] < spm_bound)


@jit_eager
def _rearrange_documents(
    ragged: Ragged, new_splits: Any, orders: _DocumentOrder, inserted_ids: tuple[int, int, int], size: int
) -> Ragged:
    """Gathers all columns in the new order, with `size` ids in total."""
    xp = get_namespace(*ragged, new_splits, *orders, *inserted_ids)
    splits = as_int32("row_splits", ragged.row_splits)
    position = xp.arange(size, dtype=np.int32)
    row = xp.searchsorted(new_splits, position, side="right").astype(np.int32) - np.int32(1)
    order = _DocumentOrder(*(_append_zero(xp, part)[row] for part in orders))
    within = position - new_splits[row]
    is_inserted, inserted = _compute_inserted(xp, within, order, *inserted_ids)
    from_text = (position < new_splits[-1]) & ~is_inserted
    source = _append_zero(xp, splits[:-1])[row] + _map_to_document(xp, within, order)
    columns = {
        name: take_or_fill(name, column, source, from_text, _INSERTED_VALUES[name])
        for name in COLUMNS
        if (column := getattr(ragged, name)) is not None
    }
    columns["ids"] = xp.where(is_inserted, inserted, columns["ids"])
    return Ragged(row_splits=xp.minimum(new_splits, np.int32(position.shape[0])), **columns)


class _DocumentOrder(NamedTuple):
    """New order of each document; arrays of one shape. The docstring of this module has an example.

    Attributes:
        is_split: whether the document is split.
        suffix_position: position of the suffix id in the new document; the maximum of `int32` if it is not
            split.
        middle_position: position of the middle id in the new document; the maximum of `int32` if it is not
            split.
        suffix_start: start of the suffix in the old document.
        tail_start: start, in the old document, of the part after the middle id: the middle in PSM order, the
            prefix and the middle in SPM order.
    """

    is_split: Any
    suffix_position: Any
    middle_position: Any
    suffix_start: Any
    tail_start: Any


def _compute_orders(xp: Any, lengths: Any, split_points: Any, is_split: Any, spm: Any) -> _DocumentOrder:
    low, high = xp.min(split_points, axis=1), xp.max(split_points, axis=1)
    suffix_position = xp.where(spm, np.int32(1), low + np.int32(1))
    middle_position = suffix_position + np.int32(1) + lengths - high
    # In a document that is not split, all positions are before these, so they are copied unchanged.
    never = np.int32(np.iinfo(np.int32).max)
    return _DocumentOrder(
        is_split,
        xp.where(is_split, suffix_position, never),
        xp.where(is_split, middle_position, never),
        high,
        xp.where(spm, np.int32(0), low),
    )


def _map_to_document(xp: Any, within: Any, order: _DocumentOrder) -> Any:
    """Maps positions in the new document to the old one. Results at inserted ids are arbitrary."""
    in_suffix = order.suffix_start + within - order.suffix_position - np.int32(1)
    in_tail = order.tail_start + within - order.middle_position - np.int32(1)
    after_suffix_id = xp.where(within < order.middle_position, in_suffix, in_tail)
    # The prefix of a split document comes after the prefix id.
    in_prefix = within - order.is_split.astype(np.int32)
    return xp.where(within < order.suffix_position, in_prefix, after_suffix_id)


def _compute_inserted(
    xp: Any, within: Any, order: _DocumentOrder, prefix_id: int, middle_id: int, suffix_id: int
) -> tuple[Any, Any]:
    """Returns the mask of the new positions that hold an inserted id, and the ids there."""
    is_suffix, is_middle = within == order.suffix_position, within == order.middle_position
    is_inserted = order.is_split & ((within == 0) | is_suffix | is_middle)
    prefix, middle, suffix = (xp.asarray(id_, dtype=np.int32) for id_ in (prefix_id, middle_id, suffix_id))
    return is_inserted, xp.where(is_suffix, suffix, xp.where(is_middle, middle, prefix))


def _append_zero(xp: Any, values: Any) -> Any:
    """Appends a zero, which is looked up by positions after the last row."""
    return xp.concatenate([values, xp.zeros(1, values.dtype)])


def _check_size(splits: Any, size: int | None) -> int:
    if is_traced(splits):
        if size is None:
            raise InvalidArgumentError(
                "the number of documents to split is unknown under jax.jit; pass size=NUMBER: the number of "
                "ids plus 3 per row is always enough"
            )
        return check_int("size", size, minimum=0)
    total = int(to_host(splits)[-1])
    if size is not None and check_int("size", size, minimum=0) < total:
        raise InvalidArgumentError(
            f"size is {size}, and the documents have {total} ids after the split; pass at least size={total}"
        )
    return total if size is None else size
