"""Masked language modelling as in BERT: words are masked, and the model predicts them.

    pip install '.[examples]' && python examples/masked_lm.py

The texts are paragraphs of the Python standard library's source, or of `--corpus`, in WordPiece tokens. The
mask is sampled inside the compiled training step, so a paragraph has different masked words each time. At the
end, the accuracy on masked tokens of held-out texts is compared with that of the most frequent token.
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

SELECTED_SHARE = 0.3  # twice the 0.15 of BERT, for more labels per step in a short run


def collate_texts(tokenizer, texts, length):
    """Returns a padded batch with one paragraph per row, between `[CLS]` and `[SEP]`."""
    options = {"max_length": length, "disallowed_special": ()}  # "[CLS]" in a text is ordinary text
    encoded = tokjax.encode_batch_result(tokenizer, split_paragraphs(texts), **options)
    columns = ["special_tokens_mask", "word_ids"]
    return tokjax.collate_padded_batch(
        encoded, pad_id=tokjax.pad_id(tokenizer), length=length, columns=columns
    )


def mask_words(rows, draws, **options):
    """Masks random words, with all tokens of each word; returns the rows and their labels."""
    masks = {"special_tokens_mask": rows.special_tokens_mask, "word_ids": rows.word_ids}
    masked = tokjax.objectives.masked_lm(rows.ids, draws, probability=SELECTED_SHARE, **masks, **options)
    return rows._replace(ids=masked.ids), masked.labels


def compute_masked_logits(params, rows):
    """Computes logits with bidirectional attention."""
    mask = tokjax.masks.make_attention_mask(attention_mask=rows.attention_mask, causal=False)
    return compute_logits(params, rows.ids, jnp.arange(rows.ids.shape[1]), mask)


def compute_total_loss(params, batch, **options):
    """Masks the rows of a batch; returns the summed loss in nats and the number of labels."""
    rows, key = batch
    draws = tokjax.objectives.draw_uniform(key, (len(rows.ids), 3, rows.ids.shape[1]))
    masked, labels = mask_words(rows, draws, **options)
    return compute_cross_entropy(compute_masked_logits(params, masked), labels)


def count_correct(params, batch):
    """Returns the number of correct predictions and the number of labels."""
    rows, labels = batch
    predicted = compute_masked_logits(params, rows).argmax(axis=-1)
    return (predicted == labels).sum(), (labels != -100).sum()


def main(
    corpus: list[Path] = typer.Option([], help="text file; repeat the option for several files"),
    megabytes: float = typer.Option(4, help="amount of text to train on, in MB"),
    vocab_size: int = 2048,
    length: int = typer.Option(64, min=3, help="maximum tokens per paragraph"),
    batch_size: int = typer.Option(32, min=1, max=4096),
    steps: int = typer.Option(800, min=1),
):
    texts, held_out = read_corpus(corpus, megabytes)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained = train_wordpiece(texts, vocab_size=vocab_size, special_tokens=names)
    tokenizer, vocab_size = trained.tokenizer, tokjax.vocab_size(trained.tokenizer)
    rows, held = (collate_texts(tokenizer, part, length) for part in (texts, held_out))
    options = {"mask_id": tokjax.mask_id(tokenizer), "vocab_size": vocab_size}

    keys = jax.random.split(jax.random.key(1), steps)
    batches = zip(iter_random_batches(rows, batch_size, steps), keys, strict=True)
    params = init_params(jax.random.key(0), vocab_size, length)
    params = fit(params, partial(compute_total_loss, **options), batches, steps, 4e-3)

    draws = tokjax.objectives.draw_uniform(np.random.default_rng(0), (len(held.ids), 3, length))
    masked, labels = mask_words(held, draws, mask_share=1, random_share=0, **options)
    correct, count = sum_over_batches(count_correct, params, iter_batches((masked, labels), batch_size))
    baseline = (labels == np.bincount(rows.ids[rows.special_tokens_mask == 0]).argmax()).sum()
    print("a paragraph:", tokjax.decode(tokenizer, masked.ids[0][masked.attention_mask[0] == 1]))
    print(f"held-out accuracy: {correct / count:.1%}; most frequent token: {baseline / count:.1%}")
    if not correct > baseline:
        sys.exit("no better than the most frequent token")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
