"""Tests of the tokenizer checks, which run them for all tokenizer types."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.rejections import rejects
from tests.support.tokenizers import CHARACTERS, TOKENIZERS, VARIANTS, make_tokenizer
from tests.support.variants import mark_slow_except
from tokjax.testing import check_tokenizer


@pytest.mark.parametrize("name", mark_slow_except(TOKENIZERS, TOKENIZERS.keys() - VARIANTS))
def test_tokenizers_pass_the_checks(name):
    check_tokenizer(make_tokenizer(name))


@given(text=st.text())
def test_each_character_is_one_token(text):
    tokenizer = make_tokenizer("characters")
    plain = text.encode("utf-8", "replace").decode() if not text.isascii() else text
    expected = [CHARACTERS.index(c) if c in CHARACTERS[2:] else 0 for c in plain]
    assert tokjax.encode(tokenizer, plain).tolist() == expected


def test_word_ids_of_bytes_and_characters():
    for tokenizer in (tokjax.byte_level(), tokjax.models.char_level(["[UNK]", *"ab \n"])):
        assert tokjax.encode_result(tokenizer, "ab  a\nb").word_ids.tolist() == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: tokjax.byte_level(["<s>", "<s>"]), "duplicate special token '<s>'"),
        (lambda: tokjax.byte_level(eos_token="</s>"), "eos_token is '</s>', which is not among"),
        (
            lambda: tokjax.models.char_level(["[UNK]", "ab"]),
            "'ab' is not a single character; if it is a special token",
        ),
        (lambda: tokjax.models.char_level(["a"]), r"the special token '\[UNK\]' is not among"),
        (
            lambda: tokjax.models.from_callable("split", ["[UNK]"]),
            "split must be a function of a text, not 'split'",
        ),
    ],
)
def test_invalid_tokenizers_are_rejected(construct, message):
    with rejects(message):
        construct()


class TestCallableTokenizers:
    def test_callables_that_return_offsets(self):
        words = tokjax.models.from_callable(
            lambda text: [(i, i + 1) for i in range(len(text))], ["[UNK]", "é"]
        )
        result = tokjax.encode_result(words, "aé")
        assert result.ids.tolist() == [0, 1]
        assert result.offsets.tolist() == [[1, 2], [2, 4]]

    def test_callables_that_change_text_are_rejected(self):
        words = tokjax.models.from_callable(lambda text: text.lower().split(), ["[UNK]"])
        with rejects(r"returned the word 'b', which is not in the"):
            tokjax.encode(words, "a B")

    @pytest.mark.parametrize("word", [(0, 0), (1, 9), 5, (0, "a")])
    def test_invalid_words_are_rejected(self, word):
        words = tokjax.models.from_callable(lambda _: [word], ["[UNK]"], name="wrong")
        with rejects("wrong returned the word .* return words as"):
            tokjax.encode(words, "a b")

    def test_fingerprint_needs_a_name(self):
        words = tokjax.models.from_callable(lambda text: text.split(), ["[UNK]"])
        with rejects(r"no qualified name .* from_callable\(.*name="):
            tokjax.fingerprint(words)
        one, other = (tokjax.models.from_callable(str.split, ["[UNK]"], name=name) for name in ("a", "b"))
        assert tokjax.fingerprint(one) != tokjax.fingerprint(other)

    def test_words_are_joined_by_spaces(self):
        words = tokjax.models.from_callable(str.split, ["[UNK]", "to", "be"])
        assert tokjax.decode(words, [1, 2, 0]) == "to be [UNK]"
        assert tokjax.decode(words, [1, 2, 0], skip_special_tokens=True) == "to be"


@dataclasses.dataclass(frozen=True)
class FaultyTokenizer:
    """Byte tokenizer with one bug, named by `change`."""

    change: str


@tokjax.get_vocabulary.register
def _(tokenizer: FaultyTokenizer) -> tokjax.Vocabulary:
    return make_tokenizer("bytes").vocabulary


@tokjax.encode_texts.register
def _(tokenizer: FaultyTokenizer, texts, **options) -> tokjax.TokenizationBatch:
    batch = tokjax.encode_texts(make_tokenizer("bytes"), texts, **options)
    ragged = batch.ragged
    changes = {
        "offsets": lambda: {"offsets": ragged.offsets + 1},
        "empty spans": lambda: {"offsets": np.where(ragged.offsets > 0, 1, 0)},
        "reversed spans": lambda: {"offsets": ragged.offsets[::-1].copy()} if len(texts) == 1 else {},
        "batch": lambda: {"ids": ragged.ids * 0 + 5} if len(texts) > 1 else {},
        "ids": lambda: {"ids": np.where(ragged.ids < 3, ragged.ids, 5)},
        "mask": lambda: {"special_tokens_mask": ragged.special_tokens_mask * 0},
        "full mask": lambda: {"special_tokens_mask": ragged.special_tokens_mask * 0 + 1},
        "types": lambda: {"token_type_ids": ragged.token_type_ids + 7},
        "words": lambda: {"word_ids": ragged.word_ids * 0 - 5},
    }
    if tokenizer.change in changes and ragged.offsets is not None and ragged.special_tokens_mask is not None:
        ragged = ragged._replace(**changes[tokenizer.change]())
    elif tokenizer.change == "ids":
        ragged = ragged._replace(ids=np.where(ragged.ids < 3, ragged.ids, 5))
    return tokjax.TokenizationBatch(
        ragged, batch.metadata, make_tokenizer("bytes").vocabulary.get_token_strings
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("offsets", "offsets of ''|an inserted token of"),
        ("empty spans", "no span contains"),
        ("reversed spans", "not in ascending order|an inserted token|has no span"),
        ("batch", "differs between a batch and a single text|requested columns"),
        ("ids", "is decoded as"),
        ("mask", "has mask 0"),
        ("full mask", "has mask 1"),
        ("types", "type ids of"),
        ("words", "word id"),
    ],
)
def test_checks_detect_faulty_tokenizers(change, message):
    with pytest.raises(AssertionError, match=message):
        check_tokenizer(FaultyTokenizer(change))
