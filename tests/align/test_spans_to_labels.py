"""Spans to labels of tokens, against loops over bytes, on any layout of tokens and on real ones."""

import re
import warnings
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
from tests.support.token_strategies import (
    LABELS,
    SCHEMES,
    array,
    draw_labelled_texts,
    draw_token_rows,
    get_word_ids,
    make_ragged_rows,
    schemes,
    tags_to_ids,
    whitespace_texts,
)


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
        tags, count = oracle.tags_of(tokens, row, scheme, on_partial, words)
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
    cuts = (
        not tokjax.offsets.is_valid_string_boundary(text, end)
        for (_, row), text in zip(texts, contents, strict=True)
        for span in row
        for end in span[:2]
    )
    if any(cuts):
        with pytest.raises(tokjax.errors.OffsetsContractError, match="begins or ends inside a character"):
            align()
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"text \d: the span")
        aligned = align()
    tagset, expected, counts, all_trimmed = tokjax.align.TagSet(LABELS), [], [], []
    for (tokens, row), text in zip(texts, contents, strict=True):
        white = oracle.find_whitespace_bytes(text.encode())
        trimmed = [oracle.trimmed(token, white) for token in tokens]
        words = get_word_ids(tokens) if first_subword_only else None
        tags, count = oracle.tags_of(trimmed, row, "BIO", on_partial, words)
        expected += tags_to_ids(tagset, tags)
        counts += count
        all_trimmed += trimmed
    assert aligned.labels.tolist() == expected
    assert aligned.token_counts.tolist() == counts
    assert [*map(tuple, tokjax.align.trim_offsets(ragged, contents).tolist())] == all_trimmed


class TestSpansCountedFromZero:
    TEXT = "the café cat sat"

    def align(self, *args, **options):
        return tokjax.align.align_spans(
            tokjax.encode_result(tokjax.byte_level(), self.TEXT), *args, labels=["X"], **options
        )

    @pytest.mark.parametrize("texts", [None, [TEXT]])
    def test_index_base(self, texts):
        """As the same spans counted from 1."""
        for start, stop in ((1, 4), (5, 10), (11, 14), (15, 18)):
            expected = self.align([(start, stop, "X")], texts=texts)
            found = self.align([(start - 1, stop - 1, "X")], texts=texts, index_base=0)
            assert found.labels.tolist() == expected.labels.tolist()
            columns = tokjax.align.span_columns([[(start - 1, stop - 1, "X")]], ["X"])
            assert self.align(columns, texts=texts, index_base=0).labels.tolist() == expected.labels.tolist()
            tokens, tagset = tokjax.encode_result(tokjax.byte_level(), self.TEXT), tokjax.align.TagSet(["X"])
            read = tokjax.align.spans_from_labels(tokens, found.labels, tagset, index_base=0)
            assert read == [(start - 1, stop - 1, "X")]

    def test_offsets_of_special_tokens(self):
        with pytest.warns(UserWarning, match=r"text 0: the span \(10, 13\) begins .* pass index_base=0"):
            assert self.align([(10, 13, "X")], texts=[self.TEXT]).token_counts.tolist() == [2]
        with pytest.raises(
            tokjax.errors.OffsetsContractError, match=r"\(4, 9\) begins or ends inside a character: .*0-based"
        ):
            self.align([(4, 9, "X")], texts=[self.TEXT])
        with pytest.raises(
            tokjax.errors.OffsetsContractError, match=r"\(0, 3\) must keep 1 <= start .* pass index_base=0"
        ):
            self.align([(0, 3, "X")])
        with pytest.raises(tokjax.errors.OffsetsContractError, match=r"\(-1, 3\) must keep 0 <= start"):
            self.align([(-1, 3, "X")], index_base=0)
        with pytest.raises(
            tokjax.errors.OffsetsContractError, match=r"\(14, 18\) ends after .* last byte is 16"
        ):
            self.align([(14, 18, "X")], texts=[self.TEXT], index_base=0)
        for wrong in (2, True, None):
            with pytest.raises(tokjax.errors.InvalidArgumentError, match="index_base must be 0 or 1, not"):
                self.align([], index_base=wrong)

    def test_white_space_is_trimmed(self):
        """Spans that overlap in it alone don't overlap; one of nothing else stays, and has no token."""
        with pytest.warns(UserWarning, match=r"2 such spans\)"):
            touching = self.align([(1, 5, "X"), (4, 10, "X")], texts=[self.TEXT])
        assert touching.token_counts.tolist() == [3, 5]
        with pytest.warns(UserWarning, match="white space, which gets no label"):
            assert self.align([(4, 5, "X")], texts=[self.TEXT]).token_counts.tolist() == [0]

    def test_invalid_utf8(self):
        """Each byte that is no UTF-8 is a character of its own."""
        data = b"a\x80\xbfb"
        result = tokjax.encode_result(tokjax.byte_level(), data)
        assert tokjax.align.align_spans(
            result, [(2, 3, "X")], labels=["X"], texts=[data]
        ).labels.tolist() == [
            0,
            1,
            0,
            0,
        ]


@given(draw_labelled_texts())
def test_partial_tokens_are_refused(texts):
    align = partial(
        tokjax.align.align_spans, make_ragged_rows([row for row, _ in texts]), [row for _, row in texts]
    )
    found = [oracle.find_first_partial(*text) for text in texts]
    refused = next(((row, *at) for row, at in enumerate(found) if at), None)
    if refused is None:
        aligned = align(labels=LABELS, on_partial="error")
        assert aligned.labels.tolist() == align(labels=LABELS, on_partial="exclude").labels.tolist()
        return
    row, (start, stop, label), token = refused
    message = f"text {row}: span ({start}, {stop}) {label!r} has only a part of token {token}, "
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=re.escape(message)):
        align(labels=LABELS, on_partial="error")


@get_max_examples(300)
@given(draw_labelled_texts(), st.integers(1, 40), st.sampled_from(["include", "exclude"]))
def test_search_methods_agree(texts, times, on_partial):
    """Many spans among few tokens are searched for in another way than few among many."""
    rows, spans = [tokens for tokens, _ in texts], [row for _, row in texts]
    tagset = tokjax.align.TagSet(LABELS)
    expected = [
        tag for text in texts for tag in tags_to_ids(tagset, oracle.tags_of(*text, "BIO", on_partial)[0])
    ]
    align = partial(
        tokjax.align.align_spans, make_ragged_rows(rows * times), labels=LABELS, on_partial=on_partial
    )
    assert align(spans * times).labels.tolist() == expected * times
    few = spans + [[]] * len(rows) * (times - 1)
    assert align(few).labels[: len(expected)].tolist() == expected


def to_dense(rows, width, fill):
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows], np.int32).reshape(
        len(rows), width, len(fill)
    )


@cache
def aligner(tagset, on_partial):
    """One function object each, so that JAX compiles it once."""

    def align(offsets, spans, word_ids=None):
        options = {"on_partial": on_partial, "word_ids": word_ids}
        return tokjax.align.align_span_arrays(offsets, spans, tagset, **options)

    return align


any_span = st.tuples(st.integers(-1, 20), st.integers(-1, 20), st.integers(-2, 3))


draw_row_pairs = st.tuples(
    st.lists(draw_token_rows(), min_size=2, max_size=2),
    st.lists(st.lists(any_span, max_size=4), min_size=2, max_size=2),
)


@given(draw_row_pairs, schemes, st.sampled_from(["include", "exclude"]), st.booleans())
def test_align_span_arrays(texts, scheme, on_partial, first_subword_only):
    """All of one shape, so that JAX compiles the functions once."""
    rows, spans = texts
    tagset = tokjax.align.TagSet(LABELS, scheme)
    offsets, given_spans = to_dense(rows, 8, (0, 0)), to_dense(spans, 4, (0, 0, -1))
    words = [np.tile(get_word_ids(range(8)), (2, 1))] if first_subword_only else []
    aligned = assert_agrees(aligner(tagset, on_partial), offsets, given_spans, *words)
    assert aligned.labels.shape == (2, 8)
    assert aligned.token_counts.shape == (2, 4)
    for i, (tokens, row) in enumerate(zip(rows, spans, strict=True)):
        valid = [1 <= start < stop and 0 <= label < 3 for start, stop, label in row]
        retained = [(*span[:2], LABELS[span[2]]) for span, ok in zip(row, valid, strict=True) if ok]
        row_words = get_word_ids(tokens) if first_subword_only else None
        tags, counts = oracle.tags_of(tokens, retained, scheme, on_partial, row_words)
        assert aligned.labels[i].tolist() == [*tags_to_ids(tagset, tags), *[-100] * (8 - len(tokens))]
        remaining = iter(counts)
        assert aligned.token_counts[i].tolist() == [
            *[next(remaining) if ok else 0 for ok in valid],
            *[0] * (4 - len(row)),
        ]


@pytest.mark.parametrize(("shape", "width"), [((0, 3), 2), ((2, 0), 2), ((2, 3), 0), ((1, 1, 2), 1)])
def test_the_edges_under_jit(shape, width):
    """Shapes with a zero in them, and a batch of batches."""
    offsets = np.full((*shape, 2), (1, 2), np.int32)
    spans = np.full((*shape[:-1], width, 3), (1, 2, 0), np.int32)
    align = aligner(tokjax.align.TagSet(LABELS), "include")
    assert_same(align(offsets, spans), jax.jit(align)(jnp.asarray(offsets), jnp.asarray(spans)), jax.Array)
    assert align(np.array([(1, 2), (2, 4)]), np.array([(1, 4, 1)])).labels.tolist() == [3, 4]


@pytest.mark.parametrize("on_partial", ["include", "exclude"])
def test_a_span_to_the_end_of_int32(on_partial):
    align = aligner(tokjax.align.TagSet(LABELS), on_partial)
    last = 2**31 - 1
    spans = np.array([(1, last, 0)], np.int32)
    for offsets in (np.array([(1, 3), (3, 5)], np.int32), np.array([(1, 3), (last - 1, last)], np.int32)):
        assert align(offsets, spans).labels.tolist() == [1, 2]
        assert jax.jit(align)(jnp.asarray(offsets), jnp.asarray(spans)).labels.tolist() == [1, 2]


@given(draw_labelled_texts(), schemes)
def test_host_and_arrays_agree(texts, scheme):
    spans = [row for _, row in texts]
    offsets = to_dense([tokens for tokens, _ in texts], 8, (0, 0))
    on_host = tokjax.align.align_spans(offsets, spans, labels=LABELS, scheme=scheme)
    padded = tokjax.align.pad_spans(tokjax.align.span_columns(spans, LABELS))
    as_arrays = tokjax.align.align_span_arrays(offsets, padded, tokjax.align.TagSet(LABELS, scheme))
    assert on_host.labels.tolist() == as_arrays.labels.tolist()
    counts = [
        n for row, ns in zip(spans, as_arrays.token_counts.tolist(), strict=True) for n in ns[: len(row)]
    ]
    assert on_host.token_counts.tolist() == counts


@pytest.mark.parametrize("scheme", SCHEMES)
def test_forms_of_one_text_and_of_many(tokenizer, scheme):
    texts = ["low lower", "newest"]
    batch = tokjax.encode_batch_result(tokenizer, texts)
    spans = [[(5, 10, "PER")], [(1, 7, "ORG")]]
    expected = tokjax.align.align_spans(batch, spans, labels=LABELS, scheme=scheme)
    columns = tokjax.align.span_columns(spans, LABELS)
    for form in (batch.ragged, list(batch), jax.tree.map(jnp.asarray, batch.ragged)):
        for given_spans in (spans, columns, jax.tree.map(jnp.asarray, columns)):
            again = tokjax.align.align_spans(form, given_spans, labels=LABELS, scheme=scheme)
            assert again.labels.tolist() == expected.labels.tolist()
            assert again.token_counts.tolist() == expected.token_counts.tolist()
    alone = [
        tokjax.align.align_spans(offsets, row, labels=LABELS, scheme=scheme).labels.tolist()
        for result, row in zip(batch, spans, strict=True)
        for offsets in (result, result.offsets)
    ]
    assert [*alone[0], *alone[2]] == expected.labels.tolist()
    assert alone[::2] == alone[1::2]


def test_leading_space_is_outside_the_word():
    offsets, text, spans = array([(0, 0), (1, 4), (4, 9), (9, 10)]), "New York.", [(5, 9, "A-B")]
    align = partial(tokjax.align.align_spans, offsets, spans, labels=LABELS, scheme="IO")
    assert align().labels.tolist() == [-100, 0, 3, 0]
    assert align(on_partial="exclude").labels.tolist() == [-100, 0, 0, 0]
    with pytest.raises(
        tokjax.errors.InvalidArgumentError,
        match=r"text 0: span \(5, 9\) 'A-B' has only a part of token 2, whose span is \(4, 9\); .* texts=",
    ):
        align(on_partial="error")
    for on_partial in ("include", "exclude", "error"):
        assert align(texts=[text], on_partial=on_partial).labels.tolist() == [-100, 0, 3, 0]
    with pytest.warns(UserWarning, match=r"text 0: the span \(1, 5\) begins or ends with white space, which"):
        aligned = tokjax.align.align_spans(offsets, [(1, 5, "PER")], labels=LABELS, texts=[text])
    assert aligned.labels.tolist() == [-100, 1, 0, 0]
    assert tokjax.align.align_spans(offsets, [(1, 5, "PER")], labels=LABELS).labels.tolist() == [
        -100,
        1,
        2,
        0,
    ]


@pytest.mark.parametrize("on_partial", ["include", "exclude", "error"])
def test_leading_space_before_first_word(on_partial):
    """Trimmed, it is empty just where the span begins."""
    texts, spans = ["\nZoë", "\nZoë"], [[(2, 6, "PER")]] * 2
    batch = tokjax.encode_batch_result(tokjax.byte_level(), texts)
    aligned = tokjax.align.align_spans(batch, spans, labels=LABELS, on_partial=on_partial, texts=texts)
    assert aligned.labels.tolist() == [-100, 1, 2, 2, 2] * 2
    assert aligned.token_counts.tolist() == [4, 4]


def test_two_spans_in_one_token():
    offsets, spans = array([(1, 7), (7, 9)]), [(4, 8, "ORG"), (1, 3, "PER")]
    included = tokjax.align.align_spans(offsets, spans, labels=LABELS)
    assert included.labels.tolist() == [1, 3]
    assert included.token_counts.tolist() == [1, 1]
    inside = tokjax.align.align_spans(offsets, [(1, 3, "PER"), (4, 6, "ORG")], labels=LABELS)
    assert inside.token_counts.tolist() == [1, 0]
    assert tokjax.align.align_spans(offsets, spans, labels=LABELS, on_partial="exclude").labels.tolist() == [
        0,
        0,
    ]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="has only a part of token 0"):
        tokjax.align.align_spans(offsets, spans, labels=LABELS, on_partial="error")


def test_the_token_that_is_named_as_partial():
    offsets = array([(1, 3), (3, 5), (5, 7)])
    for span, token in (((2, 7), 0), ((1, 6), 2), ((3, 4), 1), ((4, 7), 1)):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=f"part of token {token}, whose"):
            tokjax.align.align_spans(offsets, [(*span, "PER")], labels=LABELS, on_partial="error")
    full_text = tokjax.align.align_spans(offsets, [(1, 5, "PER")], labels=LABELS, on_partial="error")
    assert full_text.labels.tolist() == [1, 2, 0]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="part of token 2, whose"):
        tokjax.align.align_spans(
            array([(1, 1), (1, 2), (2, 9)]), [(1, 4, "PER")], labels=LABELS, on_partial="error"
        )


def test_special_tokens_have_empty_spans(tokenizer):
    """One that was found in the text has bytes and is labelled; one that was inserted has none."""
    with_eos = tokjax.with_template(tokenizer, "<|endoftext|> $A <|pad|>")
    result = tokjax.encode_result(with_eos, "low<|endoftext|>", allowed_special="all")
    assert result.special_tokens_mask.tolist() == [1, 0, 1, 1]
    aligned = tokjax.align.align_spans(result, [(4, 17, "PER")], labels=LABELS)
    assert aligned.labels.tolist() == [-100, 0, 1, -100]


def test_pairs():
    bert = tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "who", "?", "me"])
    pair = tokjax.encode_result(bert, "who who?", pair="me who")
    first = tokjax.align.align_spans(pair, [(5, 8, "PER")], labels=LABELS)
    second = tokjax.align.align_spans(pair, [(1, 3, "PER")], labels=LABELS, sequence_id=1)
    assert first.labels.tolist() == [-100, 0, 1, 0, -100, -100, -100, -100]
    assert second.labels.tolist() == [-100, -100, -100, -100, -100, 1, 0, -100]
    for sequence_id, aligned in ((0, first), (1, second)):
        read = partial(
            tokjax.align.spans_from_labels, pair, tagset=tokjax.align.TagSet(LABELS), sequence_id=sequence_id
        )
        assert read(tag_ids=aligned.labels) == [[(5, 8, "PER")], [(1, 3, "PER")]][sequence_id]


def test_truncated_texts(tokenizer):
    text, spans = "lower newest widest", [(1, 6, "PER"), (7, 13, "ORG"), (14, 20, "PER")]
    full_text = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
    capacity = int(np.flatnonzero(full_text.offsets[:, 1] > 7)[0]) + 1
    truncated = tokjax.encode_result(tokenizer, text, max_length=capacity, add_special_tokens=False)
    aligned = tokjax.align.align_spans(truncated, spans, labels=LABELS, scheme="BILOU", texts=[text])
    assert aligned.token_counts.tolist() == [capacity - 1, 1, 0]
    assert aligned.labels[-1] == tokjax.align.TagSet(LABELS, "BILOU").get_id("U-ORG")


def test_many_texts_at_once(tokenizer, corpus):
    texts = corpus * 50
    spans = [[(*m.span(), "PER") for m in re.finditer(r"\w+", text)] for text in texts]
    in_bytes = tokjax.align.spans_from_characters(texts, spans)
    batch = tokjax.encode_batch_result(tokenizer, texts)
    aligned = tokjax.align.align_spans(batch, in_bytes, labels=["PER"], texts=texts)
    for row in (0, 7, len(texts) - 1):
        alone = tokjax.align.align_spans(batch[row], in_bytes[row], labels=["PER"], texts=[texts[row]])
        part = slice(*batch.row_splits[row : row + 2])
        assert aligned.labels[part].tolist() == alone.labels.tolist()
