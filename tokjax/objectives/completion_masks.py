"""Loss masks for fine-tuning: answers count as targets, and prompts do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    as_size,
    compute_prefix_maximum,
    compute_suffix_minimum,
    get_namespace,
    make_positions,
)
from tokjax._util.checks import check_choice, check_names
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.masks import create_attention_mask

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
