"""Spans to labels of tokens and back, against loops over bytes, on any layout of tokens and on real ones."""

import pickle
import re
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.strategies import any_strings, hard_texts
from tests.test_batching import agree, assert_same

SCHEMES = ["BIO", "BILOU", "IO", "IOE2"]
LABELS = ("PER", "ORG", "A-B")
schemes = st.sampled_from(SCHEMES)


@st.composite
def token_rows(draw, max_size=8):
    """Offsets in the order of a text: with gaps, inserted and trimmed tokens, and such as share bytes."""
    offsets, place = [], 1
    for kind in draw(st.lists(st.sampled_from("tttttgsed"), max_size=max_size)):
        if kind == "s":
            offsets.append((0, 0))
        elif kind == "e":
            offsets.append((place, place))
        elif kind == "d" and offsets and offsets[-1][0]:
            offsets.append(offsets[-1])
        else:
            place += kind == "g"
            stop = place + draw(st.integers(1, 3))
            offsets.append((place, stop))
            place = stop
    return offsets


@st.composite
def disjoint_spans(draw, last=20):
    edges = sorted(draw(st.lists(st.integers(1, last), max_size=8)))
    pairs = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False) if a < b]
    return draw(st.permutations([(a, b, draw(st.sampled_from(LABELS))) for a, b in pairs]))


def array(offsets):
    return np.array(offsets, np.int64).reshape(-1, 2)


def words_of(tokens):
    return np.arange(len(tokens)) // 2


def as_ids(tagset, tags, ignore_index=-100):
    return [ignore_index if tag is None else tagset.id_of(tag) for tag in tags]


def ragged_of(rows):
    return tokjax.make_ragged(
        np.zeros(sum(map(len, rows)), int),
        np.cumsum([0, *map(len, rows)]),
        offsets=array([span for row in rows for span in row]),
        word_ids=np.concatenate([np.zeros(0, int), *map(words_of, rows)]),
    )


@given(
    st.lists(st.tuples(token_rows(), disjoint_spans()), max_size=4),
    schemes,
    st.sampled_from(["include", "exclude"]),
    st.booleans(),
)
def test_align_spans(texts, scheme, on_partial, first_subword_only):
    rows, spans = [tokens for tokens, _ in texts], [row for _, row in texts]
    aligned = tokjax.align_spans(
        ragged_of(rows),
        spans,
        labels=LABELS,
        scheme=scheme,
        on_partial=on_partial,
        first_subword_only=first_subword_only,
        ignore_index=-7,
    )
    tagset, expected, counts = tokjax.TagSet(LABELS, scheme), [], []
    for tokens, row in texts:
        words = words_of(tokens) if first_subword_only else None
        tags, count = oracle.tags_of(tokens, row, scheme, on_partial, words)
        expected += as_ids(tagset, tags, -7)
        counts += count
    assert aligned.labels.dtype == aligned.token_counts.dtype == np.int32
    assert aligned.labels.tolist() == expected
    assert aligned.token_counts.tolist() == counts


@given(token_rows(), disjoint_spans(), st.integers(1, 40))
def test_both_ways_of_searching(tokens, spans, times):
    """Many spans among few tokens are searched for in another way than few among many."""
    copies = tokjax.align_spans(ragged_of([tokens] * times), [spans] * times, labels=LABELS)
    mostly_empty = tokjax.align_spans(
        ragged_of([tokens] * times), [spans] + [[]] * (times - 1), labels=LABELS
    )
    expected = as_ids(tokjax.TagSet(LABELS), oracle.tags_of(tokens, spans)[0])
    assert copies.labels.tolist() == expected * times
    assert mostly_empty.labels[: len(tokens)].tolist() == expected


def dense(rows, width, fill):
    return np.array([[*row, *[fill] * (width - len(row))] for row in rows], np.int32).reshape(
        len(rows), width, len(fill)
    )


@cache
def aligner(tagset, on_partial):
    """One function object each, so that JAX compiles it once."""

    def align(offsets, spans, word_ids=None):
        options = {"on_partial": on_partial, "word_ids": word_ids}
        return tokjax.align_span_arrays(offsets, spans, tagset, **options)

    return align


any_span = st.tuples(st.integers(-1, 20), st.integers(-1, 20), st.integers(-2, 3))


rows_of_two = st.tuples(
    st.lists(token_rows(), min_size=2, max_size=2),
    st.lists(st.lists(any_span, max_size=4), min_size=2, max_size=2),
)


@given(rows_of_two, schemes, st.sampled_from(["include", "exclude"]), st.booleans())
def test_align_span_arrays(texts, scheme, on_partial, first_subword_only):
    """All of one shape, so that JAX compiles the functions once."""
    rows, spans = texts
    tagset = tokjax.TagSet(LABELS, scheme)
    offsets, given_spans = dense(rows, 8, (0, 0)), dense(spans, 4, (0, 0, -1))
    words = [np.tile(words_of(range(8)), (2, 1))] if first_subword_only else []
    aligned = agree(aligner(tagset, on_partial), offsets, given_spans, *words)
    assert aligned.labels.shape == (2, 8)
    assert aligned.token_counts.shape == (2, 4)
    for i, (tokens, row) in enumerate(zip(rows, spans, strict=True)):
        valid = [1 <= start < stop and 0 <= label < 3 for start, stop, label in row]
        kept = [(*span[:2], LABELS[span[2]]) for span, ok in zip(row, valid, strict=True) if ok]
        row_words = words_of(tokens) if first_subword_only else None
        tags, counts = oracle.tags_of(tokens, kept, scheme, on_partial, row_words)
        assert aligned.labels[i].tolist() == [*as_ids(tagset, tags), *[-100] * (8 - len(tokens))]
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
    align = aligner(tokjax.TagSet(LABELS), "include")
    assert_same(align(offsets, spans), jax.jit(align)(jnp.asarray(offsets), jnp.asarray(spans)), jax.Array)
    assert align(np.array([(1, 2), (2, 4)]), np.array([(1, 4, 1)])).labels.tolist() == [3, 4]


@pytest.mark.parametrize("on_partial", ["include", "exclude"])
def test_a_span_to_the_end_of_int32(on_partial):
    align = aligner(tokjax.TagSet(LABELS), on_partial)
    offsets, spans = np.array([(1, 3), (3, 5)]), np.array([(1, 2**31 - 1, 0)])
    assert align(offsets, spans).labels.tolist() == [1, 2]
    assert jax.jit(align)(jnp.asarray(offsets), jnp.asarray(spans)).labels.tolist() == [1, 2]


def test_arrays_over_a_mesh():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    offsets = np.array([[(0, 0), (1, 3), (3, 6), (6, 7)]] * 8, np.int32)
    spans = np.array([[(1 + i % 3, 5, 0), (6, 7, 1)] for i in range(8)], np.int32)
    align = partial(tokjax.align_span_arrays, tagset=tokjax.TagSet(LABELS))
    on_mesh = jax.jit(align)(*jax.device_put((offsets, spans), sharding))
    assert on_mesh.labels.tolist() == align(offsets, spans).labels.tolist()


@given(st.lists(st.tuples(token_rows(), disjoint_spans()), max_size=4), schemes)
def test_host_and_arrays_agree(texts, scheme):
    spans = [row for _, row in texts]
    offsets = dense([tokens for tokens, _ in texts], 8, (0, 0))
    on_host = tokjax.align_spans(offsets, spans, labels=LABELS, scheme=scheme)
    padded = tokjax.pad_spans(tokjax.span_columns(spans, LABELS))
    as_arrays = tokjax.align_span_arrays(offsets, padded, tokjax.TagSet(LABELS, scheme))
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
    expected = tokjax.align_spans(batch, spans, labels=LABELS, scheme=scheme)
    columns = tokjax.span_columns(spans, LABELS)
    for form in (batch.ragged, list(batch), jax.tree.map(jnp.asarray, batch.ragged)):
        for given_spans in (spans, columns, jax.tree.map(jnp.asarray, columns)):
            again = tokjax.align_spans(form, given_spans, labels=LABELS, scheme=scheme)
            assert again.labels.tolist() == expected.labels.tolist()
            assert again.token_counts.tolist() == expected.token_counts.tolist()
    alone = [
        tokjax.align_spans(offsets, row, labels=LABELS, scheme=scheme).labels.tolist()
        for result, row in zip(batch, spans, strict=True)
        for offsets in (result, result.offsets)
    ]
    assert [*alone[0], *alone[2]] == expected.labels.tolist()
    assert alone[::2] == alone[1::2]


def test_a_leading_blank_is_no_part_of_a_word():
    offsets, text, spans = array([(0, 0), (1, 4), (4, 9), (9, 10)]), "New York.", [(5, 9, "A-B")]
    align = partial(tokjax.align_spans, offsets, spans, labels=LABELS, scheme="IO")
    assert align().labels.tolist() == [-100, 0, 3, 0]
    assert align(on_partial="exclude").labels.tolist() == [-100, 0, 0, 0]
    with pytest.raises(
        tokjax.InvalidArgumentError,
        match=r"text 0: span \(5, 9\) 'A-B' has only a part of token 2, whose span is \(4, 9\); .* texts=",
    ):
        align(on_partial="error")
    for on_partial in ("include", "exclude", "error"):
        assert align(texts=[text], on_partial=on_partial).labels.tolist() == [-100, 0, 3, 0]
    assert tokjax.align_spans(offsets, [(1, 5, "PER")], labels=LABELS, texts=[text]).labels.tolist() == [
        -100, 1, 0, 0
    ]  # fmt: skip
    assert tokjax.align_spans(offsets, [(1, 5, "PER")], labels=LABELS).labels.tolist() == [-100, 1, 2, 0]


def test_two_spans_in_one_token():
    offsets, spans = array([(1, 7), (7, 9)]), [(4, 8, "ORG"), (1, 3, "PER")]
    included = tokjax.align_spans(offsets, spans, labels=LABELS)
    assert included.labels.tolist() == [1, 3]
    assert included.token_counts.tolist() == [1, 1]
    inside = tokjax.align_spans(offsets, [(1, 3, "PER"), (4, 6, "ORG")], labels=LABELS)
    assert inside.token_counts.tolist() == [1, 0]
    assert tokjax.align_spans(offsets, spans, labels=LABELS, on_partial="exclude").labels.tolist() == [0, 0]
    with pytest.raises(tokjax.InvalidArgumentError, match="has only a part of token 0"):
        tokjax.align_spans(offsets, spans, labels=LABELS, on_partial="error")


def test_the_token_that_is_named_as_partial():
    offsets = array([(1, 3), (3, 5), (5, 7)])
    for span, token in (((2, 7), 0), ((1, 6), 2), ((3, 4), 1), ((4, 7), 1)):
        with pytest.raises(tokjax.InvalidArgumentError, match=f"part of token {token}, whose"):
            tokjax.align_spans(offsets, [(*span, "PER")], labels=LABELS, on_partial="error")
    whole = tokjax.align_spans(offsets, [(1, 5, "PER")], labels=LABELS, on_partial="error")
    assert whole.labels.tolist() == [1, 2, 0]


def test_special_tokens_are_told_by_their_spans(tokenizer):
    """One that was found in the text has bytes and is labelled; one that was inserted has none."""
    with_eos = tokjax.with_template(tokenizer, "<|endoftext|> $A <|pad|>")
    result = tokjax.encode_result(with_eos, "low<|endoftext|>", allowed_special="all")
    assert result.special_tokens_mask.tolist() == [1, 0, 1, 1]
    aligned = tokjax.align_spans(result, [(4, 17, "PER")], labels=LABELS)
    assert aligned.labels.tolist() == [-100, 0, 1, -100]


def test_pairs():
    bert = tokjax.wordpiece(["[UNK]", "[CLS]", "[SEP]", "who", "?", "me"])
    pair = tokjax.encode_result(bert, "who who?", pair="me who")
    first = tokjax.align_spans(pair, [(5, 8, "PER")], labels=LABELS)
    second = tokjax.align_spans(pair, [(1, 3, "PER")], labels=LABELS, sequence_id=1)
    assert first.labels.tolist() == [-100, 0, 1, 0, -100, -100, -100, -100]
    assert second.labels.tolist() == [-100, -100, -100, -100, -100, 1, 0, -100]
    for sequence_id, aligned in ((0, first), (1, second)):
        read = partial(tokjax.spans_from_labels, pair, tagset=tokjax.TagSet(LABELS), sequence_id=sequence_id)
        assert read(tag_ids=aligned.labels) == [[(5, 8, "PER")], [(1, 3, "PER")]][sequence_id]


def test_truncated_texts(tokenizer):
    text, spans = "lower newest widest", [(1, 6, "PER"), (7, 13, "ORG"), (14, 20, "PER")]
    whole = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
    room = int(np.flatnonzero(whole.offsets[:, 1] > 7)[0]) + 1
    cut = tokjax.encode_result(tokenizer, text, max_length=room, add_special_tokens=False)
    aligned = tokjax.align_spans(cut, spans, labels=LABELS, scheme="BILOU", texts=[text])
    assert aligned.token_counts.tolist() == [room - 1, 1, 0]
    assert aligned.labels[-1] == tokjax.TagSet(LABELS, "BILOU").id_of("U-ORG")


@pytest.mark.parametrize(
    ("spans", "error", "message"),
    [
        ([(3, 3, "PER")], tokjax.InvalidArgumentError, r"text 0: the span \(3, 3\) is empty"),
        (
            [(0, 3, "PER")],
            tokjax.OffsetsContractError,
            r"\(0, 3\) must keep 1 <= start < stop.*from_characters",
        ),
        ([(4, 3, "PER")], tokjax.OffsetsContractError, "must keep 1 <= start < stop"),
        (
            [(1, 3, "DOG")],
            tokjax.InvalidArgumentError,
            r"\(1, 3, 'DOG'\) has a label that is none of \['PER'",
        ),
        ([(1, 3, ["PER"])], tokjax.InvalidArgumentError, "has a label that is none of"),
        ([(1, 3)], tokjax.InvalidArgumentError, r"a span is \(start, stop, label\), not \(1, 3\)"),
        ([(1, 3, "PER", 4)], tokjax.InvalidArgumentError, r"a span is \(start, stop, label\)"),
        ([(1, 3, "PER", 4), (1, 2)], tokjax.InvalidArgumentError, r"a span is \(start, stop, label\)"),
        ([(1.5, 3, "PER")], tokjax.InvalidArgumentError, "a place that is no integer of a text"),
        ([(1, 2**80, "PER")], tokjax.InvalidArgumentError, "a place that is no integer of a text"),
        ([[(1, 3, "PER")]], tokjax.InvalidArgumentError, "a span is"),
        (["PER"], tokjax.InvalidArgumentError, "has a label that is none of"),
        ("PER", tokjax.InvalidArgumentError, "must be a list of"),
        ([3], tokjax.InvalidArgumentError, "a span is"),
        (3, tokjax.InvalidArgumentError, "must be a list of"),
        (
            [(2, 5, "PER"), (4, 6, "ORG"), (1, 2, "PER")],
            tokjax.InvalidArgumentError,
            r"text 0: the spans \(2, 5\) and \(4, 6\) overlap, .* split_layers",
        ),
        ([(1, 3, "PER"), (1, 3, "PER")], tokjax.InvalidArgumentError, "overlap"),
    ],
)
def test_spans_that_are_refused(spans, error, message):
    with pytest.raises(error, match=message):
        tokjax.align_spans(array([(1, 9)]), spans, labels=LABELS)


def test_what_is_refused():
    offsets = array([(1, 3), (3, 5)])
    align = partial(tokjax.align_spans, offsets, [], labels=LABELS)
    for options, message in (
        ({"on_partial": "maybe"}, "on_partial must be 'include', 'exclude' or 'error', not 'maybe'"),
        ({"scheme": "IOB1"}, "scheme must be 'BIO', 'BILOU', 'IO', 'IOE2', not 'IOB1'"),
        ({"labels": "PER"}, r"labels must be a sequence of labels, not 'PER'; pass \['PER'\]"),
        ({"labels": ["PER", "PER"]}, "labels holds 'PER' more than once"),
        ({"labels": [""]}, "strings with something in them"),
        ({"first_subword_only": True}, "word_ids=ARRAY"),
        ({"word_ids": [0]}, r"word_ids must have shape \(2,\), not \(1,\)"),
        ({"texts": []}, "texts has 0 rows, and there are 1 texts"),
        ({"ignore_index": None}, "ignore_index is None"),
    ):
        with pytest.raises(tokjax.InvalidArgumentError, match=message):
            align(**options)
    for form, message in (
        (np.zeros((2, 3)), "integers, not float64"),
        (np.zeros((2, 3), int), r"shape \(n, 2\) for one text or \(batch, length, 2\), not \(2, 3\)"),
        (tokjax.ragged_from_rows([[1]]), "no offsets; encode with return_offsets=True"),
        ([[1]], "results must be"),
    ):
        with pytest.raises(tokjax.InvalidArgumentError, match=message):
            tokjax.align_spans(form, [], labels=LABELS)
    with pytest.raises(tokjax.InvalidArgumentError, match="spans has 1 rows, and there are 2 texts"):
        tokjax.align_spans(np.zeros((2, 3, 2), int), [[]], labels=LABELS)
    with pytest.raises(tokjax.InvalidArgumentError, match="word_ids goes with an array"):
        tokjax.align_spans(ragged_of([[(1, 2)]]), [[]], labels=LABELS, word_ids=np.array([0]))
    with pytest.raises(
        tokjax.OffsetsContractError, match=r"\(1, 6\) ends after the text, whose last byte is 4"
    ):
        tokjax.align_spans(offsets, [(1, 6, "PER")], labels=LABELS, texts=["abcd"])
    with pytest.raises(tokjax.OffsetsContractError, match="text 0: a token has the span .* 3 bytes; is it"):
        tokjax.align_spans(offsets, [], labels=LABELS, texts=["abc"])
    columns = tokjax.span_columns([[(1, 3, "A-B")]], LABELS)
    with pytest.raises(tokjax.InvalidArgumentError, match="classes from 2 to 2, and there are 1 labels"):
        tokjax.align_spans(offsets, columns, labels=["PER"])
    with pytest.raises(tokjax.InvalidArgumentError, match="align_span_arrays"):
        jax.jit(lambda x: tokjax.align_spans(x, [], labels=LABELS))(offsets)


@pytest.mark.parametrize(
    "tokens", [[(3, 5), (1, 3)], [(0, 0), (3, 5), (4, 4), (0, 0), (1, 6)], [(1, 5), (2, 3)]]
)
def test_tokens_that_go_back(tokens):
    with pytest.raises(tokjax.InvalidArgumentError, match=r"text 1: token \d has the span .* in the order"):
        tokjax.align_spans(ragged_of([[(4, 9), (9, 9)], tokens]), [[], []], labels=LABELS)


def test_arrays_that_are_refused():
    offsets, spans, tagset = np.zeros((2, 3, 2), int), np.zeros((2, 1, 3), int), tokjax.TagSet(LABELS)
    for arguments, options, message in (
        ((offsets, spans[:1]), {}, r"spans must have shape \(2, spans, 3\), not \(1, 1, 3\); see pad_spans"),
        ((offsets[..., 0], spans), {}, r"offsets must have shape \(..., length, 2\), not \(2, 3\)"),
        ((offsets, spans), {"on_partial": "error"}, "on_partial must be 'include' or 'exclude' for arrays"),
        ((offsets, spans), {"word_ids": np.zeros(3, int)}, r"word_ids must have shape \(2, 3\)"),
    ):
        with pytest.raises(tokjax.InvalidArgumentError, match=message):
            tokjax.align_span_arrays(*arguments, tagset, **options)
    columns = tokjax.span_columns([[], [(1, 2, "PER")] * 2], LABELS)
    with pytest.raises(tokjax.InvalidArgumentError, match="text 1 has 2 spans, more than length=1"):
        tokjax.pad_spans(columns, length=1)


def test_tag_sets():
    expected = {
        "BIO": "O B-PER I-PER B-ORG I-ORG",
        "BILOU": "O B-PER I-PER L-PER U-PER B-ORG I-ORG L-ORG U-ORG",
        "IO": "O I-PER I-ORG",
        "IOE2": "O I-PER E-PER I-ORG E-ORG",
    }
    for scheme, tags in expected.items():
        tagset = tokjax.TagSet(["PER", "ORG"], scheme)
        assert " ".join(tagset.tags) == tags
        assert len(tagset) == len(tagset.tags)
        assert tagset.ids_of(tagset.tags).tolist() == list(range(len(tagset)))
        assert tagset.tags_of([*range(len(tagset)), -100]) == [*tagset.tags, "_"]
        assert pickle.loads(pickle.dumps(tagset)) == tagset == tokjax.TagSet(("PER", "ORG"), scheme)
        assert hash(tagset) == hash(tokjax.TagSet(("PER", "ORG"), scheme))
    with pytest.raises(tokjax.InvalidArgumentError, match="no tag 'B-DOG'; the tags are O, I-PER, I-ORG"):
        tokjax.TagSet(["PER", "ORG"], "IO").id_of("B-DOG")
    with pytest.raises(tokjax.InvalidArgumentError, match="7 is no tag: there are 7, from 0"):
        tokjax.TagSet(LABELS).tags_of([7])


nested_spans = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.sampled_from(LABELS)).map(
        lambda span: (span[0], span[0] + span[1], span[2])
    ),
    max_size=8,
)


@given(nested_spans)
def test_layers(spans):
    layers = tokjax.split_layers(spans)
    assert layers == oracle.layers_of(spans)
    assert sorted(span for layer in layers for span in layer) == sorted(spans)
    for layer in layers:
        tokjax.align_spans(array([]), layer, labels=LABELS)


@given(st.lists(st.tuples(hard_texts, st.randoms(use_true_random=False)), max_size=3))
def test_characters_to_bytes_and_back(given_texts):
    texts, spans = [], []
    for text, random in given_texts:
        places = sorted(random.choices(range(len(text) + 1), k=2))
        texts.append(text)
        spans.append([(*places, "PER")])
    in_bytes = tokjax.spans_from_characters(texts, spans)
    for text, [(start, stop, _)], [(first, last, label)] in zip(texts, spans, in_bytes, strict=True):
        assert tokjax.to_utf8(text)[first - 1 : last - 1] == tokjax.to_utf8(text[start:stop])
        assert label == "PER"
    assert tokjax.spans_to_characters(texts, in_bytes) == spans


def test_characters_that_are_not_there():
    with pytest.raises(tokjax.OffsetsContractError, match=r"text 1: span 0 is \(0, 4\)"):
        tokjax.spans_from_characters(["a", "é"], [[], [(0, 4, "PER")]])
    with pytest.raises(tokjax.InvalidArgumentError, match="spans has 1 rows, and there are 2 texts"):
        tokjax.spans_to_characters(["a", "b"], [[]])


@given(st.lists(hard_texts | any_strings | st.binary(max_size=12), max_size=3))
def test_trim_offsets(tokenizer, texts):
    batch = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
    for row, (text, trimmed) in enumerate(zip(texts, _trimmed_rows(batch, texts), strict=True)):
        data = tokjax.to_utf8(text)
        white = set()
        for character in re.finditer(r"\s", data.decode("utf-8", "surrogateescape")):
            if character.group().isspace():
                start = len(character.string[: character.start()].encode("utf-8", "surrogateescape")) + 1
                white |= set(range(start, start + len(character.group().encode())))
        for before, after in zip(batch[row].offsets.tolist(), trimmed, strict=True):
            solid = [place for place in range(*before) if place not in white]
            empty = before if before[0] == before[1] else [before[1]] * 2
            assert after == ([solid[0], solid[-1] + 1] if solid else empty)


def _trimmed_rows(batch, texts):
    trimmed = tokjax.trim_offsets(batch, texts).tolist()
    splits = batch.row_splits.tolist()
    return [trimmed[start:stop] for start, stop in zip(splits, splits[1:], strict=False)]


def char_to_token_loop(encoding, spans, tagset):
    """What is usually written: every character of a span, one call each."""
    labels = [-100 if start == stop else 0 for start, stop in encoding.offsets]
    for start, stop, label in spans:
        tokens = []
        for character in range(start, stop):
            token = encoding.char_to_token(character)
            if token is not None and token not in tokens:
                tokens.append(token)
        for token in tokens:
            labels[token] = tagset.id_of(("B-" if token == tokens[0] else "I-") + label)
    return labels


def test_like_a_loop_over_char_to_token(tokenizer, corpus, tmp_path):
    """Words of real text as spans; tokens that end inside a character are left out: the loop misses them."""
    from tokenizers import Tokenizer

    tokjax.export_tokenizer(tokenizer, tmp_path / "hf", "huggingface")
    [path] = (tmp_path / "hf").rglob("tokenizer.json") if (tmp_path / "hf").is_dir() else [tmp_path / "hf"]
    peer, tagset = Tokenizer.from_file(str(path)), tokjax.TagSet(("PER",))
    for text in corpus:
        if not text.isascii():
            continue
        spans = [(*match.span(), "PER") for match in re.finditer(r"[A-Za-z]+", text)][::2]
        expected = char_to_token_loop(peer.encode(text, add_special_tokens=False), spans, tagset)
        result = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
        [in_bytes] = tokjax.spans_from_characters([text], [spans])
        assert tokjax.align_spans(result, in_bytes, labels=["PER"]).labels.tolist() == expected


@given(hard_texts, st.data(), st.sampled_from(["BIO", "BILOU", "IOE2"]), st.booleans())
def test_the_round_trip(tokenizer, text, data, scheme, strict):
    """Labels of any spans that are made of whole tokens give those spans again."""
    result = tokjax.encode_result(tokenizer, text, disallowed_special=())
    offsets = result.offsets[result.offsets[:, 0] < result.offsets[:, 1]].tolist()
    edges = sorted(data.draw(st.lists(st.integers(0, len(offsets)), max_size=6, unique=True)))
    spans = [
        (offsets[first][0], offsets[after - 1][1], data.draw(st.sampled_from(LABELS)))
        for first, after in zip(edges[::2], edges[1::2], strict=False)
    ]
    for on_partial in ("include", "exclude", "error"):
        aligned = tokjax.align_spans(result, spans, labels=LABELS, scheme=scheme, on_partial=on_partial)
        read = tokjax.spans_from_labels(result, aligned.labels, tokjax.TagSet(LABELS, scheme), strict=strict)
        assert read == spans
    touching = any(a[1] == b[0] and a[2] == b[2] for a, b in zip(spans, spans[1:], strict=False))
    aligned = tokjax.align_spans(result, spans, labels=LABELS, scheme="IO")
    read = tokjax.spans_from_labels(result, aligned.labels, tokjax.TagSet(LABELS, "IO"), strict=strict)
    assert (read == spans) is not touching


@given(token_rows(), st.data(), schemes, st.booleans(), st.booleans())
def test_spans_from_any_labels(tokens, data, scheme, strict, first_subword_only):
    tagset = tokjax.TagSet(LABELS, scheme)
    tags = data.draw(
        st.lists(st.sampled_from([*tagset.tags, None]), min_size=len(tokens), max_size=len(tokens))
    )
    words = words_of(tokens)
    read = tokjax.spans_from_labels(
        array(tokens),
        np.array(as_ids(tagset, tags), np.int32),
        tagset,
        strict=strict,
        first_subword_only=first_subword_only,
        word_ids=words if first_subword_only else None,
    )
    covering = [i for i, (start, stop) in enumerate(tokens) if start < stop]
    counted = [i for i in covering if tags[i] is not None]
    if first_subword_only:
        counted = [i for k, i in enumerate(counted) if not k or words[counted[k - 1]] != words[i]]
    found = [tags[i] for i in counted]
    chunks = oracle.strict_chunks(found, scheme) if strict else oracle.lenient_chunks(found)
    expected = []
    for first, last, label in chunks:
        end = counted[last]
        if first_subword_only:
            end = max(i for i in covering if words[i] == words[end])
        expected.append((tokens[counted[first]][0], tokens[end][1], label))
    assert read == expected


@given(st.lists(token_rows(), max_size=4), st.data(), schemes)
def test_spans_of_a_batch_are_those_of_each_text(rows, data, scheme):
    tagset = tokjax.TagSet(LABELS, scheme)
    n = sum(map(len, rows))
    tags = np.array(data.draw(st.lists(st.integers(0, len(tagset) - 1), min_size=n, max_size=n)), np.int32)
    splits = np.cumsum([0, *map(len, rows)])
    alone = [
        tokjax.spans_from_labels(array(row), tags[start : start + len(row)], tagset)
        for row, start in zip(rows, splits.tolist(), strict=False)
    ]
    assert tokjax.spans_from_labels(ragged_of(rows), tags, tagset) == alone
    ragged = ragged_of(rows)
    padded = tokjax.collate_padded_batch(ragged._replace(ids=tags), pad_id=0)  # padding is told by its span
    assert tokjax.spans_from_labels(padded.offsets, padded.ids, tagset) == alone
    assert tokjax.spans_from_labels(jnp.asarray(padded.offsets), jnp.asarray(padded.ids), tagset) == alone


def test_spans_without_their_white_space():
    offsets, tagset = array([(1, 4), (4, 9), (9, 10)]), tokjax.TagSet(LABELS)
    read = partial(tokjax.spans_from_labels, offsets, np.array([0, 1, 0]), tagset)
    assert read() == [(4, 9, "PER")]
    assert read(texts=["New York."]) == [(5, 9, "PER")]


def test_labels_that_are_refused():
    offsets, tagset = array([(1, 4), (4, 9)]), tokjax.TagSet(LABELS)
    with pytest.raises(tokjax.InvalidArgumentError, match="tag_ids has 1 tags, and there are 2 tokens"):
        tokjax.spans_from_labels(offsets, np.array([0]), tagset)
    with pytest.raises(tokjax.InvalidArgumentError, match="-1 is no tag: there are 7"):
        tokjax.spans_from_labels(offsets, np.array([0, -1]), tagset)
    with pytest.raises(tokjax.InvalidArgumentError, match="call it outside"):
        jax.jit(lambda tags: tokjax.spans_from_labels(offsets, tags, tagset))(np.array([0, 1]))


def test_first_subwords_round_trip(tokenizer):
    text = "naïve café résumé 日本語 👩‍👩‍👧 newest"
    words = [(m.start(), m.end(), "PER" if i % 2 else "ORG") for i, m in enumerate(re.finditer(r"\S+", text))]
    [spans] = tokjax.spans_from_characters([text], [words])
    result = tokjax.encode_result(tokenizer, text.split(" "), is_pretokenized=True)
    options = {"texts": [text], "first_subword_only": True}
    for scheme in SCHEMES:
        aligned = tokjax.align_spans(result, spans, labels=LABELS, scheme=scheme, **options)
        assert (aligned.labels != -100).sum() == len(words)
        tagset = tokjax.TagSet(LABELS, scheme)
        assert tokjax.spans_from_labels(result, aligned.labels, tagset, **options) == spans
        everything = tokjax.align_spans(result, spans, labels=LABELS, scheme=scheme, texts=[text]).labels
        assert tokjax.spans_from_labels(result, everything, tagset, texts=[text]) == spans


def test_many_texts_at_once(tokenizer, corpus):
    texts = corpus * 50
    spans = [[(*m.span(), "PER") for m in re.finditer(r"\w+", text)] for text in texts]
    in_bytes = tokjax.spans_from_characters(texts, spans)
    batch = tokjax.encode_batch_result(tokenizer, texts)
    aligned = tokjax.align_spans(batch, in_bytes, labels=["PER"], texts=texts)
    for row in (0, 7, len(texts) - 1):
        alone = tokjax.align_spans(batch[row], in_bytes[row], labels=["PER"], texts=[texts[row]])
        part = slice(*batch.row_splits[row : row + 2])
        assert aligned.labels[part].tolist() == alone.labels.tolist()


def test_the_table_of_the_page_is_what_its_snippet_gives():
    page = (Path(__file__).parents[1] / "docs" / "alignment.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), names)
    rows = {
        name: [cell.strip("` ") for cell in cells.split("|")]
        for name, cells in re.findall(r"^\| (token|bytes|tag) \|(.*)\|$", page, re.MULTILINE)
    }
    result = names["result"]
    assert rows["token"] == [token.replace(" ", "␣") for token in result.tokens]
    assert rows["bytes"] == [f"{start}–{stop}" for start, stop in result.offsets.tolist()]
    assert rows["tag"] == names["tags"]
