"""Padding of ragged rows of tokens to rectangular batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    as_integers,
    as_size,
    get_namespace,
    is_traced,
    jit_eager,
    make_positions,
    take_or_fill,
    to_host,
)
from tokjax._util.checks import MAX_INT32, check_choice, check_id, check_int, check_names
from tokjax._util.display import display_batch
from tokjax.batching.length_buckets import LengthBuckets
from tokjax.core.array_inputs import as_ragged, flatten_column, separate_chats
from tokjax.core.ragged import COLUMNS, concatenate_ranges
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokjax.core.ragged import Ragged
    from tokjax.core.records import MergedWindows, Results, Windows

Side: TypeAlias = Literal["left", "right"]
PADDED_COLUMNS = (*COLUMNS, "attention_mask")
_LONG_ROW = 500
"""Length of rows that are copied one by one. Shorter rows are copied together, by a mask."""
FILL_VALUES = {"offsets": 0, "token_type_ids": 0, "word_ids": -1, "sequence_ids": -1}


@display_batch
class PaddedBatch(NamedTuple):
    """A rectangular batch of tokens: a pytree of `int32` arrays, and of the side columns of a dataset.

    Attributes:
        ids: token ids, `(batch, length)`, the pad id on padding.
        attention_mask: `(batch, length)`, 1 on tokens and 0 on padding.
        special_tokens_mask: `(batch, length)`, 1 on special tokens and (by default) on padding.
        token_type_ids: `(batch, length)`, 0 on padding.
        offsets: 1-based byte spans, `(batch, length, 2)`, `(0, 0)` on padding; `None` if the input has none.
        word_ids: `(batch, length)`, -1 on padding; `None` if the input has none.
        sequence_ids: `(batch, length)`, -1 on padding; `None` if the input has none.
        loss_mask: `(batch, length)`, 1 on the tokens that count as targets, 0 on other tokens and on padding;
            `None` without a side column of this name.
        columns: other side columns by name, in their own dtypes: `(batch, length)` for columns per token,
            with their fill value on padding, and `(batch,)` for columns per document of a dataset. `None`
            without such columns.

    Columns that were not requested are `None`; ids and attention mask are always present.
    """

    ids: Array
    attention_mask: Array
    special_tokens_mask: Array | None = None
    token_type_ids: Array | None = None
    offsets: Array | None = None
    word_ids: Array | None = None
    sequence_ids: Array | None = None
    loss_mask: Array | None = None
    columns: dict[str, Array] | None = None


def batch_to_dict(batch: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the columns of a batch by name, without those that are `None`. Arrays are not copied.

    JAX takes batches as they are. Other libraries, such as `tf.data` and PyTorch, reject `None`:
    `loader.map(tokjax.batch_to_dict)` has batches for them.

    Args:
        batch: a `PaddedBatch`, `PackedBlocks` or another `NamedTuple`.

    Raises:
        InvalidArgumentError: `batch` has no named columns.

    >>> batch_to_dict(collate_padded_batch([], pad_id=0, length=3, columns=["ids"])).keys()
    dict_keys(['ids', 'attention_mask'])
    """
    if not hasattr(batch, "_asdict"):
        raise InvalidArgumentError(
            f"batch must be a batch with named columns, such as PackedBlocks, not {type(batch).__name__}"
        )
    return {name: column for name, column in batch._asdict().items() if column is not None}


def collate_padded_batch(
    results: Results | Windows | MergedWindows,
    *,
    pad_id: int,
    length: int | None = None,
    multiple_of: int | None = None,
    buckets: Sequence[int] | None = None,
    pad_side: Side = "right",
    truncation: Side | None = None,
    mark_pad_as_special: bool = True,
    columns: Collection[str] | None = None,
    side_columns: Mapping[str, Any] | None = None,
) -> PaddedBatch:
    """Pads results to a common length.

    The length is that of the longest row, unless `length`, `multiple_of` or `buckets` is set. Inside
    `jax.jit`, where the lengths of rows are unknown, use `pad_ragged` with a static length.

    Args:
        results: a `TokenizationBatch`, a `Ragged`, a list of `TokenizationResult`s, `Windows` (one row per
            window), or `MergedWindows` whose values are integers, which are then padded as ids; or
            `EncodedChats`, or a list of `EncodedChat`s, whose assistant masks become the loss mask. An empty
            list gives arrays of shape `(0, length)`.
        pad_id: the id on padding. It has no default, since 0 is usually the id of a token.
        length: exact number of tokens per row.
        multiple_of: the length is rounded up to a multiple of this.
        buckets: lengths to choose from, such as a `LengthBuckets`: rows are padded to the smallest one that
            fits the longest row, so that a jitted step is compiled at most once per bucket. Excludes
            `length`.
        pad_side: side to pad, `"right"` or `"left"`.
        truncation: end to truncate longer rows at, `"right"` or `"left"`; `None` to raise for longer rows.
        mark_pad_as_special: whether `special_tokens_mask` is 1 on padding.
        columns: names of the columns to return: `"ids"` and `"attention_mask"` (which are always returned),
            `"special_tokens_mask"`, `"token_type_ids"`, `"offsets"`, `"word_ids"`, `"sequence_ids"`; by
            default all that the input has.
        side_columns: other values per token, by name, for instance log-probabilities or weights: an array
            of shape `(n, ...)`, aligned with the flat ids of all rows, or a list with the values of each row.
            They keep their dtype, are 0 on padding, and are in `columns` of the batch. One named `loss_mask`
            becomes the loss mask of the batch.

    Raises:
        InvalidArgumentError: a row is too long and `truncation` is not set, options exclude each other, or a
            side column is not aligned with the ids.

    >>> from tokjax.core.ragged import ragged_from_rows
    >>> collate_padded_batch(ragged_from_rows([[5, 6, 7], [8]]), pad_id=0).ids
    array([[5, 6, 7],
           [8, 0, 0]], dtype=int32)
    """
    requested = _check_columns(columns)
    own_mask = side_columns.get("loss_mask") if isinstance(side_columns, Mapping) else None
    results, loss_mask = separate_chats(results, own_mask)
    if loss_mask is not None:
        side_columns = {**(side_columns or {}), "loss_mask": loss_mask}
    ragged = as_ragged(results, requested)
    if is_traced(ragged.row_splits):
        raise InvalidArgumentError(
            "collate_padded_batch needs the lengths of rows, which are unknown under jax.jit; call "
            "pad_ragged(ragged, length=LENGTH, pad_id=PAD_ID) there"
        )
    longest = int(np.diff(to_host(ragged.row_splits)).max(initial=0))
    target = _compute_target_length(longest, length, multiple_of, buckets, truncation)
    if truncation is None and longest <= target:
        truncation = "right"  # (no row is too long, and `pad_ragged` need not check again)
    return pad_ragged(
        ragged,
        length=target,
        pad_id=pad_id,
        pad_side=pad_side,
        truncation=truncation,
        mark_pad_as_special=mark_pad_as_special,
        columns=requested,
        side_columns=side_columns,
    )


def pad_ragged(
    results: Results,
    *,
    length: int,
    pad_id: int,
    pad_side: Side = "right",
    truncation: Side | None = "right",
    mark_pad_as_special: bool = True,
    columns: Collection[str] | None = None,
    side_columns: Mapping[str, Any] | None = None,
) -> PaddedBatch:
    """Pads rows to a fixed length; runs under `jax.jit`, where `length` is static.

    Args:
        results: rows of tokens: a `Ragged` of NumPy or JAX arrays, or any other input of
            `collate_padded_batch`.
        length: number of tokens per row of the result, at least 0.
        pad_id: the id on padding.
        pad_side: side to pad, `"right"` or `"left"`.
        truncation: end to truncate rows longer than `length` at, `"right"` or `"left"`; `None` to raise for
            longer rows, which works only outside of `jax.jit`.
        mark_pad_as_special: whether `special_tokens_mask` is 1 on padding.
        columns: names of the columns to return, as in `collate_padded_batch`.
        side_columns: other values per token, as in `collate_padded_batch`.

    Returns:
        `int32` arrays of shape `(rows, length)`: NumPy arrays for NumPy inputs and JAX arrays for JAX inputs.

    Raises:
        InvalidArgumentError: a row is too long and `truncation` is `None`, or an option is invalid.
    """
    requested = _check_columns(columns)
    _check_options(length, pad_id, pad_side, truncation)
    ragged = as_ragged(results, requested)
    if truncation is None:
        _reject_long_rows(ragged.row_splits, length)
    return _pad_rows(
        ragged,
        _flatten_side_columns({} if side_columns is None else side_columns, ragged),
        pad_id,
        length=length,
        pad_side=pad_side,
        truncate_left=truncation == "left",
        mark_pad_as_special=mark_pad_as_special,
        requested=requested,
    )


@jit_eager
def _pad_rows(
    ragged: Ragged,
    side_columns: dict[str, Array],
    pad_id: int,
    *,
    length: int,
    pad_side: Side,
    truncate_left: bool,
    mark_pad_as_special: bool,
    requested: frozenset[str],
) -> PaddedBatch:
    """Pads rows after the options are checked; eager JAX runs it as one compiled program."""
    xp = get_namespace(*ragged, *side_columns.values(), pad_id)
    integers = partial(as_integers, dtype=np.int64) if xp is np else as_int32
    splits = integers("row_splits", ragged.row_splits)
    starts, lengths = splits[:-1], splits[1:] - splits[:-1]
    row_lengths = xp.minimum(lengths, np.int32(length))
    if truncate_left:
        starts = starts + lengths - row_lengths
    fill_values = {"ids": pad_id, **FILL_VALUES, "special_tokens_mask": int(bool(mark_pad_as_special))}
    flat: dict[str, Array] = {
        name: getattr(ragged, name)
        for name in COLUMNS
        if name in requested and getattr(ragged, name) is not None
    }
    pad = _pad_by_scatter if xp is np else _pad_by_gather
    flat = {"ids": ragged.ids, **flat, **side_columns}
    present, columns = pad(flat, fill_values, starts, row_lengths, length, pad_side)
    others = {name: columns.pop(name) for name in side_columns}
    if "special_tokens_mask" in requested - columns.keys():
        padding = np.int32(1) - present if mark_pad_as_special else xp.zeros_like(present)
        columns["special_tokens_mask"] = padding
    if "token_type_ids" in requested - columns.keys():
        columns["token_type_ids"] = xp.zeros_like(present)
    if "loss_mask" in others:
        columns["loss_mask"] = others.pop("loss_mask").astype(bool).astype(np.int32)
    return PaddedBatch(attention_mask=present, **columns, columns=others or None)


def _pad_by_gather(
    flat: dict[str, Array],
    fill_values: dict[str, int],
    starts: Any,
    row_lengths: Any,
    length: int,
    pad_side: Side,
) -> tuple[Array, dict[str, Array]]:
    """Pads columns by gathering a token for each position of the result. Shapes are static, for `jax.jit`.

    Args:
        flat: flat columns, shape `(n, ...)` each.
        fill_values: value on padding of each column that becomes `int32`. Others are 0 there.
        starts: index of the first token of each row to copy, integers, shape `(rows,)`.
        row_lengths: number of tokens of each row to copy, integers, shape `(rows,)`.
        length: number of positions per row of the result.
        pad_side: side to pad.

    Returns:
        The attention mask and the padded columns, shape `(rows, length, ...)`.
    """
    xp = get_namespace(starts, *flat.values())
    within = xp.arange(length, dtype=np.int32)[None, :]
    if pad_side == "left":
        within = within - (np.int32(length) - row_lengths)[:, None]
    present = (within >= 0) & (within < row_lengths[:, None])
    index = starts[:, None] + within
    columns = {
        name: take_or_fill(name, values, index, present, fill_values.get(name, 0), _get_dtype(name, values))
        for name, values in flat.items()
    }
    return present.astype(np.int32), columns


def _pad_by_scatter(
    flat: dict[str, Array],
    fill_values: dict[str, int],
    starts: Any,
    row_lengths: Any,
    length: int,
    pad_side: Side,
) -> tuple[Array, dict[str, Array]]:
    """Pads columns like `_pad_by_gather`, by scattering the tokens to their positions.

    On the host this is faster: tokens are read in order, and only tokens are copied.
    """
    position = np.arange(length, dtype=np.min_scalar_type(-length - 1))  # (narrow integers compare faster)
    rows = row_lengths.astype(position.dtype)[:, None]
    present = position < rows if pad_side == "right" else position >= length - rows
    source, counts = _select_source(starts, row_lengths), row_lengths.tolist()
    own = {name: values for name, values in flat.items() if name in fill_values}
    widths = {name: math.prod(column.shape[1:]) for name, column in own.items()}
    # All `int32` columns share one array: the allocator reuses one large block for the next batch.
    block = np.empty((1 + sum(widths.values()), *present.shape), np.int32)
    block[0] = present
    columns: dict[str, Array] = {}
    first = 1
    for name, column in flat.items():
        shape = *present.shape, *column.shape[1:]
        if name in own:
            padded = block[first : first + widths[name]].reshape(shape)
            padded.fill(fill_values[name])
            first += widths[name]
            tokens = as_int32(name, column[source])
        else:
            padded, tokens = np.zeros(shape, column.dtype), column[source]
        if length < _LONG_ROW:
            padded[present] = tokens
        else:
            _copy_rows(tokens, padded, counts, pad_side)
        columns[name] = padded
    return block[0], columns


def _copy_rows(tokens: Any, padded: Any, counts: list[int], pad_side: Side) -> None:
    """Writes the tokens of all rows, shape `(n, ...)`, to rows of shape `(rows, length, ...)`, in place."""
    begin = 0
    for row, count in zip(padded, counts, strict=True):
        position = slice(count) if pad_side == "right" else slice(len(row) - count, None)
        row[position] = tokens[begin : begin + count]
        begin += count


def _select_source(starts: Any, row_lengths: Any) -> Any:
    """Returns the indices of the tokens to copy: a slice, which avoids a copy, where no row is truncated."""
    if not len(starts):
        return slice(0)
    first, last = int(starts[0]), int(starts[-1] + row_lengths[-1])
    return (
        slice(first, last) if last - first == row_lengths.sum() else concatenate_ranges(starts, row_lengths)
    )


@jit_eager
def pad_sequence(tokens: Array, max_length: int, pad_value: int) -> Array:
    """Pads or truncates one sequence at its right end.

    Args:
        tokens: token ids, integers, shape `(n,)`.
        max_length: length of the result; static under `jax.jit`.
        pad_value: value on padding.

    Returns:
        `int32`, shape `(max_length,)`: a NumPy array for a NumPy input and a JAX array for a JAX input.

    Raises:
        InvalidArgumentError: `tokens` has another shape, or an argument is not a valid integer.

    >>> pad_sequence(np.array([1, 2]), 4, 0)
    array([1, 2, 0, 0], dtype=int32)
    """
    flat = as_int32("tokens", tokens)
    if flat.ndim != 1:
        raise InvalidArgumentError(f"tokens must have shape (n,), not {flat.shape}; see batch_pad_sequences")
    xp = get_namespace(flat)
    lengths = as_size(xp, flat.shape[0]) * xp.ones(1, np.int32)
    return batch_pad_sequences(flat[None, :], lengths, max_length, pad_value)[0]


@jit_eager
def batch_pad_sequences(tokens: Array, token_lengths: Array, max_length: int, pad_value: int) -> Array:
    """Pads or truncates many sequences at their right ends.

    Args:
        tokens: token ids, integers, shape `(batch, width)`; row `i` has `token_lengths[i]` tokens.
        token_lengths: number of tokens of each row, integers, shape `(batch,)`; values above `width` mean
            `width`.
        max_length: length of the result; static under `jax.jit`.
        pad_value: value on padding.

    Returns:
        `int32`, shape `(batch, max_length)`: a NumPy array for NumPy inputs and a JAX array for JAX inputs.

    Raises:
        InvalidArgumentError: the shapes do not match, or an argument is not a valid integer.
    """
    check_int("max_length", max_length, minimum=0, maximum=MAX_INT32)
    check_id("pad_value", pad_value)
    rows, lengths = as_int32("tokens", tokens), as_int32("token_lengths", token_lengths)
    if rows.ndim != 2 or lengths.shape != rows.shape[:1]:
        raise InvalidArgumentError(
            f"tokens must have shape (batch, width) and token_lengths (batch,), not {rows.shape} and "
            f"{lengths.shape}"
        )
    xp = get_namespace(rows, lengths)
    width = rows.shape[1]
    present = make_positions(xp, max_length, 2) < xp.minimum(lengths, as_size(xp, width))[:, None]
    missing = max(max_length - width, 0) if isinstance(width, int) else max_length
    resized = xp.pad(rows, ((0, 0), (0, missing)))[:, :max_length]
    return xp.where(present, resized, xp.asarray(pad_value, dtype=np.int32))  # type: ignore[no-any-return]


def _compute_target_length(
    longest: int,
    length: int | None,
    multiple_of: int | None,
    buckets: Sequence[int] | None,
    truncation: Side | None,
) -> int:
    """Returns the length to pad to; raises `InvalidArgumentError` if options exclude each other."""
    if length is not None and (buckets is not None or multiple_of is not None):
        raise InvalidArgumentError("length is exact; pass it without buckets and multiple_of")
    if buckets is not None and multiple_of is not None:
        raise InvalidArgumentError("pass buckets or multiple_of, not both")
    if length is not None:
        return check_int("length", length, minimum=0, maximum=MAX_INT32)
    if multiple_of is not None:
        step = check_int("multiple_of", multiple_of, minimum=1)
        return -(-longest // step) * step
    return longest if buckets is None else _select_boundary(longest, LengthBuckets(buckets), truncation)


def _select_boundary(longest: int, buckets: LengthBuckets, truncation: Side | None) -> int:
    """Returns the smallest bucket that fits the longest row, or the greatest if rows may be truncated."""
    if longest > buckets[-1] and truncation is None:
        raise InvalidArgumentError(
            f"the longest row has {longest} tokens and does not fit any bucket of {list(buckets)}; add a "
            "bucket, or pass truncation='right'"
        )
    return int(buckets.compute_padded_lengths(min(longest, buckets[-1])))


def _reject_long_rows(row_splits: Array, length: int) -> None:
    """Raises `InvalidArgumentError` for a row longer than `length`."""
    if is_traced(row_splits):
        raise InvalidArgumentError(
            "truncation=None needs the lengths of rows, which are unknown under jax.jit; pass "
            "truncation='right' or 'left'"
        )
    lengths = np.diff(to_host(row_splits))
    long_rows = np.flatnonzero(lengths > length)
    if len(long_rows):
        row = int(long_rows[0])
        raise InvalidArgumentError(
            f"row {row} has {int(lengths[row])} tokens, more than the length {length}; pass "
            "truncation='right' or 'left', or a greater length"
        )


def _check_options(length: int, pad_id: int, pad_side: str, truncation: str | None) -> None:
    """Raises `InvalidArgumentError` for an invalid option."""
    check_int("length", length, minimum=0, maximum=MAX_INT32)
    check_id("pad_id", pad_id)
    check_choice("pad_side", pad_side, ("left", "right"))
    check_choice("truncation", truncation, ("left", "right", None))


def _check_columns(columns: Collection[str] | None) -> frozenset[str]:
    """Returns the names of the requested columns; raises `InvalidArgumentError` for an unknown one."""
    if columns is None:
        return frozenset(PADDED_COLUMNS)
    for name in (requested := check_names("columns", columns)):
        check_choice("a name in columns", name, PADDED_COLUMNS)
    return frozenset(requested)


def _flatten_side_columns(side_columns: Mapping[str, Any], ragged: Ragged) -> dict[str, Array]:
    """Returns the side columns as flat arrays; raises `InvalidArgumentError` for an invalid one."""
    if not isinstance(side_columns, Mapping):
        raise InvalidArgumentError(f"side_columns must map names to values, not be {side_columns!r:.100}")
    flat = {name: flatten_column(name, values, ragged) for name, values in side_columns.items()}
    for name, values in flat.items():
        if name in PADDED_COLUMNS:
            raise InvalidArgumentError(
                f"{name} is no side column; pass results that have it, or another name"
            )
        if values.dtype.kind in "OSUMm":
            raise InvalidArgumentError(f"{name} must be numbers, not {values.dtype}")
    return flat


def _get_dtype(name: str, values: Any) -> Any:
    """Returns the dtype of a padded column: `int32`, and its own for a side column."""
    return np.int32 if name in COLUMNS else values.dtype
