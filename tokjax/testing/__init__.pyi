from .arrays import (
    check_array_function as check_array_function,
    check_batch as check_batch,
)
from .fields import (
    FIELD_CHECKS as FIELD_CHECKS,
    check_field as check_field,
)
from .tokenizers import (
    CHECKS as CHECKS,
    HARD_TEXTS as HARD_TEXTS,
    check_tokenizer as check_tokenizer,
)
