"""Labels for next-token prediction, positions, and conversion between 0-based and 1-based ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tokjax._util.arrays import (
    Array,
    apply_cond,
    as_int32,
    as_mask,
    as_size,
    compute_prefix_maximum,
    compute_suffix_minimum,
    get_namespace,
    jit_eager,
    make_positions,
)
from tokjax._util.checks import MAX_INT32, check_id, check_int
from tokjax._util.display import display_batch
from tokjax.core.array_inputs import as_aligned_integers, as_aligned_mask, as_tokens, check_length_axis
from tokjax.errors import InvalidArgumentError


@display_batch
class CausalLMBatch(NamedTuple):
    """A training batch of a causal language model: a pytree of `int32` arrays of shape `(batch, length)`.

    Attributes:
        ids: input ids.
        attention_mask: 1 on tokens, 0 on padding.
        labels: the id that follows each position, or `ignore_index` where no id follows.
    """

    ids: Array
    attention_mask: Array
    labels: Array


@jit_eager
def causal_lm_labels(
    ids: Array,
    attention_mask: Array,
    *,
    ignore_index: int = -100,
    segment_ids: Array | None = None,
    loss_mask: Array | None = None,
) -> Array:
    """Returns the next valid id for each valid position: `labels[i]` is the target of the prediction at `i`.

    The labels are already shifted. Validity is defined by the mask and never by an id, so that a pad id that
    equals the EOS id is safe. Gaps in the mask are skipped: the label of the position before a gap is the
    first valid id after it.

    **A loss in JAX does not ignore the label -100: it takes the id 100 from the end, and is finite.** Weight
    it by `label_weights(labels)`.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        attention_mask: nonzero on valid positions, shape `(..., length)`.
        ignore_index: label of padding, and of positions without a following valid id.
        segment_ids: index of the document of each position, integers, shape `(..., length)`; no label crosses
            from one document to another.
        loss_mask: nonzero on the tokens that are targets, shape `(..., length)`; a label whose target has 0
            is `ignore_index`.

    Returns:
        `int32`, shape `(..., length)`: a NumPy array for NumPy inputs and a JAX array for JAX inputs.

    Raises:
        InvalidArgumentError: shapes do not match, or `ignore_index` is not an integer.

    >>> causal_lm_labels(np.array([[3, 6, 7, 4, 1]]), np.array([[1, 1, 1, 1, 0]]))
    array([[   6,    7,    4, -100, -100]], dtype=int32)
    """
    rows = _check_inputs(ids, attention_mask, segment_ids, loss_mask, ignore_index)
    if rows.tokens.shape[-1] == 0:
        return rows.tokens.copy()  # type: ignore[no-any-return]
    return apply_cond(_is_contiguous(rows.valid), _shift_contiguous, _shift_with_gaps, rows)  # type: ignore[no-any-return]


@jit_eager
def multi_token_labels(
    ids: Array,
    attention_mask: Array,
    num_future_tokens: int,
    *,
    ignore_index: int = -100,
    segment_ids: Array | None = None,
    loss_mask: Array | None = None,
) -> Array:
    """Returns the next ids after each position, for multi-token prediction as in DeepSeek-V3.

    `labels[..., k, i]` is the id `k + 1` tokens after position `i`. So `labels[..., 0, :]` are the labels of
    the main head, as `causal_lm_labels` returns them, and `labels[..., 1, :]` are those of the first
    additional module.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        attention_mask: nonzero on valid positions, shape `(..., length)`; gaps are skipped.
        num_future_tokens: number of tokens to predict at each position, at least 1; static under `jax.jit`.
        ignore_index: label of padding, and of positions with too few ids after them.
        segment_ids: index of the document of each position, integers, shape `(..., length)`; no label crosses
            from one document to another.
        loss_mask: nonzero on the tokens that are targets, shape `(..., length)`; a label whose target has 0
            is `ignore_index`. The tokens between a position and its target do not matter.

    Returns:
        `int32`, shape `(..., num_future_tokens, length)`: a NumPy array for NumPy inputs and a JAX array for
        JAX inputs.

    Raises:
        InvalidArgumentError: shapes do not match, or `num_future_tokens` is less than 1.

    >>> multi_token_labels(np.array([3, 6, 7, 4, 8]), np.ones(5), 2, segment_ids=np.array([1, 1, 1, 2, 2]))
    array([[   6,    7, -100,    8, -100],
           [   7, -100, -100, -100, -100]], dtype=int32)
    """
    count = check_int("num_future_tokens", num_future_tokens, minimum=1, maximum=1 << 16)
    rows = _check_inputs(ids, attention_mask, segment_ids, loss_mask, ignore_index)
    *leading, length = rows.tokens.shape
    if length == 0:
        return rows.tokens.reshape(*leading, 1, 0).repeat(count, axis=-2)  # type: ignore[no-any-return]
    return _look_ahead(rows, count)  # type: ignore[no-any-return]


class _LabelInputs(NamedTuple):
    """Inputs of the two label functions: arrays of shape `(..., length)`.

    Attributes:
        tokens: token ids, `int32`.
        valid: true on tokens, `bool`.
        segments: index of the document of each position, `int32`, or `None`.
        counted: true on tokens that are targets, `bool`, or `None`.
        ignored: label of positions without a target, `int32`, shape `()`.
    """

    tokens: Any
    valid: Any
    segments: Any
    counted: Any
    ignored: Any


def _check_inputs(
    ids: Array,
    attention_mask: Array,
    segment_ids: Array | None,
    loss_mask: Array | None,
    ignore_index: int,
) -> _LabelInputs:
    """Returns the inputs as arrays of the same shape, or raises `InvalidArgumentError`."""
    xp = get_namespace(ids, attention_mask, segment_ids, loss_mask, ignore_index)
    check_id("ignore_index", ignore_index)
    tokens = as_tokens(ids)
    return _LabelInputs(
        tokens,
        as_aligned_mask(xp, "attention_mask", attention_mask, tokens),
        None if segment_ids is None else as_aligned_integers("segment_ids", segment_ids, tokens),
        None if loss_mask is None else as_aligned_mask(xp, "loss_mask", loss_mask, tokens),
        xp.asarray(ignore_index, dtype=np.int32),
    )


def _is_contiguous(valid: Any) -> Any:
    """Returns whether the tokens of each row are contiguous, `bool`, shape `()`."""
    starts = valid[..., 1:] > valid[..., :-1]
    return (starts.sum(axis=-1, dtype=np.int32) + valid[..., 0].astype(np.int32) <= np.int32(1)).all()


def _shift_contiguous(rows: _LabelInputs) -> Any:
    """Returns labels of rows whose tokens are contiguous: the ids shifted by one."""
    xp = get_namespace(*rows)
    keep = rows.valid[..., :-1] & rows.valid[..., 1:]
    if rows.segments is not None:
        keep = keep & (rows.segments[..., :-1] == rows.segments[..., 1:])
    if rows.counted is not None:
        keep = keep & rows.counted[..., 1:]
    if xp is np:  # (in place: two passes fewer)
        host_labels = np.full(rows.tokens.shape, rows.ignored)
        np.copyto(host_labels[..., :-1], rows.tokens[..., 1:], where=keep)
        return host_labels
    labels = xp.where(keep, rows.tokens[..., 1:], rows.ignored)
    last = [(0, 0)] * (labels.ndim - 1) + [(0, 1)]
    return xp.pad(labels, last, constant_values=rows.ignored)


def _shift_with_gaps(rows: _LabelInputs) -> Any:
    """Returns labels of any rows: each valid position looks up the next valid position."""
    return _look_ahead(rows, 1)[..., 0, :]


def _find_following(rows: _LabelInputs) -> Any:
    """Returns the first valid position *after* each position, or the length without one, `int32`."""
    xp = get_namespace(*rows)
    length = rows.tokens.shape[-1]
    size = as_size(xp, length)
    own = xp.where(rows.valid, make_positions(xp, length, rows.tokens.ndim), size)
    return compute_suffix_minimum(xp.concatenate([own[..., 1:], xp.full_like(own[..., :1], size)], axis=-1))


def _look_ahead(rows: _LabelInputs, count: int) -> Any:
    """Returns labels of any rows: each position follows its pointer to the next token `count` times.

    valid       T  F  T  T              segments 1 1 1 2
    next        2  4  4  4  4           the next token of the document, else the length 4
    labels      the token at `next`, then at `next[next]`; `ignored` at 4
    """
    xp = get_namespace(*rows)
    size = as_size(xp, rows.tokens.shape[-1])
    following = _find_following(rows)
    continues = rows.valid
    if rows.segments is not None:
        target = xp.minimum(following, size - np.int32(1))
        continues = continues & (rows.segments == xp.take_along_axis(rows.segments, target, axis=-1))
    position = xp.where(continues, following, size)
    targets = rows.tokens if rows.counted is None else xp.where(rows.counted, rows.tokens, rows.ignored)
    pointers = xp.concatenate([position, xp.full_like(position[..., :1], size)], axis=-1)
    targets = xp.concatenate([targets, xp.full_like(targets[..., :1], rows.ignored)], axis=-1)
    labels = []
    for _ in range(count):
        labels.append(xp.take_along_axis(targets, position, axis=-1))
        position = xp.take_along_axis(pointers, position, axis=-1)
    return xp.stack(labels, axis=-2)


@jit_eager
def label_weights(labels: Array, *, ignore_index: int = -100) -> tuple[Array, Array]:
    """Returns labels that are safe to look up, and the weight of each in the loss.

    `ignore_index` is no id. In JAX, an index of -100 counts from the end, so
    `optax.softmax_cross_entropy_with_integer_labels(logits, labels)` returns finite losses of a wrong id. Use

        labels, weights = label_weights(labels)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        loss = (losses * weights).sum() / weights.sum()

    Args:
        labels: ids of target tokens, or `ignore_index`; integers, any shape.
        ignore_index: label of positions without a target.

    Returns:
        Labels with 0 in place of `ignore_index`, `int32`, and weights, 1 on targets and 0 elsewhere,
        `float32`, both of the shape of `labels`: NumPy arrays for a NumPy input and JAX arrays for a JAX
        input.

    Raises:
        InvalidArgumentError: the labels are not integers, `ignore_index` is not an integer, or a label of a
            NumPy array is negative and not `ignore_index`. In a JAX array, such labels have the weight 0.

    >>> label_weights(np.array([7, 4, -100]))
    (array([7, 4, 0], dtype=int32), array([1., 1., 0.], dtype=float32))
    """
    xp = get_namespace(labels, ignore_index)
    check_id("ignore_index", ignore_index)
    targets = as_int32("labels", labels)
    counts = (targets != xp.asarray(ignore_index, dtype=np.int32)) & (targets >= 0)
    if xp is np and (invalid := targets[(targets < 0) & (targets != ignore_index)]).size:
        raise InvalidArgumentError(
            f"labels contains {invalid[0]}, which is neither an id nor ignore_index={ignore_index}"
        )
    return xp.where(counts, targets, np.int32(0)), counts.astype(np.float32)


def to_one_based(ids: Array, *, ignore_index: int = -100) -> Array:
    """Converts 0-based ids or labels to 1-based ones, for Julia; `ignore_index` is unchanged.

    Args:
        ids: ids or labels, integers, any shape. (Julia's matrices are `(length, batch)`: transpose them.)
        ignore_index: value that is unchanged.

    Returns:
        `int32`, of the same shape: a NumPy array for a NumPy input and a JAX array for a JAX input.

    Raises:
        InvalidArgumentError: an id does not fit `int32` after the conversion.

    >>> to_one_based(np.array([0, 5, -100]))
    array([   1,    6, -100], dtype=int32)
    """
    return _shift_values(ids, 1, ignore_index)


def to_zero_based(ids: Array, *, ignore_index: int = -100) -> Array:
    """Converts 1-based ids or labels, from Julia, to 0-based ones; `ignore_index` is unchanged.

    Args:
        ids: ids or labels, integers, any shape.
        ignore_index: value that is unchanged.

    Returns:
        `int32`, of the same shape: a NumPy array for a NumPy input and a JAX array for a JAX input.

    Raises:
        InvalidArgumentError: an id does not fit `int32` after the conversion.

    >>> to_zero_based(np.array([1, 6, -100]))
    array([   0,    5, -100], dtype=int32)
    """
    return _shift_values(ids, -1, ignore_index)


@jit_eager
def _shift_values(ids: Array, by: int, ignore_index: int) -> Array:
    """Adds `by`, 1 or -1, to all values except `ignore_index`."""
    xp = get_namespace(ids, ignore_index)
    check_id("ignore_index", ignore_index)
    values = as_int32("ids", ids)
    extreme = np.iinfo(np.int32).max if by > 0 else np.iinfo(np.int32).min
    if xp is np and (values[values != ignore_index] == extreme).any():
        raise InvalidArgumentError(f"ids contains {extreme}, and {extreme + by} does not fit int32")
    return xp.where(values == xp.asarray(ignore_index, dtype=np.int32), values, values + np.int32(by))  # type: ignore[no-any-return]


@jit_eager
def compute_positions(attention_mask: Array, *, segment_ids: Array | None = None, offset: int = 0) -> Array:
    """Computes the position of each token in its row, for rows that are padded on either side.

    Left-padded rows need it: without positions, a model counts the padding before the prompt.

    Args:
        attention_mask: mask of tokens, not 0 on these, shape `(..., length)`.
        segment_ids: document of each token, integers, shape `(..., length)`; positions restart where it
            changes.
        offset: position of the first token. OPT and RoBERTa count from 2.

    Returns:
        Positions, `int32`, shape `(..., length)`. Where the mask is 0 they are `offset - 1`, as in OPT and
        RoBERTa, or 0 if `offset` is 0. A JAX array if one of the inputs is, else a NumPy array.

    Raises:
        InvalidArgumentError: the shapes differ, or `offset` is not an integer of at least 0.

    >>> compute_positions(np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]]))
    array([[0, 0, 0, 1, 2],
           [0, 1, 2, 3, 0]], dtype=int32)
    >>> compute_positions(np.array([0, 1, 1, 1]), offset=2)
    array([1, 2, 3, 4], dtype=int32)
    """
    xp = get_namespace(attention_mask, segment_ids)
    first = check_int("offset", offset, minimum=0, maximum=MAX_INT32)
    name = "attention_mask"
    valid = check_length_axis(name, as_mask(xp, name, attention_mask))
    before = xp.cumsum(valid, axis=-1, dtype=np.int32) - valid.astype(np.int32)
    if segment_ids is not None:
        segments = as_aligned_integers("segment_ids", segment_ids, valid)
        before = before - compute_prefix_maximum(xp.where(find_starts(segments), before, np.int32(0)))
    return xp.where(valid, before + np.int32(first), np.int32(max(first - 1, 0)))  # type: ignore[no-any-return]


def find_starts(segments: Any) -> Any:
    """Returns whether each token, or the padding after a segment, begins a segment.

    Args:
        segments: segment of each token, different from those beside it, and 0 on padding; `int32`, shape
            `(..., length)`.

    Returns:
        `bool`, shape `(..., length)`.
    """
    xp = get_namespace(segments)
    previous = xp.concatenate([xp.zeros_like(segments[..., :1]), segments[..., :-1]], axis=-1)
    return segments != previous
