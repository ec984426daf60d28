"""Tests of parity-aware training, against a naive trainer that counts all pairs again for each merge."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles.naive_bpe import train_parity_aware
from tokjax.trainer import (
    count_pretokens,
    load_training_bundle,
    save_training_bundle,
    train_bpe,
    train_parity_bpe,
)

texts = st.lists(st.text("abc ", min_size=1, max_size=12), min_size=1, max_size=4)
languages = st.lists(st.tuples(texts, texts), min_size=1, max_size=3)


def count(texts, **options):
    return count_pretokens(texts, progress=False, **options)


def train(sources, parallel, vocab_size, **options):
    return train_parity_bpe(sources, parallel, vocab_size=vocab_size, progress=False, **options)


@given(languages, st.integers(0, 15), st.integers(0, 5), st.integers(1, 3), st.sampled_from([None, 2, 3, 5]))
def test_merges_equal_naive_training(texts, num_tokens, num_global, min_frequency, longest):
    sources, parallel = (
        {str(i): count(each) for i, each in enumerate(part)} for part in zip(*texts, strict=True)
    )
    options = {"num_global": num_global, "min_frequency": min_frequency, "max_token_length": longest}
    trained = train(sources, parallel, 256 + num_tokens, **options)
    plain = ([dict(counts.items()) for counts in part.values()] for part in (sources, parallel))
    assert list(trained.merges) == train_parity_aware(*plain, num_tokens, **options)


@given(texts, st.integers(0, 15))
def test_one_language_equals_plain_training(texts, num_tokens):
    counts = count(texts)
    trained = train({"a": counts}, {"a": counts}, 256 + num_tokens)
    plain = train_bpe(counts, vocab_size=256 + num_tokens, progress=False)
    assert trained.merges == plain.merges
    assert trained.tokenizer == plain.tokenizer
    assert trained.stats.bytes_per_token == plain.stats.bytes_per_token


@given(languages, st.integers(0, 15))
def test_global_merges_equal_plain_training(texts, num_tokens):
    sources = {str(i): count(each) for i, (each, _) in enumerate(texts)}
    trained = train(sources, sources, 256 + num_tokens, num_global=num_tokens)
    plain = train_bpe(sum(sources.values()), vocab_size=256 + num_tokens, progress=False)
    assert trained.merges == plain.merges


def make_texts(letters, num_words, seed):
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list(letters), rng.integers(3, 8))) for _ in range(200)]
    return [" ".join(rng.choice(words, size)) for size in (num_words, 1000)]


@pytest.fixture(scope="module")
def corpora():
    """Returns the sources and parallel texts of a language with much text, and one with little."""
    texts = {"large": make_texts("abcdefghijklm", 20_000, 0), "small": make_texts("nopqrstuvwxyz", 1000, 1)}
    return [{name: count([each[part]]) for name, each in texts.items()} for part in range(2)]


def count_tokens(tokenizer, counts):
    return sum(len(tokjax.encode(tokenizer, pretoken)) * n for pretoken, n in counts.items())


def test_parallel_texts_have_similar_numbers_of_tokens(corpora):
    sources, parallel = corpora
    fair = train(sources, parallel, 500).tokenizer
    plain = train_bpe(sum(sources.values()), vocab_size=500, progress=False).tokenizer
    large, small = (count_tokens(fair, parallel[name]) for name in ("large", "small"))
    assert large == pytest.approx(small, rel=0.01)
    assert count_tokens(plain, parallel["small"]) > 1.2 * count_tokens(plain, parallel["large"])


def test_result_is_a_trained_bpe(tmp_path):
    special = ["<|endoftext|>", "<|pad|>"]
    sources = {name: count([text], special_tokens=special) for name, text in (("a", "aba"), ("b", "cdc"))}
    trained = train(sources, sources, 262, min_frequency=1)
    assert trained.tokenizer.vocabulary.special == {"<|endoftext|>": 256, "<|pad|>": 257}
    assert tokjax.eos_id(trained.tokenizer) == 256
    assert trained.options["parity"].keys() == {"a", "b"}
    assert not trained.stats.exhausted
    save_training_bundle(trained, tmp_path / "bundle")
    assert load_training_bundle(tmp_path / "bundle").trained == trained


def test_a_language_without_pairs_is_passed_over(caplog):
    sources = {"a": count(["x"]), "b": count(["low low"])}
    trained = train(sources, {"a": count(["x" * 9]), "b": count(["low"])}, 300)
    assert trained.merges == ((b"o", b"w"), (b"l", b"ow"), (b" ", b"low"))
    assert trained.stats.exhausted
    assert "the vocabulary has 259 ids, not 300" in caplog.text


def test_invalid_sources_are_rejected():
    counts = count(["ab"])
    for sources, parallel, message in (
        ({}, {}, "sources must map names to pre-token counts"),
        (
            {"a": counts},
            {"b": counts},
            r"sources has the languages \['a'\], and parallel has \['b'\]; pass",
        ),
        ({"a": count([])}, {"a": counts}, "source 'a' has no text"),
        (
            {"a": counts},
            {"a": count(["ab"], pattern="o200k")},
            r"the parallel text of 'a' was counted with pattern='o200k' and special_tokens=\(\), and",
        ),
        ({"a": counts, "b": count(["ab"], pattern="o200k")}, {"a": counts, "b": counts}, "can't be added"),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            train(sources, parallel, 300)
    for options, message in (
        ({"vocab_size": 255}, "vocab_size is 255; 256 bytes and 0 special tokens need at least 256"),
        ({"vocab_size": 300, "num_global": -1}, "num_global must be at least 0, not -1"),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            train({"a": counts}, {"a": counts}, **options)
