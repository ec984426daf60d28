"""Tests of mixture estimation: known shares, and a program with all inequalities as the oracle."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

pytest.importorskip("scipy")

import tokjax
from tests.oracles import mixture as oracle
from tokjax.reports import estimate_mixture
from tokjax.reports.mixture import iter_first_merges
from tokjax.trainer import count_pretokens, mix_counts, train_bpe


def count(texts, **options):
    return count_pretokens(texts, progress=False, **options)


def train(source, vocab_size, **options):
    return train_bpe(source, vocab_size=vocab_size, progress=False, **options)


def estimate(tokenizer, sources, **options):
    return estimate_mixture(tokenizer, sources, progress=False, **options)


def make_language(seed, num_words):
    """Returns two texts of a language of 300 random words, whose frequencies follow Zipf's law."""
    rng = np.random.default_rng(seed)
    letters = rng.permutation(list("abcdefghijklmnopqrstuvwxyz"))
    shares = 1 / np.arange(1, 27) ** 0.7
    words = ["".join(rng.choice(letters, rng.integers(2, 9), p=shares / shares.sum())) for _ in range(300)]
    frequencies = 1 / np.arange(1, 301)
    chosen = rng.choice(words, (2, num_words), p=frequencies / frequencies.sum())
    return [" ".join(half) for half in chosen]


SIZES = {"a": 30_000, "b": 20_000, "c": 10_000}


@pytest.fixture(scope="module")
def languages():
    """Returns the counts of two samples of each language: one for training, one for the estimate."""
    texts = {name: make_language(seed, size) for seed, (name, size) in enumerate(SIZES.items())}
    return [{name: count([halves[i]]) for name, halves in texts.items()} for i in range(2)]


texts_of_sources = st.lists(
    st.lists(st.text("abc ", min_size=1, max_size=9), min_size=1, max_size=4), min_size=1, max_size=3
)


@given(texts_of_sources, st.lists(st.text("abc ", max_size=9), max_size=4), st.integers(1, 8))
def test_shortfall_equals_the_program_with_all_inequalities(texts, training_texts, num_merges):
    tokenizer = train(training_texts, 256 + num_merges).tokenizer
    sources = {str(i): count(each) for i, each in enumerate(texts)}
    merges = list(iter_first_merges(tokenizer))
    if not merges:
        return
    found = estimate(tokenizer, sources)
    sizes = [counts.nbytes for counts in sources.values()]
    expected = oracle.compute_shortfall([dict(counts.items()) for counts in sources.values()], sizes, merges)
    assert found.shortfall * found.num_merges == pytest.approx(expected, rel=1e-5, abs=1e-2)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert min(found.shares.values()) >= -1e-9


@pytest.mark.parametrize("shares", [(1, 1, 1), (7, 2, 1), (0.02, 0.9, 0.08)])
def test_shares_of_the_training_data_are_found(languages, shares):
    training, _ = languages
    weights = dict(zip(SIZES, shares, strict=True))
    tokenizer = train(mix_counts(training, weights), 600).tokenizer
    found = estimate(tokenizer, training)
    for name, weight in weights.items():
        assert found.shares[name] == pytest.approx(weight / sum(shares), abs=0.003)
    assert found.shortfall < 1e-3
    assert found.num_merges == 344


def test_shares_are_found_from_other_samples(languages):
    """The sources are other texts of the same languages."""
    training, others = languages
    weights = {"a": 0.6, "b": 0.3, "c": 0.1}
    trained = train(mix_counts(training, weights), 600)
    found = estimate(trained.tokenizer, others)
    for name, weight in weights.items():
        assert found.shares[name] == pytest.approx(weight, abs=0.05)
    assert 0 < found.shortfall < 100
    with_merges = tokjax.byte_level_bpe(
        trained.tokenizer.vocabulary.ordinary, merges=tuple(dict.fromkeys(trained.merges))
    )
    same = estimate(with_merges, others)
    assert list(same.shares.values()) == pytest.approx(list(found.shares.values()), abs=0.01)


def test_a_source_that_is_absent_has_no_share(languages):
    training, others = languages
    tokenizer = train(training["a"], 500).tokenizer
    found = estimate(tokenizer, {"c": others["c"], "a": others["a"]}, max_merges=100)
    assert found.shares["a"] > 0.95
    assert list(found.shares) == ["c", "a"]
    assert found.num_merges <= 100
    only = estimate(tokenizer, {"a": others["a"]})
    assert only.shares == {"a": pytest.approx(1)}
    assert only.num_merges == 244
    wrong = estimate(tokenizer, {"b": others["b"], "c": others["c"]})
    assert wrong.shortfall > 10 * only.shortfall


@given(st.lists(st.text("abc ", min_size=1, max_size=12), max_size=6), st.integers(1, 12))
def test_merges_of_ranks_make_all_tokens(texts, num_merges):
    trained = train(texts, 256 + num_merges)
    merges = list(iter_first_merges(trained.tokenizer))
    made = [left + right for left, right in merges]
    tokens = [token for token in trained.tokenizer.vocabulary.ordinary if len(token) > 1]
    assert made == [token for token in tokens if token in made]
    if len(trained.merges) == len(tokens):  # each merge made a new token
        assert set(made) <= {left + right for left, right in trained.merges}


def test_merges_of_published_ranks(gpt2_ranks):
    merges = list(iter_first_merges(tokjax.byte_level_bpe(gpt2_ranks)))
    assert merges[:3] == [(b" ", b"t"), (b" ", b"a"), (b"h", b"e")]
    assert len(merges) == 50_000


def test_invalid_arguments_are_rejected():
    tokenizer = train(["abab"], 257).tokenizer
    counts = count(["abab"])
    error = tokjax.errors.InvalidArgumentError
    for arguments, message in (
        ((tokenizer, {}), "sources must map names to pre-token counts, not be {}"),
        ((tokenizer, {"a": "text"}), r"source 'a' must be pre-token counts, not a str; pass count_pretokens"),
        ((tokenizer, {"a": count([])}), "source 'a' has no text; leave it out"),
        (
            (tokenizer, {"a": count(["abab"], pattern="o200k")}),
            "source 'a' was counted with pattern='o200k', and the tokenizer has 'gpt2'; count with",
        ),
        ((train([], 256).tokenizer, {"a": counts}), "the tokenizer has no merges"),
    ):
        with pytest.raises(error, match=message):
            estimate(*arguments)
    with pytest.raises(error, match="max_merges must be at least 1, not 0"):
        estimate(tokenizer, {"a": counts}, max_merges=0)
    with pytest.raises(
        tokjax.errors.UnsupportedTokenizerError, match="byte-level BPE tokenizer, not a ByteTokenizer"
    ):
        estimate(tokjax.byte_level(), {"a": counts})
