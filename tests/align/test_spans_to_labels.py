"""Tests of `align_spans`: against a loop over bytes for random offsets, and on real tokenizers."""

import re
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.rejections import rejects
from tests.support.token_strategies import (
    LABELS,
    array,
    draw_labelled_texts,
    get_word_ids,
    make_ragged_rows,
    schemes,
    tags_to_ids,
    whitespace_texts,
)
from tokjax.errors import OffsetsContractError


@get_max_examples(500)
@given(
    draw_labelled_texts(),
    schemes,
    st.sampled_from(["include", "exclude"]),
    st.booleans(),
)
def test_align_spans(texts, scheme, on_partial, first_subword_only):
    rows, spans = [tokens for tokens, _ in texts], [row for _, row in texts]
    aligned = tokjax.align.align_spans(
        make_ragged_rows(rows),
        spans,
        labels=LABELS,
        scheme=scheme,
        on_partial=on_partial,
        first_subword_only=first_subword_only,
        ignore_index=-7,
    )
    tagset, expected, counts = tokjax.align.TagSet(LABELS, scheme), [], []
    for tokens, row in texts:
        words = get_word_ids(tokens) if first_subword_only else None
        tags, count = oracle.tag_tokens(tokens, row, scheme, on_partial, words)
        expected += tags_to_ids(tagset, tags, -7)
        counts += count
    assert aligned.labels.dtype == aligned.token_counts.dtype == np.int32
    assert aligned.labels.tolist() == expected
    assert aligned.token_counts.tolist() == counts


@given(
    draw_labelled_texts(),
    st.lists(whitespace_texts, min_size=4, max_size=4),
    st.sampled_from(["include", "exclude"]),
    st.booleans(),
)
def test_whitespace_is_ignored(texts, contents, on_partial, first_subword_only):
    ragged = make_ragged_rows([tokens for tokens, _ in texts])
    contents = contents[: len(texts)]
    align = partial(
        tokjax.align.align_spans,
        ragged,
        [row for _, row in texts],
        labels=LABELS,
        on_partial=on_partial,
        first_subword_only=first_subword_only,
        texts=contents,
    )
    splits_character = (
        not tokjax.offsets.is_valid_string_boundary(text, end)
        for (_, row), text in zip(texts, contents, strict=True)
        for span in row
        for end in span[:2]
    )
    if any(splits_character):
        with pytest.raises(OffsetsContractError, match="starts or stops inside a character"):
            align()
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"text \d: the span")
        aligned = align()
    tagset, expected, counts, all_trimmed = tokjax.align.TagSet(LABELS), [], [], []
    for (tokens, row), text in zip(texts, contents, strict=True):
        whitespace = oracle.find_whitespace_bytes(text.encode())
        trimmed = [oracle.trim_token(token, whitespace) for token in tokens]
        words = get_word_ids(tokens) if first_subword_only else None
        tags, count = oracle.tag_tokens(trimmed, row, "BIO", on_partial, words)
        expected += tags_to_ids(tagset, tags)
        counts += count
        all_trimmed += trimmed
    assert aligned.labels.tolist() == expected
    assert aligned.token_counts.tolist() == counts
    assert [*map(tuple, tokjax.align.trim_offsets(ragged, contents).tolist())] == all_trimmed


class TestIndexBase:
    TEXT = "the café cat sat"

    def align(self, *args, **options):
        return tokjax.align.align_spans(
            tokjax.encode_result(tokjax.byte_level(), self.TEXT), *args, labels=["X"], **options
        )

    @pytest.mark.parametrize("texts", [None, [TEXT]])
    def test_zero_based_spans_equal_one_based_spans(self, texts):
        for start, stop in ((1, 4), (5, 10), (11, 14), (15, 18)):
            expected = self.align([(start, stop, "X")], texts=texts)
            aligned = self.align([(start - 1, stop - 1, "X")], texts=texts, index_base=0)
            assert aligned.labels.tolist() == expected.labels.tolist()
            columns = tokjax.align.span_columns([[(start - 1, stop - 1, "X")]], ["X"])
            assert self.align(columns, texts=texts, index_base=0).labels.tolist() == expected.labels.tolist()
            tokens, tagset = tokjax.encode_result(tokjax.byte_level(), self.TEXT), tokjax.align.TagSet(["X"])
            decoded = tokjax.align.spans_from_labels(tokens, aligned.labels, tagset, index_base=0)
            assert decoded == [(start - 1, stop - 1, "X")]

    def test_wrong_index_base_is_reported(self):
        with pytest.warns(UserWarning, match=r"text 0: the span \(10, 13\) starts .* pass index_base=0"):
            assert self.align([(10, 13, "X")], texts=[self.TEXT]).token_counts.tolist() == [2]
        with pytest.raises(
            OffsetsContractError,
            match=r"\(4, 9\) starts or stops inside a character: .*0-based",
        ):
            self.align([(4, 9, "X")], texts=[self.TEXT])
        with pytest.raises(OffsetsContractError, match=r"\(0, 3\) violates 1 <= start .* pass index_base=0"):
            self.align([(0, 3, "X")])
        with pytest.raises(OffsetsContractError, match=r"\(-1, 3\) violates 0 <= start"):
            self.align([(-1, 3, "X")], index_base=0)
        with pytest.raises(OffsetsContractError, match=r"\(14, 18\) stops after .* last byte is 16"):
            self.align([(14, 18, "X")], texts=[self.TEXT], index_base=0)
        for wrong in (2, True, None):
            with rejects("index_base must be"):
                self.align([], index_base=wrong)

    def test_whitespace_is_trimmed(self):
        """Spans may overlap in whitespace; a span of whitespace only stays, and has no token."""
        with pytest.warns(UserWarning, match=r"2 such spans\)"):
            aligned = self.align([(1, 5, "X"), (4, 10, "X")], texts=[self.TEXT])
        assert aligned.token_counts.tolist() == [3, 5]
        with pytest.warns(UserWarning, match="whitespace, which gets no label"):
            assert self.align([(4, 5, "X")], texts=[self.TEXT]).token_counts.tolist() == [0]

    def test_invalid_utf8(self):
        """Each byte that is not UTF-8 is a separate character."""
        data = b"a\x80\xbfb"
        result = tokjax.encode_result(tokjax.byte_level(), data)
        aligned = tokjax.align.align_spans(result, [(2, 3, "X")], labels=["X"], texts=[data])
        assert aligned.labels.tolist() == [0, 1, 0, 0]


@given(draw_labelled_texts())
def test_partial_tokens_are_rejected(texts):
    align = partial(
        tokjax.align.align_spans, make_ragged_rows([row for row, _ in texts]), [row for _, row in texts]
    )
    partial_tokens = [oracle.find_first_partial(*text) for text in texts]
    first_partial = next(((row, *pair) for row, pair in enumerate(partial_tokens) if pair), None)
    if first_partial is None:
        aligned = align(labels=LABELS, on_partial="error")
        assert aligned.labels.tolist() == align(labels=LABELS, on_partial="exclude").labels.tolist()
        return
    row, (start, stop, label), token = first_partial
    message = f"text {row}: span ({start}, {stop}) {label!r} contains only a part of token {token}, "
    with rejects(re.escape(message)):
        align(labels=LABELS, on_partial="error")


def test_input_types_give_equal_labels(tokenizer):
    texts = ["low lower", "newest"]
    batch = tokjax.encode_batch_result(tokenizer, texts)
    spans = [[(5, 10, "PER")], [(1, 7, "ORG")]]
    expected = tokjax.align.align_spans(batch, spans, labels=LABELS)
    columns = tokjax.align.span_columns(spans, LABELS)
    for results in (batch.ragged, list(batch), jax.tree.map(jnp.asarray, batch.ragged)):
        for spans_or_columns in (spans, columns, jax.tree.map(jnp.asarray, columns)):
            aligned = tokjax.align.align_spans(results, spans_or_columns, labels=LABELS)
            assert aligned.labels.tolist() == expected.labels.tolist()
            assert aligned.token_counts.tolist() == expected.token_counts.tolist()
    separate = [
        tokjax.align.align_spans(offsets, row, labels=LABELS).labels.tolist()
        for result, row in zip(batch, spans, strict=True)
        for offsets in (result, result.offsets)
    ]
    assert [*separate[0], *separate[2]] == expected.labels.tolist()
    assert separate[::2] == separate[1::2]


def test_leading_space_is_outside_the_word():
    offsets, text, spans = array([(0, 0), (1, 4), (4, 9), (9, 10)]), "New York.", [(5, 9, "A-B")]
    align = partial(tokjax.align.align_spans, offsets, spans, labels=LABELS, scheme="IO")
    assert align().labels.tolist() == [-100, 0, 3, 0]
    assert align(on_partial="exclude").labels.tolist() == [-100, 0, 0, 0]
    with rejects(r"text 0: span \(5, 9\) 'A-B' contains only a part of token 2, whose span is .* texts="):
        align(on_partial="error")
    for on_partial in ("include", "exclude", "error"):
        assert align(texts=[text], on_partial=on_partial).labels.tolist() == [-100, 0, 3, 0]
    with pytest.warns(UserWarning, match=r"text 0: the span \(1, 5\) starts or stops with whitespace, which"):
        aligned = tokjax.align.align_spans(offsets, [(1, 5, "PER")], labels=LABELS, texts=[text])
    assert aligned.labels.tolist() == [-100, 1, 0, 0]
    without_text = tokjax.align.align_spans(offsets, [(1, 5, "PER")], labels=LABELS)
    assert without_text.labels.tolist() == [-100, 1, 2, 0]


def test_special_tokens_in_the_text_are_labelled(tokenizer):
    """A special token in the text has bytes and is labelled; an inserted one has no bytes and is not."""
    with_eos = tokjax.with_template(tokenizer, "<|endoftext|> $A <|pad|>")
    result = tokjax.encode_result(with_eos, "low<|endoftext|>", allowed_special="all")
    assert result.special_tokens_mask.tolist() == [1, 0, 1, 1]
    aligned = tokjax.align.align_spans(result, [(4, 17, "PER")], labels=LABELS)
    assert aligned.labels.tolist() == [-100, 0, 1, -100]


def test_pairs_of_texts():
    bert = tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "who", "?", "me"])
    pair = tokjax.encode_result(bert, "who who?", pair="me who")
    first = tokjax.align.align_spans(pair, [(5, 8, "PER")], labels=LABELS)
    second = tokjax.align.align_spans(pair, [(1, 3, "PER")], labels=LABELS, sequence_id=1)
    assert first.labels.tolist() == [-100, 0, 1, 0, -100, -100, -100, -100]
    assert second.labels.tolist() == [-100, -100, -100, -100, -100, 1, 0, -100]
    for sequence_id, aligned in ((0, first), (1, second)):
        decode = partial(
            tokjax.align.spans_from_labels, pair, tagset=tokjax.align.TagSet(LABELS), sequence_id=sequence_id
        )
        assert decode(tag_ids=aligned.labels) == [[(5, 8, "PER")], [(1, 3, "PER")]][sequence_id]
