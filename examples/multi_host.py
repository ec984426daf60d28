"""Data-parallel training on several hosts, resumed on a different number of hosts.

    pip install '.[examples]' orbax-checkpoint && python examples/multi_host.py

Each process reads its shard of every global batch from the same dataset. The program trains in one process,
and again in two processes that save a checkpoint, from which four processes resume. Both runs must see the
same batches and have the same losses, up to rounding. Here each process is one host with one CPU device, and
all are on this machine; on a cluster, each host calls `train` with its index and the address of the first
host.
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
    """Returns updated parameters and state, the mean loss of the global batch, and a checksum of its ids."""
    (nats, count), gradients = jax.value_and_grad(compute_total_loss, has_aux=True)(params, batch)
    updates, state = optimizer.update(gradients, state, params)
    checksum = (batch.ids * np.arange(batch.ids.size).reshape(batch.ids.shape)).sum()
    return optax.apply_updates(params, updates), state, nats / count, checksum


def train(directory_path, checkpoints, stop, count, address, process):
    """Trains up to step `stop` as one of `count` processes, and resumes from a checkpoint if there is one.

    Returns:
        The mean loss and the checksum of each step.
    """
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(address, count, process)
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()), ("data",)), jax.sharding.PartitionSpec
    by_rows, replicated = (jax.sharding.NamedSharding(mesh, spec(*axes)) for axes in (["data"], []))
    loader = tokjax.PackedTokenLoader(tokjax.open_dataset(directory_path), batch_size=BATCH_SIZE).shard(
        process, count
    )
    params, results = init_params(jax.random.key(0), VOCAB_SIZE, LENGTH), []
    params, state = jax.device_put((params, optimizer.init(params)), replicated)
    with CheckpointManager(checkpoints) as manager:
        if manager.latest_step() is not None:
            template = Composite(model=StandardRestore((params, state)), loader=JsonRestore())
            restored = manager.restore(None, args=template)
            params, state = restored["model"]
            loader.set_state(restored["loader"])
        remaining = range(loader.step, stop)  # read before prefetching, which advances the loader
        with tokjax.datasets.prefetch_to_device(loader.repeat(), sharding=by_rows) as batches:
            for _ in track(remaining, f"{count} processes", disable=process > 0):
                params, state, *numbers = train_step(params, state, next(batches))
                results.append([float(number) for number in numbers])
            checkpoint = Composite(model=StandardSave((params, state)), loader=JsonSave(batches.get_state()))
        manager.save(stop, args=checkpoint)
    return results


def run(count, *arguments):
    """Calls `train` in `count` processes, and returns the result of the first."""
    with socket.create_server(("localhost", 0)) as server:  # finds a free port
        address = f"localhost:{server.getsockname()[1]}"
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as processes:
        return next(processes.map(partial(train, *arguments, count, address), range(count)))


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    directory: Path = Path("runs/multi_host"),
    steps: int = typer.Option(30, min=2),
    processes: tuple[int, int] = typer.Option((2, 4), help="number in the first and second half"),
):
    dataset = prepare_datasets(directory, read_corpus(corpus, megabytes=1)[0], VOCAB_SIZE, LENGTH)
    with tempfile.TemporaryDirectory() as checkpoints:
        single = run(1, dataset.path, f"{checkpoints}/single", steps)
        shared = run(processes[0], dataset.path, f"{checkpoints}/shared", steps // 2)
        shared += run(processes[1], dataset.path, f"{checkpoints}/shared", steps)
    (losses, checksums), (shared_losses, shared_checksums) = np.transpose(single), np.transpose(shared)
    difference = np.abs(shared_losses - losses).max()  # not 0: floats are added in a different order
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} in one process; {processes} differ by {difference:.0e}")
    if not np.array_equal(checksums, shared_checksums) or not difference < 1e-3:
        sys.exit("error: one process and several saw different batches, or had different losses")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
