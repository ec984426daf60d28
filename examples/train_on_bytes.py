"""Training on raw bytes: the jitted step encodes windows of a file, and trains a transformer on the tokens.

    pip install '.[examples]' && python examples/train_on_bytes.py

The corpus is the source code of the Python standard library, or the files of `--corpus`. Its bytes are in one
file, which is memory-mapped. No tokens are stored: a batch is an array of random windows of the file, and
`encode_jit` turns it into token ids within the training step, on the device. The program checks that the ids
equal those of the host, and prints the held-out bits per byte before and after training.
"""

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import typer
from corpus import read_corpus
from transformer import compute_cross_entropy, compute_logits, fit, init_params

import tokjax
from tokjax.device import Capacities, encode_jit, tokenizer_tables
from tokjax.trainer import train_bpe


class ByteBatch(NamedTuple):
    """Windows of bytes, `uint8`, shape `(batch, window)`, and the tables of the tokenizer."""

    data: Any
    tables: Any


def write_bytes(path, texts):
    """Writes the texts to one file, and returns its bytes as a memory-mapped array."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(texts).encode("utf-8", "replace"))
    return np.memmap(path, np.uint8, "r")


def iter_windows(data, size, window, tables, seed):
    """Yields batches of `size` random windows of a file, without end."""
    if len(data) <= window:
        raise tokjax.errors.InvalidArgumentError(f"the corpus is too small: a window has {window} bytes")
    random = np.random.default_rng(seed)
    while True:
        starts = random.integers(len(data) - window, size=size)
        yield ByteBatch(data[starts[:, None] + np.arange(window)], tables)


def make_inputs(batch, length):
    """Encodes each window as a text; returns the padded tokens and their labels."""
    rows, window = batch.data.shape
    # Enough for any bytes. For large batches, `suggest_capacities` needs less memory.
    capacities = Capacities(*[rows * window] * len(Capacities._fields))
    row_splits = window * jnp.arange(rows + 1)
    tokens = encode_jit(batch.tables, batch.data.reshape(-1), row_splits, capacities=capacities)
    padded = tokjax.pad_ragged(tokjax.Ragged(tokens.ids, tokens.row_splits), length=length, pad_id=0)
    return padded, tokjax.causal_lm_labels(padded.ids, padded.attention_mask)


def compute_total_loss(params, batch, length):
    """Returns the summed next-token loss in nats and the number of labels."""
    padded, labels = make_inputs(batch, length)
    mask = tokjax.masks.make_attention_mask(attention_mask=padded.attention_mask)
    logits = compute_logits(params, padded.ids, jnp.arange(length), mask)
    return compute_cross_entropy(logits, labels)


def check_ids(tokenizer, batch, padded):
    """Raises an error unless the ids of a batch equal those of the host."""
    for row, ids, mask in zip(batch.data, *map(np.asarray, padded[:2]), strict=True):
        expected = tokjax.encode(tokenizer, row.tobytes(), add_special_tokens=False)
        np.testing.assert_array_equal(ids[mask == 1], expected[: len(ids)])
    print("the ids of the device equal those of the host")


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    directory: Path = Path("runs/train_on_bytes"),
    megabytes: float = typer.Option(4, help="amount of text to train on, in MB"),
    vocab_size: int = 1024,
    window: int = typer.Option(256, min=16, help="bytes per row"),
    batch_size: int = typer.Option(16, min=1),
    steps: int = typer.Option(200, min=1),
):
    texts, held_out = read_corpus(corpus, megabytes)
    tokenizer = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k").tokenizer
    tables = tokenizer_tables(tokenizer)
    data = write_bytes(directory / "train.bin", texts)
    held_data = write_bytes(directory / "held_out.bin", held_out)
    batches = iter_windows(data, batch_size, window, tables, seed=0)
    held = next(iter_windows(held_data, 4 * batch_size, window, tables, seed=1))
    length = window // 2
    padded, labels = jax.jit(make_inputs, static_argnames="length")(held, length=length)
    check_ids(tokenizer, held, padded)

    byte_lengths = tokjax.token_byte_lengths(tokenizer)
    nbytes = int(tokjax.objectives.label_byte_lengths(labels, byte_lengths).sum())
    total_loss = partial(compute_total_loss, length=length)
    measure = jax.jit(lambda params: total_loss(params, held)[0] / math.log(2) / nbytes)
    params = init_params(jax.random.key(0), vocab_size, length)
    before = float(measure(params))
    params = fit(params, total_loss, batches, steps, 2e-3, {"held-out bits per byte": measure})
    after = float(measure(params))
    print(f"held-out bits per byte: {before:.3f} before training, {after:.3f} after it")
    if not after < before:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
