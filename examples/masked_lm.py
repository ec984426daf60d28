"""Masked language modelling, as BERT has it: words are hidden, and the model says what they were.

    pip install '.[examples]' && python examples/masked_lm.py

The texts are the paragraphs of the Python standard library's source, or of `--corpus`, in WordPiece tokens.
Other words are hidden each time that a paragraph is drawn, within the compiled step.
"""

import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import typer
from batches import iter_batches, iter_random_batches
from corpus import read_corpus, split_paragraphs
from transformer import compute_cross_entropy, compute_logits, fit, init_params, sum_over_batches

import tokjax
from tokjax.trainer import train_wordpiece

SELECTED_SHARE = (
    0.3  # (BERT's 0.15 gives half as many labels a step, which is little for as few steps as these)
)


def collate_texts(tokenizer, texts, length):
    """The paragraphs of some texts, one a row, between `[CLS]` and `[SEP]`."""
    options = {"max_length": length, "disallowed_special": ()}  # what is spelled in a text is text
    encoded = tokjax.encode_batch_result(tokenizer, split_paragraphs(texts), **options)
    columns = ["special_tokens_mask", "word_ids"]
    return tokjax.collate_padded_batch(
        encoded, pad_id=tokjax.pad_id(tokenizer), length=length, columns=columns
    )


def mask_words(rows, draws, **options):
    """Rows in which words are chosen as a whole, and the labels of these."""
    masks = {"special_tokens_mask": rows.special_tokens_mask, "word_ids": rows.word_ids}
    hidden = tokjax.objectives.masked_lm(rows.ids, draws, probability=SELECTED_SHARE, **masks, **options)
    return rows._replace(ids=hidden.ids), hidden.labels


def compute_masked_logits(params, rows):
    mask = tokjax.masks.make_attention_mask(attention_mask=rows.attention_mask, causal=False)
    return compute_logits(params, rows.ids, jnp.arange(rows.ids.shape[1]), mask)


def compute_total_loss(params, batch, **options):
    rows, key = batch
    draws = tokjax.objectives.draw_uniform(key, (len(rows.ids), 3, rows.ids.shape[1]))
    hidden, labels = mask_words(rows, draws, **options)
    return compute_cross_entropy(compute_masked_logits(params, hidden), labels)


def count_correct(params, batch):
    rows, labels = batch
    said = compute_masked_logits(params, rows).argmax(axis=-1)
    return (said == labels).sum(), (labels != -100).sum()


def main(
    corpus: list[Path] = typer.Option([], help="a text file, or several: the option again for each"),
    megabytes: float = typer.Option(4, help="how much text to train on"),
    vocab_size: int = 2048,
    length: int = typer.Option(64, min=3, help="tokens a paragraph at most"),
    batch_size: int = typer.Option(32, min=1, max=4096),
    steps: int = typer.Option(800, min=1),
):
    texts, held_out = read_corpus(corpus, megabytes)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    rarest = 1 + round(30 * megabytes)  # (of rarer pairs, WordPiece makes tokens that nearly nothing has)
    trained = train_wordpiece(texts, vocab_size=vocab_size, special_tokens=names, min_frequency=rarest)
    tokenizer, vocab_size = trained.tokenizer, tokjax.vocab_size(trained.tokenizer)
    rows, held = (collate_texts(tokenizer, part, length) for part in (texts, held_out))
    options = {"mask_id": tokjax.token_to_id(tokenizer, "[MASK]"), "vocab_size": vocab_size}

    keys = jax.random.split(jax.random.key(1), steps)
    batches = zip(iter_random_batches(rows, batch_size, steps), keys, strict=True)
    params = init_params(jax.random.key(0), vocab_size, length)
    params = fit(params, partial(compute_total_loss, **options), batches, steps, 4e-3)

    draws = tokjax.objectives.draw_uniform(np.random.default_rng(0), (len(held.ids), 3, length))
    hidden, labels = mask_words(held, draws, mask_share=1, random_share=0, **options)
    right, count = sum_over_batches(count_correct, params, iter_batches((hidden, labels), batch_size))
    baseline = (labels == np.bincount(rows.ids[rows.special_tokens_mask == 0]).argmax()).sum()
    print("a paragraph:", tokjax.decode(tokenizer, hidden.ids[0][hidden.attention_mask[0] == 1]))
    print(
        f"held-out hidden tokens said right: {right / count:.1%}; most frequent token: {baseline / count:.1%}"
    )
    if not right > baseline:
        sys.exit("no better than the most frequent token")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
