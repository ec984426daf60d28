"""Encoding and decoding under `jax.jit`, beside tiktoken on the same cores, and the cost of the program.

Every round is cold: the table holds the vocabulary only, and neither `encode_jit` nor tiktoken keeps words
between calls. The text is on the device before. Its transfer is measured separately.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.contenders import make_tiktoken_ids
from benchmarks.inputs import load_ranks_tokenizer
from benchmarks.names import DECODE_JIT, ENCODE_JIT, ENCODING_JIT, TIKTOKEN, TRANSFER
from benchmarks.sources import LARGE_TEXT
from benchmarks.timing import time_interleaved
from tokjax.device import Capacities, decode_jit, encode_jit, suggest_capacities, tokenizer_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

SIZES = (0.064, 1.0, 8.0, 64.0)
"""Amount of text of one call, in MB."""
TEXTS_SIZE = 1.0
"""The same for the comparison of all kinds of text."""
QUICK_SIZES = (0.016,)
ROUNDS = 5


class Batch(NamedTuple):
    """Documents as one array of bytes.

    Attributes:
        data: bytes of all documents, `uint8`, shape `(n,)`.
        row_splits: first byte of each document, and the end, `int32`, shape `(documents + 1,)`.
    """

    data: Any
    row_splits: Any


def measure_encoding(bench: Bench) -> None:
    """Measures encoding, decoding and the transfer for each size, and for each kind of text of one size."""
    tokenizer = load_ranks_tokenizer(bench.ranks)
    tables = tokenizer_tables(tokenizer)
    cases = [(size, bench.find_text(size)) for size in bench.choose(SIZES, QUICK_SIZES)]
    size = bench.choose(TEXTS_SIZE, QUICK_SIZES[0])
    cases += [
        (size, name) for name in bench.sources.texts if (size, name) not in cases and name != LARGE_TEXT
    ]
    for size, name in cases:
        measure_text(bench, tables, size, name)


def measure_text(bench: Bench, tables: Any, size: float, name: str) -> None:
    """Measures a call with the start of a text."""
    text = bench.text(size, name, f"{name}, {size:g} MB")
    task = f"{ENCODING_JIT}, {size:g} MB of {name}"
    bench.say(task)
    batch = make_batch(text.documents)
    on_device = jax.tree.map(jnp.asarray, batch)
    capacities = find_capacities(tables, on_device)
    compiled = encode_jit.lower(tables, *on_device, capacities=capacities).compile()
    tokens, capacity = compiled(tables, *on_device), len(batch.data)
    contenders: dict[str, Callable[[], object]] = {
        ENCODE_JIT: lambda: jax.block_until_ready(compiled(tables, *on_device)),
        DECODE_JIT: lambda: jax.block_until_ready(
            decode_jit(tables, tokens.ids, tokens.row_splits, capacity=capacity)
        ),
        TRANSFER: lambda: jax.block_until_ready(jax.device_put(np.array(batch.data))),
    }
    if bench.has_package("tiktoken", task, TIKTOKEN):
        encode = make_tiktoken_ids(bench.ranks, len(os.sched_getaffinity(0))).encode_documents
        contenders[TIKTOKEN] = lambda: encode(text.documents)
    seconds = time_interleaved(contenders, bench.rounds(ROUNDS))
    numbers = {"bytes": capacity, "tokens": int(tokens.num_tokens), **compute_costs(compiled)}
    bench.add_rounds(task, seconds, reference=ENCODE_JIT, extra=numbers)


def make_batch(documents: list[str]) -> Batch:
    """Returns documents as arrays on the host."""
    encoded = [document.encode() for document in documents]
    row_splits = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return Batch(np.frombuffer(b"".join(encoded), np.uint8), row_splits)


def find_capacities(tables: Any, batch: Batch) -> Capacities:
    """Returns the suggested capacities, or larger ones if the batch needs them."""
    capacities = suggest_capacities(batch.data.shape[0])
    while (tokens := encode_jit(tables, *batch, capacities=capacities)).exceeded:
        larger = (max(size, int(need)) for size, need in zip(capacities, tokens.needed, strict=True))
        capacities = Capacities(*larger)
    return capacities


def compute_costs(compiled: Any) -> dict[str, float]:
    """Returns the bytes that a compiled program reads and writes, and its numbers of fusions and loops.

    The bytes are those of XLA's cost analysis, which counts the body of a loop once: a lower bound.
    """
    program = compiled.as_text()
    return {
        "moved": compiled.cost_analysis()["bytes accessed"],
        "fusions": len(re.findall(r" fusion\(", program)),
        "loops": len(re.findall(r" while\(", program)),
    }
