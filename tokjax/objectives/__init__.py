"""Training objectives: inputs and labels as pure functions of token arrays and random numbers."""

from tokjax._util.imports import mark_namespace
from tokjax.objectives.denoising import (
    UL2_DENOISERS,
    Denoiser,
    DenoisingBatch,
    SpanCorruptionLengths,
    compute_input_and_target_lengths,
    denoising_mixture,
    span_corruption,
    span_corruption_lengths,
)
from tokjax.objectives.fill_in_the_middle import fill_in_the_middle
from tokjax.objectives.losses import (
    assistant_loss_mask,
    bits_per_byte,
    chat_loss_mask,
    completion_loss_mask,
    label_byte_lengths,
)
from tokjax.objectives.masked_lm import (
    MaskedDiffusionBatch,
    MaskedLMBatch,
    PrefixLMBatch,
    masked_diffusion,
    masked_lm,
    prefix_lm,
)
from tokjax.objectives.ngram_hashes import ngram_hash_ids
from tokjax.objectives.random_draws import draw_uniform

__all__ = [
    "UL2_DENOISERS",
    "Denoiser",
    "DenoisingBatch",
    "MaskedDiffusionBatch",
    "MaskedLMBatch",
    "PrefixLMBatch",
    "SpanCorruptionLengths",
    "assistant_loss_mask",
    "bits_per_byte",
    "chat_loss_mask",
    "completion_loss_mask",
    "compute_input_and_target_lengths",
    "denoising_mixture",
    "draw_uniform",
    "fill_in_the_middle",
    "label_byte_lengths",
    "masked_diffusion",
    "masked_lm",
    "ngram_hash_ids",
    "prefix_lm",
    "span_corruption",
    "span_corruption_lengths",
]
mark_namespace(__name__)
