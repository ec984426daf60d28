"""Small blocks of tokens for all tests of alignment."""

import pytest

from tokjax.align import flat_tokens, offset_trimming


@pytest.fixture(autouse=True, scope="package")
def small_blocks():
    """Splits even short rows into several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (flat_tokens, offset_trimming):
            patch.setattr(module, "BLOCK", 3)
        yield
