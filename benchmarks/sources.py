"""Texts and ranks of a run: files of the user, or defaults that every machine has."""

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
"""Names of the main text, which suites with one text use, in order of preference."""
LARGE_TEXT = "large"
"""Name of the text for suites that need more than the main text has."""
CODE_NOTE = "Python files of the interpreter and its packages"
CODE_MEGABYTES = 100
TRAINED_VOCAB_SIZE = 32_000
TRAINING_MEGABYTES = 20


@dataclass(frozen=True)
class Sources:
    """Texts and ranks of a run.

    Attributes:
        texts: text files by name.
        ranks: a file in tiktoken's format.
        text_note: origin of the texts; empty if the user passed them.
        ranks_note: origin of the ranks; empty if the user passed them.
    """

    texts: dict[str, Path]
    ranks: Path
    text_note: str = ""
    ranks_note: str = ""

    @property
    def main(self) -> str:
        """Name of the text that suites with one text use."""
        return get_main_text(self.texts)


def find_sources(texts: Path | None, ranks: Path | None, *, code_megabytes: float) -> Sources:
    """Finds the texts and the ranks, and makes those that the user did not pass.

    Args:
        texts: a directory of `*.txt` files; `None` for the Python code of this interpreter.
        ranks: a file in tiktoken's format; `None` to train a vocabulary on the main text.
        code_megabytes: maximum size of the Python code, in MB.

    Raises:
        InputError: the directory has no texts, or the file is not a vocabulary.
    """
    paths = _collect_code(code_megabytes) if texts is None else _find_texts(texts)
    text_note = CODE_NOTE if texts is None else ""
    if ranks is not None:
        _check_ranks(ranks)
        return Sources(paths, ranks, text_note)
    main = get_main_text(paths)
    trained = _train_ranks(paths[main], code_megabytes)
    return Sources(paths, trained, text_note, f"trained by tokjax on the text {main!r}, not a published one")


def get_main_text(texts: Iterable[str]) -> str:
    """Returns the name of the text that suites with one text use."""
    return next((name for name in MAIN_TEXTS if name in texts), min(texts))


def _find_texts(directory: Path) -> dict[str, Path]:
    files = sorted(directory.glob("*.txt"), key=lambda path: (path.stem != MAIN_TEXTS[0], path.stem))
    paths = {path.stem: path for path in files}
    if not paths:
        raise InputError(
            f"{directory} has no *.txt files; make some with: python -m benchmarks corpus {directory}"
        )
    return paths


def _check_ranks(path: Path) -> None:
    if not path.is_file():
        raise InputError(
            f"no such file: {path}; pass a file in tiktoken's format, or omit --ranks to train a vocabulary"
        )
    try:
        ranks = read_ranks(path)
    except ValueError as error:
        raise InputError(f"{path} is not in tiktoken's format: {error}") from error
    if len(ranks) < 256:
        raise InputError(f"{path} has {len(ranks)} tokens; a vocabulary needs at least the 256 bytes")


def _collect_code(megabytes: float) -> dict[str, Path]:
    path = get_cache_directory() / "texts" / f"code-{megabytes:g}.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_documents(path, iter_code_documents(), int(megabytes * 1e6))
    return {"code": path}


def _train_ranks(text: Path, megabytes: float) -> Path:
    """Returns a file of ranks that is trained on the text and cached by the text's checksum."""
    from tokjax.trainer import train_bpe  # noqa: PLC0415 (only runs without --ranks need it)

    data = read_start(text, min(megabytes, TRAINING_MEGABYTES))
    path = (
        get_cache_directory()
        / "ranks"
        / f"{hashlib.sha256(data).hexdigest()[:16]}-{TRAINED_VOCAB_SIZE}.tiktoken"
    )
    if not path.exists():
        documents = split_documents(data.decode())
        trained = train_bpe(documents, vocab_size=TRAINED_VOCAB_SIZE, progress=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        ordinary = trained.tokenizer.vocabulary.ordinary
        write_ranks(sorted(ordinary, key=ordinary.__getitem__), path)
    return path
