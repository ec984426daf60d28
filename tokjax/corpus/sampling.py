"""A part of a corpus, drawn at random."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokjax.corpus.readers import Chunk


def sample_chunks(chunks: Iterable[Chunk], max_bytes: int, seed: int) -> list[Chunk]:
    """As many chunks, drawn at random, as it takes to have so many bytes; in the order of the corpus.

    All chunks are looked at, and those of the lowest random numbers kept: never more than were asked for,
    and one.

    Args:
        chunks: a corpus, its length unknown.
        max_bytes: when to stop.
        seed: the same seed draws the same chunks.
    """
    numbers = np.random.default_rng(seed)
    kept: list[tuple[float, int, Chunk]] = []  # a heap, the highest random number first
    nbytes = 0
    for place, chunk in enumerate(chunks):
        heapq.heappush(kept, (-numbers.random(), place, chunk))
        nbytes += chunk.nbytes
        while nbytes - kept[0][2].nbytes >= max_bytes:
            nbytes -= heapq.heappop(kept)[2].nbytes
    return [chunk for _, _, chunk in sorted(kept, key=lambda entry: entry[1])]
