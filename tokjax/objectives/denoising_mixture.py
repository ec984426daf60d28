"""Mixtures of denoisers: each row is corrupted in one of several ways, drawn for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import Array, gather, get_namespace, prepend_axes
from tokjax._util.checks import check_float, check_id
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.denoising_batches import DenoisingBatch, corrupt_rows, make_layout
from tokjax.objectives.noise_spans import NoiseCounts, compute_noise_counts
from tokjax.objectives.random_draws import check_draws

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Denoiser:
    """One way to corrupt a row.

    Attributes:
        noise_density: the share of tokens that are noise, from 0 to 1.
        mean_noise_span_length: how long spans of noise are on average, at least 1; `None` is one span at the
            end of the row, so that the model goes on from a prefix.
        weight: how likely the denoiser is, relative to the others; more than 0.
        mode_id: an id that the inputs begin with, so that the model knows the denoiser; `None` is none.

    Raises:
        InvalidArgumentError: a value out of these bounds.
    """

    noise_density: float
    mean_noise_span_length: float | None
    weight: float = 1.0
    mode_id: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        check_float("noise_density", self.noise_density, minimum=0, maximum=1)
        if self.mean_noise_span_length is not None:
            check_float("mean_noise_span_length", self.mean_noise_span_length, minimum=1)
        if check_float("weight", self.weight, minimum=0) == 0:
            raise InvalidArgumentError("weight must be more than 0; leave out a denoiser that is never drawn")
        if self.mode_id is not None:
            check_id("mode_id", self.mode_id)


UL2_DENOISERS = (
    Denoiser(0.15, 3),
    Denoiser(0.15, 8),
    Denoiser(0.25, None),
    Denoiser(0.5, 3),
    Denoiser(0.5, 8),
    Denoiser(0.15, 64),
    Denoiser(0.5, 64),
)
"""The seven denoisers of UL2's first table: two regular ones, the sequential one, four extreme ones.

They are of equal weight, and have no mode ids, which are a tokenizer's:
`dataclasses.replace(denoiser, mode_id=..., weight=...)`.
"""


@jit_eager
def denoising_mixture(
    ids: Array,
    attention_mask: Array,
    draws: Array,
    *,
    denoisers: Sequence[Denoiser],
    sentinel_ids: Sequence[int] | Array,
    eos_id: int,
    pad_id: int,
    inputs_length: int | None = None,
    targets_length: int | None = None,
    decoder_start_id: int | None = None,
) -> DenoisingBatch:
    """Corrupt each row by a denoiser that is drawn for it, as UL2 does; all to one shape.

    Args:
        ids: integers without EOS, shape `(..., length)`.
        attention_mask: not 0 on tokens, of that shape.
        draws: `draw_uniform(source, (..., length + 1))`; the last one chooses the denoiser.
        denoisers: at least one.
        sentinel_ids: as in `span_corruption`, enough for any of the denoisers.
        eos_id: the id that ends inputs and targets.
        pad_id: the id on padding.
        inputs_length: places of the inputs; by default as many as a row of `length` tokens needs under any
            of the denoisers, its mode id included.
        targets_length: places of the targets; likewise.
        decoder_start_id: the id that the decoder begins with; by default the pad id.

    Returns:
        As `span_corruption`, and in `denoisers` which one each row got.

    Raises:
        InvalidArgumentError: no denoisers, or what `span_corruption` refuses.

    >>> ids = np.arange(11, 19)[None, :]
    >>> draws = np.full((1, 9), 0.9, np.float32)
    >>> denoisers = [Denoiser(0.15, 3), Denoiser(0.25, None, mode_id=5)]
    >>> batch = denoising_mixture(
    ...     ids, ids, draws, denoisers=denoisers, sentinel_ids=[99], eos_id=1, pad_id=0)
    >>> batch.inputs, batch.denoisers
    (array([[ 5, 11, 12, 13, 14, 15, 16, 99,  1,  0]], dtype=int32), array([1], dtype=int32))
    """
    kinds = _check_denoisers(denoisers)
    tokens = as_tokens(ids)
    length = tokens.shape[-1]
    counts = [_compute_counts(kind, length) for kind in kinds]
    has_mode = np.array([kind.mode_id is not None for kind in kinds])
    layout = make_layout(
        counts,
        int(has_mode.any()),
        sentinel_ids=sentinel_ids,
        eos_id=eos_id,
        pad_id=pad_id,
        decoder_start_id=decoder_start_id,
        inputs_length=inputs_length,
        targets_length=targets_length,
    )
    draws = check_draws(draws, (*tokens.shape[:-1], length + 1))
    xp = get_namespace(tokens, attention_mask, draws)
    chosen = _choose_denoisers(xp, draws[..., -1], [kind.weight for kind in kinds])
    mode_ids = np.array([kind.mode_id or 0 for kind in kinds], np.int32)
    modes = (gather(mode_ids, chosen), gather(has_mode, chosen)) if has_mode.any() else None
    batch = corrupt_rows(tokens, attention_mask, draws[..., :-1], counts, chosen, layout, modes)
    return batch._replace(denoisers=chosen)


def _check_denoisers(denoisers: Sequence[Denoiser]) -> list[Denoiser]:
    if isinstance(denoisers, Denoiser):
        raise InvalidArgumentError("denoisers must be a list of Denoisers; give [denoiser]")
    kinds = list(denoisers)
    for kind in kinds:
        if not isinstance(kind, Denoiser):
            raise InvalidArgumentError(f"denoisers must be Denoisers, and {kind!r} is none")
    if not kinds:
        raise InvalidArgumentError("denoisers is empty; give at least one, or UL2_DENOISERS")
    return kinds


def _compute_counts(kind: Denoiser, length: int) -> NoiseCounts:
    span_length = math.inf if kind.mean_noise_span_length is None else kind.mean_noise_span_length
    return compute_noise_counts(length, kind.noise_density, span_length)


def _choose_denoisers(xp: Any, draws: Any, weights: Sequence[float]) -> Any:
    """Which denoiser each draw falls to."""
    bounds = prepend_axes(draws.ndim + 1, (np.cumsum(weights)[:-1] / np.sum(weights)).astype(np.float32))
    return xp.sum(draws[..., None] >= bounds, axis=-1, dtype=np.int32)
