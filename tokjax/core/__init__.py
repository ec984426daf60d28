"""Ragged arrays, records, vocabularies, templates and the tokenizer protocol."""
