"""Tests of mixture estimation: known shares, and a program with all inequalities as the oracle."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

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
    sizes = [counts.nbytes for counts in sources.values()]
    expected = oracle.compute_shortfall([dict(counts.items()) for counts in sources.values()], sizes, merges)
    used = [left + right for left, right in merges]
    if not any(
        each in pretoken for counts in sources.values() for pretoken, _ in counts.items() for each in used
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="are no evidence for the shares"):
            estimate(tokenizer, sources)
        return
    found = estimate(tokenizer, sources)
    assert found.shortfall * found.num_merges == pytest.approx(expected, rel=1e-5, abs=1e-2)
    assert sum(found.shares.values()) == pytest.approx(1)
    for name, (lowest, highest) in found.ranges.items():
        assert -1e-6 <= lowest <= found.shares[name] + 1e-6 <= highest + 2e-6 <= 1 + 1e-5
    assert min(found.shares.values()) >= -1e-9


def test_shares_are_found_from_other_samples(languages):
    """The sources are other texts of the same languages."""
    training, others = languages
    weights = {"a": 0.6, "b": 0.3, "c": 0.1}
    trained = train(mix_counts(training, weights), 450)
    found = estimate(trained.tokenizer, others)
    for name, weight in weights.items():
        assert found.shares[name] == pytest.approx(weight, abs=0.05)
        lowest, highest = found.ranges[name]
        assert lowest <= min(weight, found.shares[name]) <= max(weight, found.shares[name]) <= highest
        assert highest - lowest < 0.4
    assert 0 < found.shortfall < 100
    with_merges = tokjax.byte_level_bpe(
        trained.tokenizer.vocabulary.ordinary, merges=tuple(dict.fromkeys(trained.merges))
    )
    same = estimate(with_merges, others)
    assert list(same.shares.values()) == pytest.approx(list(found.shares.values()), abs=0.01)


class TestNormalizers:
    """Tokenizers of normalized texts of two languages, mixed three to one. The samples are not normalized."""

    @staticmethod
    def estimate(tokenizer, samples, normalize):
        options = {"pattern": tokenizer.pattern, "normalize": normalize}
        sources = {name: count([text], **options) for name, text in samples.items()}
        return estimate(tokenizer, sources)

    def test_nfc(self):
        """One of the languages has accents, and its sample has them apart from their letters."""
        accents = str.maketrans({letter: f"{letter}\u0301" for letter in "aeiou"})
        a, b = make_language(0, 10_000), make_language(1, 10_000)
        a = [text.translate(accents) for text in a]
        training = {name: count([text], pattern="qwen2") for name, text in (("a", a[0]), ("b", b[0]))}
        tokenizer = train(mix_counts(training, {"a": 3, "b": 1}), 400).tokenizer
        assert tokenizer.normalizer == "nfc"
        samples = {"a": a[1], "b": b[1]}
        found = self.estimate(tokenizer, samples, "auto")
        assert found.shares["a"] == pytest.approx(0.75, abs=0.03)
        assert found.num_merges == 144
        not_normalized = self.estimate(tokenizer, samples, None)
        assert not_normalized.num_merges < 110
        assert not_normalized.shortfall > 10 * found.shortfall

    def test_texts_that_were_not_normalized_are_rejected(self):
        tokenizer = train(count(["un café"], pattern="qwen3_5"), 260).tokenizer
        raw = {"raw": count(["un cafe\u0301"], pattern="qwen3_5", normalize=None)}
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match=r"source 'raw' has the pre-token b' cafe\\xcc\\x81', which the tokenizer normalizes "
            r"\(nfc\); count with normalize=partial\(tokjax\.normalize, tokenizer\)",
        ):
            estimate(tokenizer, raw)

    def test_tokenizer_of_another_library(self, tmp_path):
        """Its normalizer is not built in. So its file is loaded without it, and the texts are normalized."""
        library = pytest.importorskip("tokenizers")
        (a, *samples_a), (b, *samples_b) = make_language(0, 10_000), make_language(1, 10_000)
        samples = {"a": samples_a[0].upper(), "b": samples_b[0].upper()}
        trained = library.Tokenizer(library.models.BPE())
        trained.normalizer = library.normalizers.Lowercase()
        trained.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trained.decoder = library.decoders.ByteLevel()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
        nbytes = min(len(a), len(b))
        trained.train_from_iterator([text[:nbytes].upper() for text in (a, a, a, b)], trainer)
        path = tmp_path / "tokenizer.json"
        trained.save(str(path))
        tokenizer = tokjax.load_tokenizer(path)
        with pytest.raises(
            tokjax.errors.UnsupportedTokenizerError,
            match=r"not a HuggingFaceTokenizer\. It has the normalizer Lowercase: .* without the normalizer",
        ):
            estimate(tokenizer, {"a": count(["abab"])})
        path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": None}))
        without, normalize = tokjax.load_tokenizer(path), trained.normalizer.normalize_str
        found = self.estimate(without, samples, normalize)
        assert found.shares["a"] == pytest.approx(0.75, abs=0.03)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="the first 144 merges are no evidence"):
            self.estimate(without, samples, None)


def test_sources_that_resemble_each_other_have_wide_ranges(languages):
    training, others = languages
    mixed = mix_counts({name: training[name] for name in "ab"}, {"a": 0.6, "b": 0.4})
    tokenizer = train(mixed, 400).tokenizer
    found = estimate(tokenizer, {"a": others["a"], "b": others["b"], "twin of a": others["a"]})
    for name in ("a", "twin of a"):
        lowest, highest = found.ranges[name]
        assert lowest == pytest.approx(0, abs=1e-6)
        assert highest > 0.55
    lowest, highest = found.ranges["b"]
    assert lowest <= 0.4 <= highest < lowest + 0.3


def test_a_source_that_is_absent_has_no_share(languages):
    training, others = languages
    tokenizer = train(training["a"], 400).tokenizer
    found = estimate(tokenizer, {"c": others["c"], "a": others["a"]}, max_merges=100)
    assert found.shares["a"] > 0.95
    assert list(found.shares) == ["c", "a"]
    assert found.num_merges <= 100
    only = estimate(tokenizer, {"a": others["a"]})
    assert only.shares == {"a": pytest.approx(1)}
    assert only.num_merges == 144
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
    first = {token: rank for token, rank in gpt2_ranks.items() if rank < 5256}
    merges = list(iter_first_merges(tokjax.byte_level_bpe(first)))
    assert merges[:3] == [(b" ", b"t"), (b" ", b"a"), (b"h", b"e")]
    assert len(merges) == 5000


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
        (
            (tokenizer, {"a": count(["x"]), "b": count(["y"])}),
            "the first 1 merges are no evidence for the shares, .* pass larger samples, other sources, or ",
        ),
    ):
        with pytest.raises(error, match=message):
            estimate(*arguments)
    with pytest.raises(error, match="max_merges must be at least 1, not 0"):
        estimate(tokenizer, {"a": counts}, max_merges=0)
    with pytest.raises(
        tokjax.errors.UnsupportedTokenizerError, match="byte-level BPE tokenizer, not a ByteTokenizer"
    ):
        estimate(tokjax.byte_level(), {"a": counts})
