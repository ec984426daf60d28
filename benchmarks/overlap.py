"""Overlap of loading with training steps in `prefetch_to_device`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

import tokjax
from benchmarks.datasets import write_packed_dataset
from benchmarks.inputs import load_ranks_tokenizer
from benchmarks.names import BOTH, LOADING, OVERLAP, STEP
from benchmarks.timing import time_interleaved

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

    Step = Callable[[Any, Any], tuple[Any, Any]]

STEPS, QUICK_STEPS = 50, 3
BATCH, LENGTH, WIDTH, LAYERS = 32, 512, 32, 2
CLASSES = 128
"""Number of classes: ids are reduced modulo this, so that the logits do not dominate the step."""
IDS, QUICK_IDS = 10_000_000, 500_000
MEGABYTES = 10


def make_weights() -> dict[str, Any]:
    """Returns an embedding, which is also the output projection, and dense layers."""
    embedding, *layers = jax.random.split(jax.random.key(0), 1 + LAYERS)
    return {
        "embedding": 0.02 * jax.random.normal(embedding, (CLASSES, WIDTH)),
        "layers": [0.05 * jax.random.normal(key, (WIDTH, WIDTH)) for key in layers],
    }


def compute_loss(weights: Any, ids: Any) -> Any:
    """Computes the mean cross entropy of each id, predicted from the id before it."""
    classes = ids % CLASSES
    hidden = weights["embedding"][classes[:, :-1]]
    for layer in weights["layers"]:
        hidden = hidden + jax.nn.gelu(hidden @ layer)
    logits = jax.nn.log_softmax(hidden @ weights["embedding"].T)
    return -jnp.take_along_axis(logits, classes[:, 1:, None], -1).mean()


@jax.jit
def train_step(weights: Any, ids: Any) -> tuple[Any, Any]:
    """Takes one step of gradient descent."""
    value, gradients = jax.value_and_grad(compute_loss)(weights, ids)
    return jax.tree.map(lambda old, change: old - 0.01 * change, weights, gradients), value


def make_loops(make_loader: Callable[[], Any], steps: int) -> dict[str, Callable[[], None]]:
    """Makes three loops of the same number of steps: training only, loading only, and both.

    Training alone repeats one batch that is already on the device.
    """
    weights = make_weights()
    resident_ids = jnp.asarray(make_loader().batch_at(0).ids)

    def run_step() -> None:
        state = weights
        for _ in range(steps):
            state, value = train_step(state, resident_ids)
        jax.block_until_ready(value)

    def run_loading() -> None:
        batches = make_loader().repeat()
        for _ in range(steps):
            jax.block_until_ready(jax.device_put(next(batches).ids))

    def run_both() -> None:
        state = weights
        with tokjax.datasets.prefetch_to_device(make_loader().repeat()) as batches:
            for _ in range(steps):
                state, value = train_step(state, next(batches).ids)
        jax.block_until_ready(value)

    return {STEP: run_step, LOADING: run_loading, BOTH: run_both}


def make_loaders(bench: Bench) -> dict[str, Callable[[], Any]]:
    """Makes a loader that reads ids from a packed dataset, and one that encodes text while it loads."""
    packed = write_packed_dataset(bench.scratch, bench.choose(IDS, QUICK_IDS))
    tokenizer = load_ranks_tokenizer(bench.ranks)
    text = bench.text(MEGABYTES)
    tokjax.write_dataset(text.documents, tokjax.RawTextField(), bench.scratch / "raw", progress=False)
    raw = tokjax.open_dataset(bench.scratch / "raw", tokenizer)
    return {
        "packed ids": partial(tokjax.PackedTokenLoader, packed, batch_size=BATCH, chunk_tokens=LENGTH),
        "text": partial(tokjax.datasets.SequenceLoader, raw, batch_size=BATCH, length=LENGTH, pad_id=0),
    }


def measure_overlap(bench: Bench) -> None:
    """Records the seconds per step of training alone, of loading alone, and of both."""
    steps = bench.choose(STEPS, QUICK_STEPS)
    bench.settings |= {"steps": steps, "batch": BATCH, "batch_length": LENGTH}
    for kind, make_loader in make_loaders(bench).items():
        task = f"{OVERLAP}, {kind}"
        bench.say(task)
        seconds = time_interleaved(make_loops(make_loader, steps), bench.rounds(5))
        per_step = {name: [value / steps for value in values] for name, values in seconds.items()}
        bench.add_rounds(task, per_step, extra={"tokens": BATCH * LENGTH})
