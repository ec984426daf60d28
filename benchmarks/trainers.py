"""Trainers that are compared. Each is a function that trains a BPE vocabulary on a file."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.inputs import SEPARATOR, stream_documents
from benchmarks.timing import get_peak_megabytes
from tokjax.pretokenize.patterns import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Train = Callable[[Path, int, int], dict[str, Any]]


@dataclass(frozen=True)
class Trainer:
    """Library that trains vocabularies.

    Attributes:
        package: name of the package to install.
        train: trains on a file, for a vocabulary size, with a number of workers. It returns numbers for the
            record, such as the size of the vocabulary as `"ids"`.
    """

    package: str
    train: Train

    @property
    def installed(self) -> bool:
        """Whether the package is installed."""
        return find_spec(self.package) is not None


def train_tokjax(path: Path, vocab_size: int, workers: int) -> dict[str, Any]:
    from tokjax.trainer import train_bpe

    trained = train_bpe(
        path, vocab_size=vocab_size, special_tokens=[SEPARATOR], workers=workers, progress=False
    )
    return {"ids": len(trained.vocab)} | trained.stats.seconds


def train_tokenizers(path: Path, vocab_size: int, _: int) -> dict[str, Any]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SEPARATOR],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stream_documents(path), trainer)
    return {"ids": tokenizer.get_vocab_size()}


def train_gigatoken(path: Path, vocab_size: int, _: int) -> dict[str, Any]:
    import gigatoken

    source = gigatoken.TextFileSource([str(path)], separator=SEPARATOR)
    gigatoken.train_bpe(source, vocab_size, [SEPARATOR])
    return {}


def train_rustbpe(path: Path, vocab_size: int, _: int) -> dict[str, Any]:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(stream_documents(path), vocab_size, pattern=PATTERNS["gpt2"])
    return {"ids": len(tokenizer.get_mergeable_ranks())}


def train_bpeasy(path: Path, vocab_size: int, _: int) -> dict[str, Any]:
    import bpeasy

    vocabulary = bpeasy.train_bpe(stream_documents(path), PATTERNS["gpt2"], 128, vocab_size)
    return {"ids": len(vocabulary)}


def train_sentencepiece(path: Path, vocab_size: int, workers: int) -> dict[str, Any]:
    import sentencepiece

    def lines() -> Iterator[str]:
        for document in stream_documents(path):
            yield from filter(None, document.split("\n"))

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines(),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        num_threads=workers,
        minloglevel=2,
    )
    return {"ids": vocab_size}


TRAINERS = {
    "tokjax": Trainer("tokjax", train_tokjax),
    "gigatoken": Trainer("gigatoken", train_gigatoken),
    "rustbpe": Trainer("rustbpe", train_rustbpe),
    "tokenizers": Trainer("tokenizers", train_tokenizers),
    "bpeasy": Trainer("bpeasy", train_bpeasy),
    "sentencepiece (bpe)": Trainer("sentencepiece", train_sentencepiece),
}


def measure(name: str, text: str, vocab_size: int, workers: int) -> dict[str, Any]:
    """Trains a vocabulary, and returns seconds and memory.

    Args:
        name: name of the trainer.
        text: path of the text.
        vocab_size: number of ids of the vocabulary.
        workers: number of workers, for trainers with that option.

    Returns:
        The seconds from the file to the vocabulary as `"seconds"`, the growth of the peak memory of the
        process in MB as `"memory"`, and the numbers that the trainer returns.
    """
    before, begin = get_peak_megabytes(), time.perf_counter()
    numbers = TRAINERS[name].train(Path(text), vocab_size, workers)
    return {"seconds": time.perf_counter() - begin, "memory": get_peak_megabytes() - before} | numbers
