"""Tests of looking up words, against the encoding of whole texts by the library."""

import json
import re
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import tokjax
from tests.conftest import CORPUS
from tests.support.sentencepiece_models import train_sentencepiece_models
from tests.support.text_strategies import hard_texts
from tests.support.variants import mark_slow_except
from tokjax.core.utf8 import to_utf8
from tokjax.formats.huggingface import library_encoding, unigram_words, word_engine

SPECIAL = ["<s>", "</s>", "<pad>", "<mask>", "<unk>"]
ADDED = [
    AddedToken("<call>", lstrip=True, rstrip=True),
    AddedToken("Low", normalized=True, single_word=True),
    "xyz",
]
PLAIN_NAMES = ["est", ".", "..", "xy", "中", "½", "\u0301", "\u200b", "\x01", "``", "🙂", "\u00a8", "\ufffd"]
PLAIN = [AddedToken(name, normalized=False) for name in PLAIN_NAMES]
"""Added tokens that are matched wherever they are written."""
WITH_ADDED_TOKENS = ["t5", "converted", "converted, first", "deberta", "albert", "no normalizer", "nmt"]


def make_tokenizer(normalizer, *steps, added=()):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A:1 </s>:1 <s>:2",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[("<s>", 0), ("</s>", 1)],
    )
    tokenizer.add_tokens(list(added))
    return tokenizer


def make_precompiled():
    charsmap = train_sentencepiece_models()["unigram"]._model_info.charsmap
    return normalizers.Precompiled(charsmap)


def make_pipelines():
    words, metaspace = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()
    strip_end = normalizers.Strip(left=False, right=True)
    merge_spaces = normalizers.Replace(Regex(" {2,}"), "▁")
    replace_quotes = normalizers.Replace("``", '"')
    lower = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    sequence = normalizers.Sequence
    pipelines = {
        "t5": (make_precompiled(), words, metaspace),
        "converted": (sequence([make_precompiled(), strip_end, merge_spaces]), metaspace),
        "converted, first": (
            sequence([make_precompiled(), strip_end, merge_spaces]),
            pre_tokenizers.Metaspace(prepend_scheme="first"),
        ),
        "composed, decomposed": (sequence([normalizers.NFKC(), normalizers.NFD()]), metaspace),
        "precompiled": (make_precompiled(), metaspace),
        "deberta": (
            sequence([normalizers.Strip(), make_precompiled(), normalizers.Replace(Regex(" {2,}"), " ")]),
            metaspace,
        ),
        "albert": (sequence([replace_quotes, *lower, make_precompiled()]), words, metaspace),
        "no normalizer": (None, pre_tokenizers.Metaspace(prepend_scheme="never")),
        "nmt": (sequence([normalizers.Nmt(), normalizers.Lowercase()]), words),
    }
    return {
        **{name: make_tokenizer(*steps) for name, steps in pipelines.items()},
        **{
            f"{name}, added tokens": make_tokenizer(*pipelines[name], added=[*PLAIN, *ADDED])
            for name in WITH_ADDED_TOKENS
        },
        "added tokens": make_tokenizer(normalizers.NFKC(), metaspace, added=ADDED),
        "byte fallback": make_byte_fallback(make_precompiled(), words, metaspace),
        "byte fallback, spaces": make_byte_fallback(normalizers.NFKC(), metaspace),
        "byte fallback, ▁ unknown": make_byte_fallback(None, metaspace, without=["▁"]),
        "▁ unknown": without_pieces(make_tokenizer(normalizers.NFC(), words, metaspace), ["▁"]),
        "no unknown token": make_bpe_without_unknown_token(),
    }


def without_pieces(tokenizer, pieces):
    """Returns a tokenizer with other names for some pieces."""
    definition = json.loads(tokenizer.to_str())
    definition["model"]["vocab"] = [
        [f"unused {i}" if piece in pieces else piece, score]
        for i, (piece, score) in enumerate(definition["model"]["vocab"])
    ]
    return Tokenizer.from_str(json.dumps(definition))


def make_byte_fallback(*steps, without=()):
    """Makes a tokenizer whose unknown characters are bytes."""
    definition = json.loads(without_pieces(make_tokenizer(*steps), without).to_str())
    definition["model"]["vocab"] += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    definition["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(definition))


def make_bpe_without_unknown_token():
    """Makes a BPE tokenizer that drops unknown characters. The words that it drops have word ids, too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=200, limit_alphabet=30, show_progress=False)
    tokenizer.train_from_iterator(CORPUS[:2], trainer)
    return tokenizer


NAMES = [
    *("t5", "converted", "converted, first", "deberta", "albert", "no normalizer", "added tokens", "nmt"),
    *(
        "byte fallback",
        "byte fallback, spaces",
        "byte fallback, ▁ unknown",
        "▁ unknown",
        "precompiled",
        "composed, decomposed",
    ),
    "no unknown token",
    *(f"{name}, added tokens" for name in WITH_ADDED_TOKENS),
]
DEFAULT_NAMES = ["t5", "deberta", "byte fallback, spaces", "no unknown token", "albert, added tokens"]
parts = st.sampled_from(
    [
        *(
            "low",
            "newest",
            "a",
            "b",
            "est",
            ".",
            " ",
            " ",
            "  ",
            "\n",
            "\t",
            "\r\n",
            "\r",
            "é",
            "中日",
            "，",
            "ﬃ",
            "½",
            "…",
            "\x01",
        ),
        *(
            "\u200b",
            "¨",
            "\u3000",
            "\xa0",
            "\x85",
            "\ufeff",
            "🙂",
            "▁",
            "\0",
            "\u0301",
            "\u0e33",
            "\u0600",
            "\u00ad",
            "``",
            "''",
        ),
        *("<call>", "Low", "LOW", "xyz", "<mask>", "<unk>", "क्षि", "👩‍👩‍👧", "\ufffd", "\ud800", "word" * 40),
    ]
)
word_texts = st.lists(parts, max_size=15).map("".join)
invalid_bytes = word_texts.map(lambda text: b"low \xff" + to_utf8(text))
text_lists = st.lists(st.one_of(word_texts, hard_texts, invalid_bytes), min_size=1, max_size=5)


@cache
def load_tokenizers(encoder):
    """Returns tokenizers by name. Each way to encode words has its own, since they fill their caches."""
    return {name: tokjax.formats.from_huggingface(library) for name, library in make_pipelines().items()}


@pytest.fixture
def use_word_engine(encoder, monkeypatch):
    """Makes tokenizers look up words whatever the length of the texts, and encode few words together.

    The words are encoded on arrays where that is possible, or by the library.
    """
    few_words = 1 if encoder == "arrays" else 1 << 62
    monkeypatch.setattr(word_engine, "FEW_WORDS", few_words)
    monkeypatch.setattr(unigram_words, "FEW_WORDS", few_words)
    monkeypatch.setattr(word_engine, "_PIECES_PER_WORD", 1 << 62)
    monkeypatch.setattr(library_encoding, "FEW_CHARACTERS", -1)
    monkeypatch.setattr(word_engine, "_WORDS_PER_TEXT", 3)
    monkeypatch.setattr(word_engine, "_GROUP_CHARACTERS", 30)


@pytest.mark.parametrize("encoder", ["arrays", "library"])
@pytest.mark.usefixtures("use_word_engine")
@pytest.mark.parametrize("name", mark_slow_except(NAMES, DEFAULT_NAMES))
@example(texts=["a\r\n's \r\n\r\nb \n"], add_special_tokens=True, allowed=())
@example(texts=["low e\u0301 \u1100\u1161 ｶﾞ aﾞ é"], add_special_tokens=True, allowed=())
@given(texts=text_lists, add_special_tokens=st.booleans(), allowed=st.sampled_from(["all", ()]))
def test_results_equal_the_library(encoder, name, texts, add_special_tokens, allowed):
    tokenizer = load_tokenizers(encoder)[name]
    special = {"allowed_special": allowed, "disallowed_special": ()}
    options = library_encoding.EncodeOptions(add_special_tokens, return_offsets=True, return_masks=True)
    try:
        expected, row_splits = tokenizer.encoder.encode_with_library(
            texts, range(len(texts)), options, special
        )
    except tokjax.errors.InvalidArgumentError as error:
        # The library matched a special token that had to be ordinary text.
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=re.escape(str(error))):
            tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=add_special_tokens, **special)
        return
    batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=add_special_tokens, **special)
    np.testing.assert_array_equal(batch.ragged.row_splits, row_splits)
    for column, values in expected.items():
        np.testing.assert_array_equal(getattr(batch.ragged, column), values, err_msg=column)
        assert getattr(batch.ragged, column).dtype == values.dtype
    ids = tokjax.encode(tokenizer, texts[0], add_special_tokens=add_special_tokens, **special)
    np.testing.assert_array_equal(ids, batch[0].ids)


WHOLE_TEXTS = {  # "est" and "中" are added tokens
    "deberta": [False, False, False, True],
    "deberta, added tokens": [True, False, False, True],
    "converted, first, added tokens": [True, True, False, False],
}


@pytest.mark.parametrize("encoder", ["arrays", "library"])
@pytest.mark.usefixtures("use_word_engine")
def test_ordinary_texts_are_looked_up(encoder):
    texts = ["the newest\n  lower  widest", "lower é中, (the)", "", " lower"]
    for name, tokenizer in load_tokenizers(encoder).items():
        _, needs_library = tokenizer.encoder.word_engine.encode(texts, sources=True)
        assert needs_library.tolist() == WHOLE_TEXTS.get(name, [False, False, False, False])


@pytest.mark.parametrize("encoder", ["arrays", "library"])
@pytest.mark.usefixtures("use_word_engine")
def test_words_around_marks_are_looked_up_together(encoder):
    """A character that can change the words next to it does not leave the text to the library."""
    inside = ["हिन्दी में की", "low \u0301 low", "a low \u0600 low", "low\u00a8 low b", "low\u00ad low"]
    at_ends = ["\u0301 low", "low \u0301", "low \u0600", "low \u00a8 "]
    for name in ("t5", "converted", "no normalizer", "byte fallback"):
        engine = load_tokenizers(encoder)[name].encoder.word_engine
        _, needs_library = engine.encode(inside, sources=True)
        assert not needs_library.any()
        assert engine.encode(at_ends[:3], sources=True)[1].all()
    engine = load_tokenizers(encoder)["converted"].encoder.word_engine
    assert engine.encode(at_ends[3:], sources=True)[1].all()


@pytest.mark.parametrize("encoder", ["arrays", "library"])
@pytest.mark.usefixtures("use_word_engine")
def test_a_full_cache_is_emptied(encoder, monkeypatch):
    monkeypatch.setattr(word_engine, "_MAX_ENTRIES", 4)
    tokenizer = load_tokenizers(encoder)["t5"]
    texts = [" ".join(f"low{i}est{j}" for j in range(9)) for i in range(9)]
    expected = [tokenizer.library_tokenizer.encode(text).ids for text in texts]
    assert [tokjax.encode(tokenizer, text).tolist() for text in texts] == expected
    assert len(tokenizer.encoder.word_engine._words.table) < 40


@pytest.mark.parametrize("encoder", ["arrays", "library"])
@pytest.mark.usefixtures("use_word_engine")
def test_errors_name_the_text(encoder):
    with pytest.raises(
        tokjax.errors.DisallowedSpecialTokenError, match=r"text 2 holds the special token '<mask>'"
    ):
        tokjax.encode_batch_result(load_tokenizers(encoder)["t5"], ["a", "b", "low <mask>"])


metaspace = pre_tokenizers.Metaspace()
OTHER_PIPELINES = {
    "space in a pattern": (normalizers.Replace("a b", "c"), [metaspace]),
    "spaces merged, not stripped": (normalizers.Replace(Regex(" {2,}"), " "), [metaspace]),
    "a mark for merged spaces, not split there": (
        normalizers.Replace(Regex(" {2,}"), "▁"),
        [pre_tokenizers.WhitespaceSplit()],
    ),
    "stripped at the start only": (normalizers.Strip(left=True, right=False), [metaspace]),
    "prepended": (normalizers.Prepend("▁"), [metaspace]),
    "not split": (None, [pre_tokenizers.Metaspace(split=False)]),
    "first word differs": (
        None,
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")],
    ),
    "other mark": (None, [pre_tokenizers.Metaspace(replacement="_")]),
    "replaced by a mark": (normalizers.Replace("b", "\u0301"), [metaspace]),
    "several characters removed": (normalizers.Replace("ow", ""), [metaspace]),
    "text inserted everywhere": (normalizers.Replace("", "b"), [metaspace]),
    "other pre-tokenizer": (None, [pre_tokenizers.Digits()]),
}


@pytest.mark.parametrize("name", OTHER_PIPELINES)
def test_other_pipelines_encode_whole_texts(name):
    normalizer, steps = OTHER_PIPELINES[name]
    tokenizer = tokjax.formats.from_huggingface(make_tokenizer(normalizer, *steps))
    assert tokenizer.encoder.word_engine is None


def test_unknown_characters_without_an_unknown_piece_raise():
    library = Tokenizer(models.Unigram([("a", -1.0), ("▁", -2.0)], None))
    library.pre_tokenizer = metaspace
    tokenizer = tokjax.formats.from_huggingface(library)
    message = "the tokenizers library can't encode these texts: .*unk_id"
    for text in ("ab", "ab " * 2000):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.encode(tokenizer, text)


@pytest.mark.parametrize("name", ["two words", "\u00a8", "c\u00a8b", "a▁b"])
def test_added_tokens_with_spaces_need_whole_texts(name):
    library = make_tokenizer(normalizers.NFKC(), metaspace, added=[AddedToken(name, normalized=True)])
    assert tokjax.formats.from_huggingface(library).encoder.word_engine is None


ADDED_AS_WORD_BEFORE = [
    (AddedToken("a", normalized=False), None),
    (AddedToken("a", normalized=False, rstrip=True), None),
    (AddedToken("A", normalized=True, rstrip=True), normalizers.Lowercase()),
]
"""Added tokens that are the word which is encoded before others."""


@pytest.mark.usefixtures("use_word_engine")
@pytest.mark.parametrize("encoder", ["library"])
@pytest.mark.parametrize(("token", "normalizer"), ADDED_AS_WORD_BEFORE)
def test_added_tokens_change_no_words_after_others(encoder, token, normalizer):
    steps = [*([normalizer] if normalizer else []), normalizers.Strip()]
    split = pre_tokenizers.Metaspace(prepend_scheme="never")
    library = make_tokenizer(normalizers.Sequence(steps), split, added=[token])
    tokenizer = tokjax.formats.from_huggingface(library)
    text = "the low low lowest"
    expected = library.encode(text)
    result = tokjax.encode_result(tokenizer, text)
    assert result.ids.tolist() == expected.ids
    mask = np.array(expected.special_tokens_mask) == 0
    assert (result.offsets[mask] - 1).tolist() == np.array(expected.offsets)[mask].tolist()


@pytest.mark.usefixtures("use_word_engine")
@pytest.mark.parametrize("encoder", ["arrays", "library"])
def test_bytes_that_are_special_tokens(encoder):
    library = make_byte_fallback(None, metaspace)
    library.add_special_tokens(["<0x51>"])
    tokenizer = tokjax.formats.from_huggingface(library)
    message = "contains '<0x51>', which this model encodes as a special token even where ordinary"
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode(tokenizer, "low Q", disallowed_special=())


@pytest.mark.usefixtures("use_word_engine")
@pytest.mark.parametrize("encoder", ["library"])
def test_dropped_words_after_marks(encoder):
    """The library counts words without ids in the word ids."""
    library = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = tokjax.formats.from_huggingface(library)
    text = "a \u0301z b"
    assert tokjax.encode_result(tokenizer, text).word_ids.tolist() == library.encode(text).word_ids == [0, 2]


def test_added_tokens_that_are_normalized_to_nothing():
    """The library matches them everywhere, and can't encode other characters than ASCII letters then."""
    added = [AddedToken("\u0301", normalized=True, lstrip=True)]
    library = make_tokenizer(normalizers.BertNormalizer(), pre_tokenizers.WhitespaceSplit(), added=added)
    tokenizer = tokjax.formats.from_huggingface(library)
    for text in ("é b", "é b " * 2000):
        assert tokjax.encode(tokenizer, text).tolist() == library.encode(text).ids
    for text in ("η b", "η b " * 2000):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="the tokenizers library can't encode"):
            tokjax.encode(tokenizer, text)


@pytest.mark.parametrize("length", [65_534, 65_535, 65_536])
def test_words_of_64_kilobytes(length):
    library = Tokenizer(models.WordLevel({"b": 0, "x" * length: 1, "?": 2}, unk_token="?"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = tokjax.formats.from_huggingface(library)
    result = tokjax.encode_result(tokenizer, "b " + "x" * length + " b")
    assert result.ids.tolist() == [0, 1, 0]
    assert result.offsets.tolist() == [[1, 2], [3, 3 + length], [4 + length, 5 + length]]


def test_long_words_are_removed(monkeypatch):
    monkeypatch.setattr(word_engine, "_MAX_LONG_WORD_BYTES", 10_000)
    tokenizer = tokjax.formats.from_huggingface(make_tokenizer(None, pre_tokenizers.WhitespaceSplit()))
    for i in range(20):
        text = f"{i} {'low' * 1000} {i}{'est' * 1000}"
        expected = tokenizer.library_tokenizer.encode(text).ids
        assert tokjax.encode(tokenizer, text).tolist() == expected
    assert tokenizer.encoder.word_engine._words.num_long_bytes < 20_000


PRECOMPILED = [
    ("b \u0627\u0653\u200cb ", None),
    ("b e\u0301\u200cb ", None),
    ("a ½\u200cb ", None),
    ("a…\x0b b ", normalizers.Strip()),
    ("| \u200b ", normalizers.Strip()),
    ("|\t\ufffd ", normalizers.Strip()),
]


@pytest.mark.parametrize("split", [[metaspace], [pre_tokenizers.WhitespaceSplit(), metaspace]])
@pytest.mark.parametrize(("text", "before"), PRECOMPILED)
def test_graphemes_and_removed_whitespace(text, before, split):
    """A format character that becomes a space is part of the grapheme before it. `Strip` removes others."""
    steps = [*([before] if before else []), make_precompiled(), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer = tokjax.formats.from_huggingface(make_tokenizer(normalizers.Sequence(steps), *split))
    for texts in ([text * 700], [text, text[:-1], text * 2000]):
        batch = tokjax.encode_batch_result(tokenizer, texts, add_special_tokens=False)
        encodings = tokenizer.library_tokenizer.encode_batch(texts, add_special_tokens=False)
        assert [row.ids.tolist() for row in batch] == [encoding.ids for encoding in encodings]
        options = library_encoding.EncodeOptions(False, return_offsets=True, return_masks=True)
        expected, _ = tokenizer.encoder.encode_with_library(
            texts, range(len(texts)), options, {"allowed_special": (), "disallowed_special": ()}
        )
        np.testing.assert_array_equal(batch.ragged.offsets, expected["offsets"])


def test_the_vocabulary_is_not_parsed_again():
    """Parsing a large definition takes longer than encoding a text of some kilobytes."""
    tokenizer = tokjax.formats.from_huggingface(make_tokenizer(None, metaspace))
    tokjax.encode(tokenizer, "low lower " * 2000)
    assert tokenizer.encoder.word_engine is not None
    assert "contents" not in vars(tokenizer.loaded)
