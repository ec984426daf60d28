"""Pre-training of a language model: train a vocabulary, write a packed dataset, train a small transformer.

    pip install '.[examples]' && python examples/train_lm.py

The corpus is the source code of the Python standard library, or the files of `--corpus`. The dataset and its
tokenizer are written to `--directory`, and a second run with the same texts and sizes reuses them. The
program prints a table of losses, and the held-out bits per byte before and after training.
"""

import hashlib
import math
import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # JAX would ignore Ctrl-C while it is imported

import jax
import numpy as np
import typer
from batches import iter_batches, take_rows
from corpus import SEPARATOR, read_corpus
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_bpe


def prepare_datasets(directory, texts, vocab_size, length):
    """Returns the packed dataset of the texts, from an earlier run or after training its tokenizer."""
    digest = hashlib.sha256(repr((vocab_size, length, texts)).encode("utf-8", "replace")).hexdigest()
    path = directory / f"corpus-{digest[:16]}"
    if path.exists():
        print(f"using the dataset of an earlier run, {path}")
        return tokjax.open_dataset(path)
    print(f"no dataset of these texts yet: training a tokenizer with {vocab_size:,} tokens")
    directory.mkdir(parents=True, exist_ok=True)  # fails before the training if it is not writable
    trained = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", special_tokens=[SEPARATOR])
    print(f"writing the dataset, {path}")
    tokjax.write_dataset(texts, tokjax.PackedTokenField(trained.tokenizer, length), path)
    return tokjax.open_dataset(path)


def compute_next_token_logits(params, blocks):
    """Computes logits; each token attends to the earlier tokens of its document, not to other documents."""
    mask = tokjax.masks.make_attention_mask(segment_ids=blocks.segment_ids)
    return compute_logits(params, blocks.ids, blocks.positions, mask)


def compute_total_loss(params, blocks):
    """Returns the summed next-token loss in nats and the number of labels."""
    return compute_cross_entropy(compute_next_token_logits(params, blocks), blocks.causal_lm_labels())


def make_held_out_metric(texts, tokenizer, length, batch_size):
    """Returns a function that computes the loss of parameters on held-out texts, in bits per byte."""
    encoded = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False)
    packed = tokjax.pack_blocks(encoded, block_size=length, pad_id=0)
    # Four batches of evenly spaced blocks: every text is represented, and each row of the table stays fast.
    rows = np.linspace(0, len(packed.ids), 4 * batch_size, endpoint=False, dtype=int)
    blocks = take_rows(packed, rows)
    labels = blocks.causal_lm_labels()
    byte_lengths = tokjax.token_byte_lengths(tokenizer)
    nbytes = tokjax.objectives.label_byte_lengths(labels, byte_lengths).sum()
    return lambda params: (
        sum_over_batches(compute_total_loss, params, iter_batches(blocks, batch_size))[0]
        / math.log(2)
        / nbytes
    )


def main(
    corpus: list[Path] = typer.Option(
        [], help="text file with <|endoftext|> after each document, such as that of TinyStories; repeatable"
    ),
    directory: Path = Path("runs/train_lm"),
    megabytes: float = typer.Option(8, help="amount of text to train on, in MB"),
    vocab_size: int = 2048,
    length: int = typer.Option(64, min=2, help="tokens per block"),
    batch_size: int = typer.Option(16, min=1, max=4096),
    steps: int = typer.Option(300, min=1),
    learning_rate: float = 2e-3,
    seed: int = typer.Option(0, min=0, max=2**32 - 1),
):
    sys.stdout.reconfigure(line_buffering=True)  # shows each line at once in a file, too
    print("reading the corpus")
    texts, held_out = read_corpus(corpus, megabytes)
    dataset = prepare_datasets(directory, texts, vocab_size, length)
    loader = tokjax.PackedTokenLoader(dataset, batch_size=batch_size, seed=seed)
    print(f"{dataset}\n{len(loader):,} batches of {batch_size} x {length} tokens per epoch")

    print("initializing the model")
    params = init_params(jax.random.key(seed), dataset.vocab_size, length)
    print("encoding the held-out texts")
    measure = make_held_out_metric(held_out, dataset.tokenizer, length, batch_size)
    print("evaluating the model before training")
    before = measure(params)
    with tokjax.datasets.prefetch_to_device(loader.repeat()) as batches:
        measures = {"held-out bits per byte": measure}
        params = fit(params, compute_total_loss, batches, steps, learning_rate, measures)
    after = measure(params)
    print(f"held-out bits per byte: {before:.3f} before training, {after:.3f} after it")
    if not after < before:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
