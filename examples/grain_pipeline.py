"""Texts on disk through Grain to batches: shuffled, tokenized and padded, and resumed where they stopped.

    pip install '.[examples,grain]' && python examples/grain_pipeline.py

Grain draws paragraphs of the standard library's source, or of the files of `--corpus`, and keeps the place;
what becomes of them is functions of tokjax. A small transformer learns from the batches, and those behind a
checkpoint are compared with what a new loader gives from there on.
"""

import sys
from functools import partial
from pathlib import Path

import grain
import jax
import numpy as np
import typer
from batches import iter_batches
from corpus import read_corpus
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_bpe


def compute_total_loss(params, padded):
    ids, present = padded.ids, padded.attention_mask
    mask = tokjax.masks.make_attention_mask(attention_mask=present)
    logits = compute_logits(params, ids, np.arange(ids.shape[1]), mask)
    return compute_cross_entropy(logits, tokjax.causal_lm_labels(ids, present))


def make_loader(dataset, tokens, to_batch, batch_size):
    """Batches without end, in an order of their own each epoch."""
    sampler = grain.samplers.IndexSampler(len(dataset), seed=0, shuffle=True)
    steps = [tokjax.pipelines.grain_map(tokens), grain.transforms.Batch(batch_size, True, to_batch)]
    return grain.DataLoader(data_source=dataset, sampler=sampler, operations=steps)


def save_and_collect(save_step, iterator, checkpoint, later_batches):
    """What an iterator gives; its state is saved behind so many batches, and those that follow are kept."""
    for number, batch in enumerate(iterator):
        if number >= save_step:
            later_batches.append(batch)
        yield batch
        if number + 1 == save_step:
            checkpoint.write_bytes(iterator.get_state())


def split_paragraphs(texts):
    return [paragraph for text in texts for paragraph in text.split("\n\n") if paragraph.strip()]


def encode_by_frequency(ids, held):
    """The nats a held-out id if each is as likely as it is frequent, wherever it stands."""
    counts = np.bincount(ids, minlength=held.max() + 1) + 1
    return -np.log(counts / counts.sum())[held].mean()


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    directory: Path = Path("runs/grain_pipeline"),
    megabytes: float = 2,
    vocab_size: int = 2048,
    length: int = typer.Option(64, min=2, help="tokens a row; longer paragraphs are cut"),
    batch_size: int = typer.Option(32, min=1, max=4096),
    steps: int = typer.Option(300, min=2),
):
    texts, held_out = map(split_paragraphs, read_corpus(corpus, megabytes))
    tokenizer = train_bpe(texts, vocab_size=vocab_size, special_tokens=["<pad>"], progress=False).tokenizer
    tokjax.write_dataset(texts, tokjax.RawTextField(), directory / "texts", overwrite=True, progress=True)
    tokens = partial(tokjax.encode_result, tokenizer, max_length=length, disallowed_special=())
    pad_id = tokjax.token_to_id(tokenizer, "<pad>")
    to_batch = partial(tokjax.collate_padded_batch, pad_id=pad_id, length=length, columns=())
    passed = tokjax.open_dataset(directory / "texts"), tokens, to_batch, batch_size

    later_batches, checkpoint = [], directory / "iterator.json"
    batches = save_and_collect(steps // 2, iter(make_loader(*passed)), checkpoint, later_batches)
    params = init_params(jax.random.key(0), tokjax.vocab_size(tokenizer), length)
    params = fit(params, compute_total_loss, batches, steps, 4e-3)
    held = to_batch([*map(tokens, held_out)])
    nats, count = sum_over_batches(compute_total_loss, params, iter_batches(held, batch_size))
    ids = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=()).ids
    usual = encode_by_frequency(ids, held.ids[:, 1:][held.attention_mask[:, 1:] == 1])
    print(f"held-out nats a token: {nats / count:.3f}; by the frequency of tokens alone: {usual:.3f}")

    resumed = iter(make_loader(*passed))
    resumed.set_state(checkpoint.read_bytes())
    same = [jax.tree.all(jax.tree.map(np.array_equal, batch, next(resumed))) for batch in later_batches]
    print(
        f"resumed: {sum(same)} of {len(later_batches)} batches are those of the run that was not interrupted"
    )
    if not all(same):
        sys.exit("error: a loader that goes on from the checkpoint gives other batches")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
