"""Pairs of texts, templates, truncation, windows and words: against Hugging Face's tokenizers."""

import pickle
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import tokjax
from tests.support.text_strategies import byte_strings, hard_texts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *"abcdéx!", "##a", "##b", "##c", "##dd", "to", "be", "or", "not", "question"]
TEMPLATES = {
    "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
    "roberta": ("[CLS] $A [SEP]", "[CLS] $A [SEP] [SEP] $B [SEP]"),
    "at the end": ("$A [SEP] [CLS]:2", "$A $B:1 [SEP]:1 [CLS]:2"),
    "second first": ("[MASK]:3 $A:1", "$B:2 [SEP] $A"),
    "nothing": ("$A", "$A $B:1"),
}
words = st.sampled_from(["to", "be", "or", "not", "abc", "add", "é!", "question", "zzz", "Not", "x"])
texts = st.lists(words, max_size=12).map(" ".join) | st.sampled_from(["", " ", "a" * 30])
word_lists = st.lists(words | st.sampled_from(["a b", "", "!?"]), max_size=8)


@lru_cache
def make_both(template="bert"):
    """Our tokenizer and the library's."""
    single, pair = TEMPLATES[template]
    ids = {token: i for i, token in enumerate(VOCABULARY)}
    theirs = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer()
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, ids[name]) for name in SPECIAL]
    )
    return tokjax.with_template(tokjax.wordpiece(VOCABULARY), single, pair), theirs


def assert_alike(result, encoding):
    assert result.ids.tolist() == encoding.ids
    assert result.token_type_ids.tolist() == encoding.type_ids
    assert result.sequence_ids.tolist() == [-1 if i is None else i for i in encoding.sequence_ids]
    assert result.word_ids.tolist() == [-1 if i is None else i for i in encoding.word_ids]
    inserted = result.sequence_ids == -1
    unknown = result.ids == SPECIAL.index("[UNK]")
    assert result.special_tokens_mask.tolist() == (inserted | unknown).astype(int).tolist()
    assert (result.offsets[inserted] == 0).all()
    assert result.attention_mask.tolist() == encoding.attention_mask


def get_library_spans(text, encoding, sequence):
    """The library's character spans of one text of the pair, as byte spans."""
    chosen = [i for i, of in enumerate(encoding.sequence_ids) if of == sequence]
    return (
        tokjax.offsets.char_to_byte_spans(text, [encoding.offsets[i] for i in chosen]).tolist()
        if chosen
        else []
    )


def get_input_spans(tokenizer, text, result, sequence):
    chosen = result.offsets[result.sequence_ids == sequence]
    return tokjax.map_offsets_to_input(tokenizer, text, chosen).tolist()


@given(text=texts, pair=st.none() | texts, template=st.sampled_from(list(TEMPLATES)))
def test_pairs_and_templates(text, pair, template):
    ours, theirs = make_both(template)
    result = tokjax.encode_result(ours, text, pair)
    encoding = theirs.encode(text, pair)
    assert_alike(result, encoding)
    assert get_input_spans(ours, text, result, 0) == get_library_spans(text, encoding, 0)
    if pair is not None:
        assert get_input_spans(ours, pair, result, 1) == get_library_spans(pair, encoding, 1)
    without_special = tokjax.encode_result(ours, text, pair, add_special_tokens=False)
    expected = theirs.encode(text, pair, add_special_tokens=False)
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
    ours, theirs = make_both()
    if pair is None:
        truncation = "longest_first"
    options = {"max_length": max_length, "truncation": truncation, "truncation_side": side}
    left_full = {"longest_first": None, "only_first": pair, "only_second": text}[truncation]
    if left_full is not None:
        left = max_length - 3 - len(tokjax.encode(ours, left_full, add_special_tokens=False))
        if left < 0:
            with pytest.raises(
                tokjax.errors.InvalidArgumentError, match=r"does not truncate has \d+ tokens, and max_len"
            ):
                tokjax.encode_result(ours, text, pair, **options)
        if left <= 0:  # (the library refuses to leave nothing of a text, too)
            return
    theirs.enable_truncation(max_length, strategy=truncation, direction=side)
    encoding = theirs.encode(text, pair)
    theirs.no_truncation()
    result = tokjax.encode_result(ours, text, pair, **options)
    assert_alike(result, encoding)
    assert len(result) <= max_length


@given(text=texts, question=texts, max_length=st.integers(9, 24), stride=st.integers(0, 4))
def test_windows(text, question, max_length, stride):
    ours, theirs = make_both()
    capacity = max_length - 2
    theirs.enable_truncation(max_length, stride=stride)
    encoding = theirs.encode(text)
    expected = [encoding, *encoding.overflowing]
    theirs.no_truncation()
    windows = tokjax.encode_windows(ours, [text], max_length=max_length, stride=stride)
    assert windows.text_ids.tolist() == [0] * len(expected)
    for result, window in zip(windows.batch, expected, strict=True):
        assert_alike(result, window)
        assert len(result) <= capacity + 2
        assert get_input_spans(ours, text, result, 0) == get_library_spans(text, window, 0)


@given(pairs=st.lists(st.tuples(texts, texts), max_size=4), stride=st.integers(0, 3))
def test_windows_of_pairs(pairs, stride):
    """Each has the question whole, and together they have all of the context, `stride` tokens twice."""
    ours, _ = make_both()
    questions, contexts = [q for q, _ in pairs], [c for _, c in pairs]
    longest = max((len(tokjax.encode(ours, q, add_special_tokens=False)) for q in questions), default=0)
    max_length = longest + 3 + stride + 2
    windows = tokjax.encode_windows(
        ours, questions, contexts, max_length=max_length, stride=stride, truncation="only_second"
    )
    assert sorted(set(windows.text_ids.tolist())) == list(range(len(pairs)))
    for i, (question, context) in enumerate(pairs):
        of_text = [windows.batch[j] for j in np.flatnonzero(windows.text_ids == i)]
        full = tokjax.encode_result(ours, context, add_special_tokens=False)
        seen = []
        for number, result in enumerate(of_text):
            assert (
                result.ids[result.sequence_ids == 0].tolist()
                == tokjax.encode(ours, question, add_special_tokens=False).tolist()
            )
            part = result.offsets[result.sequence_ids == 1].tolist()
            assert part[:stride] == seen[-stride:] if stride and number else True
            seen += part[stride if number else 0 :]
        assert seen == full.offsets.tolist()


@given(first=word_lists, second=st.none() | word_lists)
def test_words(first, second):
    ours, theirs = make_both()
    result = tokjax.encode_result(ours, first, second, is_pretokenized=True)
    assert_alike(result, theirs.encode(first, second, is_pretokenized=True))


def test_word_ids_of_byte_and_space_free_models(tokenizer):
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


@given(rows=st.lists(st.tuples(hard_texts | byte_strings, hard_texts), max_size=5))
def test_a_batch_is_its_pairs_one_by_one(tokenizer, rows):
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


def test_special_tokens_that_are_found_stay_what_they_are():
    ours, _ = make_both()
    result = tokjax.encode_result(ours, "to [MASK]", "be", allowed_special={"[MASK]"})
    assert result.tokens == ("[CLS]", "to", "[MASK]", "[SEP]", "be", "[SEP]")
    assert result.special_tokens_mask.tolist() == [1, 0, 1, 1, 0, 1]
    assert result.offsets.tolist() == [[0, 0], [1, 3], [4, 10], [0, 0], [1, 3], [0, 0]]


class TestTemplates:
    def test_the_default_is_bos_and_eos_around_each(self):
        table = tokjax.wordpiece(VOCABULARY).vocabulary
        assert list(map(str, table.template.pair)) == ["[CLS]:0", "$A:0", "[SEP]:0", "$B:1", "[SEP]:1"]

    def test_are_part_of_the_tokenizer(self, tmp_path, tokenizer):
        spm = tokjax.trainer.train_sentencepiece(
            ["to be or not to be"], vocab_size=20, progress=False, model_type="char", bos_token="<s>"
        ).tokenizer
        for plain, single in (
            (tokjax.wordpiece(VOCABULARY), "[SEP] $A:1"),
            (tokjax.word_level(VOCABULARY, special_tokens=["[SEP]"]), "[SEP] $A:1"),
            (tokenizer, "<|endoftext|> $A:1"),
            (spm, "<s> $A:1"),
        ):
            changed = tokjax.with_template(plain, single)
            assert changed != plain
            assert tokjax.fingerprint(changed) != tokjax.fingerprint(plain)
            again = tokjax.load_tokenizer(tokjax.save_tokenizer(changed, tmp_path / "t.json"))
            for other in (again, pickle.loads(pickle.dumps(changed))):
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

    def test_templates_of_other_models(self):
        with pytest.raises(tokjax.errors.UnsupportedTokenizerError, match="built-in tokenizers, not a str"):
            tokjax.with_template("gpt2", "$A")

    def test_names_may_look_like_types(self):
        table = tokjax.make_vocabulary({b"a": 0}, {"<x>:7": 1}, {"bos": "<x>:7"})
        assert table.template.single[0].token == "<x>:7"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"truncation": "longest"},
            r"truncation must be 'longest_first', 'only_first', 'only_second', not 'lo",
        ),
        ({"truncation_side": "up"}, r"truncation_side must be 'left' or 'right', not 'up'"),
        ({"max_length": 0}, r"max_length must be at least 1, not 0"),
        ({"max_length": 1}, r"max_length is 1, and the tokenizer's template alone has 2 tokens"),
        ({"pairs": ["a", "b"]}, r"pairs must be as many texts as there are texts \(1\)"),
        ({"pairs": "a"}, r"pairs must be as many texts as there are texts \(1\).*; got 'a'"),
        ({"is_pretokenized": True}, r"text 0 is 'to be'; split it, or leave is_pretokenized out"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode_batch_result(make_both()[0], ["to be"], **options)


def test_words_of_two_kinds():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"words of text 0 are str, but for b'be'"):
        tokjax.encode_result(make_both()[0], ["to", b"be"], is_pretokenized=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 3, "max_length": 5}, r"stride is 3, and a window has room for 3 tokens of its text"),
        ({"stride": -1, "max_length": 5}, r"stride must be at least 0, not -1"),
        ({"max_length": 5, "truncation": "longest_first"}, r"'only_first' or 'only_second' for windows"),
        ({"max_length": 5, "pairs": ["to be or"]}, r"'only_first' does not truncate has 3 tokens, and"),
    ],
)
def test_windows_that_make_no_sense(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode_windows(make_both()[0], ["to be or not"], **options)


class TestLookups:
    result = tokjax.encode_result(make_both()[0], "not éa", "be", assume_normalized=True)

    def test_tokens(self):
        assert self.result.tokens == ("[CLS]", "not", "é", "##a", "[SEP]", "be", "[SEP]")

    def test_bytes(self):
        found = [tokjax.align.byte_to_token(self.result, byte) for byte in range(1, 9)]
        assert found == [1, 1, 1, None, 2, 2, 3, None]
        assert tokjax.align.byte_to_token(self.result, 1, sequence_id=1) == 5
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="byte must be at least 1, not 0"):
            tokjax.align.byte_to_token(self.result, 0)

    def test_characters(self):
        text = "not éa"
        assert [tokjax.align.char_to_token(self.result, text, i) for i in range(6)] == [1, 1, 1, None, 2, 3]
        with pytest.raises(tokjax.errors.OffsetsContractError):
            tokjax.align.char_to_token(self.result, text, 6)

    def test_spans(self):
        assert tokjax.align.token_to_span(self.result, 2) == (5, 7)
        assert tokjax.align.token_to_span(self.result, 0) == (0, 0)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="token is 7, and the result has 7 tokens"
        ):
            tokjax.align.token_to_span(self.result, 7)

    def test_words(self):
        assert [tokjax.align.token_to_word(self.result, i) for i in range(7)] == [
            None,
            0,
            1,
            1,
            None,
            0,
            None,
        ]
        assert tokjax.align.word_to_tokens(self.result, 1) == slice(2, 4)
        assert tokjax.align.word_to_tokens(self.result, 0, sequence_id=1) == slice(5, 6)
        assert tokjax.align.word_to_tokens(self.result, 2) is None

    def test_without_offsets(self):
        without_special = tokjax.encode_result(make_both()[0], "not", return_offsets=False)
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match="no offsets; encode with return_offsets=True"
        ):
            tokjax.align.byte_to_token(without_special, 1)
