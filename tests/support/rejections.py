"""Context manager for calls with wrong arguments."""

import pytest

from tokjax.errors import InvalidArgumentError


def rejects(message):
    """Asserts that the block raises `InvalidArgumentError`, whose message matches a regular expression."""
    return pytest.raises(InvalidArgumentError, match=message)
