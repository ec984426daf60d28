"""Encoding of texts: templates, truncation, windows, pre-tokenized input, bulk encoding and chat."""
