"""From ragged rows of tokens to arrays for a training step. Knows arrays and records, never a tokenizer."""
