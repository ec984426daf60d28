"""Pauses of garbage collection."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pauses the search for reference cycles in the block, in all threads.

    While a program creates many objects and keeps them all, Python searches again and again through all of
    them. For the JSON of a large tokenizer this takes longer than parsing it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
