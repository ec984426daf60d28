"""Texts and vocabularies as files: read, cut, described, and written for other libraries."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.record import Input

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokjax.models import ByteLevelBPE

CACHE_VARIABLE = "BENCHMARKS_CACHE"
SEPARATOR = "<|endoftext|>"
_PIECE = 1 << 20


class InputError(ValueError):
    """Texts or ranks that are not there, or too small."""


@dataclass(frozen=True)
class Text:
    """The beginning of a text, in a file of its own.

    Attributes:
        name: what it is called in a record.
        path: the file.
        note: where it comes from, if not from the user.
    """

    name: str
    path: Path
    note: str = ""

    @cached_property
    def documents(self) -> list[str]:
        """The documents in it."""
        return read_documents(self.path)

    @property
    def described(self) -> Input:
        """Its entry in a record."""
        return described(self.name, self.path, self.note)


def get_cache_directory() -> Path:
    """Where is kept what is made once: beside the records, unless a variable says where."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path(__file__).parent / "cache")


def read_documents(path: Path) -> list[str]:
    """The documents of a file, joined by the separator there."""
    return split_documents(path.read_bytes().decode())


def stream_documents(path: Path) -> Iterator[str]:
    """The same one by one, without all of the file in memory: for libraries that read no files."""
    separator, rest = SEPARATOR.encode(), b""
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            *full, rest = (rest + piece).split(separator)
            yield from (document.decode() for document in full if document)
    if rest:
        yield rest.decode()


def split_documents(text: str) -> list[str]:
    """The documents of a text."""
    return [part for part in text.split(SEPARATOR) if part]


def read_start(path: Path, megabytes: float) -> bytes:
    """The first megabytes of a file, up to a whole character."""
    with path.open("rb") as file:
        return file.read(int(megabytes * 1e6)).decode("utf-8", "ignore").encode()


def described(name: str, path: Path, note: str = "") -> Input:
    """The size and checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Input(name, path.stat().st_size, digest, note)


def read_ranks(path: Path) -> dict[bytes, int]:
    """The ranks of a file in tiktoken's format."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def load_ranks_tokenizer(ranks: Path) -> ByteLevelBPE:
    """The ranks with the GPT-2 pattern, and the separator as EOS."""
    import tokjax  # noqa: PLC0415 (ranks are read where it is not installed)

    by_rank = read_ranks(ranks)
    return tokjax.byte_level_bpe(by_rank, special_tokens={SEPARATOR: len(by_rank)}, eos_token=SEPARATOR)


def write_ranks(ranks: Iterable[bytes], path: Path) -> None:
    """Tokens in the order of their ranks, as tiktoken has them."""
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(ranks)))


def write_vocabulary_file(ranks: Path, kind: str) -> Path:
    """The same vocabulary for libraries that read no ranks: `tokenizer.json` or `merges.txt`, made once.

    Args:
        ranks: a file in tiktoken's format.
        kind: `"huggingface"` or `"gpt2"`.

    Returns:
        The directory that holds the files.
    """
    directory = (
        get_cache_directory() / "vocabularies" / hashlib.sha256(ranks.read_bytes()).hexdigest()[:16] / kind
    )
    if not directory.exists():
        import tokjax  # noqa: PLC0415 (the files are read where it is not installed)

        made = directory.with_name(f"{kind}.part")
        made.mkdir(parents=True, exist_ok=True)
        tokjax.formats.export_tokenizer(tokjax.byte_level_bpe(read_ranks(ranks)), made, kind)
        made.rename(directory)
    return directory
