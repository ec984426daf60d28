"""Windows of planned rows: how full rows are, and how evenly batches sample a corpus, by size of the window.

The corpus has two sources, one after the other. Documents of the second are four times as long. A best-fit
row starts with a long document, and short ones fill the rest. So the share of each source can vary more
between batches of such rows than with `concat`, which takes documents in shuffled order whatever their
lengths are.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

import tokjax
from benchmarks.datasets import LENGTH, write_documents
from benchmarks.names import WINDOWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.bench import Bench

DOCUMENTS, QUICK_DOCUMENTS = 400_000, 8_000
BATCH = 64
SIZES, QUICK_SIZES = [1 << bits for bits in range(8, 19, 2)], [1 << 8, 1 << 12]


def make_lengths(documents: int) -> NDArray[np.int64]:
    """Returns lengths of documents of two sources, of which the second has longer ones."""
    rng = np.random.default_rng(0)
    medians = np.repeat([75, 300], documents // 2)
    lengths: NDArray[np.int64] = np.clip(medians * rng.lognormal(size=len(medians)), 1, LENGTH).astype(
        np.int64
    )
    return lengths


def measure_batches(loader: tokjax.PlannedLoader, num_first: int) -> dict[str, float]:
    """Loads an epoch, and describes its rows and batches.

    Args:
        loader: loader of one epoch.
        num_first: number of documents of the first source.

    Returns:
        The share of slots that have tokens as `"fill"`; the share of rows with one document as `"single"`;
        the number of documents that 5 and 95 % of the rows do not exceed, as `"low"` and `"high"`; and the
        standard deviation between batches of the share of tokens from the first source, as `"spread"`.
    """
    fills, counts, shares = [], [], []
    for step in range(len(loader) - 1):  # (the last batch has empty rows)
        batch = loader.batch_at(step)
        num_tokens = int(batch.total_tokens)
        fills.append(num_tokens / batch.ids.size)
        counts.append(batch.segment_ids.max(axis=1))
        is_first = (batch.document_ids >= 0) & (batch.document_ids < num_first)
        shares.append(int(is_first.sum()) / num_tokens)
    documents = np.concatenate(counts)
    low, high = np.percentile(documents, [5, 95])
    return {
        "fill": float(np.mean(fills)),
        "single": float(np.mean(documents == 1)),
        "low": float(low),
        "high": float(high),
        "spread": float(np.std(shares)),
    }


def measure_windows(bench: Bench) -> None:
    """Measures planning, rows and batches with windows of several sizes, and without best fit."""
    count = bench.choose(DOCUMENTS, QUICK_DOCUMENTS)
    bench.say(f"writing {count:,} documents")
    dataset = write_documents(bench.scratch / "documents", make_lengths(count))
    sizes = [size for size in bench.choose(SIZES, QUICK_SIZES) if size < count]
    options: dict[str, dict[str, Any]] = {f"{size:,}": {"window": size} for size in sizes}
    options |= {f"{count:,}": {"window": count}, "concat": {"strategy": "concat"}}
    for name, chosen in options.items():
        bench.say(f"{WINDOWS}: {name}")
        seconds = []
        for _ in range(bench.rounds(3)):
            begin = time.perf_counter()
            loader = tokjax.PlannedLoader(dataset, batch_size=BATCH, block_size=LENGTH, **chosen)
            seconds.append(time.perf_counter() - begin)
        bench.add(WINDOWS, name, seconds, extra=measure_batches(loader, count // 2))
