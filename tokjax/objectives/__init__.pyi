from .denoising import (
    UL2_DENOISERS as UL2_DENOISERS,
    Denoiser as Denoiser,
    DenoisingBatch as DenoisingBatch,
    SpanCorruptionLengths as SpanCorruptionLengths,
    compute_input_and_target_lengths as compute_input_and_target_lengths,
    denoising_mixture as denoising_mixture,
    span_corruption as span_corruption,
    span_corruption_lengths as span_corruption_lengths,
)
from .infilling import (
    fill_in_the_middle as fill_in_the_middle,
)
from .losses import (
    assistant_loss_mask as assistant_loss_mask,
    bits_per_byte as bits_per_byte,
    chat_loss_mask as chat_loss_mask,
    completion_loss_mask as completion_loss_mask,
    label_byte_lengths as label_byte_lengths,
)
from .masking import (
    MaskedDiffusionBatch as MaskedDiffusionBatch,
    MaskedLMBatch as MaskedLMBatch,
    PrefixLMBatch as PrefixLMBatch,
    masked_diffusion as masked_diffusion,
    masked_lm as masked_lm,
    prefix_lm as prefix_lm,
)
from .ngram_hashes import (
    ngram_hash_ids as ngram_hash_ids,
)
from .random_draws import (
    draw_uniform as draw_uniform,
)
