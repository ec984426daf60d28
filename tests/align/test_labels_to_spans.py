"""Tests of `spans_from_labels`: round trips with `align_spans`, arbitrary tags, and other implementations."""

import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
from tests.support.rejections import rejects
from tests.support.text_strategies import hard_texts
from tests.support.token_strategies import (
    LABELS,
    SCHEMES,
    array,
    draw_token_rows,
    get_word_ids,
    make_ragged_rows,
    schemes,
    tags_to_ids,
    whitespace_texts,
)


def char_to_token_loop(encoding, spans, tagset):
    """Labels tokens in the usual way: with one call of `char_to_token` per character of a span."""
    labels = [-100 if start == stop else 0 for start, stop in encoding.offsets]
    for start, stop, label in spans:
        tokens = []
        for character in range(start, stop):
            token = encoding.char_to_token(character)
            if token is not None and token not in tokens:
                tokens.append(token)
        for token in tokens:
            labels[token] = tagset.get_id(("B-" if token == tokens[0] else "I-") + label)
    return labels


def test_labels_equal_a_loop_over_char_to_token(tokenizer, corpus, tmp_path):
    """Uses ASCII words only: where tokens end inside a character, the loop finds only one of them."""
    from tokenizers import Tokenizer

    [path] = tokjax.formats.export_tokenizer(tokenizer, tmp_path / "tokenizer.json", "huggingface")
    reference, tagset = Tokenizer.from_file(str(path)), tokjax.align.TagSet(("PER",))
    for text in filter(str.isascii, corpus):
        spans = [(*match.span(), "PER") for match in re.finditer(r"[A-Za-z]+", text)][::2]
        expected = char_to_token_loop(reference.encode(text, add_special_tokens=False), spans, tagset)
        result = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
        [in_bytes] = tokjax.align.spans_from_characters([text], [spans])
        assert tokjax.align.align_spans(result, in_bytes, labels=["PER"]).labels.tolist() == expected


@given(hard_texts, st.data(), st.sampled_from(["BIO", "BILOU", "IOBES", "IOE2"]), st.booleans())
def test_spans_to_labels_and_back(tokenizer, text, data, scheme, strict):
    """Spans that start and stop with tokens survive the round trip."""
    result = tokjax.encode_result(tokenizer, text, disallowed_special=())
    offsets = result.offsets[result.offsets[:, 0] < result.offsets[:, 1]].tolist()
    edges = sorted(data.draw(st.lists(st.integers(0, len(offsets)), max_size=6, unique=True)))
    spans = [
        (offsets[first][0], offsets[after - 1][1], data.draw(st.sampled_from(LABELS)))
        for first, after in zip(edges[::2], edges[1::2], strict=False)
    ]
    for on_partial in ("include", "exclude", "error"):
        aligned = tokjax.align.align_spans(result, spans, labels=LABELS, scheme=scheme, on_partial=on_partial)
        decoded = tokjax.align.spans_from_labels(
            result, aligned.labels, tokjax.align.TagSet(LABELS, scheme), strict=strict
        )
        assert decoded == spans
    are_adjacent = any(a[1] == b[0] and a[2] == b[2] for a, b in zip(spans, spans[1:], strict=False))
    aligned = tokjax.align.align_spans(result, spans, labels=LABELS, scheme="IO")
    decoded = tokjax.align.spans_from_labels(
        result, aligned.labels, tokjax.align.TagSet(LABELS, "IO"), strict=strict
    )
    assert (decoded == spans) is not are_adjacent


@given(draw_token_rows(), st.data(), schemes, st.booleans(), st.booleans())
def test_spans_from_any_labels(tokens, data, scheme, strict, first_subword_only):
    tagset = tokjax.align.TagSet(LABELS, scheme)
    tags = data.draw(
        st.lists(st.sampled_from([*tagset.tags, None]), min_size=len(tokens), max_size=len(tokens))
    )
    words = get_word_ids(tokens)
    decoded = tokjax.align.spans_from_labels(
        array(tokens),
        np.array(tags_to_ids(tagset, tags), np.int32),
        tagset,
        strict=strict,
        first_subword_only=first_subword_only,
        word_ids=words if first_subword_only else None,
    )
    covering = [i for i, (start, stop) in enumerate(tokens) if start < stop]
    selected = [i for i in covering if tags[i] is not None]
    if first_subword_only:
        selected = [i for k, i in enumerate(selected) if not k or words[selected[k - 1]] != words[i]]
    selected_tags = [tags[i] for i in selected]
    chunks = (
        oracle.parse_strict_chunks(selected_tags, scheme)
        if strict
        else oracle.parse_lenient_chunks(selected_tags)
    )
    expected = []
    for first, last, label in chunks:
        end = selected[last]
        if first_subword_only:
            end = max(i for i in covering if words[i] == words[end])
        expected.append((tokens[selected[first]][0], tokens[end][1], label))
    assert decoded == expected


@given(st.lists(draw_token_rows(), max_size=4), st.data(), schemes)
def test_batch_equals_separate_texts(rows, data, scheme):
    tagset = tokjax.align.TagSet(LABELS, scheme)
    n = sum(map(len, rows))
    tags = np.array(data.draw(st.lists(st.integers(0, len(tagset) - 1), min_size=n, max_size=n)), np.int32)
    splits = np.cumsum([0, *map(len, rows)])
    separate = [
        tokjax.align.spans_from_labels(array(row), tags[start : start + len(row)], tagset)
        for row, start in zip(rows, splits.tolist(), strict=False)
    ]
    assert tokjax.align.spans_from_labels(make_ragged_rows(rows), tags, tagset) == separate
    ragged = make_ragged_rows(rows)
    padded = tokjax.collate_padded_batch(ragged._replace(ids=tags), pad_id=0)  # (padding has the span (0, 0))
    assert tokjax.align.spans_from_labels(padded.offsets, padded.ids, tagset) == separate
    assert (
        tokjax.align.spans_from_labels(jnp.asarray(padded.offsets), jnp.asarray(padded.ids), tagset)
        == separate
    )


@given(draw_token_rows(), whitespace_texts, st.data(), st.booleans())
def test_whitespace_is_skipped(tokens, text, data, first_subword_only):
    tagset, offsets = tokjax.align.TagSet(LABELS), array(tokens)
    tags = data.draw(st.lists(st.integers(0, len(tagset) - 1), min_size=len(tokens), max_size=len(tokens)))
    words = get_word_ids(tokens) if first_subword_only else None
    decode = partial(
        tokjax.align.spans_from_labels,
        tag_ids=np.array(tags, np.int32),
        tagset=tagset,
        first_subword_only=first_subword_only,
        word_ids=words,
    )
    assert decode(offsets, texts=[text]) == decode(tokjax.align.trim_offsets(offsets, [text]))


def test_invalid_labels_are_rejected():
    offsets, tagset = array([(1, 4), (4, 9)]), tokjax.align.TagSet(LABELS)
    batch = np.array([[(1, 4), (4, 6), (6, 9)], [(1, 2), (2, 3), (3, 4)]])
    for positions, shape in (
        (offsets, (1,)),
        (batch, (3, 2)),
        (batch, (5,)),
        (make_ragged_rows([[(1, 2)] * 2]), (1, 2)),
    ):
        with rejects(rf"tag_ids has shape {re.escape(str(shape))}, and the tokens"):
            tokjax.align.spans_from_labels(positions, np.zeros(shape, int), tagset)
    assert tokjax.align.spans_from_labels(batch, np.array([1, 0, 0, 0, 0, 3]), tagset) == [
        [(1, 4, "PER")],
        [(3, 4, "ORG")],
    ]
    with rejects(r"tagset must be a TagSet, not \['PER'\]"):
        tokjax.align.spans_from_labels(offsets, np.array([0, 0]), ["PER"])
    with rejects("ignore_index is 0, which is the tag 'O'"):
        tokjax.align.spans_from_labels(offsets, np.array([0, 0]), tagset, ignore_index=0)
    with rejects("-1 is not the id of a tag: ids are 0 to 6"):
        tokjax.align.spans_from_labels(offsets, np.array([0, -1]), tagset)
    with rejects("call it outside"):
        jax.jit(lambda tags: tokjax.align.spans_from_labels(offsets, tags, tagset))(np.array([0, 1]))


def test_first_subword_labels_and_back(tokenizer):
    text = "naïve café résumé 日本語 👩‍👩‍👧 newest"
    words = [(m.start(), m.end(), "PER" if i % 2 else "ORG") for i, m in enumerate(re.finditer(r"\S+", text))]
    [spans] = tokjax.align.spans_from_characters([text], [words])
    result = tokjax.encode_result(tokenizer, text.split(" "), is_pretokenized=True)
    options = {"texts": [text], "first_subword_only": True}
    for scheme in SCHEMES:
        aligned = tokjax.align.align_spans(result, spans, labels=LABELS, scheme=scheme, **options)
        assert (aligned.labels != -100).sum() == len(words)
        tagset = tokjax.align.TagSet(LABELS, scheme)
        assert tokjax.align.spans_from_labels(result, aligned.labels, tagset, **options) == spans
        all_labels = tokjax.align.align_spans(
            result, spans, labels=LABELS, scheme=scheme, texts=[text]
        ).labels
        assert tokjax.align.spans_from_labels(result, all_labels, tagset, texts=[text]) == spans


def test_table_in_the_guide_equals_the_output_of_its_code():
    page = (Path(__file__).parents[2] / "docs" / "alignment.md").read_text()
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
