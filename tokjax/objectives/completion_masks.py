"""Which tokens count in fine-tuning: the answer and not the prompt."""

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
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.masks import create_attention_mask

if TYPE_CHECKING:
    from collections.abc import Sequence


@jit_eager
def completion_loss_mask(prompt_lengths: int | Array, length: int) -> Array:
    """0 on the prompt, 1 on all that follows: a `loss_mask` for `causal_lm_labels`.

    Args:
        prompt_lengths: how many places of each row are prompt, padding at the left included; an integer, or
            an array of any shape.
        length: the width of the mask; static under `jax.jit`.

    Returns:
        `int32`, of the shape of `prompt_lengths` and then `length`.

    >>> completion_loss_mask(2, 5)
    array([0, 0, 1, 1, 1], dtype=int32)
    """
    return np.int32(1) - create_attention_mask(prompt_lengths, length)


@jit_eager
def assistant_loss_mask(
    ids: Array, *, start_ids: Sequence[int] | Array, end_ids: Sequence[int] | Array
) -> Array:
    """1 on what stands behind each start, up to and with the first end: a `loss_mask` for `causal_lm_labels`.

    A start without an end counts to the next start, or to the end of the row. Templates are found by their
    ids alone, so a user who may write them can have a turn of their own counted; `encode_chat` knows what the
    assistant said by its place.

    Args:
        ids: integers, shape `(..., length)`.
        start_ids: what opens an answer, shape `(n,)`: those of `<|im_start|>assistant` and a newline, say.
        end_ids: what closes it, shape `(n,)`: that of `<|im_end|>`, say.

    Returns:
        `int32`, of the shape of `ids` and of the kind that was given.

    Raises:
        InvalidArgumentError: a template of no ids.

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
    begins = position - np.int32(start.shape[0])
    opened = (begins >= 0) & xp.take_along_axis(
        starts, xp.broadcast_to(xp.maximum(begins, np.int32(0)), tokens.shape), axis=-1
    )
    first = compute_prefix_maximum(xp.where(opened, position, np.int32(-1)))
    closing, opening = (
        xp.take_along_axis(_find_next(xp, matches), xp.maximum(first, np.int32(0)), axis=-1)
        for matches in (_find_matches(xp, tokens, end), starts)
    )
    stop = xp.where(opening < closing, opening, closing + np.int32(end.shape[0]))
    return ((first >= 0) & (position < stop)).astype(np.int32)  # type: ignore[no-any-return]


def _check_template(name: str, ids: Sequence[int] | Array) -> Any:
    template = as_int32(name, ids)
    if template.ndim != 1 or template.shape[0] == 0:
        raise InvalidArgumentError(f"{name} must be at least one id, shape (n,), not shape {template.shape}")
    return template


def _find_matches(xp: Any, tokens: Any, template: Any) -> Any:
    """True where the template begins, all of it in the row."""
    size, length = template.shape[0], tokens.shape[-1]
    ahead = xp.concatenate([tokens, xp.zeros((*tokens.shape[:-1], size), np.int32)], axis=-1)
    found = xp.broadcast_to(
        make_positions(xp, length, tokens.ndim) <= as_size(xp, length) - np.int32(size), tokens.shape
    )
    for i in range(size):
        found = found & (ahead[..., i : i + length] == template[i])
    return found


def _find_next(xp: Any, matches: Any) -> Any:
    """For each place the next match at or behind it; the length of the row where there is none."""
    length = matches.shape[-1]
    return compute_suffix_minimum(
        xp.where(matches, make_positions(xp, length, matches.ndim), as_size(xp, length))
    )
