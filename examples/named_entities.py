"""Texts in which names are marked, the baseline of known names, and scores: nothing of tokens."""

import sysconfig
from collections import Counter, defaultdict
from pathlib import Path

import regex
from corpus import iter_marked_docstrings
from rich.table import Table

import tokjax

EDGE = r"(?:\b|(?=['’])|(?<=['’]))"  # of a word, as Unicode has it; and "Zoë" is one in "Zoë's"


def read_marked(path, limit):
    """Texts, the spans of each, and which source it is from: the file of a docstring, else the text itself.

    Args:
        path: CoNLL columns, whose texts are documents, or sentences where no documents are marked; or spaCy's
            or Prodigy's JSON. None for the docstrings of the packages that are installed.
        limit: how many texts to read at most.
    """
    if path is None:
        found = iter_marked_docstrings(Path(sysconfig.get_path("purelib")), limit)
        texts, spans, sources = ([row[i] for row in found] for i in range(3))
        return texts, tokjax.align.spans_from_characters(texts, spans), sources
    if path.suffix in (".json", ".jsonl"):
        found = tokjax.corpus.read_spacy(path)
    else:
        documents = tokjax.corpus.read_conll(path, unit="document")
        found = documents if len(documents) > 1 else tokjax.corpus.read_conll(path)
    found = found[:limit]
    return [row.text for row in found], [row.spans for row in found], range(len(found))


def find_split(sources):
    """Where the last tenth begins, or somewhat before: no source is on both sides."""
    start = len(sources) * 9 // 10
    while start and sources[start - 1] == sources[start]:
        start -= 1
    return start


def find_seen_names(texts, spans, held_out):
    """The baseline: what is marked in the training texts, as it mostly is there; the longest first."""
    rows, votes = tokjax.align.spans_to_characters(texts, spans), defaultdict(Counter)
    for text, row in zip(texts, rows, strict=True):
        for start, stop, label in row:
            votes[text[start:stop]][label] += 1
    find = regex.compile(rf"(?w){EDGE}\L<names>{EDGE}", names=list(votes)).finditer
    for text, row in zip(texts, rows, strict=True):
        marked = {span[:2] for span in row}
        for match in find(text):
            votes[match[0]][None] += match.span() not in marked
    best = {name: counts.most_common(1)[0][0] for name, counts in votes.items()}
    remaining = (filter(lambda match: best.get(match[0]), find(text)) for text in held_out)
    return tokjax.align.spans_from_characters(
        held_out, [[(*m.span(), best[m[0]]) for m in row] for row in remaining]
    )


def compute_scores(gold, found, label=None):
    """Precision, recall and F1 of whole spans, and how many there are."""
    gold, found = (
        {(i, *span) for i, row in enumerate(rows) for span in row if label in (None, span[2])}
        for rows in (gold, found)
    )
    sizes = len(found), len(gold), (len(found) + len(gold)) / 2
    return [*(len(gold & found) / max(size, 1) for size in sizes), len(gold)]


def format_table(gold, found, baseline, labels):
    """Scores of each label, of all, and of the baseline."""
    table = Table("label", "precision", "recall", "F1", "spans", title="whole spans in held-out texts")
    rows = [(label, compute_scores(gold, found, label)) for label in labels]
    rows += [
        ("names known from training", compute_scores(gold, baseline)),
        ("all", compute_scores(gold, found)),
    ]
    for name, (*shares, count) in rows:
        table.add_row(name, *(f"{share:.3f}" for share in shares), str(count))
    return table
