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
import typer
from batches import in_batches
from corpora import SEPARATOR, read_corpus
from transformer import cross_entropy, fit, init_params, logits_of, summed

import tokjax
from tokjax.trainer import train_bpe


def prepare(directory, texts, vocab_size, length):
    """The packed dataset of these texts, with its tokenizer: that of an earlier run, if there is one."""
    digest = hashlib.sha256(repr((vocab_size, length, texts)).encode("utf-8", "replace")).hexdigest()
    place = directory / f"corpus-{digest[:16]}"
    if place.exists():
        print(f"using the dataset of an earlier run, {place}")
        return tokjax.open_dataset(place)
    print(f"no dataset of these texts yet: making {place}")
    directory.mkdir(parents=True, exist_ok=True)  # (what can't be written fails before the training)
    trained = train_bpe(texts, vocab_size=vocab_size, pattern="cl100k", special_tokens=[SEPARATOR])
    tokjax.write_dataset(texts, tokjax.PackedTokenField(trained.tokenizer, length), place, progress=True)
    return tokjax.open_dataset(place)


def next_token_logits(params, blocks):
    """Each token sees the tokens before it in its own document, and no other document of the block."""
    mask = tokjax.make_attention_mask(segment_ids=blocks.segment_ids)
    return logits_of(params, blocks.ids, blocks.positions, mask)


def total_loss(params, blocks):
    return cross_entropy(next_token_logits(params, blocks), blocks.causal_lm_labels())


def bits_per_byte(params, blocks, tokenizer, batch_size):
    """Over the tokens of the packed held-out text that are predicted."""
    labels = blocks.causal_lm_labels()
    nbytes = tokenizer.vocabulary.byte_lengths[labels[labels != -100]].sum()
    return summed(total_loss, params, in_batches(blocks, batch_size))[0] / math.log(2) / nbytes


def sample(params, tokenizer, length, prompt, count, seed):
    """The prompt and so many tokens more, drawn at a temperature of 0.7."""
    ids = tokjax.encode(tokenizer, prompt, add_special_tokens=False).tolist()
    logits = jax.jit(next_token_logits)
    for key in jax.random.split(jax.random.key(seed), count):
        seen = ids[-length:]
        window = tokjax.pack_blocks(tokjax.ragged_from_rows([seen]), block_size=length, pad_id=0)
        ids.append(int(jax.random.categorical(key, logits(params, window)[0, len(seen) - 1] / 0.7)))
    return tokjax.decode(tokenizer, ids)


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    directory: Path = Path("runs/train_lm"),
    megabytes: float = typer.Option(8, help="how much text to train on"),
    vocab_size: int = 4096,
    length: int = typer.Option(256, min=2, help="tokens a block"),
    batch_size: int = typer.Option(8, min=1, max=4096),
    steps: int = typer.Option(300, min=1),
    learning_rate: float = 4e-3,
    seed: int = typer.Option(0, min=0, max=2**32 - 1),
):
    texts, held_out = read_corpus(corpus, megabytes)
    dataset = prepare(directory, texts, vocab_size, length)
    tokenizer = dataset.tokenizer
    loader = tokjax.PackedTokenLoader(dataset, batch_size=batch_size, seed=seed)
    print(f"{dataset}\n{len(loader)} batches of {batch_size} x {length} an epoch")
    encoded = tokjax.encode_batch_result(tokenizer, held_out, add_special_tokens=False)
    blocks = tokjax.pack_blocks(encoded, block_size=length, pad_id=0)

    params = init_params(jax.random.key(seed), dataset.vocab_size, length)
    before = bits_per_byte(params, blocks, tokenizer, batch_size)
    with tokjax.prefetch_to_device(loader.repeat()) as batches:
        params = fit(params, total_loss, batches, steps, learning_rate)
    after = bits_per_byte(params, blocks, tokenizer, batch_size)
    print(f"held-out bits per byte: {before:.3f} before, {after:.3f} after")
    print("a sample:", sample(params, tokenizer, length, "def main(", 60, seed), sep="\n")
    if not after < before:
        sys.exit("the loss did not fall")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
