"""Batches from a large dataset: beside nanoGPT's loop, Grain, torch, and the sequential roofline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tokjax
from benchmarks.datasets import DOCUMENT, LENGTH, packed_dataset
from benchmarks.inputs import tokenizer_of
from benchmarks.measuring import apart, peak_megabytes
from benchmarks.names import (
    CHECKED,
    FAR,
    FAR_STEP,
    FIRST_STEP,
    FRESH_LOADER,
    OPENING,
    ROOFLINE,
    UNCHECKED,
    WRITING,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy", "jax", "grain", "torch"]
BATCH, STEPS = 64, 200
IDS, QUICK_IDS = 500_000_000, 2_000_000
WRITTEN_MEGABYTES = 300
FRESH_LOADERS = 25


def loops(dataset: tokjax.PackedDataset, path: Path, steps: int) -> dict[str, Callable[[], object]]:
    """What makes the same number of batches of `(64, 2048)` each, ids and what follows them."""
    return {
        ROOFLINE: roofline(path, steps),
        "nanoGPT's loop": nanogpt(path, steps),
        "tokjax, ids": by_tokjax(dataset, steps, documents=False),
        "tokjax, ids and documents": by_tokjax(dataset, steps, documents=True),
        "tokjax, ids on the device": to_device(dataset, steps),
    }


def roofline(path: Path, steps: int) -> Callable[[], None]:
    """As many consecutive ids, cast to `int32`."""
    stream, size = np.memmap(path, np.uint16, "r"), BATCH * LENGTH

    def run() -> None:
        for step in range(steps):
            start = step * size % (len(stream) - size)
            stream[start : start + size].astype(np.int32)

    return run


def nanogpt(path: Path, steps: int) -> Callable[[], None]:
    """Ids of random places and what follows them, as `int64`."""
    stream, rng = np.memmap(path, np.uint16, "r"), np.random.default_rng(1)

    def run() -> None:
        for _ in range(steps):
            starts = rng.integers(0, len(stream) - LENGTH - 1, BATCH)
            np.stack([stream[i : i + LENGTH].astype(np.int64) for i in starts])
            np.stack([stream[i + 1 : i + 1 + LENGTH].astype(np.int64) for i in starts])

    return run


def by_tokjax(dataset: tokjax.PackedDataset, steps: int, *, documents: bool) -> Callable[[], None]:
    loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, extra_token=True, documents=documents)

    def run() -> None:
        for step in range(steps):
            loader.batch_at(step)

    return run


def to_device(dataset: tokjax.PackedDataset, steps: int) -> Callable[[], None]:
    def run() -> None:
        loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, extra_token=True, documents=False)
        with tokjax.prefetch_to_device(loader.repeat()) as batches:
            for _ in range(steps):
                next(batches).ids.block_until_ready()

    return run


class Records:
    """A plain source of records for other loaders: consecutive ids of a file, and the one that follows."""

    def __init__(self, path: Path) -> None:
        self._stream = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self._stream) - 1) // LENGTH

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        start = index * LENGTH
        return self._stream[start : start + LENGTH + 1].astype(np.int32)


def by_grain(path: Path, steps: int) -> Callable[[], None]:
    """A record at a time, by index, in this process."""
    import grain.python as grain

    batches = grain.MapDataset.source(Records(path)).shuffle(seed=0).batch(BATCH)

    def run() -> None:
        for step in range(steps):
            batches[step % len(batches)]

    return run


def by_torch(path: Path, steps: int) -> Callable[[], None]:
    """A record at a time, by index, in this process (`num_workers=0`)."""
    import torch

    records = Records(path)
    places = np.arange(steps * BATCH) % len(records)

    def run() -> None:
        order = torch.utils.data.SubsetRandomSampler(places.tolist())
        for _ in torch.utils.data.DataLoader(records, batch_size=BATCH, sampler=order):
            pass

    return run


OTHERS = {"Grain, by record": ("grain", by_grain), "torch DataLoader": ("torch", by_torch)}


def measure_far_away(bench: Bench, dataset: tokjax.PackedDataset) -> None:
    """Seconds to the first batch of a fresh loader, and to that of a step far away."""

    def packed(seed: int) -> Any:
        return tokjax.PackedTokenLoader(dataset, batch_size=BATCH, documents=False, seed=seed)

    def bucketed(seed: int) -> Any:
        buckets = [DOCUMENT // 2, DOCUMENT]
        return tokjax.BucketedLoader(
            dataset, batch_size=BATCH, bucket_boundaries=buckets, pad_id=0, seed=seed
        )

    for kind, make in (("packed", packed), ("bucketed", bucketed)):
        seconds: dict[str, list[float]] = {FIRST_STEP: [], FAR_STEP: []}
        for seed in range(bench.pick(FRESH_LOADERS, 3)):
            for name, step in zip(seconds, (1, FAR), strict=True):
                loader = make(seed)
                begin = time.perf_counter()
                loader.batch_at(step)
                seconds[name].append(time.perf_counter() - begin)
        bench.add_all(f"{FRESH_LOADER}, {kind}", seconds)


def open_and_load(path: str, verify: bool, steps: int) -> dict[str, float]:
    """Seconds from opening to the first batch, and memory at most after some; in MB, mapped pages too."""
    begin = time.perf_counter()
    dataset = tokjax.open_dataset(Path(path), verify_on_touch=verify)
    loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, documents=False)
    loader.batch_at(0)
    first = time.perf_counter() - begin
    for step in range(steps):
        loader.batch_at(step)
    return {"first": first, "memory": peak_megabytes()}


def measure_starting(bench: Bench, path: Path, steps: int) -> None:
    """The same, in processes of their own."""
    for name, verify in ((CHECKED, True), (UNCHECKED, False)):
        told = {"path": str(path), "verify": verify, "steps": steps}
        rounds = [apart("benchmarks.suites.loading:open_and_load", told) for _ in range(bench.rounds(3))]
        bench.add(OPENING, name, [row["first"] for row in rounds])
        memory = [row["memory"] for row in rounds]
        bench.add(OPENING, name, memory, measure="memory", unit="MB")


def measure_writing(bench: Bench) -> None:
    """Encoding alone, and writing a packed dataset."""
    text = bench.text(WRITTEN_MEGABYTES, bench.holder(WRITTEN_MEGABYTES))
    tokenizer = tokenizer_of(bench.ranks)
    field = tokjax.PackedTokenField(tokenizer)
    target = bench.scratch / "written"

    def encode() -> None:
        tokjax.encode_batch_result(
            tokenizer, text.documents, add_special_tokens=False, return_offsets=False, return_masks=False
        )

    def write() -> None:
        tokjax.write_dataset(text.documents, field, target, overwrite=True)

    size = {"bytes": sum(len(document.encode()) for document in text.documents)}
    bench.compare(WRITING, {"encoding alone": encode, "writing": write}, bench.rounds(5), extra=size)
    written = tokjax.open_dataset(target)
    on_disk = sum(file.nbytes for shard in written.manifest.shards for file in shard.files.values())
    bench.settings["bytes_a_token"] = on_disk / written.num_tokens


def measure(bench: Bench) -> None:
    """Batches, the first of them, and writing."""
    ids, steps = bench.pick(IDS, QUICK_IDS), bench.pick(STEPS, 10)
    bench.settings |= {"ids": ids, "batch": BATCH, "length": LENGTH, "steps": steps}
    bench.say(f"writing {ids:,} ids")
    dataset = packed_dataset(bench.scratch, ids)
    task = f"{BATCH} x {LENGTH}, shuffled"
    contenders = loops(dataset, bench.scratch / "ids.bin", steps)
    contenders |= {
        name: make(bench.scratch / "ids.bin", steps)
        for name, (package, make) in OTHERS.items()
        if bench.has(package, task, name)
    }
    bench.compare(task, contenders, bench.rounds(5), extra={"tokens": BATCH * LENGTH * steps})
    measure_far_away(bench, dataset)
    measure_starting(bench, bench.scratch / "large", steps)
    measure_writing(bench)
