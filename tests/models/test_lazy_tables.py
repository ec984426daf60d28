"""Tests of first calls and short texts: nothing is computed that the call does not need."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, pre_tokenizers

import tokjax
from tests.support.huggingface_tokenizers import make_byte_level, make_split
from tests.support.text_strategies import hard_texts
from tokjax.bpe.array_engine import ArrayEngine
from tokjax.core.vocabulary import format_token, make_vocabulary
from tokjax.pretokenize.bytes_to_unicode import (
    map_all_unicode_to_bytes,
    map_bytes_to_unicode,
    map_unicode_to_bytes,
)
from tokjax.pretokenize.patterns import PATTERNS

TEXT = "short, with 日本語"


@given(
    text=hard_texts,
    allowed=st.sampled_from([(), "all", ["<s1>"]]),
    disallowed=st.sampled_from([(), "all", ["<s2>"], ["<s1>"]]),
    add_special_tokens=st.booleans(),
)
def test_encode_with_the_library_equals_batch(
    library_tokenizer, text, allowed, disallowed, add_special_tokens
):
    options = {
        "allowed_special": allowed,
        "disallowed_special": disallowed,
        "add_special_tokens": add_special_tokens,
    }
    expected = get_outcome(lambda: tokjax.encode_batch_result(library_tokenizer, [text], **options)[0].ids)
    assert get_outcome(lambda: tokjax.encode(library_tokenizer, text, **options)) == expected


@pytest.fixture(scope="module")
def library_tokenizer():
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    library = make_byte_level(digits)
    library.add_special_tokens(["<s1>", "<s2>", "a"])
    return tokjax.formats.from_huggingface(library)


def get_outcome(call):
    try:
        return call().tolist()
    except tokjax.TokjaxError as error:
        return type(error)


def make_large_ranks(num_tokens):
    """Returns the ranks of a byte-level BPE with single bytes and strings of three letters."""
    ranks = {bytes([i]): i for i in range(256)}
    for i in range(num_tokens - 256):
        ranks[bytes([97 + i % 26, 97 + i // 26 % 26, 97 + i // 676 % 26])] = 256 + i
    return ranks


def test_first_texts_build_no_tables():
    ranks = make_large_ranks(2 * ArrayEngine.few_characters)
    tokenizer = tokjax.byte_level_bpe(ranks)
    text = "wait for no tables, " * (ArrayEngine.few_characters // 20 + 1)
    assert len(text) > ArrayEngine.few_characters
    first = tokjax.encode(tokenizer, text)
    assert "_caches" not in vars(tokenizer._engine)
    second = tokjax.encode(tokenizer, text)
    assert "_caches" in vars(tokenizer._engine)
    assert first.tolist() == second.tolist()


@given(
    text=hard_texts,
    add_prefix_space=st.sampled_from(["always", "missing", "first", None]),
    before=st.sampled_from(["", " ", "▁", "é日ab", "ab a", "<s>"]),
)
def test_short_metaspace_text_equals_batch(text, add_prefix_space, before):
    tokens = [f"<0x{i:02X}>" for i in range(256)] + ["▁", "a", "b", "é", "▁a", "ab", "▁ab", "日"]
    tokenizer = tokjax.metaspace_bpe(
        {token: id_ for id_, token in enumerate(tokens)},
        [("▁", "a"), ("a", "b"), ("▁a", "b")],
        add_prefix_space=add_prefix_space,
        special_tokens={"<s>": 999},
    )
    text = before + text.replace("x", "ab") if isinstance(text, str) else text
    expected = get_outcome(lambda: tokjax.encode_batch_result(tokenizer, [text])[0].ids)
    assert get_outcome(lambda: tokjax.encode(tokenizer, text)) == expected


@given(
    st.lists(
        st.text(
            st.sampled_from(
                [*map(map_bytes_to_unicode, map(bytes, ([0], [32], [97], [255]))), "日", "\ud800"]
            )
        )
    )
)
def test_bytes_to_unicode_forms(forms):
    assert map_all_unicode_to_bytes(forms) == list(map(map_unicode_to_bytes, forms))


def test_readable_forms_match_the_table():
    table = make_vocabulary({b"a": 7, b"\xff": 3, b"b c": 4}, {"<s>": 1})
    ids = [3, 1, 3, 7, 4]
    token_strings = tuple(format_token(table.get_bytes(id_)) for id_ in ids)
    assert table.get_token_strings(np.array(ids)) == token_strings == table.get_token_strings(np.array(ids))
    assert [table.strings[id_] for id_ in ids] == ["\\xff", "<s>", "\\xff", "a", "b c"]


def test_published_pattern_with_removed_behaviour():
    contents = json.loads(make_byte_level(make_split(PATTERNS["o200k"])).to_str())
    contents["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed", invert=True)
    theirs = Tokenizer.from_str(json.dumps(contents))
    ours = tokjax.formats.from_huggingface(theirs)
    assert ours.pattern == "o200k"
    for text in (TEXT, "  a\n\n b'LL 1234", ""):
        assert tokjax.encode(ours, text).tolist() == theirs.encode(text).ids
    contents["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed", invert=False)
    unsupported = tokjax.formats.from_huggingface(Tokenizer.from_str(json.dumps(contents)))
    assert "splits with the behavior 'Removed' and invert=False" in unsupported.reason
