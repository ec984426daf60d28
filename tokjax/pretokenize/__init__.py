"""Pre-tokenization: split patterns, Unicode classes, normalization and special tokens."""
