"""Tests of BPE training, against naive and incremental trainers and Hugging Face's."""

import json
import logging

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tokjax
from tests.oracles.incremental_bpe import train_incrementally
from tests.oracles.naive_bpe import split_pretokens, train_naively
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import hard_texts
from tests.support.training import limit_segments
from tokjax.bpe.hash_tables import make_pretokens
from tokjax.trainer import count_pretokens, train_bpe
from tokjax.trainer.bpe import batched_training, pair_table
from tokjax.trainer.pretoken_counts import CountedPretokens, make_pretoken_counts


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


def train_naive_merges(texts, num_tokens, special_tokens=(), pattern="gpt2", **options):
    pretokens = [pretoken for text in texts for pretoken in split_pretokens(text, special_tokens, pattern)]
    return train_naively(pretokens, num_tokens, **options)


@get_max_examples(300)
@given(
    st.lists(st.text("ab", max_size=12), max_size=8),
    st.integers(0, 25),
    st.integers(1, 3),
    st.sampled_from([0, 2, 16]),
)
def test_tiny_alphabets_equal_naive_training(texts, num_tokens, min_frequency, symbols_per_pair):
    """With two letters, ties, overlaps and merges that make the same bytes are frequent."""
    options = {"min_frequency": min_frequency}
    with pytest.MonkeyPatch.context() as patch:
        limit_segments(patch, symbols_per_pair)
        trained = train(texts, 256 + num_tokens, **options)
    assert list(trained.merges) == train_naive_merges(texts, num_tokens, **options)


counted_pretokens = st.dictionaries(
    st.sampled_from(["abc", "abcdefgh"]).flatmap(lambda letters: st.text(letters, min_size=1, max_size=14)),
    st.sampled_from([1, 2, 3, 5, 9, 40, 41, 700]),
    min_size=1,
    max_size=40,
)


def make_counts(pretokens):
    """Returns the counts of pre-tokens, as counting a corpus returns them."""
    texts = [pretoken.encode() for pretoken in pretokens]
    counted = CountedPretokens(make_pretokens(texts), np.array(list(pretokens.values()), np.int64))
    return make_pretoken_counts(counted, "gpt2", (), 1, sum(map(len, texts)))


@get_max_examples(600)
@given(
    counted_pretokens,
    st.integers(0, 60),
    st.integers(1, 4),
    st.sampled_from(["lexicographic", "huggingface"]),
    st.sampled_from([1, 4, 16, 64]),
    st.sampled_from([1, 3, 512]),
    st.sampled_from([0, 1, 4, 1000]),
)
def test_batched_training_equals_incremental(
    pretokens, num_tokens, min_frequency, tie_break, width, promoted, symbols_per_pair
):
    """The result does not depend on the number of pairs that are counted or merged in a step."""
    options = {"min_frequency": min_frequency, "tie_break": tie_break}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched_training, "_MIN_WIDTH", width)
        limit_segments(patch, symbols_per_pair)
        patch.setattr(pair_table, "_MAX_PROMOTED", promoted)
        merges = train(make_counts(pretokens), 256 + num_tokens, **options).merges
    counts = {pretoken.encode(): count for pretoken, count in pretokens.items()}
    assert list(merges) == train_incrementally(counts, num_tokens, **options)


@given(
    st.lists(hard_texts, max_size=5),
    st.integers(0, 40),
    st.sampled_from(["gpt2", "cl100k", "o200k", r"\S+|\s+"]),
)
def test_hard_texts_equal_naive_training(texts, num_tokens, pattern):
    trained = train(texts, 256 + num_tokens, pattern=pattern)
    assert list(trained.merges) == train_naive_merges(texts, num_tokens, pattern=pattern)


@pytest.mark.parametrize("letters", ["a", "ab", "ACGT"])
@pytest.mark.parametrize("length", [300, 3000])
def test_long_pretokens_equal_incremental(letters, length, monkeypatch):
    """Few letters make long segments, so that steps take fewer pairs."""
    monkeypatch.setattr(batched_training, "_MIN_MAX_SYMBOLS", 100)
    pretoken = "".join(np.random.default_rng(0).choice(list(letters), length))
    merges = train(make_counts({pretoken: 3, pretoken[:99]: 2}), 256 + 60).merges
    assert list(merges) == train_incrementally({pretoken.encode(): 3, pretoken[:99].encode(): 2}, 60)


def test_corpus_equals_naive_training(corpus):
    trained = train(corpus * 3, 600)
    expected = train_naive_merges(corpus * 3, 344)
    assert list(trained.merges) == expected
    assert trained.stats.exhausted == (len(expected) < 344)


def test_ids_are_bytes_then_special_tokens_then_merges(corpus):
    special = ["<|endoftext|>", "<|pad|>"]
    trained = train(corpus, 270, special_tokens=special)
    assert len(trained.vocab) == 270
    assert [trained.vocab[i] for i in range(256)] == [bytes([i]) for i in range(256)]
    assert [trained.vocab[256 + i] for i in range(2)] == [name.encode() for name in special]
    assert [trained.vocab[258 + i] for i in range(12)] == [left + right for left, right in trained.merges]
    assert list(trained.vocab) == list(range(270))
    tokenizer = trained.tokenizer
    assert tokjax.special_tokens(tokenizer) == {"<|endoftext|>": 256, "<|pad|>": 257}
    assert tokjax.eos_id(tokenizer) == 256
    assert tokjax.pad_id(tokenizer) is None


def test_statistics(corpus):
    text = "<|endoftext|>".join([*corpus, ""])
    trained = train([text], 400, special_tokens=["<|endoftext|>"])
    stats = trained.stats
    nbytes = sum(len(t.encode()) for t in corpus)
    assert stats.documents == len(corpus)
    assert stats.bytes == nbytes
    assert stats.num_unique_pretokens == len({w for t in corpus for w in split_pretokens(t, [], "gpt2")})
    assert set(stats.seconds) == {"counting", "merging"}
    tokens = sum(len(tokjax.encode(trained.tokenizer, t, add_special_tokens=False)) for t in corpus)
    assert stats.bytes_per_token == pytest.approx(nbytes / tokens)
    assert not stats.exhausted


def test_special_tokens_split_and_never_merge():
    text = "ab<|x|>ab<|x|>ab<|x|><|x|>ab" * 10
    trained = train([text], 300, special_tokens=["<|x|>"])
    assert trained.merges == ((b"a", b"b"), (b"ab", b"ab"))
    assert trained.stats.documents == 31
    overlapping = train(["low<|a|><|b|>low"], 300, special_tokens=["<|a|>", "<|a|><|b|>", "<|b|>"])
    assert all(b"<" not in left + right for left, right in overlapping.merges)


def test_invalid_utf8_is_trained_as_bytes():
    trained = train([b"\xff\xfe\xff\xfe", b"\xff\xfe"], 257)
    assert trained.merges == ((b"\xff", b"\xfe"),)
    assert trained.stats.bytes == 6


def test_too_few_pairs_end_training_early(caplog):
    with caplog.at_level(logging.WARNING, "tokjax"):
        trained = train(["ab"], 1000)
    assert trained.stats.exhausted
    assert tokjax.vocab_size(trained.tokenizer) == 257
    assert "the vocabulary has 257 ids, not 1000" in caplog.text
    assert train([], 256).merges == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 256, "special_tokens": ["<x>"]}, "256 bytes and 1 special tokens need at least 257"),
        ({"special_tokens": "<x>"}, r"pass \['<x>'\]"),
        ({"special_tokens": ["<x>", "<x>"]}, "duplicate special token '<x>'"),
        ({"special_tokens": [""]}, "special token 0 must be a name"),
        ({"min_frequency": 0}, "min_frequency must be at least 1"),
        ({"tie_break": "random"}, "tie_break must be"),
        ({"pattern": "("}, "is not a regular expression"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": 2**40}, "workers must be at most 1024, not 1099511627776"),
        ({"workers": "2"}, "workers must be an integer, not '2'"),
        ({"vocab_size": "300"}, "vocab_size must be an integer, not '300'"),
        ({"vocab_size": 300.5}, "vocab_size must be an integer"),
        ({"min_frequency": 1.5}, "min_frequency must be an integer"),
        ({"eos_token": "<y>"}, "eos_token is '<y>'"),
    ],
)
def test_invalid_arguments_are_rejected(options, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        train_bpe(["text"], **{"vocab_size": 300, "progress": False} | options)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="text 1 of the source must be str or bytes, not int"
    ):
        train(["text", 3], 300)


def map_unicode_to_bytes():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [i for i in range(256) if i not in printable]
    return {chr(i): i for i in printable} | {chr(256 + n): i for n, i in enumerate(others)}


def train_huggingface_merges(texts, vocab_size):
    """Returns the merges of Hugging Face's trainer, as pairs of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    bytes_by_id = map_unicode_to_bytes()
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [tuple(bytes(bytes_by_id[c] for c in part) for part in pair) for pair in merges]


@get_max_examples(60)
@given(st.lists(st.text("abé \n", max_size=12), min_size=1, max_size=8), st.integers(0, 25))
def test_tie_break_equals_huggingface(texts, num_tokens):
    ours = train(texts, 256 + num_tokens, tie_break="huggingface")
    theirs = train_huggingface_merges(texts, 256 + num_tokens)
    assert list(ours.merges) == theirs


def test_tie_break_equals_huggingface_on_a_corpus(corpus):
    assert list(train(corpus * 3, 700, tie_break="huggingface").merges) == train_huggingface_merges(
        corpus * 3, 700
    )


@pytest.mark.slow
def test_standard_library_equals_all_oracles():
    """Trains on five megabytes of the standard library's source."""
    import sysconfig
    from pathlib import Path

    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [file.read_text("utf-8", errors="replace") for file in files][:150]
    assert list(train(texts, 2256, tie_break="huggingface").merges) == train_huggingface_merges(texts, 2256)
    assert list(train(texts, 320).merges) == train_naive_merges(texts, 64)
    counts = count_pretokens(texts, progress=False)
    for tie_break in ("lexicographic", "huggingface"):
        incremental = train_incrementally(dict(counts.items()), 20_000, tie_break=tie_break)
        assert list(train(counts, 20_256, tie_break=tie_break).merges) == incremental
    assert np.isfinite(train(texts, 300).stats.bytes_per_token)
