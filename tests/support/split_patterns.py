"""Split patterns for tests."""

from tokjax.pretokenize.patterns import PATTERNS

SINGLE_EXPRESSIONS = {name: pattern for name, pattern in PATTERNS.items() if isinstance(pattern, str)}
"""The named patterns of one expression, as tiktoken has them."""
