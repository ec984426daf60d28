"""Tests of `labels_from_words`, `words_from_labels` and `word_ids_from_spans` against loops."""

from collections import Counter
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.numpy_jax_agreement import assert_agrees, assert_same
from tests.support.rejections import rejects
from tests.support.token_strategies import schemes
from tests.support.variants import mark_slow_except

LABELS = ("PER", "ORG")
LENGTH, WORDS = 8, 4


@st.composite
def draw_word_ids(draw):
    """Draws two rows of word ids, with -1 at their ends."""
    rows = []
    for _ in range(2):
        words = [word for word in range(WORDS) for _ in range(draw(st.integers(0, 3)))][: LENGTH - 1]
        rows.append(([-1, *words] + [-1] * LENGTH)[:LENGTH])
    return np.array(rows, np.int32)


def draw_rows(elements, length):
    row = st.lists(elements, min_size=length, max_size=length)
    return st.lists(row, min_size=2, max_size=2).map(partial(np.array, dtype=np.int32))


@cache
def make_token_labeller(label_all_tokens, tagset):
    return lambda words, labels: tokjax.align.labels_from_words(
        words, labels, label_all_tokens=label_all_tokens, tagset=tagset
    )


@cache
def make_word_labeller(method, tagset):
    return lambda words, labels: tokjax.align.words_from_labels(
        words, labels, num_words=WORDS, method=method, tagset=tagset
    )


def find_tokens(row, word):
    return [position for position, word_id in enumerate(row) if word_id == word]


@given(draw_word_ids(), draw_rows(st.sampled_from([-100, 0, 1, 2, 3, 4]), WORDS), st.booleans())
def test_labels_from_words(words, labels, label_all_tokens):
    token_labels = assert_agrees(make_token_labeller(label_all_tokens, None), words, labels)
    for i, row in enumerate(words.tolist()):
        expected = [-100] * LENGTH
        for word in range(WORDS):
            for position in find_tokens(row, word)[: None if label_all_tokens else 1]:
                expected[position] = labels[i, word]
        assert token_labels[i].tolist() == expected


@given(draw_word_ids(), schemes, st.data())
def test_tags_of_words_and_back(words, scheme, data):
    """Tags of spans of words become tags of the same spans of tokens, and the inverse restores them."""
    tagset = tokjax.align.TagSet(LABELS, scheme)
    word_offsets = [(word + 1, word + 2) for word in range(WORDS)]
    edges = sorted(data.draw(st.lists(st.integers(1, WORDS + 1), max_size=4, unique=True)))
    spans = [
        (a, b, data.draw(st.sampled_from(LABELS))) for a, b in zip(edges[::2], edges[1::2], strict=False)
    ]
    tags = tagset.get_ids(oracle.tag_tokens(word_offsets, spans, scheme)[0])
    tags = np.broadcast_to(tags, (2, WORDS))
    token_tags = assert_agrees(make_token_labeller(True, tagset), words, tags)
    restored = assert_agrees(make_word_labeller("majority", tagset), words, token_tags)
    for i, row in enumerate(words.tolist()):
        complete = set(range(WORDS)) <= set(row)
        offsets = [(0, 0) if word < 0 else word_offsets[word] for word in row]
        if complete:
            expected = oracle.tag_tokens(offsets, spans, scheme)[0]
            assert token_tags[i].tolist() == [-100 if tag is None else tagset.get_id(tag) for tag in expected]
        assert restored[i].tolist() == [tags[i, w] if w in row else -100 for w in range(WORDS)]


@given(draw_word_ids(), draw_rows(st.sampled_from([-100, 0, 1, 2, 3, 4]), LENGTH))
def test_words_from_labels(words, labels):
    tagset = tokjax.align.TagSet(LABELS)
    first = assert_agrees(make_word_labeller("first", None), words, labels)
    majority = assert_agrees(make_word_labeller("majority", tagset), words, labels)
    for i, row in enumerate(words.tolist()):
        for word in range(WORDS):
            word_labels = [
                labels[i, position] for position in find_tokens(row, word) if labels[i, position] != -100
            ]
            assert first[i, word] == (word_labels[0] if word_labels else -100)
            votes = Counter(
                tagset.tag_classes[tag] for tag in word_labels
            )  # in the order of first occurrence
            winner = max(votes, key=votes.get, default=None)
            if winner is None:
                assert majority[i, word] == -100
            else:
                assert tagset.tag_classes[majority[i, word]] == winner
                starts_span = bool(winner >= 0) and tagset.tags[word_labels[0]] == f"B-{LABELS[winner]}"
                assert tagset.tags[majority[i, word]].startswith("B") is starts_span


@pytest.mark.parametrize("wrong", mark_slow_except([99, 5, -1], [-1]))
def test_invalid_tag_ids_are_rejected_on_the_host(wrong):
    """In JAX they are ignored; on padding any value is allowed."""
    words, labels = np.array([0, 0, 1, -1], np.int32), np.array([wrong, 3, wrong], np.int32)
    label = make_token_labeller(True, tokjax.align.TagSet(LABELS))
    with rejects(f"{wrong} is not the id of a tag: ids are 0 to 4"):
        label(words, labels)
    assert jax.jit(label)(jnp.asarray(words), jnp.asarray(labels)).tolist() == [-100, -100, 3, -100]
    assert label(words, np.array([1, 3, wrong])).tolist() == [1, 2, 3, -100]


@pytest.mark.parametrize("shape", mark_slow_except([(0, 3), (2, 0), (3,)], [(2, 0)]))
def test_empty_arrays_under_jit(shape):
    tagset, words = tokjax.align.TagSet(LABELS), np.zeros(shape, np.int32)
    for count in (0, 2):
        labels = np.ones((*shape[:-1], count), np.int32)
        spans = np.ones((*shape[:-1], count, 2), np.int32)
        tokens = np.stack([words, words], axis=-1)

        def convert(words, labels, tokens, spans, num_words=count):
            options = {"num_words": num_words, "method": "majority", "tagset": tagset}
            return (
                tokjax.align.labels_from_words(words, labels, label_all_tokens=True, tagset=tagset),
                tokjax.align.words_from_labels(words, words, **options),
                tokjax.align.word_ids_from_spans(tokens, spans),
            )

        arrays = words, labels, tokens, spans
        in_jax = jax.jit(convert)(*map(jnp.asarray, arrays))
        assert_same(convert(*arrays), in_jax, jax.Array)


spans = st.tuples(st.integers(0, 9), st.integers(0, 4)).map(lambda span: (span[0], sum(span)))


@given(draw_rows(spans, 4), draw_rows(spans, 3))
def test_word_ids_from_spans(tokens, words):
    word_ids = assert_agrees(tokjax.align.word_ids_from_spans, tokens, words)
    for i in range(2):
        expected = [oracle.find_word(token, words[i].tolist()) for token in tokens[i].tolist()]
        assert word_ids[i].tolist() == expected


def test_invalid_arguments_are_rejected():
    tokens, tagset = np.zeros((2, 3), int), tokjax.align.TagSet(LABELS)
    from_words, of_spans = tokjax.align.labels_from_words, tokjax.align.word_ids_from_spans
    to_words = partial(tokjax.align.words_from_labels, tokens, tokens, num_words=1)
    for message, call in {
        r"word_labels has shape \(1, 3\), and the tokens": lambda: from_words(tokens, tokens[:1]),
        "ignore_index is 3, which is the tag 'B-ORG'": lambda: from_words(
            tokens, tokens, tagset=tagset, ignore_index=3
        ),
        "tagset must be a TagSet, not": lambda: from_words(tokens, tokens, tagset=LABELS),
        "labels has shape": lambda: tokjax.align.words_from_labels(tokens, tokens[0], num_words=1),
        "num_words must be at least 0": lambda: to_words(num_words=-1),
        "not 'last'": lambda: to_words(method="last"),
        "pass tagset=": lambda: to_words(method="majority"),
        "ignore_index is 0, which is the tag 'O'": lambda: to_words(tagset=tagset, ignore_index=0),
        r"offsets must have shape \(..., n, 2\)": lambda: of_spans(tokens, tokens),
        "leading axes must be equal": lambda: of_spans(np.zeros((1, 3, 2), int), np.zeros((2, 3, 2), int)),
    }.items():
        with rejects(message):
            call()


def test_fewer_labels_or_words_than_word_ids():
    ids = np.array([-1, 0, 1])
    assert tokjax.align.labels_from_words(ids, np.array([5])).tolist() == [-100, 5, -100]
    no_words = np.zeros((0, 2), np.int32)
    assert tokjax.align.word_ids_from_spans(np.array([[1, 2], [2, 3]]), no_words).tolist() == [-1, -1]
