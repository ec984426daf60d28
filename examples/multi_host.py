"""Data-parallel training on several processes, resumed on another number of them: the losses of one process.

    pip install '.[examples]' orbax-checkpoint && python examples/multi_host.py

Each process reads its rows of the same batches from one dataset, for a CPU device of its own. Here all are
started on this machine; on a cluster each host calls `train` with its number and the address of the first.
"""

import multiprocessing
import socket
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
import typer
from corpus import read_corpus
from orbax.checkpoint import CheckpointManager
from orbax.checkpoint.args import Composite, JsonRestore, JsonSave, StandardRestore, StandardSave
from rich.progress import track
from train_lm import compute_total_loss, prepare_datasets
from transformer import init_params

import tokjax

BATCH_SIZE, LENGTH, VOCAB_SIZE = 8, 64, 1024
optimizer = optax.adamw(3e-3)


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, state, batch):
    """What is learned of a global batch, its mean loss, and a number that only the same ids give."""
    (nats, count), gradients = jax.value_and_grad(compute_total_loss, has_aux=True)(params, batch)
    updates, state = optimizer.update(gradients, state, params)
    checksum = (batch.ids * np.arange(batch.ids.size).reshape(batch.ids.shape)).sum()
    return optax.apply_updates(params, updates), state, nats / count, checksum


def train(directory_path, checkpoints, stop, count, address, process):
    """Go on from the last checkpoint up to a step, as one process of several: what each step gave."""
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(address, count, process)
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()), ("data",)), jax.sharding.PartitionSpec
    by_rows, everywhere = (jax.sharding.NamedSharding(mesh, spec(*axes)) for axes in (["data"], []))
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(directory_path), batch_size=BATCH_SIZE).shard(
        process, count
    )
    params, seen = init_params(jax.random.key(0), VOCAB_SIZE, LENGTH), []
    params, state = jax.device_put((params, optimizer.init(params)), everywhere)
    with CheckpointManager(checkpoints) as manager:
        if manager.latest_step() is not None:
            wanted = Composite(model=StandardRestore((params, state)), loader=JsonRestore())
            restored = manager.restore(None, args=wanted)
            params, state = restored["model"]
            loader.set_state(restored["loader"])
        left = range(loader.step, stop)  # (once batches are prefetched, the loader is ahead)
        with tokjax.prefetch_to_device(loader.repeat(), sharding=by_rows) as batches:
            for _ in track(left, f"{count} processes", disable=process > 0):
                params, state, *numbers = train_step(params, state, next(batches))
                seen.append([float(number) for number in numbers])
            saved = Composite(model=StandardSave((params, state)), loader=JsonSave(batches.get_state()))
        manager.save(stop, args=saved)
    return seen


def run(count, *arguments):
    """What so many processes see, as the first of them tells it."""
    with socket.create_server(("localhost", 0)) as free:
        address = f"localhost:{free.getsockname()[1]}"
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as processes:
        return next(processes.map(partial(train, *arguments, count, address), range(count)))


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    directory: Path = Path("runs/multi_host"),
    steps: int = typer.Option(30, min=2),
    processes: tuple[int, int] = typer.Option((2, 4), help="how many in the first half, and in the second"),
):
    dataset = prepare_datasets(directory, read_corpus(corpus, megabytes=1)[0], VOCAB_SIZE, LENGTH)
    with tempfile.TemporaryDirectory() as checkpoints:
        alone = run(1, dataset.path, f"{checkpoints}/alone", steps)
        shared = run(processes[0], dataset.path, f"{checkpoints}/shared", steps // 2)
        shared += run(processes[1], dataset.path, f"{checkpoints}/shared", steps)
    (losses, ids), (of_several, their_ids) = np.transpose(alone), np.transpose(shared)
    apart = np.abs(of_several - losses).max()  # a little: floats are added in another order
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} in one process; in {processes} {apart:.0e} off at most")
    if not np.array_equal(ids, their_ids) or not apart < 1e-3:
        sys.exit("error: several processes saw other batches, or had other losses, than one")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
