"""A large packed dataset of random ids: values make no difference to what loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import tokjax

if TYPE_CHECKING:
    from pathlib import Path

LENGTH = 2048
VOCAB_SIZE = 32_000
DOCUMENT = 800
"""A document ends every so many ids or so."""
PART = 1 << 24


def write_ids(path: Path, ids: int) -> None:
    """Random ids as a flat file of `uint16`, as nanoGPT has them."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for done in range(0, ids, PART):
            part = rng.integers(0, VOCAB_SIZE - 1, min(PART, ids - done), dtype=np.uint16)
            part[::DOCUMENT] = VOCAB_SIZE - 1
            file.write(part.tobytes())


def write_packed_dataset(directory: Path, ids: int) -> tokjax.datasets.PackedDataset:
    """The ids in `DIRECTORY/ids.bin`, and the dataset made of them in `DIRECTORY/large`."""
    tokenizer = tokjax.byte_level_bpe(
        {bytes([i]): i for i in range(256)}, special_tokens={"</s>": VOCAB_SIZE - 1}, eos_token="</s>"
    )
    write_ids(directory / "ids.bin", ids)
    tokjax.datasets.convert_dataset(
        directory / "ids.bin", tokenizer, directory / "large", chunk_tokens=LENGTH
    )
    return tokjax.open_dataset(directory / "large", verify_on_touch=False)
