"""Named-entity recognition: align labelled spans with tokens, train a tagger, and score its spans.

    pip install '.[examples]' && python examples/ner.py

The data are docstrings of the installed Python packages, whose authors have marked functions, classes,
methods and so on with markup such as :func:`name`. The markup is removed, and the tagger predicts it from the
text. `--data FILE` reads CoNLL columns, or the JSON of annotation tools. The last tenth is held out, without
splitting the docstrings of a file. The baseline looks up the names that are marked in the training texts.
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
WORDS = r" ?[\w.]*\w| ?[^\w\s]+|\s+"  # a dotted name such as `os.path` is one word
OPTIONS = {"add_special_tokens": False, "disallowed_special": ()}


def encode_texts_as_windows(tokenizer, texts):
    """Encodes texts as overlapping windows; returns the windows and their padded ids."""
    windows = tokjax.encode_windows(tokenizer, texts, max_length=LENGTH, stride=STRIDE, **OPTIONS)
    return windows, tokjax.collate_padded_batch(windows.batch, pad_id=0, length=LENGTH, columns=())


def compute_tags(windows, texts, spans, labels):
    """Returns the tag of the first token of each word, and -100 elsewhere, shape `(num_windows, LENGTH)`."""
    aligned = tokjax.align.align_spans(windows, spans, labels=labels, texts=texts, first_subword_only=True)
    ragged = tokjax.make_ragged(aligned.labels, windows.batch.row_splits)
    return tokjax.collate_padded_batch(ragged, pad_id=-100, length=LENGTH).ids


def iter_epoch_batches(padded, tags, steps):
    """Yields batches of windows of similar lengths, which waste little padding.

    Each batch has one of four padded lengths, so that the step is compiled at most four times.
    """
    lengths = padded.attention_mask.sum(axis=1)
    buckets, by_length = tokjax.LengthBuckets.fit(lengths, 4, multiple_of=8), np.argsort(lengths)
    for step, first in enumerate(np.random.default_rng(0).integers(len(tags), size=steps)):
        rows = np.resize(by_length[first : first + BATCH_SIZE], BATCH_SIZE)
        length = buckets.compute_padded_lengths(lengths[rows].max())
        columns = padded.ids, padded.attention_mask, tags
        yield *(column[rows, :length] for column in columns), step


def predict_spans(params, tokenizer, texts, tagset):
    """Returns the spans that the tagger predicts for each text.

    A token that is in several windows gets its tag from the window with most context around it.
    """
    windows, padded = encode_texts_as_windows(tokenizer, texts)
    tags = jax.jit(compute_tag_logits)(params, padded.ids, padded.attention_mask).argmax(axis=-1)
    token_tags = np.asarray(tags)[padded.attention_mask == 1]
    merged = tokjax.align.merge_windows(windows, token_tags)
    batch = tokjax.encode_batch_result(tokenizer, texts, **OPTIONS)
    return tokjax.align.spans_from_labels(batch, merged.values, tagset, texts=texts, first_subword_only=True)


def main(
    data: Path = typer.Option(None, help="CoNLL columns, or .json or .jsonl; default: docstrings"),
    texts: int = typer.Option(10_000, min=1, help="maximum number of texts"),
    vocab_size: int = 4096,
    steps: int = typer.Option(1200, min=1),
):
    all_texts, all_spans, sources = read_marked(data, texts)
    split, labels = find_split(sources), sorted({label for row in all_spans for *_, label in row})
    if not split or not labels:
        sys.exit(f"error: {len(all_texts)} texts with {len(labels)} labels are too few")
    train, held_out, spans, gold = all_texts[:split], all_texts[split:], all_spans[:split], all_spans[split:]
    tokenizer = train_bpe(train, vocab_size=vocab_size, pattern=WORDS, progress=False).tokenizer
    windows, padded = encode_texts_as_windows(tokenizer, train)
    tags = compute_tags(windows, train, spans, labels)
    print(f"{len(train)} texts, {sum(map(len, spans))} spans; held out {len(held_out)}")

    tagset = tokjax.align.TagSet(labels)
    params = init_tagger(jax.random.key(0), tokjax.vocab_size(tokenizer), len(tagset))
    params = fit(params, compute_total_loss, iter_epoch_batches(padded, tags, steps), steps, LEARNING_RATE)
    predicted = predict_spans(params, tokenizer, held_out, tagset)
    baseline = find_seen_names(train, spans, held_out)
    Console().print(format_table(gold, predicted, baseline, labels))
    if not compute_scores(gold, predicted)[2] > compute_scores(gold, baseline)[2]:
        sys.exit("no better than the baseline")


if __name__ == "__main__":
    try:
        typer.run(main)
    except (tokjax.TokjaxError, OSError) as error:
        sys.exit(f"error: {error}")
