"""Training of SentencePiece models with the sentencepiece library."""
