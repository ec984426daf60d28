"""Data-parallel training on several processes, resumed on another number of them: the losses of one process.

    pip install -e '.[examples]' orbax-checkpoint && python examples/multi_host.py

Each process reads its rows of the same batches from one dataset, for a CPU device of its own. Here all of them
are started on this machine; on a cluster each host calls `train` with its number and the address of the first.
"""

import multiprocessing
import socket
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import typer
from corpora import read_corpus
from orbax.checkpoint import CheckpointManager, args
from rich.progress import track
from train_lm import prepare, total_loss
from transformer import init_params

import tokjax

optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-3))


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, state, batch):
    """What is learned of a global batch, its mean loss, and a number that only the same ids give."""

    def mean_loss(params):
        nats, count = total_loss(params, batch)
        return nats / count

    loss, gradients = jax.value_and_grad(mean_loss)(params)
    updates, state = optimizer.update(gradients, state, params)
    checksum = jnp.sum(batch.ids * jnp.arange(batch.ids.size).reshape(batch.ids.shape))
    return optax.apply_updates(params, updates), state, loss, checksum


def train(place, checkpoints, stop, batch_size, count, address, process):
    """Go on from the last checkpoint up to a step, as one process of several: what each step gave."""
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(address, count, process)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    by_rows, everywhere = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (["data"], []))
    dataset = tokjax.open_dataset(place)
    loader = tokjax.PackedTokenLoader(dataset, batch_size=batch_size).shard(process, count)
    init = jax.jit(init_params, static_argnums=(1, 2), out_shardings=everywhere)
    params = init(jax.random.key(0), dataset.vocab_size, dataset.chunk_tokens)
    state, seen = jax.jit(optimizer.init, out_shardings=everywhere)(params), []
    with CheckpointManager(checkpoints) as manager:
        if manager.latest_step() is not None:
            wanted = args.Composite(model=args.StandardRestore((params, state)), loader=args.JsonRestore())
            restored = manager.restore(manager.latest_step(), args=wanted)
            params, state = restored["model"]
            loader.set_state(restored["loader"])
        left = range(loader.step, stop)  # (once batches are prefetched, the loader is ahead)
        with tokjax.prefetch_to_device(loader.repeat(), sharding=by_rows) as batches:
            for _ in track(left, f"{count} processes", disable=process > 0):
                params, state, *numbers = train_step(params, state, next(batches))
                seen.append([float(number) for number in numbers])
            place_in_stream = args.JsonSave(batches.get_state())
        model = args.StandardSave((params, state))
        manager.save(stop, args=args.Composite(model=model, loader=place_in_stream))
    return seen


def run(count, *arguments):
    """The losses and checksums that so many processes see."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as processes:
        first, *_ = processes.map(partial(train, *arguments, count, address), range(count))
        return first


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    directory: Path = Path("runs/multi_host"),
    megabytes: float = 1,
    batch_size: int = typer.Option(8, help="rows of all processes together"),
    steps: int = typer.Option(30, min=2),
):
    dataset = prepare(directory, read_corpus(corpus, megabytes)[0], vocab_size=1024, length=64)
    with tempfile.TemporaryDirectory() as checkpoints:
        alone = run(1, dataset.path, f"{checkpoints}/alone", steps, batch_size)
        shared = run(2, dataset.path, f"{checkpoints}/shared", steps // 2, batch_size)
        shared += run(4, dataset.path, f"{checkpoints}/shared", steps, batch_size)
    (losses, ids), (of_several, their_ids) = np.transpose(alone), np.transpose(shared)
    off = np.abs(of_several - losses).max()
    print(f"one process: loss {losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last")
    print(f"two processes, from step {steps // 2} on four: losses differ by {off:.0e} at most")
    if not np.array_equal(ids, their_ids) or not off < 1e-3:
        sys.exit("error: several processes saw other batches, or had other losses, than one")


if __name__ == "__main__":
    try:
        typer.run(main)
    except tokjax.TokjaxError as error:
        sys.exit(f"error: {error}")
