"""Limits of the BPE trainer that make its rare paths frequent."""

from tokjax.trainer.bpe import batched_training


def limit_segments(patch, symbols_per_pair):
    """Limits the length of the distinct segments: 0 makes the trainer merge one pair in each step."""
    patch.setattr(batched_training, "_MAX_SYMBOLS_PER_PAIR", symbols_per_pair)
    patch.setattr(batched_training, "_MIN_MAX_SYMBOLS", 0)
