"""Engines with few characters per chunk, so that short texts of tests have many chunks."""

from contextlib import contextmanager

import pytest

from tokjax.bpe.array_engine import ArrayEngine, DropoutEngine, Engine


@contextmanager
def use_small_chunks(size=40, few=-1):
    """Sets the number of characters per chunk, and that up to which a loop is used."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Engine, ArrayEngine, DropoutEngine):
            patch.setattr(kind, "chunk_characters", size)
            patch.setattr(kind, "few_characters", few)
        patch.setattr(Engine, "_is_loop_faster", lambda *_: False)
        yield patch
