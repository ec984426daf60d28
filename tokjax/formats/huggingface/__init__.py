"""Hugging Face's tokenizer.json, in and out, and tokenizers that run on its library."""
