"""Tests of errors for arguments of wrong types: their text names the argument and the call that works."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import tokjax
from tests.support.huggingface_tokenizers import make_pair
from tests.support.rejections import rejects
from tests.support.tokenizers import make_tokenizer
from tokjax.trainer import save_training_bundle, train_bpe

TOKENIZERS = ["bytes", "byte-level BPE", "WordPiece", "word level", "Hugging Face unigram"]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("value", [["a", "b"], None, 5, bytearray(b"a")])
def test_non_text_is_rejected(name, value):
    for call in (tokjax.encode, tokjax.encode_result, tokjax.tokenize):
        with rejects("must be str or bytes, not"):
            call(make_tokenizer(name), value)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_paths_are_rejected(name):
    path, tokenizer = Path("a.txt"), make_tokenizer(name)
    for call in (
        lambda: tokjax.encode(tokenizer, path),
        lambda: tokjax.encode_result(tokenizer, path),
        lambda: tokjax.encode_batch_result(tokenizer, [path]),
        lambda: tokjax.encode_batch_result(tokenizer, path),
        lambda: tokjax.encode_batch_result(tokenizer, path, max_length=3),
        lambda: tokjax.quick.quick_tokenize(tokenizer, path),
        lambda: tokjax.count_tokens(tokenizer, path),
    ):
        with rejects(r"is a path; pass its text, path\.read_text\(\); encode_files"):
            call()


def test_single_text_is_rejected():
    for call in (
        lambda: tokjax.align.align_spans(np.array([[1, 2]]), [(1, 2, "L")], labels=["L"], texts="a"),
        lambda: tokjax.align.trim_offsets(np.array([[1, 2]]), texts="a"),
        lambda: tokjax.align.spans_from_characters("ab", [[], []]),
        lambda: tokjax.align.spans_to_characters("ab", [[], []]),
    ):
        with rejects(r"texts is one text; pass \[text\]"):
            call()


def test_tokenizers_of_other_libraries_are_rejected():
    library_tokenizer, tokenizer = make_pair("unigram")
    for call in (tokjax.encode, tokjax.encode_result, tokjax.tokenize):
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError,
            match=r"pass tokjax.formats.from_huggingface\(tokenizer\)",
        ):
            call(library_tokenizer, "a")
    result = tokjax.encode_result(tokenizer, "a")
    with rejects("not a TokenizationResult; pass its .ids"):
        tokjax.decode(tokenizer, result)
    with rejects("use decode_batch for it"):
        tokjax.decode(tokenizer, tokjax.encode_batch_result(tokenizer, ["a"]))


@pytest.mark.parametrize("value", [["a"], None])
def test_spans_of_non_text_are_rejected(value):
    for call in (
        lambda: tokjax.offsets.span_bytes(value, (1, 2)),
        lambda: tokjax.try_span_substring(value, (1, 2)),
        lambda: tokjax.offsets.byte_to_char_spans(value, [(1, 2)]),
        lambda: tokjax.offsets.is_valid_string_boundary(value, 1),
        lambda: tokjax.offsets.to_utf8(value),
    ):
        with rejects("a text must be str or bytes, not"):
            call()


def test_invalid_arguments_are_rejected():
    rows = tokjax.ragged_from_rows([[1]])
    plan = tokjax.packing.plan_packing([1], 2)
    for call, message in {
        lambda: tokjax.packing.apply_packing(rows, plan, pad_id=0): "plan_packing returns, not a Ragged",
        lambda: tokjax.align.byte_to_token("text", 1): "result must be a TokenizationResult, not a str",
        lambda: tokjax.offsets.is_valid_string_boundary("abc", 1.5): "position must be an integer, not 1.5",
    }.items():
        with rejects(message):
            call()


def test_training_bundle_is_not_a_dataset(tmp_path):
    trained = train_bpe(["a text"], vocab_size=258, progress=False)
    save_training_bundle(trained, tmp_path / "bundle")
    with pytest.raises(
        tokjax.errors.DatasetMismatchError, match="has the format '.*bundle', not 'tokjax-dataset'$"
    ):
        tokjax.open_dataset(tmp_path / "bundle")


def test_duplicate_piece_is_rejected():
    pieces = [("<unk>", 0), ("<s>", 0), ("▁", -2), ("a", -2.5), ("<s>", -9)]
    library_tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    library_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    with pytest.raises(tokjax.errors.TokenizerFormatError, match="vocab has the duplicate piece '<s>'"):
        tokjax.formats.from_huggingface(library_tokenizer)


def test_repr_shows_first_special_tokens():
    names = {f"<|{i}|>": 256 + i for i in range(10)}
    byte_ranks = {bytes([i]): i for i in range(256)}
    shown = repr(tokjax.byte_level_bpe(byte_ranks, special_tokens=names))
    assert "'<|7|>': 263, and 2 more}" in shown
    eight = dict(list(names.items())[:8])
    assert f"special_tokens={eight})" in repr(tokjax.byte_level_bpe(byte_ranks, special_tokens=eight))
