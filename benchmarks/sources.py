"""The texts and the vocabulary that are measured on: those given, or what every machine has."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.corpus import iter_code_documents, write_documents
from benchmarks.inputs import (
    InputError,
    get_cache_directory,
    read_ranks,
    read_start,
    split_documents,
    write_ranks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAIN_TEXTS = ("en", "code")
"""What a suite that needs one text takes, the first that there is; else the first by name."""
LARGE_TEXT = "large"
"""What suites take that need more than the main text has."""
OWN_TEXTS_NOTE = "Python files of the interpreter and its packages"
OWN_MEGABYTES = 100
OWN_VOCAB_SIZE = 32_000
OWN_TRAINING_MEGABYTES = 20


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
        return get_main_text(self.texts)


def find_sources(texts: Path | None, ranks: Path | None, *, own_megabytes: float) -> Sources:
    """What the user gave, and what is made here of the rest.

    Args:
        texts: a directory of `*.txt` files; `None` for the Python code of this interpreter.
        ranks: a file in tiktoken's format; `None` for a vocabulary that is trained on the texts.
        own_megabytes: how much code is gathered at most.

    Raises:
        InputError: there are no texts, or no ranks.
    """
    found = _make_own_texts(own_megabytes) if texts is None else _find_texts(texts)
    text_note = OWN_TEXTS_NOTE if texts is None else ""
    if ranks is not None:
        _check_ranks(ranks)
        return Sources(found, ranks, text_note)
    main = get_main_text(found)
    own = _train_own_ranks(found[main], own_megabytes)
    return Sources(found, own, text_note, f"trained by tokjax on the text {main!r}, not a published one")


def get_main_text(texts: Iterable[str]) -> str:
    """The name of the text that suites take that need one."""
    return next((name for name in MAIN_TEXTS if name in texts), min(texts))


def _find_texts(directory: Path) -> dict[str, Path]:
    paths = sorted(directory.glob("*.txt"), key=lambda path: (path.stem != MAIN_TEXTS[0], path.stem))
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


def _make_own_texts(megabytes: float) -> dict[str, Path]:
    path = get_cache_directory() / "texts" / f"code-{megabytes:g}.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_documents(path, iter_code_documents(), int(megabytes * 1e6))
    return {"code": path}


def _train_own_ranks(text: Path, megabytes: float) -> Path:
    """A vocabulary of that text, kept beside the records."""
    from tokjax.trainer import train_bpe  # noqa: PLC0415 (only where none is given)

    data = read_start(text, min(megabytes, OWN_TRAINING_MEGABYTES))
    path = (
        get_cache_directory() / "ranks" / f"{hashlib.sha256(data).hexdigest()[:16]}-{OWN_VOCAB_SIZE}.tiktoken"
    )
    if not path.exists():
        documents = split_documents(data.decode())
        trained = train_bpe(documents, vocab_size=OWN_VOCAB_SIZE, progress=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        ordinary = trained.tokenizer.vocabulary.ordinary
        write_ranks(sorted(ordinary, key=ordinary.__getitem__), path)
    return path
