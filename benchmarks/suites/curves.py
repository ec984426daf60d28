"""Time of encoding, training and packing, by sizes of text and vocabulary, unique pre-tokens and threads.

Each measurement of encoding and training is a fresh process, so that it starts with a cold cache.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tokjax
from benchmarks.contenders import CONTENDERS
from benchmarks.inputs import SEPARATOR, load_ranks_tokenizer, read_ranks, write_ranks
from benchmarks.names import CURVES, IDS, OURS, THEIRS
from benchmarks.packers import BLOCK, STRATEGIES
from benchmarks.timing import ProcessError, run_in_process, time_interleaved
from benchmarks.trainers import TRAINERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from benchmarks.bench import Bench

PACKAGES = ["tokjax", "numpy", "tiktoken", "gigatoken", "rustbpe", "tokenizers"]
ENCODERS = (OURS, THEIRS, f"gigatoken, {IDS}")
TRAINERS_BY_NAME = ("tokjax", "gigatoken", "rustbpe", "tokenizers")
SLOW_SECONDS = 60.0
"""Limit for a contender: if one point takes longer, larger points are skipped."""
TEXT_MEGABYTES = (0.5, 1, 2, 4, 8, 16, 32)
VOCAB_SIZES = (512, 2048, 8192, 32_768, 131_072)
DOCUMENTS = (1, 10, 100, 1000, 10_000, 100_000)
DOCUMENTS_MEGABYTES, THREADS_MEGABYTES, VOCAB_MEGABYTES = 8, 32, 8
TRAINED_MEGABYTES = (1, 2, 4, 8, 16, 32)
TRAINED_VOCAB_SIZE = 8000
TRAINED_VOCAB_SIZES = (8000, 32_000, 64_000, 128_000, 256_000)
TRAINED_VOCAB_MEGABYTES = 32
UNIQUE_WORDS = (1000, 10_000, 100_000, 1_000_000)
UNIQUE_WORDS_MEGABYTES, WORD_LENGTH = 16, 8
PACKED = (1000, 10_000, 100_000, 1_000_000)
LENGTHS_MEGABYTES = 20


class CurvePoint(NamedTuple):
    """One x position of a curve.

    Attributes:
        at: position on the x axis.
        function: name of the function that measures in a fresh process, as `module:function`.
        arguments: keyword arguments of the function, without the name of the contender.
        threads: number of threads of the libraries.
    """

    at: float
    function: str
    arguments: dict[str, Any]
    threads: int


def make_encoding_point(at: float, text: Path, ranks: Path, threads: int = 1) -> CurvePoint:
    """Returns a point that times two passes over a text."""
    arguments = {"source": str(ranks), "text": str(text), "threads": threads}
    return CurvePoint(at, "benchmarks.contenders:measure_passes", arguments, threads)


def make_training_point(at: float, text: Path, vocab_size: int, workers: int) -> CurvePoint:
    """Returns a point that trains a vocabulary on a text."""
    arguments = {"text": str(text), "vocab_size": vocab_size, "workers": workers}
    return CurvePoint(at, "benchmarks.trainers:measure", arguments, workers)


def measure_curve(
    bench: Bench, task: str, points: list[CurvePoint], names: Iterable[str], measures: Any
) -> None:
    """Measures all contenders at all points, in interleaved rounds.

    A contender that fails, or takes longer than `SLOW_SECONDS`, is skipped at this and all larger points.

    Args:
        bench: the running suite, which records the results.
        task: name of the curve.
        points: points in ascending order.
        names: names of the contenders.
        measures: names of the measures in the record, by their keys in the result of the function.
    """
    names = list(names)
    results: dict[Any, list[dict[str, float]]] = defaultdict(list)
    limits: dict[str, float] = {}
    rounds = bench.rounds(3)
    for number in range(rounds):
        for point in points:
            for name in (name for name in names if point.at < limits.get(name, math.inf)):
                bench.say(f"{task}, round {number + 1} of {rounds}, {point.at:,.12g}: {name}")
                row = measure_point(point, name)
                if row is None or max(row[key] for key in measures) > SLOW_SECONDS:
                    limits[name] = point.at
                results[name, point.at] += [row] if row else []
    for (name, at), rows in ((run, rows) for run, rows in results.items() if rows):
        for key, measure_name in measures.items():
            values = [row[key] for row in rows]
            bench.add(task, name, values, measure=measure_name, at=at, reference=names[0])


def measure_point(point: CurvePoint, name: str) -> dict[str, float] | None:
    """Returns the result of a fresh process; `None` if a contender other than tokjax fails."""
    try:
        result: dict[str, float] = run_in_process(
            point.function, {"name": name} | point.arguments, threads=point.threads
        )
    except ProcessError:
        if name.startswith("tokjax"):
            raise
        return None
    return result


def measure_encoding(bench: Bench) -> None:
    """Measures encoding by sizes of text and vocabulary, documents, unique pre-tokens, and threads."""
    names = [name for name in ENCODERS if CONTENDERS[name].installed]
    measures = {"cold": "cold", "warm": "warm"}
    makers = (
        make_text_points,
        make_vocabulary_points,
        make_document_points,
        make_word_points,
        make_thread_points,
    )
    for task, make_points in zip(CURVES[:5], makers, strict=True):
        points = make_points(bench)
        measure_curve(bench, task, points[: bench.choose(None, 2)], names, measures)


def make_text_points(bench: Bench) -> list[CurvePoint]:
    texts = [bench.text(size, record_name=f"{size:g} MB") for size in bench.sizes(TEXT_MEGABYTES)]
    return [make_encoding_point(bench.inputs[text.name].bytes, text.path, bench.ranks) for text in texts]


def make_vocabulary_points(bench: Bench) -> list[CurvePoint]:
    """Makes points with smaller vocabularies: the first ranks of the full one."""
    by_rank = read_ranks(bench.ranks)
    text = bench.text(VOCAB_MEGABYTES)
    points = []
    for size in [*(size for size in VOCAB_SIZES if size < len(by_rank)), len(by_rank)]:
        path = bench.scratch / f"{size}.tiktoken"
        write_ranks(sorted(by_rank, key=by_rank.__getitem__)[:size], path)
        points.append(make_encoding_point(size, text.path, path))
    return points


def make_document_points(bench: Bench) -> list[CurvePoint]:
    """Makes points that split the same text into more and more documents."""
    text = "".join(bench.text(DOCUMENTS_MEGABYTES).documents)
    points = []
    for count in (count for count in DOCUMENTS if count * 40 <= len(text)):
        step = -(-len(text) // count)
        path = bench.scratch / f"documents-{count}.txt"
        parts = (text[start : start + step] for start in range(0, len(text), step))
        path.write_bytes(SEPARATOR.join(parts).encode())
        points.append(make_encoding_point(count, path, bench.ranks))
    return points


def make_word_points(bench: Bench) -> list[CurvePoint]:
    """Makes points with texts of the same size, sampled from more and more words."""
    return [make_encoding_point(count, path, bench.ranks) for count, path in write_word_texts(bench).items()]


def write_word_texts(bench: Bench) -> dict[int, Path]:
    """Writes texts of equally frequent random words; returns their paths by the number of words."""
    size = int(bench.sizes([UNIQUE_WORDS_MEGABYTES])[0] * 1_000_000)
    rng = np.random.default_rng(0)
    paths = {}
    for count in UNIQUE_WORDS:
        words = rng.integers(ord("a"), ord("z"), (count, WORD_LENGTH + 1), np.uint8, endpoint=True)
        words[:, 0] = ord(" ")
        paths[count] = bench.scratch / f"words-{count}.txt"
        paths[count].write_bytes(words[rng.integers(count, size=size // (WORD_LENGTH + 1))].tobytes())
    return paths


def make_thread_points(bench: Bench) -> list[CurvePoint]:
    """Makes points with powers of two up to the number of cores, and the number of cores."""
    cores = os.cpu_count() or 1
    path = bench.text(THREADS_MEGABYTES, record_name="for threads").path
    counts = sorted({1 << i for i in range(cores.bit_length())} | {cores})
    return [make_encoding_point(count, path, bench.ranks, count) for count in counts if count <= cores]


def measure_training(bench: Bench) -> None:
    """Measures training by sizes of text and vocabulary, and unique pre-tokens."""
    names = [name for name in TRAINERS_BY_NAME if TRAINERS[name].installed]
    workers = bench.threads
    by_text_name, by_vocabulary_name, by_words_name = CURVES[5:8]
    size = bench.choose(TRAINED_VOCAB_SIZE, 500)
    texts = [bench.text(part, record_name=f"{part:g} MB") for part in bench.sizes(TRAINED_MEGABYTES)]
    by_text = [make_training_point(bench.inputs[text.name].bytes, text.path, size, workers) for text in texts]
    measure_curve(bench, by_text_name, by_text, names, {"seconds": "time"})
    path = bench.text(TRAINED_VOCAB_MEGABYTES, record_name="for vocabularies").path
    vocab_sizes = bench.choose(TRAINED_VOCAB_SIZES, (500, 1000))
    by_vocabulary = [make_training_point(count, path, count, workers) for count in vocab_sizes]
    measure_curve(bench, by_vocabulary_name, by_vocabulary, names, {"seconds": "time"})
    by_words = [
        make_training_point(count, path, size, workers) for count, path in write_word_texts(bench).items()
    ]
    measure_curve(bench, by_words_name, by_words, names, {"seconds": "time"})


def measure_packing(bench: Bench) -> None:
    """Measures packing plans by number of documents, with lengths sampled from those of a text."""
    text = bench.text(LENGTHS_MEGABYTES, record_name="lengths")
    tokenizer = load_ranks_tokenizer(bench.ranks)
    lengths = np.asarray(tokjax.count_tokens(tokenizer, text.documents, add_special_tokens=False))
    rng = np.random.default_rng(0)
    for count in (count for count in PACKED if not bench.quick or count <= PACKED[1]):
        sample = rng.choice(lengths[lengths > 0], count)
        plans = {f"plan, {strategy}": make_planner(sample, strategy) for strategy in STRATEGIES}
        bench.say(f"{CURVES[8]}, {count:,}")
        seconds = time_interleaved(plans, bench.rounds(5))
        bench.add_rounds(CURVES[8], seconds, at=count, reference="plan, best_fit")


def make_planner(lengths: Any, strategy: Any) -> Callable[[], object]:
    return lambda: tokjax.packing.plan_packing(lengths, BLOCK, strategy, overlong="split")


def measure(bench: Bench) -> None:
    """Measures all curves."""
    bench.settings |= {"workers": bench.threads, "vocab_size": TRAINED_VOCAB_SIZE}
    measure_encoding(bench)
    measure_training(bench)
    measure_packing(bench)
