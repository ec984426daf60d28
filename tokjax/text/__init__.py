"""Text before it has tokens: split patterns, special tokens, chunks of files, corpora."""
