"""Data pipeline in Grain with functions of tokjax: shuffle, tokenize, pad, and resume from a checkpoint.

    pip install '.[examples,grain]' && python examples/grain_pipeline.py

Grain samples paragraphs of the standard library's source, or of `--corpus`, and stores the position in a
checkpoint. tokjax encodes and pads them. A small transformer trains on the batches. Then a new loader resumes
from the checkpoint, and must return the same batches as the loader that was not interrupted.
"""

import sys
from functools import partial
from pathlib import Path

import grain
import jax
import numpy as np
import typer
from batches import iter_batches
from corpus import read_corpus, split_paragraphs
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_bpe


def compute_total_loss(params, padded):
    """Returns the summed next-token loss in nats and the number of labels."""
    ids, attention_mask = padded.ids, padded.attention_mask
    mask = tokjax.masks.make_attention_mask(attention_mask=attention_mask)
    logits = compute_logits(params, ids, np.arange(ids.shape[1]), mask)
    return compute_cross_entropy(logits, tokjax.causal_lm_labels(ids, attention_mask))


def make_loader(dataset, encode, to_batch, batch_size):
    """Returns a Grain loader of endless batches, which every epoch shuffles differently."""
    sampler = grain.samplers.IndexSampler(len(dataset), seed=0, shuffle=True)
    steps = [tokjax.pipelines.grain_map(encode), grain.transforms.Batch(batch_size, True, to_batch)]
    return grain.DataLoader(data_source=dataset, sampler=sampler, operations=steps)


def save_and_collect(save_step, iterator, checkpoint, later_batches):
    """Yields the batches of an iterator.

    Saves its state to `checkpoint` after `save_step` batches, and appends all later ones to `later_batches`.
    """
    for number, batch in enumerate(iterator):
        if number >= save_step:
            later_batches.append(batch)
        yield batch
        if number + 1 == save_step:
            checkpoint.write_bytes(iterator.get_state())


def compute_unigram_loss(ids, held):
    """Returns the nats per held-out id of a model that predicts ids by their frequency in `ids`, plus one."""
    counts = np.bincount(ids, minlength=held.max() + 1) + 1
    return -np.log(counts / counts.sum())[held].mean()


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    directory: Path = Path("runs/grain_pipeline"),
    megabytes: float = 2,
    vocab_size: int = 2048,
    length: int = typer.Option(64, min=2, help="tokens per row; longer paragraphs are truncated"),
    batch_size: int = typer.Option(32, min=1, max=4096),
    steps: int = typer.Option(300, min=2),
):
    texts, held_out = map(split_paragraphs, read_corpus(corpus, megabytes))
    tokenizer = train_bpe(texts, vocab_size=vocab_size, special_tokens=["<pad>"], progress=False).tokenizer
    tokjax.write_dataset(texts, tokjax.RawTextField(), directory / "texts", overwrite=True)
    encode = partial(tokjax.encode_result, tokenizer, max_length=length, disallowed_special=())
    pad_id = tokjax.token_to_id(tokenizer, "<pad>")
    to_batch = partial(tokjax.collate_padded_batch, pad_id=pad_id, length=length, columns=())
    arguments = tokjax.open_dataset(directory / "texts"), encode, to_batch, batch_size

    later_batches, checkpoint = [], directory / "iterator.json"
    batches = save_and_collect(steps // 2, iter(make_loader(*arguments)), checkpoint, later_batches)
    params = init_params(jax.random.key(0), tokjax.vocab_size(tokenizer), length)
    params = fit(params, compute_total_loss, batches, steps, 4e-3)
    held = to_batch([*map(encode, held_out)])
    nats, count = sum_over_batches(compute_total_loss, params, iter_batches(held, batch_size))
    ids = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=()).ids
    baseline = compute_unigram_loss(ids, held.ids[:, 1:][held.attention_mask[:, 1:] == 1])
    print(f"held-out nats per token: {nats / count:.3f}; unigram baseline: {baseline:.3f}")

    resumed = iter(make_loader(*arguments))
    resumed.set_state(checkpoint.read_bytes())
    same = [jax.tree.all(jax.tree.map(np.array_equal, batch, next(resumed))) for batch in later_batches]
    print(f"resumed: {sum(same)} of {len(later_batches)} batches equal those of the uninterrupted run")
    if not all(same):
        sys.exit("error: the loader that resumed from the checkpoint returned different batches")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
