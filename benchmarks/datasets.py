"""Large packed datasets of random ids. The speed of loading does not depend on the ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tokjax

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

LENGTH = 2048
VOCAB_SIZE = 32_000
DOCUMENT = 800
"""Approximate number of ids per document."""
CHUNK = 1 << 24
"""Number of ids that are generated at a time."""


def write_ids(path: Path, ids: int) -> None:
    """Writes random ids as a flat file of `uint16`, the format of nanoGPT.

    Args:
        path: the file to write.
        ids: number of ids.
    """
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, ids, CHUNK):
            chunk = rng.integers(0, VOCAB_SIZE - 1, min(CHUNK, ids - start), dtype=np.uint16)
            chunk[::DOCUMENT] = VOCAB_SIZE - 1
            file.write(chunk.tobytes())


def write_packed_dataset(directory: Path, ids: int) -> tokjax.datasets.PackedDataset:
    """Writes random ids to `DIRECTORY/ids.bin`, and converts them to a dataset in `DIRECTORY/large`."""
    write_ids(directory / "ids.bin", ids)
    return convert_ids(directory)


def write_documents(directory: Path, lengths: NDArray[np.int64]) -> tokjax.datasets.PackedDataset:
    """Writes documents of these lengths, with the ids of their EOS and 0, as `write_packed_dataset` does."""
    stream = np.zeros(int(lengths.sum()), np.uint16)
    stream[np.cumsum(lengths) - 1] = VOCAB_SIZE - 1
    directory.mkdir()
    stream.tofile(directory / "ids.bin")
    return convert_ids(directory)


def convert_ids(directory: Path) -> tokjax.datasets.PackedDataset:
    """Converts the ids in `DIRECTORY/ids.bin` to a dataset in `DIRECTORY/large`, and opens it."""
    tokenizer = tokjax.byte_level_bpe(
        {bytes([i]): i for i in range(256)},
        special_tokens={"</s>": VOCAB_SIZE - 1, "<pad>": VOCAB_SIZE - 2},
        eos_token="</s>",
        pad_token="<pad>",
    )
    tokjax.datasets.convert_dataset(
        directory / "ids.bin", tokenizer, directory / "large", chunk_tokens=LENGTH
    )
    return tokjax.open_dataset(directory / "large", verify_on_touch=False)
