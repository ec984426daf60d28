"""Padding, labels and length buckets: ragged rows of tokens to arrays for a training step.

The functions take arrays and records, and never a tokenizer.
"""
