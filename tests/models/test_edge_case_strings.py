"""Tests of the spans of tokens that have no text of their own, such as the prefix that a tokenizer adds."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import tokjax
from tokjax.models.byte_spans import separate_spans


def make_character_unigram():
    """Makes a Unigram model that adds `▁` before texts, normalizes, and has few tokens."""
    pieces = [("<unk>", -9.0), ("▁hello", -0.1), ("▁", -2.0), *((letter, -5.0) for letter in "helo12")]
    library = Tokenizer(models.Unigram(pieces, 0))
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.StripAccents()])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokjax.formats.from_huggingface(library)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("zzz", [[1, 1], [1, 4]]),
        (" zzz", [[1, 2], [2, 5]]),
        ("hello zzz", [[1, 6], [6, 7], [7, 10]]),
        ("½", [[1, 1], [1, 3], [3, 3], [3, 3]]),
        ("日", [[1, 1], [1, 4]]),
    ],
)
def test_prefix_token_has_empty_span(text, spans):
    assert tokjax.encode_result(make_character_unigram(), text).offsets.tolist() == spans


def test_two_prefixes_that_are_trimmed():
    """The library reports trimmed prefixes at the position after the character that they precede."""
    library = Tokenizer(models.BPE({"Ġ": 0, "a": 1}, []))
    library.normalizer = normalizers.Sequence([normalizers.Prepend(" "), normalizers.Prepend(" ")])
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.post_processor = processors.ByteLevel(add_prefix_space=False)
    assert library.encode("aa").offsets == [(1, 1), (1, 1), (0, 1), (1, 2)]
    spans = tokjax.encode_result(tokjax.formats.from_huggingface(library), "aa").offsets.tolist()
    assert spans == [[1, 1], [1, 1], [1, 2], [2, 3]]


def test_empty_span_does_not_shorten_the_next():
    spans = np.array([[3, 3], [1, 3], [1, 3], [3, 4]])
    pieces = [b"x", b"y", b"z", b"a"]
    separate = separate_spans(spans, np.arange(4), pieces.__getitem__, (), "éa".encode())
    assert separate.tolist() == [[1, 1], [1, 3], [3, 3], [3, 4]]
