"""Mixtures of denoisers: each row is corrupted by a randomly chosen denoiser, as in UL2."""

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
    """Settings of one kind of noise.

    Attributes:
        noise_density: fraction of tokens that are noise, from 0 to 1.
        mean_noise_span_length: mean length of noise spans in tokens, at least 1; `None` is a single span at
            the end of the row, so that the model continues a prefix.
        weight: probability of the denoiser, relative to the weights of the others; more than 0.
        mode_id: id at the start of the inputs, which shows the denoiser to the model; `None` adds nothing.

    Raises:
        InvalidArgumentError: a value is out of these bounds.
    """

    noise_density: float
    mean_noise_span_length: float | None
    weight: float = 1.0
    mode_id: int | None = None

    def __post_init__(self) -> None:
        """Checks the values."""
        check_float("noise_density", self.noise_density, minimum=0, maximum=1)
        if self.mean_noise_span_length is not None:
            check_float("mean_noise_span_length", self.mean_noise_span_length, minimum=1)
        if check_float("weight", self.weight, minimum=0) == 0:
            raise InvalidArgumentError("weight must be more than 0; omit a denoiser that is never used")
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
"""The seven denoisers of table 1 of UL2: two regular ones, the sequential one, and four extreme ones.

They have equal weights and no mode ids, since these depend on the tokenizer. Set them with
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
    """Corrupts each row by a randomly chosen denoiser, as UL2 does. All rows get the same shape.

    Args:
        ids: token ids without EOS, integers, shape `(..., length)`.
        attention_mask: mask of tokens, not 0 on these, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (..., length + 1))`; the last of each row chooses its
            denoiser.
        denoisers: denoisers of the mixture, at least one.
        sentinel_ids: as in `span_corruption`; there must be enough for each of the denoisers.
        eos_id: id at the end of inputs and targets.
        pad_id: id on padding.
        inputs_length: width of the inputs; by default the maximum over all denoisers for a row of `length`
            tokens, with the mode id.
        targets_length: width of the targets; by default the maximum over all denoisers, too.
        decoder_start_id: first id of the decoder inputs; by default the pad id.

    Returns:
        A batch as from `span_corruption`, whose `denoisers` hold the index of the denoiser of each row.

    Raises:
        InvalidArgumentError: `denoisers` is empty, or as for `span_corruption`.

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
        raise InvalidArgumentError("denoisers must be a list of Denoisers; pass [denoiser]")
    kinds = list(denoisers)
    for kind in kinds:
        if not isinstance(kind, Denoiser):
            raise InvalidArgumentError(f"denoisers must be Denoisers, and {kind!r} is not a Denoiser")
    if not kinds:
        raise InvalidArgumentError("denoisers is empty; pass at least one Denoiser, or UL2_DENOISERS")
    return kinds


def _compute_counts(kind: Denoiser, length: int) -> NoiseCounts:
    span_length = math.inf if kind.mean_noise_span_length is None else kind.mean_noise_span_length
    return compute_noise_counts(length, kind.noise_density, span_length)


def _choose_denoisers(xp: Any, draws: Any, weights: Sequence[float]) -> Any:
    """Returns the index of the denoiser that each random number selects, in proportion to the weights."""
    bounds = prepend_axes(draws.ndim + 1, (np.cumsum(weights)[:-1] / np.sum(weights)).astype(np.float32))
    return xp.sum(draws[..., None] >= bounds, axis=-1, dtype=np.int32)
