"""What a type of your own has to satisfy, as checks that you run in your tests."""

from tokjax.testing.tokenizers import CHECKS, HARD_TEXTS, check_tokenizer

__all__ = ["CHECKS", "HARD_TEXTS", "check_tokenizer"]
