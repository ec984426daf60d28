"""Batches from a large dataset, compared with nanoGPT's loop, Grain, torch, and a sequential roofline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tokjax
from benchmarks.datasets import DOCUMENT, LENGTH, write_packed_dataset
from benchmarks.inputs import load_ranks_tokenizer
from benchmarks.names import (
    CHECKED,
    FAR_INDEX,
    FAR_STEP,
    FIRST_STEP,
    FRESH_LOADER,
    OPENING,
    ROOFLINE,
    UNCHECKED,
    WRITING,
)
from benchmarks.timing import get_peak_megabytes, run_in_process
from benchmarks.windows import measure_windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy", "jax", "grain", "torch"]
BATCH, STEPS = 64, 200
IDS, QUICK_IDS = 500_000_000, 2_000_000
WRITTEN_MEGABYTES = 300
FRESH_LOADERS = 25
PLANNED = "tokjax, planned rows, best fit"


def make_loops(
    dataset: tokjax.datasets.PackedDataset, path: Path, steps: int
) -> dict[str, Callable[[], object]]:
    """Makes loops that load `steps` batches of shape `(64, 2048)`, with one further token per row."""
    return {
        ROOFLINE: make_roofline(path, steps),
        "nanoGPT's loop": make_nanogpt(path, steps),
        "tokjax, ids": make_tokjax_loop(dataset, steps, documents=False),
        "tokjax, ids and documents": make_tokjax_loop(dataset, steps, documents=True),
        "tokjax, ids on the device": make_device_loop(dataset, steps),
        "tokjax, planned rows, concat": make_planned_loop(dataset, steps, "concat"),
        PLANNED: make_planned_loop(dataset, steps, "best_fit"),
    }


def make_roofline(path: Path, steps: int) -> Callable[[], None]:
    """Makes the roofline: a loop that casts as many consecutive ids to `int32`."""
    stream, size = np.memmap(path, np.uint16, "r"), BATCH * LENGTH

    def run() -> None:
        for step in range(steps):
            start = step * size % (len(stream) - size)
            stream[start : start + size].astype(np.int32)

    return run


def make_nanogpt(path: Path, steps: int) -> Callable[[], None]:
    """Makes nanoGPT's loop: windows at random positions, and their targets, as `int64`."""
    stream, rng = np.memmap(path, np.uint16, "r"), np.random.default_rng(1)

    def run() -> None:
        for _ in range(steps):
            starts = rng.integers(0, len(stream) - LENGTH - 1, BATCH)
            np.stack([stream[i : i + LENGTH].astype(np.int64) for i in starts])
            np.stack([stream[i + 1 : i + 1 + LENGTH].astype(np.int64) for i in starts])

    return run


def make_tokjax_loop(
    dataset: tokjax.datasets.PackedDataset, steps: int, *, documents: bool
) -> Callable[[], None]:
    loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, extra_token=True, documents=documents)

    def run() -> None:
        for step in range(steps):
            loader.batch_at(step)

    return run


def make_planned_loop(
    dataset: tokjax.datasets.PackedDataset, steps: int, strategy: Any
) -> Callable[[], None]:
    """Makes a loop over rows of whole documents, with their segments, positions and document ids."""
    loader = make_planned_loader(dataset, strategy)

    def run() -> None:
        for step in range(steps):
            loader.batch_at(step)

    return run


def make_planned_loader(dataset: tokjax.datasets.PackedDataset, strategy: Any) -> tokjax.PlannedLoader:
    return tokjax.PlannedLoader(dataset, batch_size=BATCH, block_size=LENGTH, strategy=strategy)


def make_device_loop(dataset: tokjax.datasets.PackedDataset, steps: int) -> Callable[[], None]:
    def run() -> None:
        loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, extra_token=True, documents=False)
        with tokjax.datasets.prefetch_to_device(loader.repeat()) as batches:
            for _ in range(steps):
                next(batches).ids.block_until_ready()

    return run


class MemmapRecords:
    """Random-access source for other loaders: windows of a file of ids, with one further token each."""

    def __init__(self, path: Path) -> None:
        self._stream = np.memmap(path, np.uint16, "r")

    def __len__(self) -> int:
        return (len(self._stream) - 1) // LENGTH

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        start = index * LENGTH
        return self._stream[start : start + LENGTH + 1].astype(np.int32)


def make_grain_loop(path: Path, steps: int) -> Callable[[], None]:
    """Makes a loop over Grain, which reads records by index in this process."""
    import grain.python as grain

    batches = grain.MapDataset.source(MemmapRecords(path)).shuffle(seed=0).batch(BATCH)

    def run() -> None:
        for step in range(steps):
            batches[step % len(batches)]

    return run


def make_torch_loop(path: Path, steps: int) -> Callable[[], None]:
    """Makes a loop over torch's `DataLoader`, which reads records by index, without worker processes."""
    import torch

    records = MemmapRecords(path)
    positions = np.arange(steps * BATCH) % len(records)

    def run() -> None:
        order = torch.utils.data.SubsetRandomSampler(positions.tolist())
        for _ in torch.utils.data.DataLoader(records, batch_size=BATCH, sampler=order):
            pass

    return run


OTHER_LOADERS = {
    "Grain, by record": ("grain", make_grain_loop),
    "torch DataLoader": ("torch", make_torch_loop),
}


def measure_far_steps(bench: Bench, dataset: tokjax.datasets.PackedDataset) -> None:
    """Measures the first batch of a new loader, and the batch of a distant step."""

    def packed(seed: int) -> Any:
        return tokjax.PackedTokenLoader(dataset, batch_size=BATCH, documents=False, seed=seed)

    def bucketed(seed: int) -> Any:
        buckets = [DOCUMENT // 2, DOCUMENT]
        return tokjax.datasets.BucketedLoader(
            dataset, batch_size=BATCH, bucket_boundaries=buckets, pad_id=0, seed=seed
        )

    for kind, make in (("packed", packed), ("bucketed", bucketed)):
        seconds: dict[str, list[float]] = {FIRST_STEP: [], FAR_STEP: []}
        for seed in range(bench.choose(FRESH_LOADERS, 3)):
            for name, step in zip(seconds, (1, FAR_INDEX), strict=True):
                loader = make(seed)
                begin = time.perf_counter()
                loader.batch_at(step)
                seconds[name].append(time.perf_counter() - begin)
        bench.add_rounds(f"{FRESH_LOADER}, {kind}", seconds)


def open_and_load(path: str, verify: bool, steps: int) -> dict[str, float]:
    """Opens a dataset and loads batches.

    Args:
        path: path of the dataset.
        verify: whether to verify the checksum of each file before its first use.
        steps: number of batches.

    Returns:
        The seconds from opening to the first batch as `"first"`, and the peak memory of the process after all
        batches in MB, including mapped pages, as `"memory"`.
    """
    begin = time.perf_counter()
    dataset = tokjax.open_dataset(Path(path), verify_on_touch=verify)
    loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, documents=False)
    loader.batch_at(0)
    first = time.perf_counter() - begin
    for step in range(steps):
        loader.batch_at(step)
    return {"first": first, "memory": get_peak_megabytes()}


def measure_starting(bench: Bench, path: Path, steps: int) -> None:
    """Measures `open_and_load` in fresh processes, with and without checksums."""
    for name, verify in ((CHECKED, True), (UNCHECKED, False)):
        arguments = {"path": str(path), "verify": verify, "steps": steps}
        rounds = [
            run_in_process("benchmarks.suites.loading:open_and_load", arguments)
            for _ in range(bench.rounds(3))
        ]
        bench.add(OPENING, name, [row["first"] for row in rounds])
        memory = [row["memory"] for row in rounds]
        bench.add(OPENING, name, memory, measure="memory", unit="MB")


def measure_writing(bench: Bench) -> None:
    """Measures encoding alone, and writing a packed dataset."""
    text = bench.text(WRITTEN_MEGABYTES, bench.find_text(WRITTEN_MEGABYTES))
    tokenizer = load_ranks_tokenizer(bench.ranks)
    field = tokjax.PackedTokenField(tokenizer)
    target = bench.scratch / "written"

    def encode() -> None:
        tokjax.encode_batch_result(
            tokenizer, text.documents, add_special_tokens=False, return_offsets=False, return_masks=False
        )

    def write() -> None:
        tokjax.write_dataset(text.documents, field, target, overwrite=True, progress=False)

    size = {"bytes": sum(len(document.encode()) for document in text.documents)}
    bench.compare(WRITING, {"encoding alone": encode, "writing": write}, bench.rounds(5), extra=size)
    written = tokjax.open_dataset(target)
    on_disk = sum(file.nbytes for shard in written.manifest.shards for file in shard.files.values())
    bench.settings["bytes_a_token"] = on_disk / written.num_tokens


def measure(bench: Bench) -> None:
    """Measures batches, starting times, writing, and windows of planned rows."""
    ids, steps = bench.choose(IDS, QUICK_IDS), bench.choose(STEPS, 10)
    bench.settings |= {"ids": ids, "batch": BATCH, "length": LENGTH, "steps": steps}
    bench.say(f"writing {ids:,} ids")
    dataset = write_packed_dataset(bench.scratch, ids)
    task = f"{BATCH} x {LENGTH}, shuffled"
    contenders = make_loops(dataset, bench.scratch / "ids.bin", steps)
    contenders |= {
        name: make(bench.scratch / "ids.bin", steps)
        for name, (package, make) in OTHER_LOADERS.items()
        if bench.has_package(package, task, name)
    }
    tokens = BATCH * LENGTH * steps
    [planned] = make_planned_loader(dataset, "best_fit").count_tokens(steps).values()
    fill = {PLANNED: planned / tokens}
    bench.compare(task, contenders, bench.rounds(5), fill=fill, extra={"tokens": tokens})
    measure_far_steps(bench, dataset)
    measure_starting(bench, bench.scratch / "large", steps)
    measure_writing(bench)
    measure_windows(bench)
