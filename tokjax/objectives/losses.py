"""Loss masks for fine-tuning, where answers count as targets and prompts do not, and the loss per byte."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    as_size,
    compute_prefix_maximum,
    compute_suffix_minimum,
    get_namespace,
    jit_eager,
    make_positions,
    take_or_fill,
)
from tokjax._util.checks import check_choice, check_id, check_names
from tokjax.core.array_inputs import as_tokens, check_length_axis
from tokjax.errors import InvalidArgumentError
from tokjax.masks import FLOATS, create_attention_mask

if TYPE_CHECKING:
    from collections.abc import Sequence


CHAT_ROLES = ("none", "system", "developer", "user", "assistant", "tool", "other")
"""Roles of the tokens of a conversation. Text outside the messages has the role `none`."""
CHAT_FIELDS = (
    *("scaffold", "header", "generation_prompt", "content"),
    *("reasoning", "tool_call", "tool_result", "unused"),
)
"""Fields of the tokens of a conversation. The code of a role and a field is `8 * role + field`."""
ANSWER_TEXTS = ("content", "reasoning", "tool_call")
"""Fields of the texts of an answer."""
ANSWER_FIELDS = (*ANSWER_TEXTS, "scaffold")
"""Fields that a model writes. The scaffold is the text that ends the turn, or begins a tool call."""

_BITS_PER_NAT = np.float32(math.log2(math.e))


@jit_eager
def completion_loss_mask(prompt_lengths: int | Array, length: int) -> Array:
    """Returns a loss mask that is 0 on the prompt and 1 after it, for `causal_lm_labels`.

    Use `assistant_loss_mask` if a row has several prompts and answers.

    Args:
        prompt_lengths: number of positions of the prompt in each row, including padding on its left; an
            integer, or integers of any shape `(...)`.
        length: width of the mask; static under `jax.jit`.

    Returns:
        Mask, `int32`, shape `(..., length)`. It is 1 on padding after the answer too, which
        `causal_lm_labels` ignores.

    >>> completion_loss_mask(2, 5)
    array([0, 0, 1, 1, 1], dtype=int32)
    """
    return np.int32(1) - create_attention_mask(prompt_lengths, length)


@jit_eager
def assistant_loss_mask(
    ids: Array, *, start_ids: Sequence[int] | Array, end_ids: Sequence[int] | Array
) -> Array:
    """Returns a loss mask that is 1 on each answer, for `causal_lm_labels`.

    An answer begins after an occurrence of `start_ids`, and ends with the next occurrence of `end_ids`, which
    is part of it. If the next `start_ids` or the end of the row comes first, the answer ends there.

    Both sequences are found by their ids alone. So a user who can write these ids can have their own message
    counted as an answer. If you have the messages, use `encode_chat` instead, which knows the role of each
    message.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        start_ids: ids that open an answer, shape `(n,)`; for example those of `<|im_start|>assistant` and a
            newline.
        end_ids: ids that close an answer, shape `(n,)`; for example that of `<|im_end|>`.

    Returns:
        Mask, `int32`, shape `(..., length)`; a JAX array if one of the inputs is, else a NumPy array.

    Raises:
        InvalidArgumentError: `start_ids` or `end_ids` is empty, or not one-dimensional.

    >>> assistant_loss_mask(np.array([8, 1, 5, 6, 9, 8, 2, 5, 9]), start_ids=[8, 1], end_ids=[9])
    array([0, 0, 1, 1, 1, 0, 0, 0, 0], dtype=int32)
    """
    xp = get_namespace(ids, start_ids, end_ids)
    tokens = as_tokens(ids)
    start, end = _check_template("start_ids", start_ids), _check_template("end_ids", end_ids)
    length = tokens.shape[-1]
    if length == 0:
        return tokens.copy()  # type: ignore[no-any-return]
    position = make_positions(xp, length, tokens.ndim)
    starts = _find_matches(xp, tokens, start)
    # True on the first token of each answer: `start_ids` begins at `start_position`, and ends before it.
    start_position = position - np.int32(start.shape[0])
    opened = (start_position >= 0) & xp.take_along_axis(
        starts, xp.broadcast_to(xp.maximum(start_position, np.int32(0)), tokens.shape), axis=-1
    )
    answer_start = compute_prefix_maximum(xp.where(opened, position, np.int32(-1)))
    closing, opening = (
        xp.take_along_axis(_find_next(xp, matches), xp.maximum(answer_start, np.int32(0)), axis=-1)
        for matches in (_find_matches(xp, tokens, end), starts)
    )
    stop = xp.where(opening < closing, opening, closing + np.int32(end.shape[0]))
    return ((answer_start >= 0) & (position < stop)).astype(np.int32)  # type: ignore[no-any-return]


@jit_eager
def chat_loss_mask(
    sources: Array, *, roles: Sequence[str] = ("assistant",), fields: Sequence[str] = ANSWER_FIELDS
) -> Array:
    """Returns a loss mask that is 1 on the tokens of some roles and fields, for `causal_lm_labels`.

    Args:
        sources: the role and the field of each token, as `encode_chat` returns them; integers, any shape
            `(...)`. Padding is 0, which is text outside the messages.
        roles: a subset of `"none"` (text outside the messages), `"system"`, `"developer"`, `"user"`,
            `"assistant"`, `"tool"` and `"other"`; static under `jax.jit`.
        fields: a subset of `"content"`, `"reasoning"`, `"tool_call"`, `"tool_result"`, `"scaffold"` (text
            that the template writes for a message), `"header"` (the part of it that the generation prompt
            provides) and `"generation_prompt"`; static under `jax.jit`.

    Returns:
        Mask, `int32`, shape `(...)`; a JAX array if `sources` is one, else a NumPy array.

    Raises:
        InvalidArgumentError: a role or a field has another name.

    >>> chat_loss_mask(np.array([24 + 3, 32 + 1, 32 + 3, 32 + 0]))
    array([0, 0, 1, 1], dtype=int32)
    """
    tokens = as_tokens(sources)
    role, field = tokens >> np.int32(3), tokens & np.int32(7)
    is_role = _is_any(role, _find_codes("roles", roles, CHAT_ROLES))
    is_field = _is_any(field, _find_codes("fields", fields, CHAT_FIELDS[:-1]))
    return (is_role & is_field).astype(np.int32)  # type: ignore[no-any-return]


def _find_codes(name: str, chosen: Sequence[str], known: Sequence[str]) -> list[int]:
    """Returns the indices of names among all that are known."""
    for one in check_names(name, chosen):
        check_choice(f"a name in {name}", one, known)
    return [known.index(one) for one in chosen]


def _is_any(values: Any, codes: list[int]) -> Any:
    """Returns whether each value is one of the codes."""
    found = values < 0
    for code in codes:
        found = found | (values == np.int32(code))
    return found


def _check_template(name: str, ids: Sequence[int] | Array) -> Any:
    template = as_int32(name, ids)
    if template.ndim != 1 or template.shape[0] == 0:
        raise InvalidArgumentError(f"{name} must hold at least one id, shape (n,), not {template.shape}")
    return template


def _find_matches(xp: Any, tokens: Any, template: Any) -> Any:
    """Returns True at each position where the template begins, if all of it is within the row."""
    size, length = template.shape[0], tokens.shape[-1]
    padded = xp.concatenate([tokens, xp.zeros((*tokens.shape[:-1], size), np.int32)], axis=-1)
    matches = xp.broadcast_to(
        make_positions(xp, length, tokens.ndim) <= as_size(xp, length) - np.int32(size), tokens.shape
    )
    for i in range(size):
        matches = matches & (padded[..., i : i + length] == template[i])
    return matches


def _find_next(xp: Any, matches: Any) -> Any:
    """Returns the position of the next match at or after each position; the row length if there is none."""
    length = matches.shape[-1]
    return compute_suffix_minimum(
        xp.where(matches, make_positions(xp, length, matches.ndim), as_size(xp, length))
    )


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
    if losses.dtype.name not in FLOATS:
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
