"""Tests of alignment for tokenizers that normalize: labels of words, and back to the words of the text."""

import unicodedata
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import tokjax
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.rejections import rejects

TEXT = "é é é é Kim flew"
LETTERS = [*"aKéÉñÅøİıßẞσςΣﬁ½²ⅧﬀŉǅĲªｱ①日가"]
LETTERS += ["a\u0301", "e\u0323\u0301", "A\u030a", "\u1100\u1161", "❤\ufe0f"]
words = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4).map("".join)
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
VARIANTS = {
    part
    for letter in "".join(LETTERS) + "kimflew"
    for form in FORMS
    for case in (str, str.lower)
    for part in case(unicodedata.normalize(form, letter))
}
TOKENS = ["[UNK]", "[CLS]", "[SEP]", *sorted(VARIANTS), *(f"##{part}" for part in sorted(VARIANTS))]


def make_library_tokenizer(*steps):
    backend = Tokenizer(models.WordPiece({token: i for i, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.Sequence([*steps])
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokjax.formats.from_huggingface(backend)


TOKENIZERS = {
    "uncased": lambda: tokjax.wordpiece(TOKENS),
    "cased": lambda: tokjax.wordpiece(TOKENS, lowercase=False),
    "cased without accents": lambda: tokjax.wordpiece(TOKENS, lowercase=False, strip_accents=True),
    "lowercase words": lambda: tokjax.models.word_level(TOKENS[:1], lowercase=True),
    "NFC": lambda: tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}, pattern="qwen2"),
    "library, NFKC": lambda: make_library_tokenizer(normalizers.NFKC(), normalizers.Lowercase()),
    "library, no accents": lambda: make_library_tokenizer(normalizers.NFD(), normalizers.StripAccents()),
}


@lru_cache
def get_tokenizer(name):
    return TOKENIZERS[name]()


@get_max_examples(25)
@pytest.mark.parametrize("name", TOKENIZERS)
@given(rows=st.lists(st.lists(words, min_size=1, max_size=4), min_size=1, max_size=3))
def test_each_word_is_labelled_and_read_back(name, rows):
    """For every normalizer, in a batch and in windows: accents, marks, case, compatibility characters."""
    tokenizer, tagset = get_tokenizer(name), tokjax.align.TagSet(["X", "Y"])
    texts, in_characters = [" ".join(row) for row in rows], []
    for row in rows:
        stops = np.cumsum([len(word) + 1 for word in row]).tolist()
        spans = zip(row, stops, "XYXY"[: len(row)], strict=True)
        in_characters.append([(stop - 1 - len(word), stop - 1, label) for word, stop, label in spans])
    spans = tokjax.align.spans_from_characters(texts, in_characters)
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False)
    batch = tokjax.map_offsets_to_input(tokenizer, texts, batch)
    aligned = tokjax.align.align_spans(batch, spans, labels=["X", "Y"], texts=texts)
    back = tokjax.align.spans_from_labels(batch, aligned.labels, tagset, texts=texts)
    assert tokjax.align.spans_to_characters(texts, back) == in_characters
    windows = tokjax.encode_windows(tokenizer, texts, max_length=4, stride=0)
    windows = tokjax.map_offsets_to_input(tokenizer, texts, windows)
    aligned = tokjax.align.align_spans(windows, spans, labels=["X", "Y"], texts=texts)
    merged = tokjax.align.merge_windows(windows, aligned.labels)
    assert tokjax.align.spans_from_labels(merged, merged.values, tagset, texts=texts) == back


@pytest.mark.parametrize("name", ["uncased", "lowercase words", "NFC"])
def test_offsets_of_the_normalized_text_are_rejected_with_texts(name):
    tokenizer, tagset = get_tokenizer(name), tokjax.align.TagSet(["PER"])
    result = tokjax.encode_result(tokenizer, TEXT)
    windows = tokjax.encode_windows(tokenizer, [TEXT], max_length=4)
    merged = tokjax.align.merge_windows(windows, np.zeros(len(windows.batch.ids), np.int32))
    listed = windows._replace(batch=list(windows.batch))
    for call in (
        lambda: tokjax.align.align_spans(result, [(17, 20, "PER")], labels=["PER"], texts=[TEXT]),
        lambda: tokjax.align.spans_from_labels(merged, merged.values, tagset, texts=[TEXT]),
        lambda: tokjax.align.trim_offsets(listed, [TEXT]),
        lambda: tokjax.align.trim_offsets([result], [TEXT]),
        lambda: tokjax.align.char_to_token(result, TEXT, 8),
    ):
        with rejects(r"pass map_offsets_to_input\(tokenizer, text, results\).* assume_normalized=True"):
            call()
    view = tokjax.tokenization_view(tokenizer, TEXT)
    in_view = tokjax.encode_result(tokenizer, view, assume_normalized=True)
    assert tokjax.align.char_to_token(in_view, view, view.lower().index("kim")) is not None


def test_removed_characters_belong_to_the_token_before():
    """Format characters, as combining marks do."""
    bert = tokjax.wordpiece(["[UNK]", "kim", "flew"])
    text = "Kim\u200f\u0301 flew"
    batch = tokjax.map_offsets_to_input(bert, [text], tokjax.encode_batch_result(bert, [text]))
    spans = tokjax.align.spans_from_characters([text], [[(0, 5, "PER")]])
    aligned = tokjax.align.align_spans(batch, spans, labels=["PER"], texts=[text])
    assert (
        tokjax.align.spans_from_labels(batch, aligned.labels, tokjax.align.TagSet(["PER"]), texts=[text])
        == spans
    )


def test_results_are_mapped_to_the_input():
    bert = get_tokenizer("uncased")
    result = tokjax.encode_result(bert, TEXT, "É K")
    mapped = tokjax.map_offsets_to_input(bert, TEXT, result, pair="É K")
    assert mapped.metadata.offsets_reference == "input_text"
    assert [tokjax.try_span_substring("É K", span) for span in mapped.offsets[-3:]] == ["É", "K", ""]
    assert tokjax.map_offsets_to_input(bert, TEXT, mapped) is mapped
    assert mapped.tokens[tokjax.align.char_to_token(mapped, TEXT, 8)] == "k"
    batch = tokjax.encode_batch_result(bert, [TEXT, "Kim"], ["É K", "é"])
    for results in (batch, list(batch)):
        first, second = tokjax.map_offsets_to_input(bert, [TEXT, "Kim"], results, pair=["É K", "é"])
        assert first == mapped
        assert second.offsets[-2].tolist() == [1, 3]
    for texts, pair, message in (
        (["Kim"], ["é"], "text has 1 texts, and the results are those of 2"),
        ([TEXT, "Kim"], None, "tokens of a second text; pass pair="),
        (TEXT, None, "texts is one text"),
    ):
        with rejects(message):
            tokjax.map_offsets_to_input(bert, texts, batch, pair=pair)
    without_offsets = tokjax.encode_result(bert, "a", return_offsets=False)
    with rejects("return_offsets=True"):
        tokjax.map_offsets_to_input(bert, "a", without_offsets)
