"""Tests of `mix_counts` and of repeated counts: they equal the counts of repeated texts."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.oracles.naive_bpe import split_pretokens, train_naively
from tests.support.text_strategies import hard_texts
from tokjax.trainer import count_pretokens, load_pretoken_counts, mix_counts, save_pretoken_counts, train_bpe


def count(texts, **options):
    return count_pretokens(texts, progress=False, **options)


@given(st.lists(hard_texts, max_size=4), st.integers(1, 5))
def test_product_equals_counts_of_repeated_texts(texts, times):
    counts, repeated = count(texts), count(texts * times)
    assert counts * times == repeated
    assert np.int64(times) * counts == repeated


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 100)), min_size=1, max_size=5))
def test_mixture_has_the_shares(sources):
    sizes, weights = zip(*sources, strict=True)
    counts = {letter: count([letter * size]) for letter, size in zip("abcde", sizes, strict=False)}
    mixed = mix_counts(counts, dict(zip(counts, weights, strict=True)))
    nbytes = np.array([len(pretoken) * n for pretoken, n in sorted(mixed.items())])
    assert nbytes / nbytes.sum() == pytest.approx(np.array(weights) / sum(weights), rel=2.1e-3)


def test_mixture_has_the_fewest_repetitions():
    a, b = count(["a" * 30]), count(["b" * 15])
    assert mix_counts({"a": a, "b": b}, {"a": 1, "b": 1}) == a + b * 2
    assert mix_counts({"a": a, "b": b}, {"a": 2, "b": 1}) == a + b


@given(st.lists(st.text("abc ", min_size=1, max_size=9), min_size=1, max_size=3), st.integers(1, 4))
def test_mixture_equals_repeated_texts(texts, num_tokens):
    """The merges are those of naive training on the repeated texts."""
    sources = {str(i): count([text]) for i, text in enumerate(texts)}
    repeated = [text for i, text in enumerate(texts) for _ in range(i + 1)]
    weights = {str(i): (i + 1) * len(text) for i, text in enumerate(texts)}
    mixed = mix_counts(sources, weights)
    assert mixed == count(repeated)
    trained = train_bpe(mixed, vocab_size=256 + num_tokens, progress=False)
    pretokens = [pretoken for text in repeated for pretoken in split_pretokens(text, [], "gpt2")]
    assert list(trained.merges) == train_naively(pretokens, num_tokens)


def test_mixture_can_be_saved(tmp_path, corpus):
    sources = {"a": count(corpus[:3]), "b": count(corpus[3:])}
    mixed = mix_counts(sources, {"b": 1, "a": 3})
    save_pretoken_counts(mixed, tmp_path / "mixed.npz")
    assert load_pretoken_counts(tmp_path / "mixed.npz") == mixed
    assert mix_counts({"a": sources["a"]}, {"a": 0.7}) == sources["a"]


def test_files_of_all_sources_are_listed(tmp_path):
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text(path.name)
    mixed = mix_counts({path.name: count(path) for path in paths}, {"a.txt": 1, "b.txt": 2})
    assert [file.path for file in mixed.files] == list(map(str, paths))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": 1}, r"weights must map each of the sources \['a', 'b'\] to a number, not {'a': 1}"),
        ({"a": 1, "b": 1, "c": 1}, "weights must map each of the sources"),
        ([1, 2], "weights must map each of the sources"),
        ({"a": 1, "b": 0}, "the weight of 'b' is 0; leave the source out"),
        ({"a": -1, "b": 1}, "the weight of 'a' must be"),
        ({"a": "1", "b": 1}, "the weight of 'a' must be"),
        ({"a": float("nan"), "b": 1}, "the weight of 'a' must be"),
        ({"a": 1e-320, "b": 1}, r"the weights \[1e-320, 1.0\] are too far apart"),
        ({"a": 1e-300, "b": 1e300}, "are too far apart; pass weights of similar size"),
        ({"a": 1, "b": 1e18}, "2\\*\\*53; count a sample"),
    ],
)
def test_invalid_weights_are_rejected(weights, message):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
        mix_counts({"a": count(["ab"]), "b": count(["abc" * 100])}, weights)


def test_invalid_sources_are_rejected():
    counts = count(["ab"])
    for sources, message in (
        ({}, "sources must map names to pre-token counts, not be {}"),
        ([counts], "sources must map names to pre-token counts"),
        ({"a": ["ab"]}, r"source 'a' must be pre-token counts, not a list; pass count_pretokens\(source\)"),
        ({"a": count([])}, "source 'a' has no text; leave it out"),
        ({"a": counts, "b": count(["ab"], pattern="o200k")}, "can't be added; count both corpora with the"),
    ):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            mix_counts(sources, dict.fromkeys(sources, 1))


def test_invalid_repetitions_are_rejected():
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="repetitions must be at least 1, not 0"):
        0 * count(["ab"])
    for times in (1.5, True, "2"):
        with pytest.raises(TypeError):
            times * count(["ab"])
