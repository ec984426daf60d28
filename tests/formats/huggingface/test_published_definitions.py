"""Tests of the pipelines of published byte-level tokenizers, on the array engine, against `tokenizers`."""

import json
import unicodedata

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer

import tokjax
from tests.conftest import CORPUS
from tests.support.huggingface_tokenizers import DefinitionStub
from tests.support.published_definitions import (
    PIPELINES,
    build_definition,
    make_merges,
    make_published_pair,
)
from tests.support.text_strategies import hard_texts
from tests.support.variants import mark_slow_except
from tokjax.core.utf8 import is_encodable
from tokjax.pretokenize.patterns import PATTERNS, make_pattern_splitter
from tokjax.pretokenize.unicode_classes import CODE_POINTS, load_category_runs, load_code_point_flags

NAMES = list(PIPELINES)
DEFAULT_NAMES = [
    "Qwen 3.5",
    "DeepSeek V3, DeepSeek R1",
    "Falcon",
]
SOME_NAMES = mark_slow_except(NAMES, DEFAULT_NAMES)
NUMBERS = ["1", "12", "123", "1234", "12345678", "²", "½", "٣٣٣٣", "x²1", "ò1", "²12", "1 000", "3.14", "೨0"]
numbers = st.lists(st.sampled_from([*NUMBERS, " ", "a", ".", "é", "\n"]), max_size=12).map("".join)
texts = (hard_texts | numbers).filter(is_encodable)
_UNASSIGNED = {"Cn", "Co"}
"""The categories of 87 % of all code points. Contexts before and after a letter show that they are alike."""


def assert_ids_agree(name, text):
    reference, tokenizer = make_published_pair(name)
    expected = reference.encode(text, add_special_tokens=False).ids
    ids = tokjax.encode(tokenizer, text, add_special_tokens=False)
    if ids.tolist() != expected:
        line = next(line for line in text.split("\n") if differs(name, line))
        pytest.fail(f"{name}: {line!r}")


def differs(name, line):
    reference, tokenizer = make_published_pair(name)
    return tokjax.encode(tokenizer, line).tolist() != reference.encode(line).ids


def make_contexts(code):
    character = chr(code)
    if unicodedata.category(character) in _UNASSIGNED:
        return f"a{character}1{character}"
    return f"a{character}b {character}1{character} '{character}s{character}{character}.\t{character}\n"


@pytest.mark.parametrize("name", SOME_NAMES)
def test_type(name):
    assert isinstance(make_published_pair(name)[1], tokjax.models.ByteLevelBPE)


@pytest.mark.parametrize("name", SOME_NAMES)
def test_characters_at_the_ends_of_each_class_equal_the_library(name):
    starts, _ = load_category_runs()
    flag_starts = np.flatnonzero(np.diff(load_code_point_flags(), prepend=0))
    codes = np.union1d(np.concatenate([starts, flag_starts, np.arange(0x180)]), [])
    codes = np.union1d(codes, codes - 1)[1:].astype(int).tolist()
    assert_ids_agree(name, "".join(make_contexts(code) for code in codes if not 0xD800 <= code <= 0xDFFF))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_character_equals_the_library(name):
    codes = [code for code in range(CODE_POINTS) if not 0xD800 <= code <= 0xDFFF]
    for start in range(0, len(codes), 50_000):
        assert_ids_agree(name, "".join(map(make_contexts, codes[start : start + 50_000])))


@pytest.mark.parametrize("name", SOME_NAMES)
@given(text=texts)
def test_texts_equal_the_library(name, text):
    reference, tokenizer = make_published_pair(name)
    expected = reference.encode(text).ids
    assert tokjax.encode(tokenizer, text).tolist() == expected
    padded = [*CORPUS, text] * 3  # large batches are encoded by arrays
    rows = tokjax.encode_batch_result(tokenizer, padded, return_offsets=False)
    assert [row.ids.tolist() for row in rows] == [row.ids for row in reference.encode_batch(padded)]


@pytest.mark.parametrize("name", SOME_NAMES)
def test_exported_definitions_have_the_same_ids(name, tmp_path):
    definition = json.dumps(build_definition(name, make_merges()[:2000]), ensure_ascii=False)
    reference = Tokenizer.from_str(definition)
    tokenizer = tokjax.formats.from_huggingface(reference)
    [path] = tokjax.formats.export_tokenizer(tokenizer, tmp_path, "huggingface")
    exported = Tokenizer.from_file(str(path))
    again = tokjax.load_tokenizer(path)
    for text in (*CORPUS, " ".join(NUMBERS)):
        expected = reference.encode(text).ids
        assert exported.encode(text).ids == expected
        assert tokjax.encode(again, text).tolist() == expected


def test_merges_of_bytes_that_are_written_as_digits():
    """`Digits` after `ByteLevel` splits inside of characters. A merge of `²` and `1` can't be left out."""
    definition = build_definition("Falcon", [["Ã", "²"], ["²", "a"], ["1", "2"], ["Ġ", "1"], ["a", "b"]])
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert tokenizer.merges == ((b"1", b"2"), (b"a", b"b"))
    definition = build_definition("Falcon", [["²", "1"]])
    library = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert library.reason == "its merge of b'\\xb2' and b'1' joins bytes and digits"
    definition = build_definition("Falcon", [["1", "2"]])
    definition["model"]["ignore_merges"] = True
    library = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert library.reason == "its pre-tokenizer splits bytes, and its model has ignore_merges"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            {"type": "Split", "pattern": {"Regex": r"\p{N}"}, "behavior": "Isolated", "invert": False},
            "its pre-tokenizer splits bytes by characters that are not ASCII",
        ),
        (
            {
                "type": "Split",
                "pattern": {"Regex": PATTERNS["qwen2"]},
                "behavior": "Isolated",
                "invert": False,
            },
            "its pre-tokenizer splits bytes by characters that are not ASCII",
        ),
        (
            {"type": "Split", "pattern": {"String": "qwen2"}, "behavior": "Isolated", "invert": False},
            "its pre-tokenizer splits at {'String': 'qwen2'}",
        ),
        ({"type": "Punctuation", "behavior": "Isolated"}, "its pre-tokenizer splits bytes by characters"),
        ({"type": "Whitespace"}, "its pre-tokenizer has the step Whitespace"),
    ],
)
def test_other_steps_after_bytes_run_on_the_library(step, reason):
    definition = build_definition("Falcon", make_merges()[:10])
    definition["pre_tokenizer"]["pretokenizers"][2:] = [step]
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(definition))
    assert isinstance(tokenizer, tokjax.formats.HuggingFaceTokenizer)
    assert tokenizer.reason.startswith(reason)


@pytest.mark.parametrize("name", ["<a", "ab", "x=", ";", "`", "K"])
def test_added_tokens_that_nfc_can_change_run_on_the_library(name):
    definition = build_definition("GPT-NeoX, MPT", [])
    definition["added_tokens"] = [{**definition["added_tokens"][0], "content": name}]
    tokenizer = tokjax.formats.from_huggingface(DefinitionStub(json.dumps(definition)))
    assert tokenizer.reason == f"the added token {name!r} is matched in normalized text"


@given(st.lists(st.sampled_from([*NUMBERS, "a", " "]), max_size=9).map("".join))
def test_groups_of_digits_from_the_right(text):
    split = make_pattern_splitter(r"(?=(\d{3})+(?!\d))").split(text)
    assert "".join(split) == text
    expected, rest = [], len(text)  # from the right
    for start in range(len(text) - 1, 0, -1):
        count = next((i for i, c in enumerate(text[start:]) if not c.isdecimal()), len(text) - start)
        if count and count % 3 == 0:
            expected.append(text[start:rest])
            rest = start
    expected.append(text[:rest])
    assert split == [part for part in reversed(expected) if part]
