"""Loss masks of rows that are packed: which tokens count as targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tokjax._util.array_namespace import Array, as_mask, is_jax, is_traced, namespace, to_host
from tokjax.core.errors import InvalidArgumentError
from tokjax.core.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.core.records import TokenizationResult

LossMask: TypeAlias = "Array | Ragged | Sequence[Array | Sequence[int]]"
"""A mask beside the ids of all rows, or one for each row."""


class Chat(Protocol):
    """The part of an `EncodedChat` that packing uses (`batching` does not import the module of chats)."""

    @property
    def result(self) -> TokenizationResult:
        """The tokens of the conversation."""

    @property
    def assistant_mask(self) -> Any:
        """1 on the tokens that count as targets, shape `(n,)`; `None` without a mask."""


def without_chats(results: Any, loss_mask: LossMask | None) -> tuple[Any, LossMask | None]:
    """Separates encoded chats into results and their loss mask; other results stay as they are."""
    chats = [*results] if isinstance(results, (list, tuple)) and not hasattr(results, "_fields") else []
    if not chats or not all(hasattr(chat, "assistant_mask") for chat in chats):
        return results, loss_mask
    if loss_mask is None:
        masks = [chat.assistant_mask for chat in chats]
        lacking = [i for i, mask in enumerate(masks) if mask is None]
        if lacking and len(lacking) < len(masks):
            raise InvalidArgumentError(
                f"chat {lacking[0]} was encoded without a mask, and others have one; encode all of them "
                "alike, or pass loss_mask=MASKS"
            )
        loss_mask = None if lacking else masks
    return [chat.result for chat in chats], loss_mask


def flat_loss_mask(loss_mask: Any, ragged: Ragged) -> Any:
    """Returns a loss mask as an array beside the ids of all rows: `int32`, 1 and 0, shape `(n,)`."""
    if isinstance(loss_mask, Ragged):
        lengths, flat = loss_mask.lengths, loss_mask.ids
    elif is_jax(loss_mask) or isinstance(loss_mask, np.ndarray):
        lengths, flat = None, loss_mask
    else:
        rows = [np.asarray(row) for row in loss_mask]
        if any(row.ndim != 1 for row in rows):
            raise InvalidArgumentError(
                "loss_mask must be an array of shape (n,) beside the ids of all rows, or a list with a mask "
                "for each row"
            )
        lengths = np.array([len(row) for row in rows], np.int64)
        flat = np.concatenate([np.zeros(0, np.int32), *rows])
    if lengths is not None and not is_traced(lengths) and not is_traced(ragged.row_splits):
        wanted, given = np.diff(to_host(ragged.row_splits)), to_host(lengths)
        if len(given) != len(wanted):
            raise InvalidArgumentError(
                f"loss_mask has {len(given)} rows, and there are {len(wanted)} rows of ids; pass one for each"
            )
        if (given != wanted).any():
            row = int(np.flatnonzero(given != wanted)[0])
            raise InvalidArgumentError(
                f"row {row} of loss_mask has {given[row]} entries, and row {row} has {wanted[row]} ids; pass "
                "one for each id"
            )
    if flat.shape != ragged.ids.shape:
        raise InvalidArgumentError(
            f"loss_mask has shape {flat.shape}, and the ids of all rows have {ragged.ids.shape}; pass one "
            "entry for each id, or a list with a mask for each row"
        )
    return as_mask(namespace(flat), "loss_mask", flat).astype(np.int32)
