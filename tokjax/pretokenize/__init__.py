"""Splitting of text into pre-tokens: patterns, Unicode classes, normalization, special tokens."""
