"""Training pipeline from functions: texts, tokens, batches of a few lengths, labels, a jitted step.

    pip install '.[examples]' && python examples/pipeline.py

The texts are paragraphs of the Python standard library's source, or of `--corpus`. Batches have one of at
most four lengths, so that the training step is compiled at most four times.
"""

import itertools
import random
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import rich
import typer
from corpus import read_corpus, split_paragraphs
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_bpe


def add_labels(padded):
    """Returns the batch with next-token labels."""
    labels = tokjax.causal_lm_labels(padded.ids, padded.attention_mask)
    return tokjax.CausalLMBatch(padded.ids, padded.attention_mask, labels)


def make_batch_pipeline(tokenizer, lists):
    """Returns a pipeline from a list of texts to a batch on the device, and its length buckets.

    The boundaries of the buckets are fitted to the longest text of each list.
    """
    tokens = partial(tokjax.encode_batch_result, tokenizer, max_length=256, disallowed_special=())
    longest = [tokens(texts).lengths.max() for texts in lists]
    options = {
        "buckets": tokjax.LengthBuckets.fit(longest, num_buckets=4, multiple_of=8),
        "pad_id": tokjax.pad_id(tokenizer),
        "truncation": "right",
        "columns": (),
    }
    to_batch = tokjax.pipelines.pipeline(
        ("tokens", tokens),
        ("padded", partial(tokjax.collate_padded_batch, **options)),
        ("labels", add_labels),
        ("on device", jax.device_put),
    )
    return to_batch, options["buckets"]


def group_by_length(tokenizer, texts, size):
    """Returns lists of `size` texts with similar numbers of tokens, in random order."""
    counts = tokjax.count_tokens(tokenizer, texts, disallowed_special=())
    by_tokens = [texts[i] for i in np.argsort(counts, kind="stable")]
    lists = list(tokjax.pipelines.batched(by_tokens, size, drop_last=True))
    if not lists:
        raise tokjax.errors.InvalidArgumentError(f"the corpus is too small: a batch needs {size} paragraphs")
    random.Random(0).shuffle(lists)
    return lists


def compute_total_loss(params, batch):
    """Returns the summed next-token loss in nats and the number of labels."""
    mask = tokjax.masks.make_attention_mask(attention_mask=batch.attention_mask)
    logits = compute_logits(params, batch.ids, jnp.arange(batch.ids.shape[1]), mask)
    return compute_cross_entropy(logits, batch.labels)


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    megabytes: float = typer.Option(4, help="amount of text to train on, in MB"),
    vocab_size: int = 1024,
    batch_size: int = typer.Option(32, min=1, help="paragraphs per batch"),
    steps: int = typer.Option(200, min=1),
):
    texts, held_out = map(split_paragraphs, read_corpus(corpus, megabytes))
    trained = train_bpe(texts, vocab_size=vocab_size, special_tokens=["<pad>"], pad_token="<pad>")
    tokenizer = trained.tokenizer
    lists, held_lists = (group_by_length(tokenizer, part, batch_size) for part in (texts, held_out))
    to_batch, buckets = make_batch_pipeline(tokenizer, lists)
    held = list(to_batch.map(held_lists))
    print(to_batch.describe(lists[0]))
    rich.print(tokjax.show_batch(to_batch(lists[0]), tokenizer, max_rows=3))

    params = init_params(jax.random.key(0), tokjax.vocab_size(tokenizer), max(buckets))
    nats, count = sum_over_batches(compute_total_loss, params, held)
    batches = to_batch.map(itertools.cycle(lists), workers=2)
    params = fit(params, compute_total_loss, batches, steps, 4e-3)
    nats_after, _ = sum_over_batches(compute_total_loss, params, held)
    print(f"held-out nats per token: {nats / count:.3f} before, {nats_after / count:.3f} after")
    if not nats_after < nats:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
