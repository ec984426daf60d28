"""Labels of words and of windows to labels of tokens and texts, against loops."""

import itertools
from collections import Counter
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.numpy_jax_agreement import assert_agrees, assert_same
from tests.support.text_strategies import hard_texts
from tests.support.token_strategies import SCHEMES, schemes

LABELS = ("PER", "ORG")
LENGTH, WORDS = 8, 4


@st.composite
def draw_word_ids(draw):
    """Two rows of word ids, -1 at their ends."""
    rows = []
    for _ in range(2):
        words = [word for word in range(WORDS) for _ in range(draw(st.integers(0, 3)))][: LENGTH - 1]
        rows.append(([-1, *words] + [-1] * LENGTH)[:LENGTH])
    return np.array(rows, np.int32)


def draw_rows(elements, length):
    row = st.lists(elements, min_size=length, max_size=length)
    return st.lists(row, min_size=2, max_size=2).map(partial(np.array, dtype=np.int32))


@cache
def make_labeller(label_all_tokens, tagset):
    return lambda words, labels: tokjax.align.labels_from_words(
        words, labels, label_all_tokens=label_all_tokens, tagset=tagset
    )


@cache
def make_reader(method, tagset):
    return lambda words, labels: tokjax.align.words_from_labels(
        words, labels, num_words=WORDS, method=method, tagset=tagset
    )


def find_tokens(row, word):
    return [position for position, of in enumerate(row) if of == word]


@given(draw_word_ids(), draw_rows(st.sampled_from([-100, 0, 1, 2, 3, 4]), WORDS), st.booleans())
def test_labels_from_words(words, labels, label_all_tokens):
    given_labels = assert_agrees(make_labeller(label_all_tokens, None), words, labels)
    for i, row in enumerate(words.tolist()):
        expected = [-100] * LENGTH
        for word in range(WORDS):
            for position in find_tokens(row, word)[: None if label_all_tokens else 1]:
                expected[position] = labels[i, word]
        assert given_labels[i].tolist() == expected


@given(draw_word_ids(), schemes, st.data())
def test_tags_of_words(words, scheme, data):
    """The tags of spans of words become those of the same spans of tokens, and come back."""
    tagset = tokjax.align.TagSet(LABELS, scheme)
    word_offsets = [(word + 1, word + 2) for word in range(WORDS)]
    edges = sorted(data.draw(st.lists(st.integers(1, WORDS + 1), max_size=4, unique=True)))
    spans = [
        (a, b, data.draw(st.sampled_from(LABELS))) for a, b in zip(edges[::2], edges[1::2], strict=False)
    ]
    tags = tagset.get_ids(oracle.tags_of(word_offsets, spans, scheme)[0])
    tags = np.broadcast_to(tags, (2, WORDS))
    of_tokens = assert_agrees(make_labeller(True, tagset), words, tags)
    back = assert_agrees(make_reader("majority", tagset), words, of_tokens)
    for i, row in enumerate(words.tolist()):
        complete = set(range(WORDS)) <= set(row)
        offsets = [(0, 0) if word < 0 else word_offsets[word] for word in row]
        if complete:
            expected = oracle.tags_of(offsets, spans, scheme)[0]
            assert of_tokens[i].tolist() == [-100 if tag is None else tagset.get_id(tag) for tag in expected]
        assert back[i].tolist() == [tags[i, w] if w in row else -100 for w in range(WORDS)]


@given(draw_word_ids(), draw_rows(st.sampled_from([-100, 0, 1, 2, 3, 4]), LENGTH))
def test_words_from_labels(words, labels):
    tagset = tokjax.align.TagSet(LABELS)
    first = assert_agrees(make_reader("first", None), words, labels)
    majority = assert_agrees(make_reader("majority", tagset), words, labels)
    for i, row in enumerate(words.tolist()):
        for word in range(WORDS):
            said = [labels[i, position] for position in find_tokens(row, word) if labels[i, position] != -100]
            assert first[i, word] == (said[0] if said else -100)
            votes = Counter(tagset.tag_classes[tag] for tag in said)  # in the order of what is said first
            winner = max(votes, key=votes.get, default=None)
            if winner is None:
                assert majority[i, word] == -100
            else:
                assert tagset.tag_classes[majority[i, word]] == winner
                begins = bool(winner >= 0) and tagset.tags[said[0]] == f"B-{LABELS[winner]}"
                assert tagset.tags[majority[i, word]].startswith("B") is begins


@pytest.mark.parametrize("wrong", [99, 5, -1])
def test_labels_of_words_that_are_no_tags(wrong):
    """They are refused on the host, and nowhere in JAX; on padding they may be anything."""
    words, labels = np.array([0, 0, 1, -1], np.int32), np.array([wrong, 3, wrong], np.int32)
    label = make_labeller(True, tokjax.align.TagSet(LABELS))
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"{wrong} is no tag: there are 5"):
        label(words, labels)
    assert jax.jit(label)(jnp.asarray(words), jnp.asarray(labels)).tolist() == [-100, -100, 3, -100]
    assert label(words, np.array([1, 3, wrong])).tolist() == [1, 2, 3, -100]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (3,)])
def test_the_edges_under_jit(shape):
    tagset, words = tokjax.align.TagSet(LABELS), np.zeros(shape, np.int32)
    for count in (0, 2):
        labels = np.ones((*shape[:-1], count), np.int32)
        spans = np.ones((*shape[:-1], count, 2), np.int32)
        for function, arrays in (
            (partial(tokjax.align.labels_from_words, label_all_tokens=True, tagset=tagset), (words, labels)),
            (
                partial(tokjax.align.words_from_labels, num_words=count, method="majority", tagset=tagset),
                (words, words),
            ),
            (tokjax.align.word_ids_from_spans, (np.stack([words, words], axis=-1), spans)),
        ):
            moved = jax.tree.map(jnp.asarray, arrays)
            assert_same(function(*arrays), jax.jit(function)(*moved), jax.Array)


spans = st.tuples(st.integers(0, 9), st.integers(0, 4)).map(lambda span: (span[0], sum(span)))


@given(draw_rows(spans, 4), draw_rows(spans, 3))
def test_word_ids_from_spans(tokens, words):
    found = assert_agrees(tokjax.align.word_ids_from_spans, tokens, words)
    for i in range(2):
        expected = [oracle.find_word(token, words[i].tolist()) for token in tokens[i].tolist()]
        assert found[i].tolist() == expected


def test_words_are_refused():
    tokens = np.zeros((2, 3), int)
    for call, message in (
        (
            lambda: tokjax.align.labels_from_words(tokens, tokens[:1]),
            r"word_labels has shape \(1, 3\), and the tokens",
        ),
        (lambda: tokjax.align.words_from_labels(tokens, tokens[0], num_words=1), "labels has shape"),
        (
            lambda: tokjax.align.words_from_labels(tokens, tokens, num_words=-1),
            "num_words must be at least 0",
        ),
        (lambda: tokjax.align.words_from_labels(tokens, tokens, num_words=1, method="last"), "not 'last'"),
        (
            lambda: tokjax.align.words_from_labels(tokens, tokens, num_words=1, method="majority"),
            "pass tagset=",
        ),
        (
            lambda: tokjax.align.labels_from_words(
                tokens, tokens, tagset=tokjax.align.TagSet(LABELS), ignore_index=3
            ),
            "ignore_index is 3, which is the tag 'B-ORG'",
        ),
        (
            lambda: tokjax.align.words_from_labels(
                tokens, tokens, num_words=1, tagset=tokjax.align.TagSet(LABELS), ignore_index=0
            ),
            "ignore_index is 0, which is the tag 'O'",
        ),
        (
            lambda: tokjax.align.labels_from_words(tokens, tokens, tagset=LABELS),
            "tagset must be a TagSet, not",
        ),
        (lambda: tokjax.align.word_ids_from_spans(tokens, tokens), r"offsets must have shape \(..., n, 2\)"),
        (
            lambda: tokjax.align.word_ids_from_spans(np.zeros((1, 3, 2), int), np.zeros((2, 3, 2), int)),
            "leading axes must be equal",
        ),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            call()


@get_max_examples(40)
@given(st.lists(hard_texts, max_size=3), st.integers(1, 6), st.data())
def test_merge_windows(tokenizer, texts, capacity, data):
    stride = data.draw(st.integers(0, capacity - 1))
    windows = tokjax.encode_windows(
        tokenizer, texts, max_length=capacity + 1, stride=stride, disallowed_special=(), allowed_special=()
    )
    full = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False, disallowed_special=())
    values = np.arange(len(windows.batch.ids))
    merged = tokjax.align.merge_windows(windows, values, stride=stride)
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
        expected += oracle.merged(parts, length)
    assert merged.values.tolist() == expected
    assert windows.batch.ids[merged.values].tolist() == full.ids.tolist()
    scores = jnp.stack([jnp.asarray(values)] * 2, axis=1)
    assert tokjax.align.merge_windows(windows, scores, stride=stride).values.tolist() == [
        [v, v] for v in expected
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_labels_through_windows(tokenizer, scheme):
    """Spans that no window cuts in its middle come back whole from what the windows say."""
    text = "low lower widest newest " * 8
    words = [(m, m + 5, "PER") for m in range(5, len(text), 24)]
    windows = tokjax.encode_windows(tokenizer, [text], max_length=17, stride=10)
    aligned = tokjax.align.align_spans(windows, [words], labels=LABELS, scheme=scheme)
    merged = tokjax.align.merge_windows(windows, aligned.labels, stride=10)
    tagset = tokjax.align.TagSet(LABELS, scheme)
    assert tokjax.align.spans_from_labels(merged.offsets, merged.values, tagset, texts=[text]) == words
    assert tokjax.align.spans_from_labels(merged, merged.values, tagset, texts=[text]) == [words]


class TestFunctionsThatTakeWindows:
    TEXTS = ("Zoë flew to 東京 and on to Wien", "Kim", "to Wien")
    SPANS = ([(1, 5, "PER"), (14, 20, "ORG")], [(1, 4, "PER")], [(4, 8, "ORG")])

    @pytest.fixture(params=[None, [0, 2]])
    def windows(self, request):
        """Of all texts, and of some."""
        found = tokjax.encode_windows(tokjax.byte_level(), self.TEXTS, max_length=9, stride=3)
        if request.param is None:
            return found
        some = np.flatnonzero(np.isin(found.text_ids, request.param))
        return tokjax.Windows([found.batch[i] for i in some], found.text_ids[some])

    @pytest.mark.parametrize("options", [{}, {"texts": TEXTS}])
    def test_to_labels_and_back(self, windows, options):
        aligned = tokjax.align.align_spans(windows, self.SPANS, labels=LABELS, **options)
        by_window = {
            "spans": [self.SPANS[text] for text in windows.text_ids],
            **({"texts": [self.TEXTS[text] for text in windows.text_ids]} if options else {}),
        }
        alone = tokjax.align.align_spans(windows.batch, labels=LABELS, **by_window)
        assert aligned.labels.tolist() == alone.labels.tolist()
        counts, splits = [], np.cumsum([0, *map(len, by_window["spans"])])
        for text in range(3):
            of_text = np.flatnonzero(windows.text_ids == text)
            of_spans = [alone.token_counts[splits[i] : splits[i + 1]] for i in of_text]
            counts += np.sum(of_spans, axis=0).tolist() if len(of_text) else [0] * len(self.SPANS[text])
        assert aligned.token_counts.tolist() == counts
        tagset = tokjax.align.TagSet(LABELS)
        read = tokjax.align.spans_from_labels(windows, aligned.labels, tagset, **options)
        options = {"texts": by_window["texts"]} if options else {}
        assert read == tokjax.align.spans_from_labels(windows.batch, aligned.labels, tagset, **options)

    def test_padded(self, windows):
        padded = tokjax.collate_padded_batch(windows, pad_id=-1)
        alone = tokjax.collate_padded_batch(windows.batch, pad_id=-1)
        assert all(np.array_equal(left, right) for left, right in zip(padded, alone, strict=True))
        merged = tokjax.align.merge_windows(
            windows, np.arange(len(alone.ids[alone.attention_mask == 1])), stride=3
        )
        labels = tokjax.collate_padded_batch(merged, pad_id=-100)
        assert labels.ids[labels.attention_mask == 1].tolist() == merged.values.tolist()
        assert labels.offsets[labels.attention_mask == 1].tolist() == merged.offsets.tolist()
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"merged windows have shape \(\d+, 2\); rows are"
        ):
            tokjax.collate_padded_batch(
                merged._replace(values=np.stack([merged.values] * 2, axis=1)), pad_id=0
            )

    def test_invalid_arguments_are_rejected(self):
        windows = tokjax.encode_windows(tokjax.byte_level(), self.TEXTS, max_length=9, stride=3)
        by_window = [[]] * len(windows.text_ids)
        for options in ({"spans": by_window}, {"spans": self.SPANS, "texts": self.TEXTS[:2]}):
            with pytest.raises(
                tokjax.errors.InvalidArgumentError,
                match="rows, and the windows are of 3 texts; pass one row for each text, or windows.batch",
            ):
                tokjax.align.align_spans(windows, labels=LABELS, **options)
        for text_ids in (windows.text_ids[1:], windows.text_ids - 1):
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match="text_ids must say which text, from 0, each of"
            ):
                tokjax.align.align_spans(windows._replace(text_ids=text_ids), self.SPANS, labels=LABELS)


def test_pairs_in_windows():
    bert = tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d", "?"])
    windows = tokjax.encode_windows(
        bert, ["? ?"], ["a b c d"], max_length=8, stride=1, truncation="only_second"
    )
    merged = tokjax.align.merge_windows(windows, windows.batch.ids, stride=1, sequence_id=1)
    assert merged.values.tolist() == [3, 4, 5, 6]
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="sequence_id=0; pass what encode_windows was given"
    ):
        tokjax.align.merge_windows(windows, windows.batch.ids, stride=1)


def test_text_without_truncation():
    """The question stands in each window, be it one token or several, whatever the stride."""
    bert = tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "a", "b", "?"])
    for question in ("?", "? ?", ""):
        for stride in (0, 1):
            windows = tokjax.encode_windows(
                bert, [question], ["a b a b a"], max_length=7, stride=stride, truncation="only_second"
            )
            ids = windows.batch.ids
            merged = tokjax.align.merge_windows(windows, ids, stride=stride, sequence_id=1)
            assert merged.values.tolist() == [3, 4, 3, 4, 3]
            with pytest.raises(tokjax.errors.InvalidArgumentError, match="sequence_id=0"):
                tokjax.align.merge_windows(windows, ids, stride=stride)
    full = tokjax.encode_windows(bert, ["? ?"], ["a b"], max_length=9, truncation="only_second")
    assert tokjax.align.merge_windows(full, full.batch.ids, stride=0).values.tolist() == [5, 5]
    alone = tokjax.encode_windows(bert, ["a b"], max_length=9)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError,
        match="no token .* of sequence_id=1; without pairs it is 0",
    ):
        tokjax.align.merge_windows(alone, alone.batch.ids, stride=0, sequence_id=1)


def test_windows_of_some_texts(tokenizer):
    """Windows of a part of the texts are merged as if there were no others."""
    texts = ["low lower newest", "low", "", "widest newest lower low"]
    windows = tokjax.encode_windows(tokenizer, texts, max_length=5, stride=2)
    values = np.arange(len(windows.batch.ids))
    merged = tokjax.align.merge_windows(windows, values, stride=2)
    for wanted in ([1, 2, 3], [0, 3], [2], [0, 1, 2, 3]):
        some = np.flatnonzero(np.isin(windows.text_ids, wanted))
        part = tokjax.Windows([windows.batch[i] for i in some], windows.text_ids[some])
        selected = np.concatenate([values[slice(*windows.batch.row_splits[i : i + 2])] for i in some])
        again = tokjax.align.merge_windows(part, selected, stride=2)
        rows = [merged.values[slice(*merged.row_splits[row : row + 2])].tolist() for row in wanted]
        assert again.values.tolist() == [*itertools.chain(*rows)]
        assert np.diff(again.row_splits).tolist() == [*map(len, rows)]


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_mismatched_stride(stride):
    windows = tokjax.encode_windows(
        tokjax.byte_level(), ["lower widest", "newest"], max_length=5, stride=stride
    )
    for given_stride in {0, 1, 2, 3} - {stride}:
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"stride={given_stride}"):
            tokjax.align.merge_windows(windows, windows.batch.ids, stride=given_stride)


def test_windows_are_refused(tokenizer):
    windows = tokjax.encode_windows(tokenizer, ["it's we've I'll they'd"], max_length=5, stride=2)
    values = np.zeros(len(windows.batch.ids))
    for stride in (0, 1, 3):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=f"don't follow on each other with stride={stride}"
        ):
            tokjax.align.merge_windows(windows, values, stride=stride)
    for wrong in (values[1:], [1, 2], 3):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"array\[attention_mask == 1\]"):
            tokjax.align.merge_windows(windows, wrong, stride=2)
    as_list = tokjax.align.merge_windows(windows, values.tolist(), stride=2)
    assert as_list.values.tolist() == tokjax.align.merge_windows(windows, values, stride=2).values.tolist()
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="what encode_windows gives, not TokenizationBatch"
    ):
        tokjax.align.merge_windows(windows.batch, values, stride=2)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"text_ids has shape \(1,\), and there are"):
        tokjax.align.merge_windows(windows._replace(text_ids=np.array([0])), values, stride=2)
    falling = np.arange(len(windows.text_ids))[::-1]
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="window 1 is of text .*, and the one before it"
    ):
        tokjax.align.merge_windows(windows._replace(text_ids=falling), values, stride=2)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="stride must be at least 0"):
        tokjax.align.merge_windows(windows, values, stride=-1)
    plain = tokjax.encode_windows(tokenizer, ["low"], max_length=4, return_offsets=False)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="no offsets; encode with return_offsets=True"
    ):
        tokjax.align.merge_windows(plain, values, stride=0)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="outside of jax.jit"):
        jax.jit(lambda v: tokjax.align.merge_windows(windows, v, stride=2))(values)
