"""Compliance checks for custom tokenizers, fields, batches and array functions, to run in your tests."""

from tokjax.testing.batches import check_batch
from tokjax.testing.fields import FIELD_CHECKS, check_field
from tokjax.testing.functions import check_array_function
from tokjax.testing.tokenizers import CHECKS, HARD_TEXTS, check_tokenizer

__all__ = [
    "CHECKS",
    "FIELD_CHECKS",
    "HARD_TEXTS",
    "check_array_function",
    "check_batch",
    "check_field",
    "check_tokenizer",
]
