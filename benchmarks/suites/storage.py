"""Storage strategies: size on disk, and time to load batches of 32 rows on one thread.

Texts are paragraphs. `raw` encodes them while it loads; `packed` has chunks of 512 ids.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tokjax
from benchmarks.inputs import load_ranks_tokenizer, read_documents
from benchmarks.timing import run_in_process, time_interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy"]
MEGABYTES = 20
PARAGRAPHS = 50_000
ROWS, LENGTH, STEPS = 32, 512, 200
BUCKETS = (64, 128, 256)
MAKERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "raw": (
        lambda _: tokjax.RawTextField(),
        lambda data: tokjax.datasets.SequenceLoader(data, batch_size=ROWS, length=LENGTH, pad_id=0),
    ),
    "tokenized": (
        lambda tokenizer: tokjax.TokenizedTextField(tokenizer, max_tokens=LENGTH),
        lambda data: tokjax.datasets.SequenceLoader(data, batch_size=ROWS, pad_id=0),
    ),
    "packed": (
        lambda tokenizer: tokjax.PackedTokenField(tokenizer, chunk_tokens=LENGTH),
        lambda data: tokjax.PackedTokenLoader(data, batch_size=ROWS),
    ),
    "bucketed": (
        lambda tokenizer: tokjax.datasets.BucketedTokenField(tokenizer, BUCKETS, max_tokens=LENGTH),
        lambda data: tokjax.datasets.BucketedLoader(data, batch_size=ROWS, pad_id=0),
    ),
}
"""Functions that make the field and the loader of each strategy, from the tokenizer and from the dataset."""


def measure_strategies(ranks: str, text: str, directory: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Measures each strategy on one core.

    Args:
        ranks: path of the ranks.
        text: path of the text.
        directory: directory of the datasets.
        rounds: number of rounds.

    Returns:
        By strategy, the seconds per batch in each round as `"rounds"`, the bytes on disk per byte of text as
        `"of_the_text"`, and the share of padding as `"padding"`.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tokenizer = load_ranks_tokenizer(Path(ranks))
    texts = [part for document in read_documents(Path(text)) for part in document.split("\n\n") if part]
    texts = texts[:PARAGRAPHS]
    size = sum(len(text.encode()) for text in texts)
    results, loops = {}, {}
    for name, (make_field, make_loader) in MAKERS.items():
        tokjax.write_dataset(texts, make_field(tokenizer), Path(directory) / name, progress=False)
        dataset = tokjax.open_dataset(Path(directory) / name, tokenizer)
        loader = make_loader(dataset)
        results[name] = {
            "of_the_text": _count_disk_bytes(dataset) / size,
            "padding": _measure_padding_share(loader),
        }
        loops[name] = partial(_run_loader, loader)
    for name, seconds in time_interleaved(loops, rounds).items():
        results[name]["rounds"] = [value / STEPS for value in seconds]
    return results


def _count_disk_bytes(dataset: Any) -> int:
    return sum(file.nbytes for shard in dataset.manifest.shards for file in shard.files.values())


def _measure_padding_share(loader: Any) -> float:
    batches = [loader.batch_at(step) for step in range(STEPS // 2)]
    positions = sum(batch.ids.size for batch in batches)
    return 1 - sum(int(np.asarray(batch.attention_mask).sum()) for batch in batches) / positions


def _run_loader(loader: Any) -> None:
    for step in range(STEPS):
        loader.batch_at(step)


def measure(bench: Bench) -> None:
    """Measures each storage strategy."""
    bench.settings |= {"threads": 1, "rows": ROWS, "length": LENGTH}
    bench.say("writing, and loading on one core")
    arguments = {
        "ranks": str(bench.ranks),
        "text": str(bench.text(MEGABYTES).path),
        "directory": str(bench.scratch),
        "rounds": bench.rounds(5),
    }
    for name, result in run_in_process("benchmarks.suites.storage:measure_strategies", arguments).items():
        extra = {"of_the_text": result["of_the_text"], "padding": result["padding"], "samples": ROWS}
        bench.add(f"{ROWS} rows of up to {LENGTH}", name, result["rounds"], reference="raw", extra=extra)
