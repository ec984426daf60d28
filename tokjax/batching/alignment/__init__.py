"""Labels that stay on their words: spans of text to labels of tokens, and back."""
