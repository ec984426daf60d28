"""Tests of word-level training, against the trainer of Hugging Face."""

import logging

import pytest
from hypothesis import assume, given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tokjax
from tests.conftest import CORPUS
from tests.support.text_strategies import hard_texts
from tokjax.trainer import train_word_level

BERT_SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train(source, vocab_size, **options):
    return train_word_level(source, vocab_size=vocab_size, progress=False, **options)


def get_tokens(trained):
    return [token.decode() for token in trained.vocab.values()]


@pytest.mark.parametrize("splitter", ["whitespace", "bert"])
@pytest.mark.parametrize("min_frequency", [1, 2, 3])
@given(texts=st.lists(st.one_of(hard_texts, st.sampled_from(CORPUS)), max_size=5), size=st.integers(2, 40))
def test_words_match_hugging_face(splitter, min_frequency, texts, size):
    # Hugging Face counts special tokens in the text as words.
    assume(not any(name in text for name in BERT_SPECIAL_TOKENS for text in texts))
    theirs = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    theirs.pre_tokenizer = {
        "whitespace": pre_tokenizers.WhitespaceSplit(),
        "bert": pre_tokenizers.BertPreTokenizer(),
    }[splitter]
    trainer = trainers.WordLevelTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=["[PAD]", "[UNK]"],
        show_progress=False,
    )
    theirs.train_from_iterator(texts, trainer)
    options = {"min_frequency": min_frequency, "splitter": splitter}
    trained = train(texts, size, **options)
    assert get_tokens(trained) == sorted(theirs.get_vocab(), key=theirs.get_vocab().get)
    assert trained.stats.exhausted == (len(trained.vocab) < size)


def test_invalid_utf8_is_left_out():
    trained = train([b"low low \xff"], 9)
    assert get_tokens(trained) == ["[PAD]", "[UNK]", "low"]
    assert trained.stats.notes == ("left out 1 distinct words (1 occurrences): they are not valid UTF-8",)


def test_word_equal_to_special_token_is_left_out():
    options = {"special_tokens": ["[unk]"], "unk_token": "[unk]", "pad_token": None, "lowercase": True}
    trained = train(["[UNK] low low"], 9, **options)
    assert list(trained.vocab.values()) == [b"[unk]", b"low"]
    assert trained.stats.notes == (
        "left out 1 distinct words (1 occurrences): they have the name of a special token",
    )


def test_incomplete_vocabulary_is_reported(caplog):
    with caplog.at_level(logging.WARNING, "tokjax"):
        trained = train(["low low be"], 100, min_frequency=2)
    assert trained.stats.exhausted
    assert caplog.messages == [
        "the text has no word left that occurs 2 or more times: the vocabulary has 3 ids, not 100"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 1}, "vocab_size is 1; 2 special tokens need at least 2"),
        ({"min_frequency": 0}, "min_frequency must be at least 1, not 0"),
        ({"splitter": "gpt2"}, "splitter must be 'whitespace' or 'bert', not 'gpt2'"),
        (
            {"special_tokens": ["[PAD]"]},
            "the special token '\\[UNK\\]' is not among the tokens; .* special_tokens of a",
        ),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        train(["low low"], **({"vocab_size": 10} | options))
