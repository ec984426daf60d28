"""Errors, offsets, ragged arrays, records, vocabularies and the tokenizer protocol."""
