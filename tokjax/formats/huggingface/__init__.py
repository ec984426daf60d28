"""Hugging Face's `tokenizer.json`: import, export, and tokenizers that run on the `tokenizers` library."""
