"""Span corruption as in T5: sentinels replace spans of text, and the model predicts the spans.

    pip install '.[examples]' && python examples/span_corruption.py

The text is the Python standard library's source, or that of `--corpus`. Instead of an encoder and a decoder,
one transformer reads the inputs as a bidirectional prefix, and generates the targets after it. The held-out
loss on the tokens of the spans is compared with that of a unigram model.
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


def encode_chunks(tokenizer, texts, length):
    """Concatenates and splits all tokens; returns ids and attention mask, shape `(num_chunks, length)`."""
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    blocks = tokjax.pack_blocks(batch, block_size=length, pad_id=tokjax.pad_id(tokenizer))
    return blocks.ids, blocks.attention_mask


def corrupt_chunks(tokenizer, chunks, random):
    """Samples spans; returns the inputs and targets, and the targets as labels, with -100 for padding."""
    batch = tokjax.objectives.span_corruption(
        *chunks,
        tokjax.objectives.draw_uniform(random, chunks[0].shape),
        sentinel_ids=[tokjax.token_to_id(tokenizer, name) for name in SENTINELS],
        eos_id=tokjax.eos_id(tokenizer),
        pad_id=tokjax.pad_id(tokenizer),
    )
    return batch, np.where(batch.targets_mask, batch.targets, -100)


def compute_total_loss(params, batch):
    """Returns the summed loss on the targets in nats and the number of labels.

    Input tokens attend to all inputs; target tokens attend to all inputs and to earlier targets.
    """
    rows, labels = batch
    ids = jnp.concatenate([rows.inputs, rows.decoder_inputs], axis=1)
    attention_mask = jnp.concatenate([rows.inputs_mask, rows.targets_mask], axis=1)
    in_prefix = jnp.concatenate([rows.inputs_mask, jnp.zeros_like(rows.targets_mask)], axis=1)
    mask = tokjax.masks.make_attention_mask(attention_mask=attention_mask, in_prefix=in_prefix)
    logits = compute_logits(params, ids, jnp.arange(ids.shape[1]), mask)
    return compute_cross_entropy(logits[:, -labels.shape[1] :], labels)


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    megabytes: float = typer.Option(8, help="amount of text to train on, in MB"),
    vocab_size: int = 2048,
    length: int = typer.Option(128, help="positions of the inputs"),
    batch_size: int = typer.Option(16, min=1),
    steps: int = typer.Option(600, min=1),
):
    texts, held_out = read_corpus(corpus, megabytes)
    options = {"special_tokens": ["<pad>", "</s>", *SENTINELS], "pad_token": "<pad>", "eos_token": "</s>"}
    tokenizer = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", **options).tokenizer
    tokens_length, inputs_length, targets_length = tokjax.objectives.compute_input_and_target_lengths(length)
    rows, held = (encode_chunks(tokenizer, part, tokens_length) for part in (texts, held_out))

    random = np.random.default_rng(0)
    train = (corrupt_chunks(tokenizer, part, random) for part in iter_random_batches(rows, batch_size, steps))
    params = init_params(jax.random.key(0), tokjax.vocab_size(tokenizer), inputs_length + targets_length)
    with tokjax.datasets.prefetch_to_device(train) as batches:
        params = fit(params, compute_total_loss, batches, steps, 4e-3)

    batch, labels = corrupt_chunks(tokenizer, held, random)
    # Sentinels and EOS are easy to predict: the comparison is about the tokens of the text.
    labels[np.isin(labels, list(tokjax.special_tokens(tokenizer).values()))] = -100
    nats, count = sum_over_batches(compute_total_loss, params, iter_batches((batch, labels), batch_size))
    counts = np.bincount(rows[0][rows[1] == 1], minlength=tokjax.vocab_size(tokenizer)) + 1
    baseline = np.log(counts.sum() / counts)[labels[labels != -100]].sum()
    for name, ids in (("inputs", batch.inputs[0]), ("targets", batch.targets[0])):
        print(f"{name}: {tokjax.decode(tokenizer, ids)}")
    print(f"held-out nats per span token: {nats / count:.3f}; unigram baseline: {baseline / count:.3f}")
    if not nats < baseline:
        sys.exit("no better than the unigram baseline")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
