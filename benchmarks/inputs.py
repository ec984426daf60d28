"""Files of texts and vocabularies: reading, truncation, checksums, and conversion for other libraries."""

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
_READ_SIZE = 1 << 20


class InputError(ValueError):
    """Raised when texts or ranks are missing, too small, or do not fit together."""


@dataclass(frozen=True)
class Text:
    """The start of a text, as a file.

    Attributes:
        name: name of the text in the record.
        path: path of the file.
        note: origin of the text, if the user did not pass it.
    """

    name: str
    path: Path
    note: str = ""

    @cached_property
    def documents(self) -> list[str]:
        """The documents of the text."""
        return read_documents(self.path)

    @property
    def input_entry(self) -> Input:
        """The entry for the inputs of a record."""
        return describe_input(self.name, self.path, self.note)


def get_cache_directory() -> Path:
    """Returns the directory of the cache: the value of `BENCHMARKS_CACHE`, or else `benchmarks/cache`."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path(__file__).parent / "cache")


def read_documents(path: Path) -> list[str]:
    """Returns the documents of a UTF-8 file, which are joined by the separator."""
    return split_documents(path.read_bytes().decode())


def stream_documents(path: Path) -> Iterator[str]:
    """Yields the documents of a file without loading all of it, for libraries that do not read files."""
    separator, rest = SEPARATOR.encode(), b""
    with path.open("rb") as file:
        while chunk := file.read(_READ_SIZE):
            *complete, rest = (rest + chunk).split(separator)
            yield from (document.decode() for document in complete if document)
    if rest:
        yield rest.decode()


def split_documents(text: str) -> list[str]:
    """Returns the documents of a text, without empty ones."""
    return [part for part in text.split(SEPARATOR) if part]


def read_start(path: Path, megabytes: float) -> bytes:
    """Returns the first megabytes of a file as UTF-8, without an incomplete last character."""
    with path.open("rb") as file:
        return file.read(int(megabytes * 1e6)).decode("utf-8", "ignore").encode()


def describe_input(name: str, path: Path, note: str = "") -> Input:
    """Returns the entry of a file for the inputs of a record, with its size and checksum."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Input(name, path.stat().st_size, digest, note)


def read_ranks(path: Path) -> dict[bytes, int]:
    """Returns the rank of each token in a file in tiktoken's format."""
    lines = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def load_ranks_tokenizer(ranks: Path) -> ByteLevelBPE:
    """Returns a byte-level BPE with these ranks, the GPT-2 pattern, and the separator as EOS token."""
    import tokjax  # noqa: PLC0415 (this module also runs where tokjax is not installed)

    by_rank = read_ranks(ranks)
    return tokjax.byte_level_bpe(by_rank, special_tokens={SEPARATOR: len(by_rank)}, eos_token=SEPARATOR)


def write_ranks(ranks: Iterable[bytes], path: Path) -> None:
    """Writes tokens in tiktoken's format.

    Args:
        ranks: the tokens, in the order of their ranks.
        path: the file to write.
    """
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(ranks)))


def write_vocabulary_file(ranks: Path, kind: str) -> Path:
    """Converts ranks for libraries that do not read tiktoken's format. The result is cached.

    Args:
        ranks: a file in tiktoken's format.
        kind: `"huggingface"` for `tokenizer.json`, or `"gpt2"` for `vocab.json` and `merges.txt`.

    Returns:
        The directory of the files.
    """
    directory = (
        get_cache_directory() / "vocabularies" / hashlib.sha256(ranks.read_bytes()).hexdigest()[:16] / kind
    )
    if not directory.exists():
        import tokjax  # noqa: PLC0415 (cached files are also read where tokjax is not installed)

        partial = directory.with_name(f"{kind}.part")
        partial.mkdir(parents=True, exist_ok=True)
        tokjax.formats.export_tokenizer(tokjax.byte_level_bpe(read_ranks(ranks)), partial, kind)
        partial.rename(directory)
    return directory
