"""Tests of unigram tokenizers, against the same definitions on the `tokenizers` library."""

import contextlib
import dataclasses
import json
import random
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import tokjax
from tests.conftest import CORPUS
from tests.support.sentencepiece_models import train_sentencepiece_models
from tests.support.small_chunks import use_small_chunks
from tests.support.span_checks import assert_contract, leave_out
from tests.support.text_strategies import hard_texts
from tests.support.variants import mark_slow_except
from tokjax.core.utf8 import to_utf8
from tokjax.formats.huggingface.library import build_huggingface_tokenizer
from tokjax.formats.huggingface.metaspace import round_like_library
from tokjax.models import unigram_viterbi as viterbi
from tokjax.pretokenize.aligned_text import StepNormalizer
from tokjax.pretokenize.unicode_classes import CODE_POINTS

SPECIAL = ["<s>", "</s>", "<pad>", "<mask>", "<unk>"]
NAMES = ["est", ".", "..", "xy", "中", "½", "\u0301", "\u200b", "\x01", "``", "🙂", "\u00a8"]
ADDED = [
    *(AddedToken(name, normalized=False) for name in NAMES),
    AddedToken("low", normalized=True, lstrip=True, rstrip=True),
    AddedToken("<call>", normalized=True, lstrip=True, special=True),
]
words, metaspace = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()
merge_spaces = normalizers.Replace(Regex(" {2,}"), "▁")


@cache
def train():
    """Returns the vocabulary of a trained model, with a piece for each space."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = metaspace
    options = {"vocab_size": 400, "special_tokens": SPECIAL, "unk_token": "<unk>", "show_progress": False}
    tokenizer.train_from_iterator(CORPUS * 3, trainers.UnigramTrainer(**options))
    return json.loads(tokenizer.to_str())["model"]


def make_library(normalizer, *steps, added=(), byte_fallback=False, without=()):
    """Makes a tokenizer of the library.

    Args:
        normalizer: normalizer, a list of them, or `None`.
        *steps: pre-tokenizers.
        added: added tokens.
        byte_fallback: whether unknown characters are bytes.
        without: pieces that get other names.
    """
    tokenizer = Tokenizer(models.Unigram())
    if normalizer is not None:
        tokenizer.normalizer = (
            normalizers.Sequence(normalizer) if isinstance(normalizer, list) else normalizer
        )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(steps)) if len(steps) > 1 else steps[0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A:1 </s>:1 <s>:2",
        pair="<s> $A </s> $B:1 </s>:1",
        special_tokens=[("<s>", 0), ("</s>", 1)],
    )
    tokenizer.decoder = decoders.Metaspace()
    definition = json.loads(tokenizer.to_str())
    vocab = [
        [f"#{i}" if form in without else form, score] for i, (form, score) in enumerate(train()["vocab"])
    ]
    vocab += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)] if byte_fallback else []
    definition["model"] = train() | {"vocab": vocab, "byte_fallback": byte_fallback}
    library = Tokenizer.from_str(json.dumps(definition))
    library.add_special_tokens(SPECIAL)
    library.add_special_tokens([token for token in added if token.special])
    library.add_tokens([token for token in added if not token.special])
    return library


@cache
def make_precompiled():
    return normalizers.Precompiled(train_sentencepiece_models()["unigram"]._model_info.charsmap)


def make_pipelines():
    precompiled, first = make_precompiled(), pre_tokenizers.Metaspace(prepend_scheme="first")
    strip_end = normalizers.Strip(left=False, right=True)
    lower = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    merge = normalizers.Replace(Regex(" {2,}"), " ")
    pipelines = {
        "t5": (precompiled, words, metaspace),
        "mt5": ([precompiled, merge], metaspace),
        "converted": ([precompiled, strip_end, merge_spaces], metaspace),
        "converted, first": ([precompiled, strip_end, merge_spaces], first),
        "words, first": (normalizers.NFC(), words, first),
        "composed, decomposed": ([normalizers.NFKC(), normalizers.NFD()], metaspace),
        "deberta": ([normalizers.Strip(), precompiled, merge], metaspace),
        "albert": ([*quotes, *lower, precompiled, merge], metaspace),
        "no normalizer": (None, pre_tokenizers.Metaspace(prepend_scheme="never")),
        "nmt": ([normalizers.Nmt(), normalizers.Lowercase()], words, metaspace),
        "prepended": ([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")], metaspace),
    }
    return {
        **{name: make_library(*steps) for name, steps in pipelines.items()},
        **{f"{name}, added": make_library(*steps, added=ADDED) for name, steps in pipelines.items()},
        "bytes": make_library(precompiled, words, metaspace, byte_fallback=True),
        "bytes, spaces": make_library(normalizers.NFKC(), metaspace, byte_fallback=True),
        "bytes, ▁ unknown": make_library(None, metaspace, byte_fallback=True, without=["▁"]),
        "▁ unknown": make_library(normalizers.NFC(), words, metaspace, without=["▁"]),
    }


@cache
def load(name):
    """Returns a built-in tokenizer, and the same definition on the library."""
    definition = make_pipelines()[name].to_str()
    built_in = tokjax.formats.from_huggingface(Tokenizer.from_str(definition))
    assert isinstance(built_in, tokjax.models.Unigram), built_in
    return built_in, build_huggingface_tokenizer(definition, "it is the expected result", {"unk": "<unk>"})


PIPELINES = [
    *("t5", "mt5", "converted", "converted, first", "words, first", "composed, decomposed", "deberta"),
    *("albert", "no normalizer", "nmt", "prepended", "t5, added", "mt5, added", "converted, added"),
    *("converted, first, added", "words, first, added", "deberta, added", "albert, added", "nmt, added"),
    *("no normalizer, added", "bytes", "bytes, spaces", "bytes, ▁ unknown", "▁ unknown"),
]
DEFAULT = ["t5, added", "mt5", "deberta", "albert, added", "bytes, spaces", "converted, first"]
FORMS = """
low newest a b est . `` '' é 中日 ， ﬃ ½
… 🙂 ▁ <call> LOW xyz <mask> <unk> क्षि क़ 👩‍👩‍👧 ＜mask＞ Ａ
"""
parts = st.sampled_from(
    [
        *FORMS.split(),
        *(" ", " ", "  ", "\n", "\t", "\r\n", "\r", "\u3000", "\xa0", "\x85", "\ufeff", "\u200b", "\u2028"),
        *(
            "\x01",
            "¨",
            "\0",
            "\u0301",
            "e\u0301",
            "\u0e33",
            "\u0600",
            "\u00ad",
            "\ud800",
            "ﬁ\u0301",
            "ᄀ",
            "ᅡ",
        ),
        *("word" * 40, "\ufffd"),
    ]
)
word_texts = st.lists(parts, max_size=15).map("".join)
invalid_bytes = word_texts.map(lambda text: b"low \xff" + to_utf8(text))
text_lists = st.lists(st.one_of(word_texts, hard_texts, invalid_bytes), min_size=1, max_size=5)
COLUMNS = ("ids", "word_ids", "sequence_ids", "special_tokens_mask", "token_type_ids")


def assert_equal_results(name, texts, **options):
    built_in, library = load(name)
    try:
        expected = tokjax.encode_batch_result(library, texts, **options)
    except tokjax.errors.TokjaxError as error:
        expected = error
    if isinstance(expected, tokjax.errors.TokjaxError):
        # The library can't encode some special tokens as text and match others. A built-in tokenizer can.
        with contextlib.suppress(tokjax.errors.TokjaxError):
            tokjax.encode_batch_result(built_in, texts, **options)
        return
    batch = tokjax.encode_batch_result(built_in, texts, **options)
    np.testing.assert_array_equal(batch.ragged.row_splits, expected.ragged.row_splits)
    for column in COLUMNS:
        values = getattr(expected.ragged, column)
        np.testing.assert_array_equal(getattr(batch.ragged, column), values, err_msg=column)
    for text, row, expected_row in zip(texts, batch, expected, strict=True):
        # The library's spans leave out characters that the normalizer joins with others.
        assert_contract(text, row.offsets[row.sequence_ids == 0].tolist())
        in_library = {byte for span in expected_row.offsets for byte in range(*span)}
        for span, expected_span in zip(row.offsets.tolist(), expected_row.offsets.tolist(), strict=True):
            is_empty = span[0] == span[1] and expected_span[0] == expected_span[1]
            assert is_empty or leave_out(span, in_library) == expected_span
        np.testing.assert_array_equal(tokjax.encode(built_in, text, **options), row.ids)
        for skip in (False, True):
            decoded = tokjax.decode(library, row.ids, skip_special_tokens=skip)
            assert tokjax.decode(built_in, row.ids, skip_special_tokens=skip) == decoded


@pytest.mark.parametrize("name", mark_slow_except(PIPELINES, DEFAULT))
@example(
    ["a\r\n's \r\n\r\nb \n", "\x01a b", "▁\u0301▁", "low e\u0301 \u1100\u1161 ｶﾞ aﾞ é"], True, "all", False
)
@given(text_lists, st.booleans(), st.sampled_from(["all", ()]), st.booleans())
def test_results_equal_the_library(name, texts, add_special_tokens, allowed, on_arrays):
    with use_small_chunks(5, few=0 if on_arrays else 3000) as patch:
        if on_arrays:
            patch.setattr(viterbi, "FEW_WORDS", 1)
            patch.setattr(viterbi, "_CHARACTERS_PER_PIECE", -1)
        options = {"allowed_special": allowed, "disallowed_special": ()}
        assert_equal_results(name, texts, add_special_tokens=add_special_tokens, **options)


@pytest.mark.parametrize("name", mark_slow_except(PIPELINES, DEFAULT))
def test_results_equal_the_library_for_random_characters(name):
    """Characters of all of Unicode, between others that they can change."""
    draw = random.Random(name)
    pool = "aeb \u0301\u0308\u200d\u0600\u00a8ﬁ▁ᄀ가é½…\u0958\x01\u3000"
    texts = [
        "".join(
            draw.choice(pool) if draw.random() < 0.7 else chr(draw.randrange(CODE_POINTS)) for _ in range(8)
        )
        for _ in range(300)
    ]
    assert_equal_results(name, texts, allowed_special="all")


STEPS = {
    "precompiled": [make_precompiled],
    "nmt, lower": [normalizers.Nmt, normalizers.Lowercase],
    "NFKC": [normalizers.NFKC],
    "NFKD, strip": [normalizers.NFKD, normalizers.StripAccents],
}


@pytest.mark.parametrize("step", [40, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", STEPS)
def test_characters_are_normalized_as_by_the_library(name, step):
    library = normalizers.Sequence([make() for make in STEPS[name]])
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = library
    normalizer = StepNormalizer(json.loads(tokenizer.to_str())["normalizer"]["normalizers"])
    rng = np.random.default_rng(0)
    codes = rng.permutation([code for code in range(CODE_POINTS) if not 0xD800 <= code < 0xE000])[::step]
    for part in np.array_split(codes, len(codes) // 1000):
        text = "".join(f"{chr(code)}\u0301 " if code % 7 else chr(code) for code in part.tolist())
        assert normalizer.normalize_string(text) == library.normalize_str(text)


def test_scores_are_rounded_as_by_the_library():
    draw = random.Random(0)
    scores = [-draw.random() * 10.0 ** draw.randint(-30, 3) for _ in range(2000)]
    scores += [0.0, -1.0, -12.25, 1e-300, 5e-324, float(np.float32(-9.0106849)), -2.2250738585072014e-308]
    model = {"type": "Unigram", "unk_id": 0, "byte_fallback": False}
    model["vocab"] = [[f"#{i}", score] for i, score in enumerate(scores)]
    library = Tokenizer.from_str(
        json.dumps(json.loads(Tokenizer(models.Unigram()).to_str()) | {"model": model})
    )
    expected = [score for _, score in json.loads(library.to_str())["model"]["vocab"]]
    assert [round_like_library(score) for score in scores] == expected


OTHER_PIPELINES = {
    "space in a pattern": (normalizers.Replace("a b", "c"), [metaspace], "replaces 'a b' by 'c'"),
    "several removed": (normalizers.Replace("ow", ""), [metaspace], "replaces 'ow' by ''"),
    "a mark inserted": (normalizers.Replace("ob", "\u0301"), [metaspace], "replaces 'ob'"),
    "inserted everywhere": (normalizers.Replace("", "b"), [metaspace], "its normalizer is Replace"),
    "expression": (normalizers.Replace(Regex(r"\d"), "0"), [metaspace], "its normalizer is Replace"),
    "BERT": (normalizers.BertNormalizer(), [metaspace], "its normalizer is BertNormalizer"),
    "not split": (None, [pre_tokenizers.Metaspace(split=False)], "its Metaspace has split=False"),
    "other mark": (None, [pre_tokenizers.Metaspace(replacement="_")], "writes '_' for spaces"),
    "other pre-tokenizer": (None, [pre_tokenizers.Digits()], "its pre-tokenizer is Digits"),
}


@pytest.mark.parametrize("name", OTHER_PIPELINES)
def test_other_pipelines_run_on_the_library(name):
    normalizer, steps, reason = OTHER_PIPELINES[name]
    library = make_library(normalizer, *steps)
    tokenizer = tokjax.formats.from_huggingface(library)
    assert reason in repr(tokenizer)
    assert tokjax.encode(tokenizer, "low lower " * 500).tolist() == library.encode("low lower " * 500).ids


@pytest.mark.parametrize("name", ["two words", "\u00a8", "Ａ"])
def test_added_tokens_that_are_normalized_need_the_library(name):
    library = make_library(normalizers.NFKC(), metaspace, added=[AddedToken(name, normalized=True)])
    assert "is matched in normalized text" in repr(tokjax.formats.from_huggingface(library))


@pytest.mark.parametrize("score", [float("nan"), float("-inf"), -1e101, 0.5])
def test_scores_for_which_sums_could_differ_are_rejected(score):
    pieces = tuple((piece, score) for piece, _ in load("mt5")[0].pieces)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="a score is not a number or too large, or"):
        dataclasses.replace(load("mt5")[0], pieces=pieces)


def test_special_tokens_made_of_text_are_rejected():
    tokenizer, _ = load("mt5")
    message = "a text becomes the special token '<mask>' when it is normalized, which is not allowed"
    with pytest.raises(tokjax.errors.DisallowedSpecialTokenError, match=message):
        tokjax.encode(tokenizer, "low ＜mask＞")
    message = "contains '<mask>', which this model encodes as a special token even where ordinary"
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        tokjax.encode(tokenizer, "low <mask>", disallowed_special=())


def test_long_words():
    built_in, library = load("mt5")
    for length in (40, 8000):
        text = f"low {'lowest' * length} é"
        for options in ({}, {"return_offsets": False}):
            batch = tokjax.encode_batch_result(built_in, [text, text], **options)
            expected = tokjax.encode_batch_result(library, [text, text], **options)
            assert batch[1].ids.tolist() == expected[1].ids.tolist()
        np.testing.assert_array_equal(
            tokjax.encode_result(built_in, text).offsets, tokjax.encode_result(library, text).offsets
        )


@pytest.mark.parametrize("name", ["converted, first, added", "t5, added", "bytes, spaces"])
def test_saved_and_exported_tokenizers_are_equal(name, tmp_path):
    built_in, _ = load(name)
    saved = tokjax.save_tokenizer(built_in, tmp_path / "saved.json")
    assert tokjax.load_tokenizer(saved) == built_in
    [exported, *_] = tokjax.formats.export_tokenizer(built_in, tmp_path / "tokenizer.json", "huggingface")
    assert tokjax.load_tokenizer(exported) == built_in
    assert tokjax.fingerprint(tokjax.load_tokenizer(exported)) == tokjax.fingerprint(built_in)
