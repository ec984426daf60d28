"""Tests of WordPiece training, against a naive trainer and that of Hugging Face."""

import logging
from collections import Counter

import pytest
from hypothesis import assume, given, strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import tokjax
from tests.conftest import CORPUS
from tests.oracles.wordpiece import train_naively
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import byte_strings, hard_texts
from tests.support.training import limit_segments
from tokjax.pretokenize.patterns import PATTERNS
from tokjax.trainer import (
    count_pretokens,
    train_word_level,
    train_wordpiece,
)
from tokjax.trainer.bpe import batched_training

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train(source, vocab_size=10_000, **options):
    return train_wordpiece(source, vocab_size=vocab_size, progress=False, **options)


def get_tokens(trained):
    return [token.decode() for token in trained.vocab.values()]


def count_bert_words(texts, **steps):
    """Counts words with the normalizer and the pre-tokenizer of Hugging Face."""
    normalizer = normalizers.BertNormalizer(**steps)
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    return Counter(word for text in texts for word, _ in split(normalizer.normalize_str(text)))


def compute_alphabet(words, prefix):
    """Returns the characters of words, then with the prefix those that occur inside words."""
    first = sorted({character for word in words for character in word})
    inside = sorted({prefix + character for word in words for character in word[1:]})
    return list(dict.fromkeys(first + inside))


def write_words(words):
    """Returns texts in which each word occurs as often as its count says."""
    return [" ".join([word] * count) for word, count in words.items()]


@get_max_examples(300)
@given(
    words=st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 6), max_size=9),
    num_tokens=st.integers(0, 25),
    prefix=st.sampled_from(["##", "##", "a", ""]),
    min_frequency=st.integers(1, 4),
    special=st.sampled_from([["[UNK]"], ["[UNK]", "ab", "##b", "c"]]),
    symbols_per_pair=st.sampled_from([0, 2, 16]),
)
def test_tiny_alphabets_match_naive_trainer(
    words, num_tokens, prefix, min_frequency, special, symbols_per_pair
):
    """Tests text with many ties, overlaps, and merges that make the same token."""
    words = {word: count for word, count in words.items() if not any(name in word for name in special)}
    initial_tokens = list(dict.fromkeys([*special, *compute_alphabet(words, prefix)]))
    with pytest.MonkeyPatch.context() as patch:
        limit_segments(patch, symbols_per_pair)
        trained = train(
            write_words(words),
            len(initial_tokens) + num_tokens,
            special_tokens=special,
            continuing_prefix=prefix,
            min_frequency=min_frequency,
        )
    expected = train_naively(words, initial_tokens, num_tokens, prefix=prefix, min_frequency=min_frequency)
    assert get_tokens(trained) == [*initial_tokens, *expected]


@pytest.mark.parametrize("min_frequency", [1, 3])
@given(
    texts=st.lists(st.one_of(hard_texts, st.sampled_from(CORPUS)), max_size=5),
    num_merges=st.integers(0, 60),
    steps=st.sampled_from([{}, {"lowercase": False}, {"strip_accents": False}]),
)
def test_tokens_match_hugging_face(min_frequency, texts, num_merges, steps):
    assume(not any(name in text for name in SPECIAL for text in texts))
    initial_tokens = [*SPECIAL, *compute_alphabet(count_bert_words(texts, **steps), "##")]
    vocab_size = len(initial_tokens) + num_merges
    theirs = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(**steps)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=initial_tokens,  # otherwise it assigns the ids of the alphabet in random order
        show_progress=False,
    )
    theirs.train_from_iterator(texts, trainer)
    trained = train(texts, vocab_size, min_frequency=min_frequency, limit_alphabet=None, **steps)
    assert get_tokens(trained) == sorted(theirs.get_vocab(), key=theirs.get_vocab().get)
    assert trained.stats.exhausted == (len(trained.vocab) < vocab_size)
    assert trained.stats.notes == ()


def test_trained_tokenizer_encodes():
    trained = train(CORPUS * 3, 500)
    tokenizer = trained.tokenizer
    roles = [getattr(tokjax, f"{role}_id")(tokenizer) for role in ("pad", "unk", "bos", "eos")]
    assert roles == [0, 1, 2, 3]
    assert list(tokjax.special_tokens(tokenizer)) == SPECIAL
    batch = tokjax.encode_batch_result(tokenizer, CORPUS, add_special_tokens=False)
    assert not (batch.ids == 1).any()
    nbytes = sum(len(text.encode()) for text in CORPUS)
    assert trained.stats.bytes_per_token == pytest.approx(nbytes / len(batch.ids))
    assert trained.stats.bytes == 3 * nbytes
    assert trained.stats.documents == 3 * len(CORPUS)
    assert trained.stats.num_unique_pretokens == len(count_bert_words(CORPUS))
    assert set(trained.stats.seconds) == {"counting", "merging"}


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\S+|\s+"])
def test_counts_of_any_pattern_are_normalized_and_split(pattern):
    """Tests texts in which no pattern splits a word of BERT, so that all results are equal."""
    texts = ["Low low, LOWER lówest!", "low  中\u3000newest\n"] * 2
    counts = count_pretokens(texts, pattern=pattern, progress=False)
    expected = train(texts, 60)
    trained = train(counts, 60)
    assert trained.tokenizer == expected.tokenizer
    assert trained.stats.bytes_per_token == expected.stats.bytes_per_token
    assert trained.options == expected.options | {"pattern": pattern}
    word_level = train_word_level(counts, vocab_size=9, splitter="bert", lowercase=True, progress=False)
    assert get_tokens(word_level) == ["[PAD]", "[UNK]", "low", "!", ",", "lower", "lówest", "newest", "中"]


def test_special_tokens_split_and_are_not_trained():
    trained = train(["low[SEP]low [MASK]low"] * 2, 30)
    assert get_tokens(trained) == [*SPECIAL, "l", "o", "w", "##o", "##w", "lo", "low"]


def test_special_token_lookalikes_are_not_trained():
    trained = train(["ab ab"], 20, special_tokens=["[UNK]", "a", "ab"])
    assert get_tokens(trained) == ["[UNK]", "a", "ab"]
    trained = train(count_pretokens(["ab ab"], progress=False), 20, special_tokens=["[UNK]", "a", "ab"])
    assert get_tokens(trained) == ["[UNK]", "a", "ab", "b", "##b"]


class TestAlphabet:
    texts = ("aaa bb ca", "da \U0001f642a")

    def test_keeps_the_most_frequent_characters(self):
        trained = train(self.texts, 12, limit_alphabet=3, min_frequency=1)
        assert get_tokens(trained)[5:] == ["a", "b", "c", "##a", "##b", "aa", "bb"]
        assert trained.stats.notes == (
            "left out 2 distinct words (2 occurrences): they have a character outside the alphabet of 3",
        )

    def test_without_a_limit(self):
        trained = train(["".join(map(chr, range(0x4E00, 0x4E00 + 1500)))], 3000)
        assert len(trained.vocab) == 5 + 1000
        assert "left out 500 distinct words (500 occurrences)" in trained.stats.notes[0]
        unlimited = train(["".join(map(chr, range(0x4E00, 0x4E00 + 1500)))], 3000, limit_alphabet=None)
        assert len(unlimited.vocab) == 5 + 1500
        assert unlimited.stats.notes == ()

    def test_alphabet_larger_than_vocabulary_is_rejected(self):
        message = (
            "vocab_size is 12; 5 special tokens and 9 tokens of single characters need at least 14; raise "
            "vocab_size, or set limit_alphabet below 5"
        )
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            train(["abc dae"], 12)


def test_left_out_words_are_reported():
    trained = train([b"low low \xff\xff " + b"x" * 101 + b" x" * 4], 50)
    assert trained.stats.notes == (
        "left out 1 distinct words (1 occurrences): they are not valid UTF-8",
        "left out 1 distinct words (1 occurrences): they have more than 100 characters",
    )
    assert trained.stats.bytes_per_token == pytest.approx(120 / 8)


@given(texts=st.lists(byte_strings, max_size=5))
def test_unknown_words_of_any_bytes_are_reported(texts):
    assume(not any(name.encode() in text for name in SPECIAL for text in texts))
    trained = train(texts, 1000, min_frequency=1)
    words = train_word_level(texts, vocab_size=1000, progress=False)
    for tokenizer in (trained.tokenizer, words.tokenizer):
        batch = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
        unknown = [token for result in batch for token in result.tokens if token == "[UNK]"]
        assert bool(unknown) <= bool(trained.stats.notes)


def test_huge_vocab_size_needs_no_memory():
    trained = train(["low low"], 10**12)
    assert get_tokens(trained)[5:] == ["l", "o", "w", "##o", "##w", "lo", "low"]


def test_no_text():
    trained = train([], 20)
    assert get_tokens(trained) == SPECIAL
    assert trained.stats.exhausted
    assert trained.stats.bytes_per_token == 0.0


@pytest.mark.parametrize(("text", "min_frequency", "times"), [("low low", 2, "2 times"), ("low", 1, "once")])
def test_incomplete_vocabulary_is_reported(caplog, text, min_frequency, times):
    with caplog.at_level(logging.WARNING, "tokjax"):
        trained = train([text], 100, min_frequency=min_frequency)
    assert trained.stats.exhausted
    assert caplog.messages == [
        f"the text has no pair left that occurs at least {times}: the vocabulary has 12 ids, not 100"
    ]


def test_interrupt_reports_number_of_merges(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(batched_training._Merger, "advance", stop)
    with pytest.raises(KeyboardInterrupt, match="after 0 of 8 merges; nothing was saved; with counts"):
        train(["aab"] * 3, 17)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": "12"}, "vocab_size must be an integer, not '12'"),
        ({"min_frequency": 0}, "min_frequency must be at least 1, not 0"),
        ({"limit_alphabet": 0}, "limit_alphabet must be at least 1, not 0"),
        ({"special_tokens": "[UNK]"}, "special_tokens must be a list of names"),
        ({"eos_token": "<s>"}, "the special token '<s>' is not among the tokens; .* special_tokens of a"),
        ({"lowercase": 1}, "lowercase must be True or False, not 1"),
        ({"continuing_prefix": 1}, "continuing_prefix must be a string without surrogates, not 1"),
        ({"continuing_prefix": "\ud800"}, "continuing_prefix must be a string"),
    ],
)
def test_invalid_options_are_rejected(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        train(["low low"], **options)


def test_lowercased_special_tokens_are_not_trained():
    trained = train_wordpiece(
        ["AB ab c HELLO HELLO HELLOS"],
        vocab_size=60,
        special_tokens=["[UNK]", "hello"],
        min_frequency=1,
        progress=False,
    )
    vocabulary = trained.tokenizer.vocabulary
    assert b"hello" not in vocabulary.ordinary
    assert b"hellos" in vocabulary.ordinary
    assert len(set(vocabulary.bytes_by_id.values())) == len(vocabulary.bytes_by_id)
    assert list(vocabulary.bytes_by_id) == list(range(vocabulary.size))
