"""A training pipeline in twenty lines: text files, tokens, batches in a few lengths, labels, a jitted step.

    pip install -e '.[examples]' && python examples/pipeline.py

The texts are the paragraphs of Python's own standard library, or of the files of `--corpus`. The model is the
smallest that learns something: it sees one token, and predicts the next.
"""

import argparse
import itertools
import random
import sys
import sysconfig
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from rich.console import Console

import tokjax
from tokjax.trainer import train_bpe

WIDTH = 64
optimizer = optax.adam(1e-2)
console = Console()


def with_labels(padded):
    labels = tokjax.causal_lm_labels(padded.ids, padded.attention_mask)
    return tokjax.CausalLMBatch(padded.ids, padded.attention_mask, labels)


def init_params(key, vocab_size):
    return {
        "seen": jax.random.normal(key, (vocab_size, WIDTH)),
        "next": jnp.zeros((WIDTH, vocab_size)),
    }


def mean_loss(params, batch):
    logits = params["seen"][batch.ids] @ params["next"]
    counted = batch.labels != -100
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.where(counted, batch.labels, 0))
    return jnp.mean(losses, where=counted)


def train_step(params, state, batch):
    loss, gradients = jax.value_and_grad(mean_loss)(params, batch)
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state, loss


def train(files, vocab_size, batch_size, steps):
    """The twenty lines, from files to the loss of each step."""
    texts = read_paragraphs(files, steps * batch_size, at_least=batch_size)
    tokenizer = train_bpe(texts, vocab_size=vocab_size, special_tokens=["<pad>"], progress=False).tokenizer
    tokens = partial(tokjax.encode_batch_result, tokenizer, max_length=512, disallowed_special=())
    ladder = tokjax.LengthBuckets.fit(tokens(texts).lengths, rungs=6, multiple_of=8)
    pad_id = tokjax.token_to_id(tokenizer, "<pad>")
    to_batch = tokjax.pipeline(
        ("tokens", tokens),
        ("padded", partial(tokjax.collate_padded_batch, pad_id=pad_id, buckets=ladder, columns=())),
        ("labels", with_labels),
        ("on device", jax.device_put),
    )
    lists = lists_of_like_lengths(texts, batch_size)
    look_at(to_batch, lists[0], tokenizer)
    step = tokjax.limit_traces(train_step, ladder)
    jitted = jax.jit(step, donate_argnums=(0, 1))
    params, losses = init_params(jax.random.key(0), vocab_size), []
    state = optimizer.init(params)
    for batch in itertools.islice(to_batch.map(itertools.cycle(lists), workers=2), steps):
        params, state, loss = jitted(params, state, batch)
        losses.append(loss)
    console.print(f"{len(step.traces)} traces, for a ladder of {list(ladder)}", highlight=False)
    return [float(loss) for loss in losses]


def read_paragraphs(files, at_most, at_least):
    texts = list(itertools.islice(tokjax.read_documents(files, "\n\n"), at_most))
    if len(texts) < at_least:
        raise tokjax.InvalidArgumentError(f"the corpus is too small: a batch takes {at_least} paragraphs")
    return texts


def lists_of_like_lengths(texts, size):
    lists = list(tokjax.batched(sorted(texts, key=len), size, drop_last=True))
    random.Random(0).shuffle(lists)
    return lists


def look_at(to_batch, texts, tokenizer):
    console.print(to_batch.describe(texts), highlight=False, markup=False)
    console.print(tokjax.show_batch(to_batch(texts), tokenizer, max_rows=3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, nargs="+", help="text files [the standard library's source]")
    parser.add_argument("--vocab-size", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32, help="paragraphs a batch")
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    if args.steps < 2:
        sys.exit(
            f"error: --steps must be at least 2, not {args.steps}: the first losses and the last are compared"
        )

    files = args.corpus or sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    try:
        losses = train(files, args.vocab_size, args.batch_size, args.steps)
    except tokjax.TokjaxError as error:
        sys.exit(f"error: {error}")
    some = max(len(losses) // 10, 1)
    first, last = sum(losses[:some]) / some, sum(losses[-some:]) / some
    console.print(f"loss {first:.3f} in the first {some} steps, {last:.3f} in the last", highlight=False)
    if not last < first:
        console.print("the loss did not fall", style="bold red")
        sys.exit(1)


if __name__ == "__main__":
    main()
