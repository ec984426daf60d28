"""Batches from a gigabyte of ids: beside nanoGPT's loop, Grain by record, torch, and the sequential roofline.

    python -m benchmarks.loading TEXT RANKS [--ids 500000000] [--rounds 5]

TEXT is real text, for writing and for the strategies of storage; RANKS a tiktoken file. The ids of the large
dataset are random, with a document's end every 800 or so: their values make no difference to any of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tokjax
from benchmarks.contenders import read_documents
from benchmarks.record import described_input, interleaved, medians, write_record

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, LENGTH, STEPS, VOCAB_SIZE = 64, 2048, 200, 32_000
DOCUMENT = 800
FAR = 10**9


def large_dataset(directory: Path, ids: int) -> tokjax.PackedDataset:
    """Random ids as nanoGPT has them, and the dataset made of that."""
    tokenizer = tokjax.byte_level_bpe(
        {bytes([i]): i for i in range(256)}, special_tokens={"</s>": VOCAB_SIZE - 1}, eos_token="</s>"
    )
    rng = np.random.default_rng(0)
    with (directory / "ids.bin").open("wb") as file:
        for done in range(0, ids, 1 << 24):
            part = rng.integers(0, VOCAB_SIZE - 1, min(1 << 24, ids - done), dtype=np.uint16)
            part[::DOCUMENT] = VOCAB_SIZE - 1
            file.write(part.tobytes())
    tokjax.convert_dataset(directory / "ids.bin", tokenizer, directory / "large", chunk_tokens=LENGTH)
    return tokjax.open_dataset(directory / "large", verify_on_touch=False)


def contenders(dataset: tokjax.PackedDataset, path: Path) -> dict[str, Callable[[], object]]:
    """What makes the same number of batches of `(64, 2048)` each, ids and what follows them."""
    stream = np.memmap(path, np.uint16, "r")
    rng = np.random.default_rng(1)
    size = BATCH * LENGTH

    def roofline() -> None:
        for step in range(STEPS):
            start = step * size % (len(stream) - size)
            stream[start : start + size].astype(np.int32)

    def nanogpt() -> None:
        for _ in range(STEPS):
            starts = rng.integers(0, len(stream) - LENGTH - 1, BATCH)
            np.stack([stream[i : i + LENGTH].astype(np.int64) for i in starts])
            np.stack([stream[i + 1 : i + 1 + LENGTH].astype(np.int64) for i in starts])

    def loops(**options: Any) -> Callable[[], None]:
        loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, extra_token=True, **options)

        def run() -> None:
            for step in range(STEPS):
                loader.batch_at(step)

        return run

    def to_device() -> None:
        loader = tokjax.PackedTokenLoader(dataset, batch_size=BATCH, extra_token=True, documents=False)
        with tokjax.prefetch_to_device(loader.repeat()) as batches:
            for _ in range(STEPS):
                next(batches).ids.block_until_ready()

    found = {
        "sequential roofline": roofline,
        "nanoGPT's loop": nanogpt,
        "tokjax, ids": loops(documents=False),
        "tokjax, ids and documents": loops(),
        "tokjax, ids on the device": to_device,
    }
    return found | other_libraries(dataset)


def other_libraries(dataset: tokjax.PackedDataset) -> dict[str, Callable[[], object]]:
    """Grain and torch, where they are installed: a record at a time, by index."""
    chunks = dataset.chunks(LENGTH, extra_token=True)
    found: dict[str, Callable[[], object]] = {}
    try:
        import grain.python as grain  # noqa: PLC0415

        def by_grain() -> None:
            batches = grain.MapDataset.source(chunks).shuffle(seed=0).batch(BATCH)
            for step in range(STEPS):
                batches[step]

        found["Grain, by record"] = by_grain
    except ImportError:
        pass
    try:
        import torch  # noqa: PLC0415

        def by_torch() -> None:
            order = torch.utils.data.SubsetRandomSampler(range(STEPS * BATCH))
            batches = torch.utils.data.DataLoader(chunks, batch_size=BATCH, sampler=order)
            for _ in batches:
                pass

        found["torch DataLoader"] = by_torch
    except ImportError:
        pass
    return found


def far_away(dataset: tokjax.PackedDataset) -> dict[str, dict[str, float]]:
    """Seconds to the first batch of a fresh loader, and to that of a step far away."""

    def packed(seed: int) -> Any:
        return tokjax.PackedTokenLoader(dataset, batch_size=BATCH, documents=False, seed=seed)

    def bucketed(seed: int) -> Any:
        return tokjax.BucketedLoader(
            dataset, batch_size=BATCH, bucket_boundaries=[DOCUMENT // 2, DOCUMENT], pad_id=0, seed=seed
        )

    told = {}
    for kind, make in (("packed", packed), ("bucketed", bucketed)):
        seconds: dict[str, list[float]] = {"step 1": [], f"step {FAR:,}": []}
        for round_ in range(25):
            for name, step in zip(seconds, (1, FAR), strict=True):
                loader = make(round_)
                begin = time.perf_counter()
                loader.batch_at(step)
                seconds[name].append(time.perf_counter() - begin)
        told[kind] = medians(seconds)
    return told


START = """
import json, pathlib, re, sys, time
import tokjax
begin = time.perf_counter()
dataset = tokjax.open_dataset(sys.argv[1], verify_on_touch=sys.argv[2] == "1")
loader = tokjax.PackedTokenLoader(dataset, batch_size=64, documents=False)
loader.batch_at(0)
first = time.perf_counter() - begin
for step in range(200):
    loader.batch_at(step)
status = pathlib.Path("/proc/self/status").read_text()
print(json.dumps([first, int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024]))
"""


def starting(path: Path) -> dict[str, Any]:
    """Seconds from opening to the first batch, and megabytes at most, in a process of its own."""
    told = {}
    for name, verify in (("with checksums", "1"), ("without", "0")):
        done = subprocess.run(
            [sys.executable, "-c", START, path, verify], capture_output=True, check=True, text=True
        )
        seconds, megabytes = json.loads(done.stdout)
        told[name] = {"seconds_to_first_batch": seconds, "peak_megabytes": megabytes}
    return told


def writing(documents: list[str], tokenizer: Any, directory: Path, rounds: int) -> dict[str, Any]:
    """Megabytes of text a second: encoding alone, and writing a packed dataset."""
    field = tokjax.PackedTokenField(tokenizer)

    def encode() -> None:
        tokjax.encode_batch_result(
            tokenizer, documents, add_special_tokens=False, return_offsets=False, return_masks=False
        )

    def write() -> None:
        tokjax.write_dataset(documents, field, directory / "written", overwrite=True)

    seconds = interleaved({"encoding": encode, "writing": write}, rounds)
    size = sum(len(document.encode()) for document in documents) / 1e6
    written = tokjax.open_dataset(directory / "written")
    on_disk = sum(file.nbytes for shard in written.manifest.shards for file in shard.files.values())
    return {
        "megabytes": size,
        "rounds": seconds,
        "megabytes_per_second": {name: size / median for name, median in medians(seconds).items()},
        "bytes_per_token": on_disk / written.num_tokens,
    }


def strategies(documents: list[str], tokenizer: Any, directory: Path) -> dict[str, Any]:
    """The storage, and the time to load 32 documents (packed: 32 chunks), of each field."""
    texts = [part for document in documents for part in document.split("\n\n") if part][:50_000]
    size = sum(len(text.encode()) for text in texts)
    fields = {
        "raw": tokjax.RawTextField(),
        "tokenized": tokjax.TokenizedTextField(tokenizer, max_tokens=512),
        "packed": tokjax.PackedTokenField(tokenizer, chunk_tokens=512),
        "bucketed": tokjax.BucketedTokenField(tokenizer, [64, 128, 256], max_tokens=512),
    }
    makers = {
        "raw": lambda data: tokjax.SequenceLoader(data, batch_size=32, length=512, pad_id=0),
        "tokenized": lambda data: tokjax.SequenceLoader(data, batch_size=32, pad_id=0),
        "packed": lambda data: tokjax.PackedTokenLoader(data, batch_size=32),
        "bucketed": lambda data: tokjax.BucketedLoader(data, batch_size=32, pad_id=0),
    }
    told = {}
    for name, field in fields.items():
        tokjax.write_dataset(texts, field, directory / name)
        dataset = tokjax.open_dataset(directory / name, tokenizer)
        loader = makers[name](dataset)
        batches = [loader.batch_at(step) for step in range(100)]
        seconds = []
        for step in range(100, 300):
            begin = time.perf_counter()
            loader.batch_at(step)
            seconds.append(time.perf_counter() - begin)
        places = sum(batch.ids.size for batch in batches)
        told[name] = {
            "of_the_text": sum(file.nbytes for s in dataset.manifest.shards for file in s.files.values())
            / size,
            "milliseconds": float(np.median(seconds)) * 1e3,
            "padding": 1 - sum(int(np.asarray(batch.attention_mask).sum()) for batch in batches) / places,
        }
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("ranks", type=Path)
    parser.add_argument("--ids", type=int, default=500_000_000)
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    tokenizer = tokjax.load_tokenizer(args.ranks)
    documents = read_documents(args.text, args.megabytes)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        dataset = large_dataset(directory, args.ids)
        seconds = interleaved(contenders(dataset, directory / "ids.bin"), args.rounds)
        rates = {who: BATCH * LENGTH * STEPS / median / 1e6 for who, median in medians(seconds).items()}
        print(rates, flush=True)
        body: dict[str, Any] = {
            "ids": dataset.num_tokens,
            "batches": {"rounds": seconds, "million_tokens_per_second": rates},
            "far_away": far_away(dataset),
            "starting": starting(directory / "large"),
            "writing": writing(documents, tokenizer, directory, args.rounds),
            "strategies": strategies(documents[: len(documents) // 10], tokenizer, directory),
        }
    print(json.dumps({key: body[key] for key in ("far_away", "starting", "writing", "strategies")}, indent=1))
    body["input"] = described_input(args.text.read_bytes()[: int(args.megabytes * 1e6)])
    packages = list(filter(_is_installed, ["tokjax", "numpy", "jax", "grain", "torch"]))
    print(write_record("loading", packages, body))


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
