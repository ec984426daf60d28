"""Labels of tokens to spans: of spans and back again, of any tags, and as other libraries have them."""

import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles import alignment as oracle
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
    """What is usually written: every character of a span, one call each."""
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


def test_like_a_loop_over_char_to_token(tokenizer, corpus, tmp_path):
    """Words of ASCII as spans: where tokens end inside a character, the loop finds only one of them."""
    from tokenizers import Tokenizer

    [path] = tokjax.formats.export_tokenizer(tokenizer, tmp_path / "tokenizer.json", "huggingface")
    peer, tagset = Tokenizer.from_file(str(path)), tokjax.align.TagSet(("PER",))
    for text in filter(str.isascii, corpus):
        spans = [(*match.span(), "PER") for match in re.finditer(r"[A-Za-z]+", text)][::2]
        expected = char_to_token_loop(peer.encode(text, add_special_tokens=False), spans, tagset)
        result = tokjax.encode_result(tokenizer, text, add_special_tokens=False)
        [in_bytes] = tokjax.align.spans_from_characters([text], [spans])
        assert tokjax.align.align_spans(result, in_bytes, labels=["PER"]).labels.tolist() == expected


@given(hard_texts, st.data(), st.sampled_from(["BIO", "BILOU", "IOBES", "IOE2"]), st.booleans())
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
        aligned = tokjax.align.align_spans(result, spans, labels=LABELS, scheme=scheme, on_partial=on_partial)
        read = tokjax.align.spans_from_labels(
            result, aligned.labels, tokjax.align.TagSet(LABELS, scheme), strict=strict
        )
        assert read == spans
    touching = any(a[1] == b[0] and a[2] == b[2] for a, b in zip(spans, spans[1:], strict=False))
    aligned = tokjax.align.align_spans(result, spans, labels=LABELS, scheme="IO")
    read = tokjax.align.spans_from_labels(
        result, aligned.labels, tokjax.align.TagSet(LABELS, "IO"), strict=strict
    )
    assert (read == spans) is not touching


@given(draw_token_rows(), st.data(), schemes, st.booleans(), st.booleans())
def test_spans_from_any_labels(tokens, data, scheme, strict, first_subword_only):
    tagset = tokjax.align.TagSet(LABELS, scheme)
    tags = data.draw(
        st.lists(st.sampled_from([*tagset.tags, None]), min_size=len(tokens), max_size=len(tokens))
    )
    words = get_word_ids(tokens)
    read = tokjax.align.spans_from_labels(
        array(tokens),
        np.array(tags_to_ids(tagset, tags), np.int32),
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
    chunks = oracle.parse_strict_chunks(found, scheme) if strict else oracle.parse_lenient_chunks(found)
    expected = []
    for first, last, label in chunks:
        end = counted[last]
        if first_subword_only:
            end = max(i for i in covering if words[i] == words[end])
        expected.append((tokens[counted[first]][0], tokens[end][1], label))
    assert read == expected


@given(st.lists(draw_token_rows(), max_size=4), st.data(), schemes)
def test_spans_of_a_batch_are_those_of_each_text(rows, data, scheme):
    tagset = tokjax.align.TagSet(LABELS, scheme)
    n = sum(map(len, rows))
    tags = np.array(data.draw(st.lists(st.integers(0, len(tagset) - 1), min_size=n, max_size=n)), np.int32)
    splits = np.cumsum([0, *map(len, rows)])
    alone = [
        tokjax.align.spans_from_labels(array(row), tags[start : start + len(row)], tagset)
        for row, start in zip(rows, splits.tolist(), strict=False)
    ]
    assert tokjax.align.spans_from_labels(make_ragged_rows(rows), tags, tagset) == alone
    ragged = make_ragged_rows(rows)
    padded = tokjax.collate_padded_batch(ragged._replace(ids=tags), pad_id=0)  # padding is told by its span
    assert tokjax.align.spans_from_labels(padded.offsets, padded.ids, tagset) == alone
    assert (
        tokjax.align.spans_from_labels(jnp.asarray(padded.offsets), jnp.asarray(padded.ids), tagset) == alone
    )


@given(draw_token_rows(), whitespace_texts, st.data(), st.booleans())
def test_whitespace_is_skipped(tokens, text, data, first_subword_only):
    tagset, offsets = tokjax.align.TagSet(LABELS), array(tokens)
    tags = data.draw(st.lists(st.integers(0, len(tagset) - 1), min_size=len(tokens), max_size=len(tokens)))
    words = get_word_ids(tokens) if first_subword_only else None
    read = partial(
        tokjax.align.spans_from_labels,
        tag_ids=np.array(tags, np.int32),
        tagset=tagset,
        first_subword_only=first_subword_only,
        word_ids=words,
    )
    assert read(offsets, texts=[text]) == read(tokjax.align.trim_offsets(offsets, [text]))


def test_spans_without_their_white_space():
    offsets, tagset = array([(1, 4), (4, 9), (9, 10)]), tokjax.align.TagSet(LABELS)
    read = partial(tokjax.align.spans_from_labels, offsets, np.array([0, 1, 0]), tagset)
    assert read() == [(4, 9, "PER")]
    assert read(texts=["New York."]) == [(5, 9, "PER")]


def test_invalid_labels_are_rejected():
    offsets, tagset = array([(1, 4), (4, 9)]), tokjax.align.TagSet(LABELS)
    batch = np.array([[(1, 4), (4, 6), (6, 9)], [(1, 2), (2, 3), (3, 4)]])
    for positions, shape in (
        (offsets, (1,)),
        (batch, (3, 2)),
        (batch, (5,)),
        (make_ragged_rows([[(1, 2)] * 2]), (1, 2)),
    ):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=rf"tag_ids has shape {re.escape(str(shape))}, and the tokens",
        ):
            tokjax.align.spans_from_labels(positions, np.zeros(shape, int), tagset)
    assert tokjax.align.spans_from_labels(batch, np.array([1, 0, 0, 0, 0, 3]), tagset) == [
        [(1, 4, "PER")],
        [(3, 4, "ORG")],
    ]
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"tagset must be a TagSet, not \['PER'\]"):
        tokjax.align.spans_from_labels(offsets, np.array([0, 0]), ["PER"])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="ignore_index is 0, which is the tag 'O'"):
        tokjax.align.spans_from_labels(offsets, np.array([0, 0]), tagset, ignore_index=0)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="-1 is no tag: there are 7"):
        tokjax.align.spans_from_labels(offsets, np.array([0, -1]), tagset)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="call it outside"):
        jax.jit(lambda tags: tokjax.align.spans_from_labels(offsets, tags, tagset))(np.array([0, 1]))


def test_first_subwords_round_trip(tokenizer):
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
        everything = tokjax.align.align_spans(
            result, spans, labels=LABELS, scheme=scheme, texts=[text]
        ).labels
        assert tokjax.align.spans_from_labels(result, everything, tagset, texts=[text]) == spans


def test_the_table_of_the_page_is_what_its_snippet_gives():
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
