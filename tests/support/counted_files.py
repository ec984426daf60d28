"""File system in memory that records the requests for files and their bytes, and a dataset for it."""

import threading
from pathlib import Path
from typing import NamedTuple

import pytest

import tokjax

MemoryFileSystem = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

IDS = {"</s>": 0, "<pad>": 1, **{chr(code): code + 2 for code in range(32, 127)}, "<unk>": 258}
TOKENIZER = tokjax.models.char_level(IDS, unk_token="<unk>", eos_token="</s>", pad_token="<pad>")
"""Tokenizer with the ids of bytes, whose file is smaller than a shard."""
PACKED = tokjax.PackedTokenField(TOKENIZER, chunk_tokens=64)
NUM_SHARDS = 8
TEXTS = [chr(97 + i) * 499 for i in range(2 * NUM_SHARDS)]
"""Documents of 500 tokens, two for each shard."""
TOKENS = [f"shard-{i:05d}.tokens.npy" for i in range(NUM_SHARDS)]
NBYTES = 128 + 1000 * 2
"""Size of each file of tokens."""


class Request(NamedTuple):
    """Request of a file, or of a range of it."""

    kind: str
    name: str
    nbytes: int


class CountedFileSystem(MemoryFileSystem):
    """`memory://` with a list of the requests of all instances, and a function that is called before each."""

    requests = []  # noqa: RUF012
    lock = threading.Lock()  # (fsspec's files in memory have one position for all readers)

    @staticmethod
    def before(name):
        """Does nothing; tests replace it."""

    def cat_file(self, path, start=None, end=None, **_):
        self.before(path.rsplit("/", 1)[-1])
        with self.lock:
            data = super().cat_file(path, start, end)
            kind = "file" if start is None else "range"
            self.requests.append(Request(kind, path.rsplit("/", 1)[-1], len(data)))
        return data

    def get_file(self, rpath, lpath, **_):
        """Writes the file in two halves, with a call of `before` before each."""
        name = rpath.rsplit("/", 1)[-1]
        self.before(name)
        with self.lock:
            data = super().cat_file(rpath)
        with Path(lpath).open("wb") as file:
            file.write(data[: len(data) // 2])
            file.flush()
            self.before(name)
            file.write(data[len(data) // 2 :])
        self.requests.append(Request("download", name, len(data)))


def list_downloads():
    """Returns the names of the files that were downloaded, in order."""
    return [request.name for request in CountedFileSystem.requests if request.kind == "download"]
