"""Small blocks of tokens for all tests of alignment."""

import pytest

from tokjax.align import offset_trimming


@pytest.fixture(autouse=True, scope="package")
def small_blocks():
    """Splits even short rows into several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_trimming, "_BLOCK", 3)
        yield
