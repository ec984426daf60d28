"""Tokens per second and latency of widely used tokenizers, on one thread.

All have the same ranks except SentencePiece, which can't read them: it has a BPE model with as many pieces,
trained on the same text. The tokenizer in pure Python is from transformers 4, in a separate environment.
"""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import sentencepiece

from benchmarks.bench import format_not_installed
from benchmarks.contenders import CONTENDERS
from benchmarks.environments import make_slow_environment
from benchmarks.inputs import InputError, get_cache_directory, read_ranks, write_vocabulary_file
from benchmarks.names import ENCODING, IDS, OURS, SLOW, THEIRS
from benchmarks.timing import run_in_process

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench
    from benchmarks.inputs import Text

PACKAGES = ["tokjax", "numpy", "transformers", "tokenizers", "tiktoken", "sentencepiece", "gigatoken"]
MEGABYTES = 5
LENGTHS = {"tweet": 280, "e-mail": 1000, "news article": 5000, "paper": 40_000}
OTHER_VOCABULARY = "SentencePiece"
NAMES = (SLOW, "Hugging Face, fast", THEIRS, OTHER_VOCABULARY, f"gigatoken, {IDS}", OURS)


def train_sentencepiece_model(text: Text, pieces: int) -> Path:
    """Trains a BPE model on the text unless one is cached; returns its path."""
    digest = hashlib.sha256(text.path.read_bytes()).hexdigest()[:16]
    path = get_cache_directory() / "sentencepiece" / f"{digest}-{pieces}.model"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (line for document in text.documents for line in document.split("\n") if line)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_prefix=str(path.with_suffix("")),
            model_type="bpe",
            vocab_size=pieces,
            hard_vocab_limit=False,
            byte_fallback=True,
            minloglevel=2,
        )
    return path


def find_interpreters(bench: Bench) -> dict[str, str]:
    """Returns the interpreter that runs each contender, and records the contenders that are skipped."""
    interpreters = {name: sys.executable for name in NAMES if name != SLOW and CONTENDERS[name].installed}
    for name in (name for name in NAMES if name not in interpreters and name != SLOW):
        bench.record_skip(ENCODING, name, format_not_installed(CONTENDERS[name].package))
    if not bench.install:
        bench.record_skip(ENCODING, SLOW, "no environment for transformers 4 (--no-install)")
        return interpreters
    try:
        interpreters[SLOW] = str(make_slow_environment(bench.say))
    except InputError as error:
        bench.record_skip(ENCODING, SLOW, str(error))
        return interpreters
    arguments = {"distribution_name": "transformers"}
    version = run_in_process("importlib.metadata:version", arguments, python=interpreters[SLOW])
    bench.settings[SLOW] = f"transformers {version}"
    return interpreters


def measure(bench: Bench) -> None:
    """Measures two passes of each contender over the same documents, and single texts of four lengths."""
    text, ranks = bench.text(MEGABYTES), bench.ranks
    for kind in ("huggingface", "gpt2"):
        write_vocabulary_file(ranks, kind)
    model = train_sentencepiece_model(text, len(read_ranks(ranks)))
    bench.settings["threads"] = 1
    interpreters = find_interpreters(bench)
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    rounds = bench.rounds(3)
    for number in range(rounds):
        for name in (name for name in NAMES if name in interpreters):
            bench.say(f"round {number + 1} of {rounds}: {name}")
            source = model if name == OTHER_VOCABULARY else ranks
            arguments = {"name": name, "source": str(source), "text": str(text.path), "lengths": LENGTHS}
            result = run_in_process(
                "benchmarks.contenders:measure_latency", arguments, python=interpreters[name]
            )
            results[name].append(result)
    check_counts({name: rows[0]["tokens"] for name, rows in results.items() if name != OTHER_VOCABULARY})
    size = sum(len(document.encode()) for document in text.documents)
    for name, rows in results.items():
        record_results(bench, name, rows, size)


def check_counts(tokens: dict[str, int]) -> None:
    """Checks that contenders with the same ranks give the same number of tokens.

    Raises:
        InputError: the numbers differ.
    """
    if len(set(tokens.values())) > 1:
        raise InputError(f"the same ranks give different numbers of tokens: {tokens}")


def record_results(bench: Bench, name: str, rows: list[dict[str, Any]], size: int) -> None:
    """Records the results of one contender."""
    extra = {"bytes": size, "tokens": rows[0]["tokens"]}
    for measure_name in ("cold", "warm"):
        values = [row[measure_name] for row in rows]
        bench.add(ENCODING, name, values, measure=measure_name, reference=THEIRS, extra=extra)
    for kind in rows[0]["latency"]:
        values = [row["latency"][kind] for row in rows]
        bench.add(
            kind, name, values, measure="latency", reference=THEIRS, extra={"characters": LENGTHS[kind]}
        )
