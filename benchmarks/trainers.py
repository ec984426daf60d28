"""The trainers that are compared, each as a function from a file to a vocabulary.

Run as a program it measures one of them in a fresh process, and prints what it saw as JSON:

    python -m benchmarks.trainers NAME TEXT VOCAB_SIZE WORKERS
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import SEPARATOR, peak_megabytes
from tokjax.text.patterns import PATTERNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Train = Callable[[Path, int, int], dict[str, Any]]


def documents_of(path: Path) -> list[str]:
    """The documents of a file."""
    return [part for part in path.read_text().split(SEPARATOR) if part]


def train_tokjax(path: Path, vocab_size: int, workers: int) -> dict[str, Any]:
    from tokjax.trainer import train_bpe

    trained = train_bpe(
        path, vocab_size=vocab_size, special_tokens=[SEPARATOR], workers=workers, progress=False
    )
    return {"vocab_size": len(trained.vocab)} | trained.stats.seconds


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
    tokenizer.train_from_iterator(documents_of(path), trainer)
    return {"vocab_size": tokenizer.get_vocab_size()}


def train_gigatoken(path: Path, vocab_size: int, _: int) -> dict[str, Any]:
    import gigatoken

    source = gigatoken.TextFileSource([str(path)], separator=SEPARATOR)
    trained = gigatoken.train_bpe(source, vocab_size, [SEPARATOR])
    return {"vocab_size": getattr(trained, "vocab_size", None)}


def train_rustbpe(path: Path, vocab_size: int, _: int) -> dict[str, Any]:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(iter(documents_of(path)), vocab_size, pattern=PATTERNS["gpt2"])
    return {"vocab_size": len(tokenizer.get_mergeable_ranks())}


def train_bpeasy(path: Path, vocab_size: int, _: int) -> dict[str, Any]:
    import bpeasy

    vocabulary = bpeasy.train_bpe(iter(documents_of(path)), PATTERNS["gpt2"], 128, vocab_size)
    return {"vocab_size": len(vocabulary)}


def train_sentencepiece(path: Path, vocab_size: int, workers: int) -> dict[str, Any]:
    import sentencepiece

    def lines() -> Iterator[str]:
        for document in documents_of(path):
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
    return {"vocab_size": vocab_size}


TRAINERS: dict[str, Train] = {
    "tokjax": train_tokjax,
    "gigatoken": train_gigatoken,
    "rustbpe": train_rustbpe,
    "tokenizers": train_tokenizers,
    "bpeasy": train_bpeasy,
    "sentencepiece (bpe)": train_sentencepiece,
}


def measured(name: str, path: Path, vocab_size: int, workers: int) -> dict[str, Any]:
    """Seconds from the file to the vocabulary, and memory over what the process began with, in MB."""
    before, begin = peak_megabytes(), time.perf_counter()
    seen = TRAINERS[name](path, vocab_size, workers)
    return {"seconds": time.perf_counter() - begin, "megabytes": peak_megabytes() - before} | seen


if __name__ == "__main__":
    chosen, text, size, count = sys.argv[1:]
    os.environ["RAYON_NUM_THREADS"] = count
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if int(count) > 1 else "false"
    print(json.dumps(measured(chosen, Path(text), int(size), int(count))))
