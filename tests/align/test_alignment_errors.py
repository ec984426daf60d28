"""Tests of the errors of `align_spans`."""

from functools import partial

import jax
import numpy as np
import pytest

import tokjax
from tests.support.rejections import rejects
from tests.support.token_strategies import LABELS, array, make_ragged_rows

NOT_A_SPAN, NOT_AN_INTEGER = (
    r"a span is \(start, stop, label\), not",
    "a start or stop that is not a valid integer",
)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(3, 3, "PER")], r"text 0: the span \(3, 3\) is empty"),
        ([(0, 3, "PER")], r"\(0, 3\) violates 1 <= start < stop.* pass index_base=0 for .*from_characters"),
        ([(4, 3, "PER")], "violates 1 <= start < stop"),
        ([(1, 3, "DOG")], r"\(1, 3, 'DOG'\) has a label that is not in \['PER'"),
        ([(1, 3, ["PER"])], "has a label that is not in"),
        *(([(1, 3, "PER", 4)[:n], (1, 2)], NOT_A_SPAN) for n in (2, 4)),
        *((spans, "a span is") for spans in ([[(1, 3, "PER")]], ["PER"], [3])),
        *((spans, "must be a list of") for spans in ("PER", 3)),
        *(
            ([(*ends, "PER")], NOT_AN_INTEGER)
            for ends in ((1.5, 3), (True, 3), (1, 2**80), (1, (4, 5)), ([1], [4]))
        ),
        (
            [((1, 2), (4, 5), "PER")],
            r"discontinuous; .* pass its parts as separate spans: \(1, 2, 'PER'\), \(4, 5, 'PER'\)",
        ),
        (
            [(2, 5, "PER"), (4, 6, "ORG"), (1, 2, "PER")],
            r"text 0: the spans \(2, 5\) and \(4, 6\) overlap, .* align them in separate calls",
        ),
        ([(1, 3, "PER"), (1, 3, "PER")], "overlap"),
    ],
)
def test_invalid_spans_are_rejected(spans, message):
    errors = tokjax.errors
    error = errors.OffsetsContractError if "violates" in message else errors.InvalidArgumentError
    with pytest.raises(error, match=message):
        tokjax.align.align_spans(array([(1, 9)]), spans, labels=LABELS)


@pytest.mark.parametrize("span", [((0, 1), (4, 5), "X"), ((0,), (4,), "X"), (0, (4, 5), "X"), ((), (), "X")])
def test_malformed_spans_are_rejected_by_all_functions(span):
    """NumPy makes arrays of several axes of them."""
    for call in (
        lambda spans: tokjax.align.span_columns(spans, ["X"]),
        lambda spans: tokjax.align.spans_from_characters(["abcdef"], spans),
        lambda spans: tokjax.align.spans_to_characters(["abcdef"], spans),
    ):
        with rejects("is discontinuous|not a valid integer"):
            call([[span]])


def test_invalid_arguments_are_rejected():
    offsets = array([(1, 3), (3, 5)])
    align = partial(tokjax.align.align_spans, offsets, [], labels=LABELS)
    for options, message in (
        ({"on_partial": "maybe"}, "on_partial must be 'include', 'exclude' or 'error', not 'maybe'"),
        ({"scheme": "IOB1"}, "scheme must be 'BIO', 'BILOU', 'IOBES', 'IO' or 'IOE2', not 'IOB1'"),
        ({"labels": "PER"}, r"labels must be a list of names, not 'PER'; pass \['PER'\]"),
        ({"labels": ["PER", "PER"]}, "labels contains 'PER' more than once"),
        ({"labels": [""]}, "labels must be non-empty strings, not ''"),
        ({"first_subword_only": True}, "word_ids=ARRAY"),
        ({"word_ids": [0]}, r"word_ids must have shape \(2,\), not \(1,\)"),
        ({"texts": []}, "texts has 0 rows, and there are 1 texts"),
        ({"labels": {"PER", "ORG"}}, r"labels is a set, .*; pass sorted\(labels\)"),
        ({"labels": None}, "labels must be a list of names, not None"),
        ({"ignore_index": None}, "ignore_index is None"),
        ({"ignore_index": 1}, "ignore_index is 1, which is the tag 'B-PER'"),
        ({"ignore_index": 0}, "ignore_index is 0, which is the tag 'O'"),
    ):
        with rejects(message):
            align(**options)
    for form, message in (
        (np.zeros((2, 3)), "integers, not float64"),
        (np.zeros((2, 3), int), r"shape \(n, 2\) for one text or \(batch, length, 2\), not \(2, 3\)"),
        (tokjax.ragged_from_rows([[1]]), "no offsets; encode with return_offsets=True"),
        ([[1, 4], [4, 9]], r"result 0 is of type list: .* np.array\(spans\)"),
        (3, "the argument is of type int"),
    ):
        with rejects(message):
            tokjax.align.align_spans(form, [], labels=LABELS)
    with rejects("spans has 1 rows, and there are 2 texts"):
        tokjax.align.align_spans(np.zeros((2, 3, 2), int), [[]], labels=LABELS)
    with rejects("pass word_ids only with an array"):
        tokjax.align.align_spans(make_ragged_rows([[(1, 2)]]), [[]], labels=LABELS, word_ids=np.array([0]))
    with pytest.raises(
        tokjax.errors.OffsetsContractError,
        match=r"\(1, 6\) stops after the end of the text, whose last byte is 4",
    ):
        tokjax.align.align_spans(offsets, [(1, 6, "PER")], labels=LABELS, texts=["abcd"])
    for token_offsets, text in ((offsets, "abc"), (array([(0, 3), (3, 5)]), "    ")):
        with pytest.raises(
            tokjax.errors.OffsetsContractError,
            match="text 0: a token has the span .* bytes, .* pass the text that was encoded",
        ):
            tokjax.align.align_spans(token_offsets, [], labels=LABELS, texts=[text])
    columns = tokjax.align.span_columns([[(1, 3, "A-B")]], LABELS)
    with rejects("classes from 2 to 2, and there are 1 labels"):
        tokjax.align.align_spans(offsets, columns, labels=["PER"])
    columns = tokjax.align.span_columns([[(1, 3, "PER"), (3, 5, "ORG")]], LABELS)
    for columns_to_replace in (
        {"classes": columns.classes[:1]},
        {"starts": columns.starts[:, None]},
        {"row_splits": np.array([0, 1])},
        {"row_splits": np.array([0, 3, 2])},
        {"row_splits": np.array([1, 2])},
        {"row_splits": np.zeros(0, int)},
    ):
        with rejects("the columns of spans do not match"):
            tokjax.align.align_spans(offsets, columns._replace(**columns_to_replace), labels=LABELS)
    with rejects("align outside of it"):
        jax.jit(lambda x: tokjax.align.align_spans(x, [], labels=LABELS))(offsets)


@pytest.mark.parametrize(
    "tokens", [[(3, 5), (1, 3)], [(0, 0), (3, 5), (4, 4), (0, 0), (1, 6)], [(1, 5), (2, 3)]]
)
def test_decreasing_offsets_are_rejected(tokens):
    with rejects(r"text 1: token \d has the span .* in the order"):
        tokjax.align.align_spans(make_ragged_rows([[(4, 9), (9, 9)], tokens]), [[], []], labels=LABELS)
