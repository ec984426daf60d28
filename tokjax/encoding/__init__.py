"""Encoding of texts: template, truncation, windows, pre-tokenized input, look-ups, bulk encoding, chat."""
