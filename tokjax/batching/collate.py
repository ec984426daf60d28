"""Padding: ragged rows into one rectangle."""

from __future__ import annotations

import math
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
    positions,
    take_or_fill,
    to_host,
)
from tokjax._util.checks import check_id, check_int
from tokjax._util.display import describe_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.batching.length_buckets import LengthBuckets
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import COLUMNS, concatenate_ranges
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokjax.core.ragged import Ragged
    from tokjax.core.records import MergedWindows, Results, Windows

Side: TypeAlias = Literal["left", "right"]
PADDED_COLUMNS = (*COLUMNS, "attention_mask")
_FILL_VALUES = {"offsets": 0, "token_type_ids": 0, "word_ids": -1, "sequence_ids": -1}


class PaddedBatch(NamedTuple):
    """A rectangle of tokens, ready for a device: a pytree of `int32` arrays.

    Attributes:
        ids: `(batch, length)`, the pad id on padding.
        attention_mask: `(batch, length)`, 1 on tokens and 0 on padding.
        special_tokens_mask: `(batch, length)`, 1 on special tokens and (by default) on padding.
        token_type_ids: `(batch, length)`, 0 on padding.
        offsets: `(batch, length, 2)`, `(0, 0)` on padding; `None` where the rows had none.
        word_ids: `(batch, length)`, -1 on padding; `None` where the rows had none.
        sequence_ids: `(batch, length)`, -1 on padding; `None` where the rows had none.

    A column that was not wanted is `None`; ids and attention mask are always there.
    """

    ids: Array
    attention_mask: Array
    special_tokens_mask: Array | None = None
    token_type_ids: Array | None = None
    offsets: Array | None = None
    word_ids: Array | None = None
    sequence_ids: Array | None = None

    def __repr__(self) -> str:
        """The dtype and shape of each array."""
        return describe_batch(self)


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
) -> PaddedBatch:
    """Pad results to one length.

    The length is that of the longest row, unless told otherwise. Inside `jax.jit`, where lengths are not
    known, use `pad_ragged` with a length of your own.

    Args:
        results: a `TokenizationBatch`, a `Ragged`, a list of `TokenizationResult`s, `Windows` (a row for each
            window), or `MergedWindows` of integers, which take the place of ids; none at all gives arrays of
            shape `(0, length)`.
        pad_id: the id on padding. It has no default: 0 is some token's id.
        length: pad to exactly this many tokens.
        multiple_of: pad to the next multiple of this.
        buckets: lengths to choose from, such as a `LengthBuckets`: pad to the smallest that holds the longest
            row, so that a jitted step compiles at most once for each. Not together with `length`.
        pad_side: where padding goes.
        truncation: cut rows that are too long, at their `"right"` or `"left"` end; `None` refuses them.
        mark_pad_as_special: whether `special_tokens_mask` is 1 on padding.
        columns: the columns that are wanted, of `"ids"`, `"attention_mask"` (these two are always given),
            `"special_tokens_mask"`, `"token_type_ids"`, `"offsets"`, `"word_ids"`, `"sequence_ids"`; by
            default all that there are.

    Raises:
        InvalidArgumentError: a row is too long and `truncation` is not set, or options exclude each other.

    >>> from tokjax.core.ragged import ragged_from_rows
    >>> collate_padded_batch(ragged_from_rows([[5, 6, 7], [8]]), pad_id=0).ids
    array([[5, 6, 7],
           [8, 0, 0]], dtype=int32)
    """
    ragged = as_ragged(results)
    if is_traced(ragged.row_splits):
        raise InvalidArgumentError(
            "collate_padded_batch looks at the lengths of rows, which are not known under jax.jit; there "
            "use pad_ragged(ragged, length=LENGTH, pad_id=PAD_ID)"
        )
    longest = int(np.diff(to_host(ragged.row_splits)).max(initial=0))
    target = _compute_target_length(longest, length, multiple_of, buckets, truncation)
    if truncation is None and longest <= target:
        truncation = "right"  # (nothing is cut, and need not be looked for)
    return pad_ragged(
        ragged,
        length=target,
        pad_id=pad_id,
        pad_side=pad_side,
        truncation=truncation,
        mark_pad_as_special=mark_pad_as_special,
        columns=columns,
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
) -> PaddedBatch:
    """Pad rows to a length that is known beforehand; runs under `jax.jit`, where `length` is static.

    Args:
        results: the rows: a `Ragged` of NumPy or JAX arrays, or what else `collate_padded_batch` takes.
        length: tokens a row of the result, at least 0.
        pad_id: the id on padding.
        pad_side: where padding goes.
        truncation: at which end rows longer than `length` are cut; `None` refuses them, which only works
            outside `jax.jit`.
        mark_pad_as_special: whether `special_tokens_mask` is 1 on padding.
        columns: the columns that are wanted, as in `collate_padded_batch`.

    Returns:
        `int32` arrays of shape `(rows, length)`, of the kind that was given.
    """
    wanted = _check_options(length, pad_id, pad_side, truncation, columns)
    ragged = as_ragged(results)
    if truncation is None:
        _reject_long_rows(ragged.row_splits, length)
    return _pad_rows(
        ragged,
        pad_id,
        length=length,
        pad_side=pad_side,
        truncate_left=truncation == "left",
        mark_pad_as_special=mark_pad_as_special,
        wanted=wanted,
    )


@jit_eager
def _pad_rows(
    ragged: Ragged,
    pad_id: int,
    *,
    length: int,
    pad_side: Side,
    truncate_left: bool,
    mark_pad_as_special: bool,
    wanted: frozenset[str],
) -> PaddedBatch:
    xp = get_namespace(*ragged, pad_id)
    integers = partial(as_integers, dtype=np.int64) if xp is np else as_int32
    splits = integers("row_splits", ragged.row_splits)
    starts, lengths = splits[:-1], splits[1:] - splits[:-1]
    row_lengths = xp.minimum(lengths, np.int32(length))
    if truncate_left:
        starts = starts + lengths - row_lengths
    fills = {"ids": pad_id, **_FILL_VALUES, "special_tokens_mask": int(mark_pad_as_special)}
    flat: dict[str, Array] = {
        name: getattr(ragged, name)
        for name in COLUMNS
        if name in wanted and getattr(ragged, name) is not None
    }
    position = _scatter if xp is np else _gather
    present, found = position({"ids": ragged.ids} | flat, fills, starts, row_lengths, length, pad_side)
    if "special_tokens_mask" in wanted - found.keys():
        found["special_tokens_mask"] = (1 - present) * np.int32(mark_pad_as_special)
    if "token_type_ids" in wanted - found.keys():
        found["token_type_ids"] = xp.zeros_like(present)
    return PaddedBatch(attention_mask=present, **found)


def _gather(
    flat: dict[str, Array], fills: dict[str, int], starts: Any, row_lengths: Any, length: int, pad_side: Side
) -> tuple[Array, dict[str, Array]]:
    """Where tokens are, and the padded columns: each place takes what stands there. For `jax.jit`."""
    xp = get_namespace(starts, *flat.values())
    within = xp.arange(length, dtype=np.int32)[None, :]
    if pad_side == "left":
        within = within - (np.int32(length) - row_lengths)[:, None]
    present = (within >= 0) & (within < row_lengths[:, None])
    index = starts[:, None] + within
    columns = {name: take_or_fill(name, flat[name], index, present, fills[name]) for name in flat}
    return present.astype(np.int32), columns


def _scatter(
    flat: dict[str, Array], fills: dict[str, int], starts: Any, row_lengths: Any, length: int, pad_side: Side
) -> tuple[Array, dict[str, Array]]:
    """The same on the host, where it is quicker to put tokens, which are in order, to their places."""
    position = np.arange(length, dtype=np.min_scalar_type(-length - 1))  # (narrow numbers compare quicker)
    rows = row_lengths.astype(position.dtype)[:, None]
    present = position < rows if pad_side == "right" else position >= length - rows
    source = _select_source(starts, row_lengths)
    widths = {name: math.prod(column.shape[1:]) for name, column in flat.items()}
    # (One array for all columns: the allocator keeps a large one for the next batch.)
    block = np.empty((1 + sum(widths.values()), *present.shape), np.int32)
    block[0] = present
    columns: dict[str, Array] = {}
    first = 1
    for name, column in flat.items():
        padded = block[first : first + widths[name]].reshape(*present.shape, *column.shape[1:])
        padded.fill(fills[name])
        padded[present] = as_int32(name, column[source])
        columns[name] = padded
        first += widths[name]
    return block[0], columns


def _select_source(starts: Any, row_lengths: Any) -> Any:
    """Which flat tokens are kept, in order: a slice of them where rows are whole."""
    if not len(starts):
        return slice(0)
    first, last = int(starts[0]), int(starts[-1] + row_lengths[-1])
    return (
        slice(first, last) if last - first == row_lengths.sum() else concatenate_ranges(starts, row_lengths)
    )


@jit_eager
def pad_sequence(tokens: Array, max_length: int, pad_value: int) -> Array:
    """Pad or cut one sequence at its right end.

    Args:
        tokens: integers, shape `(n,)`.
        max_length: the length of the result; static under `jax.jit`.
        pad_value: what fills it up.

    Returns:
        `int32`, shape `(max_length,)`, of the kind that was given.

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
    """Pad or cut many sequences at their right ends.

    Args:
        tokens: integers, shape `(batch, width)`; of row `i` the first `token_lengths[i]` count.
        token_lengths: integers, shape `(batch,)`; those above `width` stand for it.
        max_length: the length of the result; static under `jax.jit`.
        pad_value: what fills it up.

    Returns:
        `int32`, shape `(batch, max_length)`, of the kind that was given.
    """
    check_int("max_length", max_length, minimum=0)
    check_id("pad_value", pad_value)
    rows, lengths = as_int32("tokens", tokens), as_int32("token_lengths", token_lengths)
    if rows.ndim != 2 or lengths.shape != rows.shape[:1]:
        raise InvalidArgumentError(
            f"tokens must have shape (batch, width) and token_lengths (batch,), not {rows.shape} and "
            f"{lengths.shape}"
        )
    xp = get_namespace(rows, lengths)
    width = rows.shape[1]
    present = positions(xp, max_length, 2) < xp.minimum(lengths, as_size(xp, width))[:, None]
    missing = max(max_length - width, 0) if isinstance(width, int) else max_length
    shown = xp.pad(rows, ((0, 0), (0, missing)))[:, :max_length]
    return xp.where(present, shown, xp.asarray(pad_value, dtype=np.int32))  # type: ignore[no-any-return]


def _compute_target_length(
    longest: int,
    length: int | None,
    multiple_of: int | None,
    buckets: Sequence[int] | None,
    truncation: Side | None,
) -> int:
    if length is not None and (buckets is not None or multiple_of is not None):
        raise InvalidArgumentError("length fixes the length; give it without buckets and multiple_of")
    if buckets is not None and multiple_of is not None:
        raise InvalidArgumentError("give buckets or multiple_of, not both")
    if length is not None:
        return check_int("length", length, minimum=0)
    if multiple_of is not None:
        step = check_int("multiple_of", multiple_of, minimum=1)
        return -(-longest // step) * step
    return longest if buckets is None else _select_boundary(longest, LengthBuckets(buckets), truncation)


def _select_boundary(longest: int, buckets: LengthBuckets, truncation: Side | None) -> int:
    if longest > buckets[-1] and truncation is None:
        raise InvalidArgumentError(
            f"the longest row has {longest} tokens, and no bucket of {list(buckets)} holds it; add one, or "
            "pass truncation='right'"
        )
    return int(buckets.get_padded_lengths(min(longest, buckets[-1])))


def _reject_long_rows(row_splits: Array, length: int) -> None:
    if is_traced(row_splits):
        raise InvalidArgumentError(
            "truncation=None looks at the lengths of rows, which are not known under jax.jit; pass "
            "truncation='right' or 'left'"
        )
    lengths = np.diff(to_host(row_splits))
    long_rows = np.flatnonzero(lengths > length)
    if len(long_rows):
        row = int(long_rows[0])
        raise InvalidArgumentError(
            f"row {row} has {int(lengths[row])} tokens, more than the length {length}; pass "
            "truncation='right' or 'left' to cut it, or a greater length"
        )


def _check_options(
    length: int, pad_id: int, pad_side: str, truncation: str | None, columns: Collection[str] | None
) -> frozenset[str]:
    """The wanted columns, if all options make sense."""
    check_int("length", length, minimum=0)
    check_id("pad_id", pad_id)
    if pad_side not in ("left", "right"):
        raise InvalidArgumentError(f"pad_side must be 'left' or 'right', not {pad_side!r}")
    if truncation not in ("left", "right", None):
        raise InvalidArgumentError(f"truncation must be 'left', 'right' or None, not {truncation!r}")
    wanted = set(PADDED_COLUMNS if columns is None else columns)
    if isinstance(columns, str) or wanted - set(PADDED_COLUMNS):
        raise InvalidArgumentError(f"columns must be some of {', '.join(PADDED_COLUMNS)}, not {columns!r}")
    return frozenset(wanted)
