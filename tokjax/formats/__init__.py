"""Tokenizer files, in and out."""
