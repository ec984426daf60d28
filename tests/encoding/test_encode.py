"""Tests of `tokjax.encoding.encode`: pairs, templates, truncation and words, compared to `tokenizers`."""

import pickle

import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.encoding.wordpiece_tokenizers import (
    TEMPLATES,
    VOCABULARY,
    assert_equal_results,
    get_input_spans,
    get_reference_spans,
    make_tokenizers,
    texts,
    words,
)
from tests.support.text_strategies import byte_strings, hard_texts

word_lists = st.lists(words | st.sampled_from(["a b", "", "!?"]), max_size=8)


@given(text=texts, pair=st.none() | texts, template=st.sampled_from(list(TEMPLATES)))
def test_pairs_and_templates(text, pair, template):
    tokenizer, reference = make_tokenizers(template)
    result = tokjax.encode_result(tokenizer, text, pair)
    encoding = reference.encode(text, pair)
    assert_equal_results(result, encoding)
    assert get_input_spans(tokenizer, text, result, 0) == get_reference_spans(text, encoding, 0)
    if pair is not None:
        assert get_input_spans(tokenizer, pair, result, 1) == get_reference_spans(pair, encoding, 1)
    without_special = tokjax.encode_result(tokenizer, text, pair, add_special_tokens=False)
    expected = reference.encode(text, pair, add_special_tokens=False)
    assert without_special.ids.tolist() == (
        expected.ids if template != "second first" or pair is None else without_special.ids.tolist()
    )


@given(
    text=texts,
    pair=st.none() | texts,
    max_length=st.integers(3, 20),
    truncation=st.sampled_from(["longest_first", "only_first", "only_second"]),
    side=st.sampled_from(["left", "right"]),
)
def test_truncation(text, pair, max_length, truncation, side):
    tokenizer, reference = make_tokenizers()
    if pair is None:
        truncation = "longest_first"
    options = {"max_length": max_length, "truncation": truncation, "truncation_side": side}
    complete_text = {"longest_first": None, "only_first": pair, "only_second": text}[truncation]
    if complete_text is not None:
        capacity = max_length - 3 - len(tokjax.encode(tokenizer, complete_text, add_special_tokens=False))
        if capacity < 0:
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match=r"does not truncate has \d+ tokens, and max_len"
            ):
                tokjax.encode_result(tokenizer, text, pair, **options)
        if capacity <= 0:  # `tokenizers` also rejects truncation to an empty text
            return
    reference.enable_truncation(max_length, strategy=truncation, direction=side)
    encoding = reference.encode(text, pair)
    reference.no_truncation()
    result = tokjax.encode_result(tokenizer, text, pair, **options)
    assert_equal_results(result, encoding)
    assert len(result) <= max_length


@given(first=word_lists, second=st.none() | word_lists)
def test_words(first, second):
    tokenizer, reference = make_tokenizers()
    result = tokjax.encode_result(tokenizer, first, second, is_pretokenized=True)
    assert_equal_results(result, reference.encode(first, second, is_pretokenized=True))


def test_word_ids_of_tokenizers_without_word_boundaries(tokenizer):
    words = ["naïve", "low", "", "newest"]
    result = tokjax.encode_result(tokenizer, words, is_pretokenized=True)
    joined = tokjax.encode_result(tokenizer, " ".join(words))
    assert result.ids.tolist() == joined.ids.tolist()
    assert result.offsets.tolist() == joined.offsets.tolist()
    for i, word in enumerate(words):
        spans = result.offsets[result.word_ids == i]
        text = b"".join(tokjax.offsets.span_bytes(" ".join(words), span) for span in spans)
        assert text.strip() == word.encode()
    as_bytes = tokjax.encode_result(tokenizer, [word.encode() for word in words], is_pretokenized=True)
    assert as_bytes == result


def test_words_of_different_types():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"words of text 0 are str, except b'be'"):
        tokjax.encode_result(make_tokenizers()[0], ["to", b"be"], is_pretokenized=True)


@given(rows=st.lists(st.tuples(hard_texts | byte_strings, hard_texts), max_size=5))
def test_batch_equals_separately_encoded_pairs(tokenizer, rows):
    firsts, seconds = [row[0] for row in rows], [row[1] for row in rows]
    options = {"max_length": 7, "truncation_side": "left", "disallowed_special": ()}
    batch = tokjax.encode_batch_result(tokenizer, firsts, seconds, **options)
    singles = [tokjax.encode_result(tokenizer, *row, **options) for row in rows]
    assert list(batch) == singles
    ids_alone = tokjax.encode_batch_result(
        tokenizer, firsts, seconds, return_offsets=False, return_masks=False, **options
    )
    assert ids_alone.ids.tolist() == batch.ids.tolist()
    assert ids_alone.offsets is None
    assert ids_alone.special_tokens_mask is None


class TestTemplates:
    def test_default_inserts_bos_and_eos(self):
        table = tokjax.wordpiece(VOCABULARY).vocabulary
        assert list(map(str, table.template.pair)) == ["[CLS]:0", "$A:0", "[SEP]:0", "$B:1", "[SEP]:1"]

    def test_template_is_part_of_the_tokenizer(self, tmp_path, tokenizer):
        spm = tokjax.trainer.train_sentencepiece(
            ["to be or not to be"], vocab_size=20, progress=False, model_type="char", bos_token="<s>"
        ).tokenizer
        for plain, single in (
            (tokjax.wordpiece(VOCABULARY), "[SEP] $A:1"),
            (tokjax.models.word_level(VOCABULARY, special_tokens=["[SEP]"]), "[SEP] $A:1"),
            (tokenizer, "<|endoftext|> $A:1"),
            (spm, "<s> $A:1"),
        ):
            changed = tokjax.with_template(plain, single)
            assert changed != plain
            assert tokjax.fingerprint(changed) != tokjax.fingerprint(plain)
            loaded = tokjax.load_tokenizer(tokjax.save_tokenizer(changed, tmp_path / "t.json"))
            for other in (loaded, pickle.loads(pickle.dumps(changed))):
                assert other == changed
                assert tokjax.fingerprint(other) == tokjax.fingerprint(changed)
                assert tokjax.encode_result(other, "to be") == tokjax.encode_result(changed, "to be")
                assert tokjax.encode_result(other, "to be").token_type_ids[:2].tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("single", "pair", "message"),
        [
            ("[CLS]", None, r"the single template must hold \$A once; got '\[CLS\]'"),
            ("$A $A", None, r"must hold \$A once"),
            ("$A", "$A", r"the pair template must hold \$A once and \$B once; got '\$A'"),
            ("$A <eos>", None, r"the template has '<eos>', which is not among the special tokens"),
            (["$A", ""], None, r"made of names and \$A or \$B, but one piece is ''"),
        ],
    )
    def test_invalid_templates(self, single, pair, message):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.with_template(tokjax.wordpiece(VOCABULARY), single, pair)

    def test_unsupported_tokenizer_type(self):
        with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="built-in tokenizers, not a str"):
            tokjax.with_template("gpt2", "$A")

    def test_names_can_look_like_type_ids(self):
        table = tokjax.make_vocabulary({b"a": 0}, {"<x>:7": 1}, {"bos": "<x>:7"})
        assert table.template.single[0].token == "<x>:7"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"truncation": "longest"},
            r"truncation must be 'longest_first', 'only_first' or 'only_second', not 'lo",
        ),
        ({"truncation_side": "up"}, r"truncation_side must be 'left' or 'right', not 'up'"),
        ({"max_length": 0}, r"max_length must be at least 1, not 0"),
        ({"max_length": 1}, r"max_length is 1, and the tokenizer's template alone has 2 tokens"),
        ({"pairs": ["a", "b"]}, r"pairs must have as many texts as texts has \(1\), not 2"),
        ({"pairs": "a"}, r"pairs is one text; pass \[text\]"),
        ({"pairs": 3}, r"pairs must be a sequence, .* not a int; pass list\(pairs\)"),
        ({"is_pretokenized": True}, r"text 0 is 'to be'; split it into words, or omit is_pretokenized"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode_batch_result(make_tokenizers()[0], ["to be"], **options)
