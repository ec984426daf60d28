"""Tests of WordPiece, word-level and classic BPE tokenizers: equality with Hugging Face's tokenizers."""

import itertools
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import make_pair
from tests.support.small_chunks import use_small_chunks
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tests.support.variants import mark_slow_except

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
OPTIONS = {
    "uncased": {},
    "cased": {"lowercase": False},
    "accents": {"strip_accents": False},
    "no normalization": {
        "lowercase": False,
        "strip_accents": False,
        "clean_text": False,
        "handle_chinese_chars": False,
    },
    "short words": {"max_word_characters": 4},
    "other prefix": {"continuing_prefix": "@"},
    "no prefix": {"continuing_prefix": ""},
}
words = st.sampled_from(
    ["lowest", "widest", "newer", "abab", "ббa", "Ünïcödé", "ελληνικΆΣ", "日本語日本", "</w>", "ab\u0301c"]
)
texts = st.one_of(hard_texts, st.lists(st.one_of(words, st.text(max_size=6)), max_size=8).map(" ".join))


def make_library_normalizer(options):
    lowercase = options.get("lowercase", True)
    steps = {"strip_accents": options.get("strip_accents", lowercase), "lowercase": lowercase}
    rest = {name: options.get(name, True) for name in ("clean_text", "handle_chinese_chars")}
    return normalizers.BertNormalizer(**steps, **rest)


@lru_cache
def make_wordpieces(name, vocab_size=300):
    """Makes our tokenizer and the library's, with a vocabulary trained by the library."""
    options = OPTIONS[name]
    prefix = options.get("continuing_prefix", "##")
    theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer = make_library_normalizer(options)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL,
        continuing_subword_prefix=prefix,
        show_progress=False,
    )
    theirs.train_from_iterator(CORPUS, trainer)
    vocabulary = theirs.get_vocab()
    theirs.model = models.WordPiece(
        vocabulary,
        unk_token="[UNK]",
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=options.get("max_word_characters", 100),
    )
    return tokjax.wordpiece(vocabulary, **options), theirs


@lru_cache
def make_word_levels(splitter, lowercase):
    theirs = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    theirs.pre_tokenizer = {
        "whitespace": pre_tokenizers.WhitespaceSplit(),
        "bert": pre_tokenizers.BertPreTokenizer(),
    }[splitter]
    if lowercase:
        theirs.normalizer = normalizers.Lowercase()
    trainer = trainers.WordLevelTrainer(vocab_size=60, special_tokens=SPECIAL, show_progress=False)
    theirs.train_from_iterator(CORPUS, trainer)
    ours = tokjax.models.word_level(
        theirs.get_vocab(), splitter=splitter, lowercase=lowercase, special_tokens=SPECIAL[2:]
    )
    return ours, theirs


PAIRS = {name: lambda name=name: make_wordpieces(name) for name in OPTIONS} | {
    f"{splitter}, {lowercase=}": lambda splitter=splitter, lowercase=lowercase: make_word_levels(
        splitter, lowercase
    )
    for splitter, lowercase in itertools.product(["whitespace", "bert"], [False, True])
}
BPE = ["OpenAI GPT", "word BPE at whitespace", "word BPE without a mark"]
PAIRS |= {name: lambda name=name: make_pair(name)[::-1] for name in BPE}
DEFAULT_PAIRS = ["uncased", "no normalization", "short words", "other prefix", "bert, lowercase=True", *BPE]
each_pair = pytest.mark.parametrize("pair", mark_slow_except(PAIRS, DEFAULT_PAIRS))
KINDS = ["uncased", "bert, lowercase=True", "OpenAI GPT"]
each_kind = pytest.mark.parametrize("pair", KINDS)


def get_character_spans(tokenizer, text, result):
    """Returns spans as the library reports them: character positions in the input text."""
    back = tokjax.map_offsets_to_input(tokenizer, text, result.offsets)
    return list(map(tuple, tokjax.offsets.byte_to_char_spans(text, back).tolist()))


def assert_matches_library(pair, text):
    ours, theirs = pair
    expected = theirs.encode(text, add_special_tokens=False)
    result = tokjax.encode_result(ours, text, add_special_tokens=False, allowed_special="all")
    assert result.ids.tolist() == expected.ids
    assert get_character_spans(ours, text, result) == expected.offsets
    is_special = [id_ in tokjax.special_tokens(ours).values() for id_ in expected.ids]
    assert result.special_tokens_mask.astype(bool).tolist() == is_special
    assert tokjax.encode(ours, text, allowed_special="all", add_special_tokens=False).tolist() == expected.ids
    return result


@each_pair
@given(text=texts)
def test_ids_and_offsets_equal_the_library(pair, text):
    assert_matches_library(PAIRS[pair](), text)


@each_kind
@given(drawn_texts=st.lists(st.one_of(texts, any_strings, byte_strings), max_size=6))
def test_chunks_and_batches(pair, drawn_texts):
    """The result for a text does not depend on chunks or on the other texts of a batch."""
    tokenizer, _ = PAIRS[pair]()
    alone = [tokjax.encode_result(tokenizer, text, disallowed_special=()) for text in drawn_texts]
    for size in (5, 1 << 19):
        with use_small_chunks(size):
            batch = tokjax.encode_batch_result(tokenizer, drawn_texts, disallowed_special=(), threads=2)
            assert list(batch) == alone
            fewer = tokjax.encode_batch_result(
                tokenizer, drawn_texts, disallowed_special=(), return_offsets=False, return_masks=False
            )
            assert np.array_equal(fewer.ids, batch.ids)
            assert fewer.offsets is None


@each_pair
@given(text=st.one_of(texts, any_strings, byte_strings))
def test_offsets_refer_to_the_normalized_text(pair, text):
    """Spans contain the bytes of their token, or a whole unknown word."""
    tokenizer, _ = PAIRS[pair]()
    view = tokjax.tokenization_view(tokenizer, text)
    result = tokjax.encode_result(tokenizer, text, add_special_tokens=False, disallowed_special=())
    tokjax.offsets.assert_offsets_contract(view, result.offsets)
    prefix = (getattr(tokenizer, "continuing_prefix", None) or "").encode()
    continues = np.diff(result.word_ids, prepend=-1) == 0
    for id_, span, follows in zip(result.ids.tolist(), result.offsets.tolist(), continues, strict=True):
        assert tokjax.offsets.has_nonempty_span(span)
        if id_ != tokjax.unk_id(tokenizer):
            token = tokjax.id_to_bytes(tokenizer, id_)
            text_bytes = token.removesuffix(b"</w>" if pair in BPE else b"")
            assert tokjax.offsets.span_bytes(view, span) == text_bytes[len(prefix) if follows else 0 :]
    view_result = tokjax.encode_result(
        tokenizer, view, add_special_tokens=False, disallowed_special=(), assume_normalized=True
    )
    assert np.array_equal(view_result.offsets, result.offsets)
    assert np.array_equal(view_result.ids, result.ids)
    assert view_result.metadata.offsets_reference == "input_text"
    tokjax.offsets.assert_offsets_contract(text, tokjax.map_offsets_to_input(tokenizer, text, result.offsets))


def test_special_tokens_in_the_text():
    tokenizer, theirs = make_wordpieces("uncased")
    text = "Lowest [MASK] É[SEP]中 [mask]"
    result = tokjax.encode_result(tokenizer, text, allowed_special="all")
    assert result.tokens[:6] == ("[CLS]", "low", "##est", "[MASK]", "e", "[SEP]")
    assert result.ids.tolist() == [2, *theirs.encode(text).ids, 3]
    back = tokjax.map_offsets_to_input(tokenizer, text, result.offsets)
    parts = ["", "Low", "est", "[MASK]", "É", "[SEP]", "中"]
    assert [tokjax.try_span_substring(text, span) for span in back[:7]] == parts
    with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match="\\[MASK\\]"):
        tokjax.encode(tokenizer, text)


@each_kind
@pytest.mark.parametrize(
    "part", mark_slow_except(["a", "é", "\u0301", "\u1b44\u302e", "中", ".,“"], ["a", "\u0301"])
)
def test_long_text_takes_linear_time(pair, part):
    """With quadratic time this test would not end."""
    ours, theirs = PAIRS[pair]()
    text = part * 50_000
    ids = tokjax.encode(ours, text, add_special_tokens=False)
    assert ids.tolist() == theirs.encode(text, add_special_tokens=False).ids


def test_long_word_takes_linear_time():
    tokens = ["[UNK]", *("##" * (i > 1) + "a" * n for i in (1, 2) for n in (1, 2, 50))]
    tokenizer = tokjax.wordpiece(tokens, max_word_characters=10**7)
    ids = tokjax.encode(tokenizer, "a" * 1_000_001)
    assert ids.tolist() == [3] + [6] * 19_999 + [4]


def test_long_words_and_zero_bytes():
    long, zero = "x" * 200, "a\0b"
    tokens = {"[UNK]": 0, long: 1, zero: 2, "##x": 3, "a": 4, "x": 5}
    options = {"clean_text": False, "max_word_characters": 250}
    tokenizer = tokjax.wordpiece(tokens, **options)
    text = f"{long} {zero} {long}x a {zero}x " * 100
    assert tokjax.encode(tokenizer, text).tolist() == [1, 2, 1, 3, 4, 2, 3] * 100
    short_result = tokjax.encode_result(tokenizer, f"{long}x {zero}")
    assert short_result.ids.tolist() == [1, 3, 2]
    assert short_result.offsets.tolist() == [[1, 201], [201, 202], [203, 206]]


def test_token_longer_than_max_word_characters_is_unknown():
    tokenizer = tokjax.wordpiece(["[UNK]", "abcdef", "abc"], max_word_characters=5)
    for text in ("abcdef abc", "abcdef abc " * 500):
        assert tokjax.encode(tokenizer, text)[:2].tolist() == [0, 2]


def test_fingerprint_depends_on_options():
    tokens = ["[UNK]", "a", "##b"]
    tokenizers = [tokjax.wordpiece(tokens, **options) for options in OPTIONS.values()]
    tokenizers += [
        tokjax.models.word_level(tokens, splitter=splitter, lowercase=lowercase)
        for splitter, lowercase in itertools.product(["whitespace", "bert"], [False, True])
    ]
    assert (
        len({tokjax.fingerprint(tokenizer) for tokenizer in tokenizers})
        == len(set(tokenizers))
        == len(tokenizers)
    )


def test_roles_equal_bert():
    tokenizer, _ = make_wordpieces("uncased")
    roles = [getattr(tokjax, f"{role}_id")(tokenizer) for role in ("pad", "unk", "bos", "eos")]
    assert roles == [0, 1, 2, 3]
    assert tokjax.special_tokens(tokenizer) == {name: i for i, name in enumerate(SPECIAL)}
    plain = tokjax.wordpiece(["[UNK]", "a"])
    assert tokjax.bos_id(plain) is tokjax.eos_id(plain) is tokjax.pad_id(plain) is None
    other = tokjax.wordpiece(["a", "<unk>", "<s>"], unk_token="<unk>", bos_token="<s>", special_tokens=["a"])
    assert dict(tokjax.special_tokens(other)) == {"a": 0, "<unk>": 1, "<s>": 2}
    assert tokjax.encode_result(other, "b").tokens == ("<s>", "<unk>")


def test_metadata_has_the_normalizer():
    tokenizers = {
        "bert": tokjax.wordpiece(["[UNK]"]),
        "lowercase": tokjax.models.word_level(["[UNK]"], lowercase=True),
        None: tokjax.models.word_level(["[UNK]"]),
    }
    for normalizer, tokenizer in tokenizers.items():
        metadata = tokjax.encode_result(tokenizer, "x").metadata
        assert metadata.normalizer == normalizer
        in_view = metadata.offsets_reference == "tokenizer_normalized_text"
        assert in_view == (normalizer is not None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tokjax.wordpiece("abc"), "tokens must map tokens to ids, or be a list of them, not 'abc'"),
        (lambda: tokjax.wordpiece(5), "tokens must map tokens to ids, or be a list of them, not 5"),
        (lambda: tokjax.wordpiece(["[UNK]", "a", "a"]), "duplicate token 'a'"),
        (
            lambda: tokjax.wordpiece(["[UNK]", b"a"]),
            "must be a list of names, and one of them is b'a'",
        ),
        (lambda: tokjax.wordpiece(["[UNK]", "\ud800"]), "has a lone surrogate"),
        (lambda: tokjax.wordpiece(["[UNK]", ""]), "the token with id 1 is empty"),
        (lambda: tokjax.wordpiece({"[UNK]": 0, "a": 0}), "id 0 is given to both"),
        (lambda: tokjax.wordpiece(["a"]), "special token '\\[UNK\\]' is not among the tokens; add it"),
        (lambda: tokjax.wordpiece(["[UNK]"], eos_token="<s>"), "special token '<s>' is not among"),
        (lambda: tokjax.wordpiece(["[UNK]"], mask_token="<m>"), "special token '<m>' is not among"),
        (lambda: tokjax.wordpiece(["[UNK]"], special_tokens=["x"]), "special token 'x' is not among"),
        (lambda: tokjax.wordpiece(["[UNK]"], special_tokens="x"), "special_tokens must be a list of names"),
        (lambda: tokjax.wordpiece(["[UNK]"], unk_token=None), "needs the tokenizer's unk token"),
        (lambda: tokjax.wordpiece(["[UNK]"], lowercase="no"), "must be True or False, not 'no'"),
        (lambda: tokjax.wordpiece(["[UNK]"], continuing_prefix=None), "continuing_prefix must be a string"),
        (lambda: tokjax.wordpiece(["[UNK]"], max_word_characters=0), "must be at least 1, not 0"),
        (
            lambda: tokjax.models.word_level(["[UNK]"], splitter="gpt2"),
            "must be 'whitespace' or 'bert', not 'gpt2'",
        ),
        (lambda: tokjax.models.word_level(["[UNK]"], lowercase=1), "lowercase must be True or False, not 1"),
        (lambda: tokjax.models.word_level(["a"]), "special token '\\[UNK\\]' is not among"),
    ],
)
def test_invalid_arguments_are_rejected(make, message):
    with pytest.raises(tokjax.TokjaxError, match=message):
        make()


def test_lowercasing_creates_no_special_tokens():
    ours = tokjax.wordpiece(["[UNK]", "<s>", "<", ">", "s"], special_tokens=["<s>"])
    for allowed in ((), "all"):
        assert tokjax.tokenize(ours, "<S>", allowed_special=allowed) == ["<", "s", ">"]
    assert tokjax.encode(ours, "S<s>", allowed_special="all").tolist() == [4, 1]


@pytest.mark.parametrize("pair", KINDS[:2])
def test_special_tokens_as_ordinary_text_are_normalized(pair):
    ours, theirs = PAIRS[pair]()
    library = Tokenizer.from_str(theirs.to_str())
    library.encode_special_tokens = True
    texts = ["[CLS]", "low[CLS]er [MASK]", "É[SEP]\u4e00[PAD]", "[UNK]\u0301", "[cls][CLS"]
    for options in ({}, {"assume_normalized": True}):
        views = [tokjax.tokenization_view(ours, text) if options else text for text in texts]
        batch = tokjax.encode_batch_result(
            ours, views, add_special_tokens=False, disallowed_special=(), **options
        )
        expected = [library.encode(text, add_special_tokens=False).ids for text in texts]
        assert [row.ids.tolist() for row in batch] == expected
    options = {"add_special_tokens": False, "disallowed_special": ()}
    result = tokjax.encode_result(ours, "[CLS]a[SEP]", allowed_special={"[SEP]"}, **options)
    before = tokjax.encode(ours, "[CLS]a", **options).tolist()
    assert result.ids.tolist() == [*before, tokjax.token_to_id(ours, "[SEP]")]
    tokjax.offsets.assert_offsets_contract("[CLS]a[SEP]", result.offsets)
