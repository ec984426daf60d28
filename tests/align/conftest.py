"""Small blocks of tokens for all tests of alignment."""

import pytest

from tokjax.align import flat_tokens, offset_trimming


@pytest.fixture(autouse=True, scope="package")
def small_blocks():
    """Splits even short rows into several blocks, and finds the ends of even short spans in two searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_trimming, "_BLOCK", 3)
        patch.setattr(flat_tokens, "_USUAL_MAX_TOKENS", 1)
        yield
