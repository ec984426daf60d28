"""The texts and the vocabulary that are measured on: those given, or what every machine has."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.record import Input

if TYPE_CHECKING:
    from collections.abc import Iterable

CACHE = Path(__file__).parent / "cache"
SEPARATOR = "<|endoftext|>"
MAIN_TEXTS = ("en", "code")
"""What a suite that needs one text takes, the first that there is; else the first by name."""
LARGE_TEXT = "large"
OWN_MEGABYTES = 100
OWN_VOCAB_SIZE = 32_000
OWN_TRAINING_MEGABYTES = 20


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


@dataclass(frozen=True)
class Sources:
    """Where texts and ranks come from.

    Attributes:
        texts: files by name.
        ranks: a file in tiktoken's format.
        text_note: how the texts came about, if the user gave none.
        ranks_note: the same of the ranks.
    """

    texts: dict[str, Path]
    ranks: Path
    text_note: str = ""
    ranks_note: str = ""

    @property
    def main(self) -> str:
        """The name of the text that suites take that need one."""
        return next((name for name in MAIN_TEXTS if name in self.texts), min(self.texts))


def read_documents(path: Path) -> list[str]:
    """The documents of a file, joined by the separator there."""
    return split_documents(path.read_text(encoding="utf-8"))


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


def write_ranks(ranks: Iterable[bytes], path: Path) -> None:
    """Tokens in the order of their ranks, as tiktoken has them."""
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(ranks)))


def find_sources(texts: Path | None, ranks: Path | None, *, own_megabytes: float) -> Sources:
    """What the user gave, and what is made here of the rest.

    Args:
        texts: a directory of `*.txt` files; `None` for the Python code of this interpreter.
        ranks: a file in tiktoken's format; `None` for a vocabulary that is trained on the texts.
        own_megabytes: how much code is gathered at most.

    Raises:
        InputError: there are no texts, or no ranks.
    """
    found, text_note = (_own_texts(own_megabytes) if texts is None else _texts_in(texts)), ""
    if texts is None:
        text_note = "Python files of the interpreter and its packages"
    if ranks is None:
        main = Sources(found, Path()).main
        path = _own_ranks(found[main], own_megabytes)
        return Sources(found, path, text_note, f"trained by tokjax on the text {main!r}, not a published one")
    _check_ranks(ranks)
    return Sources(found, ranks, text_note)


def _texts_in(directory: Path) -> dict[str, Path]:
    paths = sorted(directory.glob("*.txt"), key=lambda path: (path.stem not in MAIN_TEXTS[:1], path.stem))
    found = {path.stem: path for path in paths}
    if not found:
        raise InputError(
            f"{directory} has no *.txt files; make some with: python -m benchmarks corpus {directory}"
        )
    return found


def _check_ranks(path: Path) -> None:
    if not path.is_file():
        raise InputError(
            f"there is no file {path}; give one in tiktoken's format, or leave out --ranks and have one made"
        )
    try:
        ranks = read_ranks(path)
    except ValueError as error:
        raise InputError(f"{path} is not in tiktoken's format: {error}") from error
    if len(ranks) < 256:
        raise InputError(f"{path} has {len(ranks)} tokens; the 256 bytes are needed at least")


def _own_texts(megabytes: float) -> dict[str, Path]:
    from benchmarks.corpus import code_documents, write_documents  # noqa: PLC0415 (it needs the separator)

    path = CACHE / "texts" / f"code-{megabytes:g}.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_documents(path, code_documents(), int(megabytes * 1e6))
    return {"code": path}


def _own_ranks(text: Path, megabytes: float) -> Path:
    """A vocabulary of that text, kept beside the records."""
    from tokjax.trainer import train_bpe  # noqa: PLC0415 (only where none is given)

    data = read_start(text, min(megabytes, OWN_TRAINING_MEGABYTES))
    path = CACHE / "ranks" / f"{hashlib.sha256(data).hexdigest()[:16]}-{OWN_VOCAB_SIZE}.tiktoken"
    if not path.exists():
        documents = split_documents(data.decode())
        trained = train_bpe(documents, vocab_size=OWN_VOCAB_SIZE, progress=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        ordinary = trained.tokenizer.vocabulary.ordinary
        write_ranks(sorted(ordinary, key=ordinary.__getitem__), path)
    return path


def vocabulary_file(ranks: Path, kind: str) -> Path:
    """The same vocabulary for libraries that read no ranks: `tokenizer.json` or `merges.txt`, made once.

    Args:
        ranks: a file in tiktoken's format.
        kind: `"huggingface"` or `"gpt2"`.

    Returns:
        The directory that holds the files.
    """
    directory = CACHE / "vocabularies" / hashlib.sha256(ranks.read_bytes()).hexdigest()[:16] / kind
    if not directory.exists():
        import tokjax  # noqa: PLC0415 (the files are read where it is not installed)

        made = directory.with_name(f"{kind}.part")
        made.mkdir(parents=True, exist_ok=True)
        tokjax.export_tokenizer(tokjax.byte_level_bpe(read_ranks(ranks)), made, kind)
        made.rename(directory)
    return directory
