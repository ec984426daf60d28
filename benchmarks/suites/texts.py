"""Training and encoding of each text of the directory, so that no figure depends on a single text.

The table shows the median and the worst ratio over all texts. `python -m benchmarks corpus DIR` downloads ten
texts of different kinds; any other `*.txt` files in the directory are measured too.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from benchmarks.bench import format_not_installed
from benchmarks.contenders import CONTENDERS
from benchmarks.inputs import write_vocabulary_file
from benchmarks.names import IDS, OURS, THEIRS, TRAINING
from benchmarks.sources import LARGE_TEXT
from benchmarks.suites.encode import measure_text as measure_encoding
from benchmarks.suites.train import train_in_process
from benchmarks.trainers import TRAINERS

if TYPE_CHECKING:
    from benchmarks.bench import Bench
    from benchmarks.inputs import Text

PACKAGES = ["tokjax", "numpy", "tiktoken", "gigatoken", "rustbpe", "tokie"]
TRAINING_MEGABYTES, ENCODING_MEGABYTES = 120, 25
VOCAB_SIZE = 32_000
CONTENDING_TRAINERS = ("tokjax", "gigatoken", "rustbpe")
CONTENDING_TOKENIZERS = (OURS, f"tokie, {IDS}", f"gigatoken, {IDS}", THEIRS)


def measure_training(bench: Bench, text: Text, rounds: int) -> None:
    """Measures the trainers on one text, each time in a fresh process."""
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    vocab_size = bench.choose(VOCAB_SIZE, 1000)
    for number in range(rounds):
        for name in (name for name in CONTENDING_TRAINERS if TRAINERS[name].installed):
            bench.say(f"{text.name}, round {number + 1} of {rounds}: {name}")
            row = train_in_process(bench, name, text, vocab_size)
            if row is not None:
                results[name].append(row)
    for name, rows in results.items():
        size = {"bytes": text.path.stat().st_size}
        seconds = [row["seconds"] for row in rows]
        bench.add(text.name, name, seconds, at=vocab_size, reference="tokjax", extra=size)


def measure(bench: Bench) -> None:
    """Measures all texts: first training, then encoding."""
    write_vocabulary_file(bench.ranks, "huggingface")
    texts = [name for name in bench.sources.texts if name != LARGE_TEXT]
    rounds = bench.rounds(3)
    bench.settings |= {"workers": bench.threads, "vocab_size": bench.choose(VOCAB_SIZE, 1000)}
    for name in texts:
        text = bench.text(TRAINING_MEGABYTES, name, record_name=f"{name}, {TRAINING}")
        measure_training(bench, text, rounds)
    installed = [name for name in CONTENDING_TOKENIZERS if CONTENDERS[name].installed]
    runs = [(name, 1) for name in installed]
    if bench.threads > 1:
        runs.append((OURS, bench.threads))
    for name in texts:
        measure_encoding(bench, bench.text(ENCODING_MEGABYTES, name), runs)
    for name, one in (*TRAINERS.items(), *CONTENDERS.items()):
        if name in (*CONTENDING_TRAINERS, *CONTENDING_TOKENIZERS) and not one.installed:
            bench.record_skip("all texts", name, format_not_installed(one.package))
