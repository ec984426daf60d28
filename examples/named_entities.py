"""Named entities without a model: reading labelled texts, a baseline that looks names up, and scores."""

import sysconfig
from collections import Counter, defaultdict
from pathlib import Path

import regex
from corpus import iter_marked_docstrings
from rich.table import Table

import tokjax

EDGE = r"(?:\b|(?=['’])|(?<=['’]))"  # Unicode word boundary, or an apostrophe: "Zoë's" has the word "Zoë"


def read_marked(path, limit):
    """Reads texts with labelled spans.

    Args:
        path: CoNLL columns, or the JSON of annotation tools. A CoNLL file is split into documents, or into
            sentences if it has no document boundaries. `None` for docstrings of the installed packages.
        limit: maximum number of texts.

    Returns:
        The texts, the spans of each text in 1-based bytes, and the source of each text: the file of a
        docstring, or the index of the text.
    """
    if path is None:
        docstrings = iter_marked_docstrings(Path(sysconfig.get_path("purelib")), limit)
        texts, spans, sources = ([row[i] for row in docstrings] for i in range(3))
        return texts, tokjax.align.spans_from_characters(texts, spans), sources
    if path.suffix in (".json", ".jsonl"):
        rows = tokjax.corpus.read_annotations(path)
    else:
        documents = tokjax.corpus.read_conll(path, unit="document")
        rows = documents if len(documents) > 1 else tokjax.corpus.read_conll(path)
    rows = rows[:limit]
    return [row.text for row in rows], [row.spans for row in rows], range(len(rows))


def find_split(sources):
    """Returns the index of the first held-out text: the last tenth, extended to a boundary between sources.

    Texts of one source are never on both sides, so that near-duplicates of held-out texts are not trained on.
    """
    start = len(sources) * 9 // 10
    while start and sources[start - 1] == sources[start]:
        start -= 1
    return start


def find_seen_names(texts, spans, held_out):
    """Returns the byte spans of a baseline that looks up names from the training texts, per held-out text.

    A name gets the label that it most often has in the training texts. It is not marked if it is more often
    unlabelled there. Longer names win over shorter ones.

    Args:
        texts: training texts.
        spans: their labelled byte spans.
        held_out: texts in which to look names up.
    """
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
    matches = (filter(lambda match: best.get(match[0]), find(text)) for text in held_out)
    return tokjax.align.spans_from_characters(
        held_out, [[(*m.span(), best[m[0]]) for m in row] for row in matches]
    )


def compute_scores(gold, predicted, label=None):
    """Returns precision, recall and F1 of exact spans, and the number of gold spans.

    Args:
        gold: the correct spans of each text.
        predicted: the spans that a model or the baseline found, of each text.
        label: label whose spans are scored; `None` for all.
    """
    gold, predicted = (
        {(i, *span) for i, row in enumerate(rows) for span in row if label in (None, span[2])}
        for rows in (gold, predicted)
    )
    sizes = len(predicted), len(gold), (len(predicted) + len(gold)) / 2
    return [*(len(gold & predicted) / max(size, 1) for size in sizes), len(gold)]


def format_table(gold, predicted, baseline, labels):
    """Returns a table with the scores of each label, of the baseline, and of all labels together."""
    table = Table("label", "precision", "recall", "F1", "spans", title="exact spans in held-out texts")
    rows = [(label, compute_scores(gold, predicted, label)) for label in labels]
    rows += [
        ("baseline: names from training", compute_scores(gold, baseline)),
        ("all", compute_scores(gold, predicted)),
    ]
    for name, (*shares, count) in rows:
        table.add_row(name, *(f"{share:.3f}" for share in shares), str(count))
    return table
