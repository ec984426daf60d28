"""Tokens a second and latency of the tokenizers that people use, on one thread.

All but SentencePiece have the same ranks; it reads none, and gets a BPE model of as many pieces, trained on
the same text. The tokenizer in Python comes from transformers 4, in an environment of its own.
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
    """A BPE model of that text, kept beside the records."""
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
    """Which interpreter runs each contender; none for those that are left out."""
    found = {name: sys.executable for name in NAMES if name != SLOW and CONTENDERS[name].installed}
    for name in (name for name in NAMES if name not in found and name != SLOW):
        bench.record_skip(ENCODING, name, format_not_installed(CONTENDERS[name].package))
    if not bench.install:
        bench.record_skip(ENCODING, SLOW, "no environment is made for transformers 4")
        return found
    try:
        found[SLOW] = str(make_slow_environment(bench.say))
    except InputError as error:
        bench.record_skip(ENCODING, SLOW, str(error))
        return found
    reported = {"distribution_name": "transformers"}
    bench.settings[SLOW] = (
        f"transformers {run_in_process('importlib.metadata:version', reported, python=found[SLOW])}"
    )
    return found


def measure(bench: Bench) -> None:
    """Two passes of each contender over the same documents, and single texts of four lengths."""
    text, ranks = bench.text(MEGABYTES), bench.ranks
    for kind in ("huggingface", "gpt2"):
        write_vocabulary_file(ranks, kind)
    model = train_sentencepiece_model(text, len(read_ranks(ranks)))
    bench.settings["threads"] = 1
    python = find_interpreters(bench)
    seen: dict[str, list[dict[str, Any]]] = defaultdict(list)
    rounds = bench.rounds(3)
    for number in range(rounds):
        for name in (name for name in NAMES if name in python):
            bench.say(f"round {number + 1} of {rounds}: {name}")
            source = model if name == OTHER_VOCABULARY else ranks
            reported = {"name": name, "source": str(source), "text": str(text.path), "lengths": LENGTHS}
            seen[name].append(
                run_in_process("benchmarks.contenders:measure_latency", reported, python=python[name])
            )
    check_counts({name: rows[0]["tokens"] for name, rows in seen.items() if name != OTHER_VOCABULARY})
    size = sum(len(document.encode()) for document in text.documents)
    for name, rows in seen.items():
        record_results(bench, name, rows, size)


def check_counts(tokens: dict[str, int]) -> None:
    """Refuse to go on if contenders with the same ranks give different numbers of tokens."""
    if len(set(tokens.values())) > 1:
        raise InputError(f"the same ranks give different numbers of tokens: {tokens}")


def record_results(bench: Bench, name: str, rows: list[dict[str, Any]], size: int) -> None:
    """What was seen of one contender."""
    extra = {"bytes": size, "tokens": rows[0]["tokens"]}
    for measure_name in ("cold", "warm"):
        values = [row[measure_name] for row in rows]
        bench.add(ENCODING, name, values, measure=measure_name, reference=THEIRS, extra=extra)
    for kind in rows[0]["latency"]:
        values = [row["latency"][kind] for row in rows]
        bench.add(
            kind, name, values, measure="latency", reference=THEIRS, extra={"characters": LENGTHS[kind]}
        )
