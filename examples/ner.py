"""From labelled spans to a tagger: align them with tokens, fit a small network, read spans back, count F1.

    pip install '.[examples]' && python examples/ner.py

The data are the docstrings of the Python packages that are installed, in which their authors have marked what
is a function, a class, a method and so on (:func:`name`). The marks are taken out, and have to be found again
from the words alone. `--data FILE` takes CoNLL columns, or spaCy's or Prodigy's JSON. Held out are
whole files of docstrings, or the last tenth of the documents of FILE.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import typer
from named_entities import compute_scores, find_seen_names, find_split, format_table, read_marked
from rich.console import Console
from tagger import compute_tag_logits, compute_total_loss, init_tagger
from transformer import fit

import tokjax
from tokjax.trainer import train_bpe

LENGTH, STRIDE, BATCH_SIZE, LEARNING_RATE = 96, 32, 32, 1e-2
WORDS = r" ?[\w.]*\w| ?[^\w\s]+|\s+"  # names with dots in them are one word
OPTIONS = {"add_special_tokens": False, "disallowed_special": ()}


def encode_texts_as_windows(tokenizer, texts):
    """Texts in windows that overlap, and their tokens padded."""
    windows = tokjax.encode_windows(tokenizer, texts, max_length=LENGTH, stride=STRIDE, **OPTIONS)
    return windows, tokjax.collate_padded_batch(windows.batch, pad_id=0, length=LENGTH, columns=())


def compute_tags(windows, texts, spans, labels):
    """The tag of the first token of each word, `(windows, LENGTH)`; elsewhere -100."""
    texts, spans = ([rows[i] for i in windows.text_ids] for rows in (texts, spans))
    aligned = tokjax.align.align_spans(
        windows.batch, spans, labels=labels, texts=texts, first_subword_only=True
    )
    ragged = tokjax.make_ragged(aligned.labels, windows.batch.row_splits)
    return tokjax.collate_padded_batch(ragged, pad_id=-100, length=LENGTH).ids


def iter_epoch_batches(padded, tags, steps):
    """Rows of like lengths, each time cut to the rung of a ladder that holds the longest."""
    lengths = padded.attention_mask.sum(axis=1)
    buckets, by_length = tokjax.LengthBuckets.fit(lengths, 4, multiple_of=8), np.argsort(lengths)
    for step, first in enumerate(np.random.default_rng(0).integers(len(tags), size=steps)):
        rows = np.resize(by_length[first : first + BATCH_SIZE], BATCH_SIZE)
        length = buckets.get_padded_lengths(lengths[rows].max())
        columns = padded.ids, padded.attention_mask, tags
        yield *(column[rows, :length] for column in columns), step


def find_spans(params, tokenizer, texts, tagset):
    """What the tagger marks: a tag a token, from the window that sees most around it, and spans of these."""
    windows, padded = encode_texts_as_windows(tokenizer, texts)
    tags = jax.jit(compute_tag_logits)(params, padded.ids, padded.attention_mask).argmax(axis=-1)
    of_tokens = np.asarray(tags)[padded.attention_mask == 1]
    merged = tokjax.align.merge_windows(windows, of_tokens, stride=STRIDE)
    batch = tokjax.encode_batch_result(tokenizer, texts, **OPTIONS)
    return tokjax.align.spans_from_labels(batch, merged.values, tagset, texts=texts, first_subword_only=True)


def main(
    data: Path = typer.Option(None, help="CoNLL columns, or .json or .jsonl [docstrings]"),
    texts: int = typer.Option(10_000, min=1, help="how many texts to use at most"),
    vocab_size: int = 4096,
    steps: int = typer.Option(1200, min=1),
):
    found, spans, sources = read_marked(data, texts)
    truncated, labels = find_split(sources), sorted({label for row in spans for *_, label in row})
    if not truncated or not labels:
        sys.exit(f"error: {len(found)} texts with {len(labels)} labels are too few")
    train, held, spans, gold = found[:truncated], found[truncated:], spans[:truncated], spans[truncated:]
    tokenizer = train_bpe(train, vocab_size=vocab_size, pattern=WORDS, progress=False).tokenizer
    windows, padded = encode_texts_as_windows(tokenizer, train)
    tags = compute_tags(windows, train, spans, labels)
    print(f"{len(train)} texts, {sum(map(len, spans))} spans; held out {len(held)}")

    tagset = tokjax.align.TagSet(labels)
    params = init_tagger(jax.random.key(0), tokjax.vocab_size(tokenizer), len(tagset))
    params = fit(params, compute_total_loss, iter_epoch_batches(padded, tags, steps), steps, LEARNING_RATE)
    marked, baseline = find_spans(params, tokenizer, held, tagset), find_seen_names(train, spans, held)
    Console().print(format_table(gold, marked, baseline, labels))
    if not compute_scores(gold, marked)[2] > compute_scores(gold, baseline)[2]:
        sys.exit("no better than known names")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
