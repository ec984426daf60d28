"""Instruction tuning on packed conversations: stopped by a signal, and resumed on another number of hosts.

    pip install '.[chat,examples]' orbax-checkpoint
    python examples/finetune_packed.py --hosts 2    # stop it with Ctrl+C or `kill`, at any time
    python examples/finetune_packed.py --hosts 4    # continues with the next batch

Conversations in JSON lines, `{"messages": [...]}`, become a dataset on disk with the loss mask of the
answers. A row of a batch has several whole conversations. A batch depends only on the seed and the step, so
the losses are those of a run without a stop, whatever the number of hosts. Here each host is a process with
one CPU device; on a cluster, each host calls `train` with its index and the address of the first one.
Without `--chats`, the conversations ask what functions of the standard library do.
"""

import json
import signal
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
import typer
from chats import CHATML, prepare_dataset, write_chats
from hosts import open_log, read_log, run_hosts
from jax.experimental.multihost_utils import reached_preemption_sync_point
from orbax.checkpoint import CheckpointManager
from orbax.checkpoint.args import Composite, JsonRestore, JsonSave, StandardRestore, StandardSave
from transformer import compute_cross_entropy, compute_logits, init_params

import tokjax

STEPS_BETWEEN_CHECKPOINTS = 50
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-3))


def compute_mean_loss(params, batch):
    """Returns the loss per token of the answers, in nats. Conversations do not attend to each other."""
    mask = tokjax.masks.make_attention_mask(segment_ids=batch.segment_ids)
    logits = compute_logits(params, batch.ids, batch.positions, mask)
    nats, count = compute_cross_entropy(logits, batch.causal_lm_labels())
    return nats / count


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, state, batch):
    loss, gradients = jax.value_and_grad(compute_mean_loss)(params, batch)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


def train(directory, batch_size, length, steps, address, count, host):
    """Trains as one of `count` hosts, from the last checkpoint on, until a host gets SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process turns it into SIGTERM
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(address, count, host)
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()), ("data",)), jax.sharding.PartitionSpec
    by_rows, replicated = (jax.sharding.NamedSharding(mesh, spec(*axes)) for axes in (["data"], []))
    dataset = tokjax.open_dataset(directory / "dataset")
    loader = tokjax.PlannedLoader(dataset, batch_size=batch_size, block_size=length).shard(host, count)
    params = init_params(jax.random.key(0), tokjax.vocab_size(dataset.tokenizer), length)
    params, state = jax.device_put((params, optimizer.init(params)), replicated)
    with CheckpointManager((directory / "checkpoints").absolute()) as manager:
        if manager.latest_step() is not None:
            template = Composite(model=StandardRestore((params, state)), loader=JsonRestore())
            restored = manager.restore(None, args=template)
            params, state = restored["model"]
            loader.set_state(restored["loader"])
        step, losses = loader.step, open_log(directory / "losses.jsonl", loader.step) if host == 0 else None
        with tokjax.datasets.prefetch_to_device(loader.repeat(), sharding=by_rows) as batches:
            while step < steps:
                params, state, loss = train_step(params, state, next(batches))
                step += 1
                if losses:
                    print(json.dumps({"step": step, "loss": float(loss)}), file=losses, flush=True)
                is_stopped = reached_preemption_sync_point(step)
                if is_stopped or step == steps or step % STEPS_BETWEEN_CHECKPOINTS == 0:
                    model, position = StandardSave((params, state)), JsonSave(batches.get_state())
                    manager.save(step, args=Composite(model=model, loader=position))
                if is_stopped:
                    break


def main(
    chats: Path | None = typer.Option(None, help="conversations, as JSON lines with 'messages'"),
    template: Path | None = typer.Option(None, help="chat template, or a model's directory; default: ChatML"),
    corpus: list[Path] = typer.Option([], help="Python file for the default conversations; repeatable"),
    megabytes: float = typer.Option(8, help="amount of source code for the default conversations, in MB"),
    directory: Path = Path("runs/finetune_packed"),
    vocab_size: int = 2048,
    length: int = typer.Option(256, help="tokens per row"),
    batch_size: int = typer.Option(8, min=1, help="rows per batch, a multiple of the number of hosts"),
    steps: int = typer.Option(120, min=1),
    hosts: int = typer.Option(1, min=1, help="number of processes"),
):
    directory.mkdir(parents=True, exist_ok=True)
    if chats is None:
        chats = directory / "chats.jsonl"
        write_chats(chats, corpus, megabytes)
    text = tokjax.formats.load_chat_template(template) if template else CHATML
    dataset = prepare_dataset(directory / "dataset", chats, text, vocab_size, length)
    loader = tokjax.PlannedLoader(dataset, batch_size=batch_size, block_size=length).shard(0, hosts)
    share = dataset.num_tokens / (len(loader) * batch_size * length)
    print(f"{dataset.num_documents:,} conversations in {len(loader):,} batches, {share:.0%} of them tokens")
    run_hosts(train, hosts, directory, batch_size, length, steps)
    losses = read_log(directory / "losses.jsonl")
    if len(losses) < steps:
        print(f"stopped after step {len(losses)}; run it again to continue, with any number of hosts")
    else:
        print(f"loss of the answers: {losses[0]['loss']:.3f} to {losses[-1]['loss']:.3f} in {steps} steps")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
