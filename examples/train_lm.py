"""From text to a language model: train a vocabulary, pack the corpus, fit a small transformer.

    pip install '.[examples]' && python examples/train_lm.py

The corpus is the source code of the Python standard library, or the files of `--corpus`. The dataset and its
tokenizer stay in `--directory`, and a second run uses them again if nothing has changed.
"""

import hashlib
import math
import sys
from pathlib import Path

import jax
import numpy as np
import typer
from batches import iter_batches, take_rows
from corpus import SEPARATOR, read_corpus
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_bpe


def prepare_datasets(directory, texts, vocab_size, length):
    """The packed dataset of these texts, with its tokenizer: that of an earlier run, if there is one."""
    digest = hashlib.sha256(repr((vocab_size, length, texts)).encode("utf-8", "replace")).hexdigest()
    path = directory / f"corpus-{digest[:16]}"
    if path.exists():
        print(f"using the dataset of an earlier run, {path}")
        return tokjax.open_dataset(path)
    print(f"no dataset of these texts yet: training a tokenizer with {vocab_size:,} tokens")
    directory.mkdir(parents=True, exist_ok=True)  # (what can't be written fails before the training)
    trained = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", special_tokens=[SEPARATOR])
    print(f"writing the dataset, {path}")
    tokjax.write_dataset(texts, tokjax.PackedTokenField(trained.tokenizer, length), path, progress=True)
    return tokjax.open_dataset(path)


def compute_next_token_logits(params, blocks):
    """Each token sees the tokens before it in its own document, and no other document of the block."""
    mask = tokjax.masks.make_attention_mask(segment_ids=blocks.segment_ids)
    return compute_logits(params, blocks.ids, blocks.positions, mask)


def compute_total_loss(params, blocks):
    return compute_cross_entropy(compute_next_token_logits(params, blocks), blocks.causal_lm_labels())


def make_held_out_metric(texts, tokenizer, length, batch_size):
    """Returns a function of the parameters: the loss on these texts, in bits per byte."""
    encoded = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False)
    packed = tokjax.pack_blocks(encoded, block_size=length, pad_id=0)
    some = np.linspace(0, len(packed.ids), 4 * batch_size, endpoint=False, dtype=int)
    blocks = take_rows(packed, some)  # (from all texts, and no more: each row of the table measures this)
    labels = blocks.causal_lm_labels()
    nbytes = tokenizer.vocabulary.byte_lengths[labels[labels != -100]].sum()
    return lambda params: (
        sum_over_batches(compute_total_loss, params, iter_batches(blocks, batch_size))[0]
        / math.log(2)
        / nbytes
    )


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    directory: Path = Path("runs/train_lm"),
    megabytes: float = typer.Option(8, help="how much text to train on"),
    vocab_size: int = 2048,
    length: int = typer.Option(64, min=2, help="tokens a block"),
    batch_size: int = typer.Option(16, min=1, max=4096),
    steps: int = typer.Option(300, min=1),
    learning_rate: float = 2e-3,
    seed: int = typer.Option(0, min=0, max=2**32 - 1),
):
    sys.stdout.reconfigure(line_buffering=True)  # (in a file, too, each line appears at once)
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
    with tokjax.prefetch_to_device(loader.repeat()) as batches:
        measures = {"held-out bits per byte": measure}
        params = fit(params, compute_total_loss, batches, steps, learning_rate, measures)
    after = measure(params)
    print(f"held-out bits per byte: {before:.3f} before training, {after:.3f} after it")
    if not after < before:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
