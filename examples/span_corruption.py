"""Span corruption, as T5 has it: sentinels stand for spans of text, and the model says what these were.

    pip install '.[examples]' && python examples/span_corruption.py

The text is the Python standard library's source, or that of `--corpus`. In place of an encoder and a decoder
there is one transformer, which sees all of the inputs at once, as a prefix, and then says the targets.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import typer
from batches import iter_batches, iter_random_batches
from corpus import read_corpus
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_bpe

SENTINELS = [f"<extra_id_{i}>" for i in range(100)]


def chunks(tokenizer, texts, length):
    """The tokens of all texts, joined and cut, and a mask that is 0 on padding: `(chunks, length)` each."""
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    blocks = tokjax.pack_blocks(batch, block_size=length, pad_id=tokjax.pad_id(tokenizer))
    return blocks.ids, blocks.attention_mask


def corrupt_chunks(tokenizer, chunks, random):
    """Inputs and targets, with other spans each time; and the targets as labels."""
    batch = tokjax.objectives.span_corruption(
        *chunks,
        tokjax.objectives.draw_uniform(random, chunks[0].shape),
        sentinel_ids=[tokjax.token_to_id(tokenizer, name) for name in SENTINELS],
        eos_id=tokjax.eos_id(tokenizer),
        pad_id=tokjax.pad_id(tokenizer),
    )
    return batch, np.where(batch.targets_mask, batch.targets, -100)


def compute_total_loss(params, batch):
    """The inputs see each other; what is said sees them, and what was said before."""
    rows, labels = batch
    ids = jnp.concatenate([rows.inputs, rows.decoder_inputs], axis=1)
    present = jnp.concatenate([rows.inputs_mask, rows.targets_mask], axis=1)
    in_prefix = jnp.concatenate([rows.inputs_mask, jnp.zeros_like(rows.targets_mask)], axis=1)
    mask = tokjax.masks.make_attention_mask(attention_mask=present, in_prefix=in_prefix)
    logits = compute_logits(params, ids, jnp.arange(ids.shape[1]), mask)
    return compute_cross_entropy(logits[:, -labels.shape[1] :], labels)


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    megabytes: float = typer.Option(8, help="how much text to train on"),
    vocab_size: int = 2048,
    length: int = typer.Option(128, help="places of the inputs"),
    batch_size: int = typer.Option(16, min=1),
    steps: int = typer.Option(600, min=1),
):
    texts, held_out = read_corpus(corpus, megabytes)
    options = {"special_tokens": ["<pad>", "</s>", *SENTINELS], "pad_token": "<pad>", "eos_token": "</s>"}
    tokenizer = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", **options).tokenizer
    tokens_length, inputs_length, targets_length = tokjax.objectives.compute_input_and_target_lengths(length)
    rows, held = (chunks(tokenizer, part, tokens_length) for part in (texts, held_out))

    random = np.random.default_rng(0)
    train = (corrupt_chunks(tokenizer, part, random) for part in iter_random_batches(rows, batch_size, steps))
    params = init_params(jax.random.key(0), tokjax.vocab_size(tokenizer), inputs_length + targets_length)
    with tokjax.prefetch_to_device(train) as batches:
        params = fit(params, compute_total_loss, batches, steps, 4e-3)

    batch, labels = corrupt_chunks(tokenizer, held, random)
    labels[np.isin(labels, list(tokjax.special_tokens(tokenizer).values()))] = -100
    nats, count = sum_over_batches(compute_total_loss, params, iter_batches((batch, labels), batch_size))
    counts = np.bincount(rows[0][rows[1] == 1], minlength=tokjax.vocab_size(tokenizer)) + 1
    by_counts = np.log(counts.sum() / counts)[labels[labels != -100]].sum()
    for name, ids in (("inputs", batch.inputs[0]), ("targets", batch.targets[0])):
        print(f"{name}: {tokjax.decode(tokenizer, ids)}")
    print(f"held-out nats a token of spans: {nats / count:.3f}; by counts of tokens: {by_counts / count:.3f}")
    if not nats < by_counts:
        sys.exit("no better than the counts of tokens")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
