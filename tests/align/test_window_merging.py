"""Tests of `merge_windows`, and of alignment and collation of windows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.rejections import rejects
from tests.support.text_strategies import hard_texts
from tests.support.token_strategies import SCHEMES
from tests.support.variants import mark_slow_except

LABELS = ("PER", "ORG")


@get_max_examples(40)
@given(st.lists(hard_texts, max_size=3), st.integers(1, 6), st.data())
def test_merge_windows_equals_a_loop(tokenizer, texts, capacity, data):
    stride = data.draw(st.integers(0, capacity - 1))
    windows = tokjax.encode_windows(
        tokenizer, texts, max_length=capacity + 1, stride=stride, disallowed_special=(), allowed_special=()
    )
    full = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    values = np.arange(len(windows.batch.ids))
    merged = tokjax.align.merge_windows(windows, values)
    assert merged.row_splits.tolist() == full.row_splits.tolist()
    assert merged.offsets.tolist() == full.offsets.tolist()
    expected = []
    for text, length in enumerate(full.lengths.tolist()):
        parts, start = [], 0
        for window in np.flatnonzero(windows.text_ids == text).tolist():
            part = slice(*windows.batch.row_splits[window : window + 2])
            inner = values[part][windows.batch.sequence_ids[part] == 0].tolist()
            parts.append((start, inner))
            start += capacity - stride
        expected += oracle.merge_windows(parts, length)
    assert merged.values.tolist() == expected
    assert windows.batch.ids[merged.values].tolist() == full.ids.tolist()
    scores = jnp.stack([jnp.asarray(values)] * 2, axis=1)
    assert tokjax.align.merge_windows(windows, scores).values.tolist() == [[v, v] for v in expected]


@pytest.mark.parametrize("scheme", mark_slow_except(SCHEMES, ["BILOU"]))
@pytest.mark.parametrize(("max_length", "stride"), [(17, 10), (12, 0), (2, 0), (3, 1)])
def test_merged_labels_restore_spans(tokenizer, scheme, max_length, stride):
    """Also spans that are longer than a window, and spans across the border of two windows."""
    text = "low lower widest newest " * 8
    words = [(m, m + 12, "PER") for m in range(5, len(text), 24)]
    windows = tokjax.encode_windows(tokenizer, [text], max_length=max_length, stride=stride)
    aligned = tokjax.align.align_spans(windows, [words], labels=LABELS, scheme=scheme)
    merged = tokjax.align.merge_windows(windows, aligned.labels)
    tokens = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
    full = tokjax.align.align_spans(tokens, words, labels=LABELS, scheme=scheme)
    assert merged.values.tolist() == full.labels.tolist()
    tagset = tokjax.align.TagSet(LABELS, scheme)
    assert tokjax.align.spans_from_labels(merged.offsets, merged.values, tagset, texts=[text]) == words
    assert tokjax.align.spans_from_labels(merged, merged.values, tagset, texts=[text], strict=True) == [words]


class TestAlignmentOfWindows:
    TEXTS = ("Zoë flew to 東京 and on to Wien", "Kim", "to Wien")
    SPANS = ([(1, 5, "PER"), (14, 20, "ORG")], [(1, 4, "PER")], [(4, 8, "ORG")])

    @pytest.fixture(params=[None, [0, 2]])
    def windows(self, request):
        """Windows of all texts, or of the texts 0 and 2."""
        windows = tokjax.encode_windows(tokjax.byte_level(), self.TEXTS, max_length=9, stride=3)
        if request.param is None:
            return windows
        selected = np.flatnonzero(np.isin(windows.text_ids, request.param))
        return tokjax.Windows(
            [windows.batch[i] for i in selected], windows.text_ids[selected], windows.starts[selected]
        )

    @pytest.mark.parametrize("options", [{}, {"texts": TEXTS}])
    def test_labels_equal_separate_windows(self, windows, options):
        aligned = tokjax.align.align_spans(windows, self.SPANS, labels=LABELS, **options)
        by_window = {
            "spans": [self.SPANS[text] for text in windows.text_ids],
            **({"texts": [self.TEXTS[text] for text in windows.text_ids]} if options else {}),
        }
        separate = tokjax.align.align_spans(windows.batch, labels=LABELS, **by_window)
        tokens = tokjax.encode_batch_result(tokjax.byte_level(), self.TEXTS)
        tags = tokjax.align.align_spans(tokens, self.SPANS, labels=LABELS, **options).labels
        expected = [
            tags[tokens.row_splits[text] + start - 1]  # one token per byte
            for text, window in zip(windows.text_ids, windows.batch, strict=True)
            for start in window.offsets[:, 0]
        ]
        assert aligned.labels.tolist() == expected
        backwards = tokjax.Windows([*windows.batch][::-1], windows.text_ids[::-1], windows.starts[::-1])
        labels = tokjax.align.align_spans(backwards, self.SPANS, labels=LABELS, **options).labels
        rows = np.split(labels, np.cumsum([*map(len, backwards.batch)])[:-1])
        assert np.concatenate(rows[::-1]).tolist() == expected
        counts, splits = [], np.cumsum([0, *map(len, by_window["spans"])])
        for text in range(3):
            windows_of_text = np.flatnonzero(windows.text_ids == text)
            counts_per_window = [separate.token_counts[splits[i] : splits[i + 1]] for i in windows_of_text]
            counts += (
                np.sum(counts_per_window, axis=0).tolist()
                if len(windows_of_text)
                else [0] * len(self.SPANS[text])
            )
        assert aligned.token_counts.tolist() == counts
        tagset = tokjax.align.TagSet(LABELS)
        decoded = tokjax.align.spans_from_labels(windows, aligned.labels, tagset, **options)
        options = {"texts": by_window["texts"]} if options else {}
        assert decoded == tokjax.align.spans_from_labels(windows.batch, aligned.labels, tagset, **options)

    def test_collation_equals_separate_windows(self, windows):
        padded = tokjax.collate_padded_batch(windows, pad_id=-1)
        separate = tokjax.collate_padded_batch(windows.batch, pad_id=-1)
        assert all(np.array_equal(left, right) for left, right in zip(padded, separate, strict=True))
        merged = tokjax.align.merge_windows(
            windows, np.arange(len(separate.ids[separate.attention_mask == 1]))
        )
        labels = tokjax.collate_padded_batch(merged, pad_id=-100)
        assert labels.ids[labels.attention_mask == 1].tolist() == merged.values.tolist()
        assert labels.offsets[labels.attention_mask == 1].tolist() == merged.offsets.tolist()
        with rejects(r"merged windows have shape \(\d+, 2\); rows need"):
            tokjax.collate_padded_batch(
                merged._replace(values=np.stack([merged.values] * 2, axis=1)), pad_id=0
            )

    def test_invalid_arguments_are_rejected(self):
        windows = tokjax.encode_windows(tokjax.byte_level(), self.TEXTS, max_length=9, stride=3)
        by_window = [[]] * len(windows.text_ids)
        for options in ({"spans": by_window}, {"spans": self.SPANS, "texts": self.TEXTS[:2]}):
            with rejects(
                "rows, and the windows belong to 3 texts; pass one row for each text, or windows.batch"
            ):
                tokjax.align.align_spans(windows, labels=LABELS, **options)
        for text_ids in (windows.text_ids[1:], windows.text_ids - 1):
            with rejects("text_ids and starts must have the text and the position"):
                tokjax.align.align_spans(windows._replace(text_ids=text_ids), self.SPANS, labels=LABELS)


def test_text_that_each_window_repeats():
    """Every window contains the whole question, for questions of any length and any stride."""
    bert = tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "a", "b", "?"])
    for question in ("?", "? ?", ""):
        for stride in (0, 1):
            windows = tokjax.encode_windows(
                bert, [question], ["a b a b a"], max_length=7, stride=stride, truncation="only_second"
            )
            merged = [
                tokjax.align.merge_windows(windows, windows.batch.ids, sequence_id=i).values.tolist()
                for i in (0, 1)
            ]
            assert merged == [[5] * question.count("?"), [3, 4, 3, 4, 3]]


def test_tokens_with_equal_spans_in_separate_windows():
    """A normalizer makes three dots of one character, and a window ends between them."""
    windows = tokjax.encode_windows(tokjax.byte_level(), ["..."], max_length=2)
    dots = windows.batch.ragged._replace(offsets=np.array([[1, 4]] * 3))
    assert tokjax.align.merge_windows(windows._replace(batch=dots), [0, 1, 2]).values.tolist() == [0, 1, 2]


def test_invalid_windows_are_rejected(tokenizer):
    windows = tokjax.encode_windows(tokenizer, ["it's we've I'll they'd"], max_length=5, stride=2)
    values = np.zeros(len(windows.batch.ids))
    merge = tokjax.align.merge_windows
    for wrong in (values[1:], [1, 2], 3):
        with rejects(r"array\[attention_mask == 1\]"):
            merge(windows, wrong)
    assert merge(windows, values.tolist()).values.tolist() == merge(windows, values).values.tolist()
    without_offsets = tokjax.encode_windows(tokenizer, ["low"], max_length=4, return_offsets=False)
    last = tokjax.Windows([windows.batch[-1]], windows.text_ids[-1:], windows.starts[-1:])
    for message, call in {
        "the result of encode_windows, not TokenizationBatch": lambda: merge(windows.batch, values),
        "text_ids and starts must have": lambda: merge(windows._replace(text_ids=np.array([0])), values),
        r"the windows have \d of the \d+ tokens of their texts": lambda: merge(last, last.batch[0].ids),
        "no offsets; encode with return_offsets=True": lambda: merge(without_offsets, values),
        "sequence_id must be at most 1": lambda: merge(windows, values, sequence_id=2),
        "outside of jax.jit": lambda: jax.jit(lambda v: merge(windows, v))(values),
    }.items():
        with rejects(message):
            call()
