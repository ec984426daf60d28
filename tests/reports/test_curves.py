"""Bytes a token by size of vocabulary, against whole texts encoded with each cut vocabulary."""

import math

import pytest
from hypothesis import example, given, strategies as st

import tokjax
from tests.reports.test_measuring import VocabularyStub
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.reports import curves as curves_module

RANKS = {bytes([i]): i for i in range(256)}
BYTES = tokjax.byte_level_bpe(RANKS)
all_texts = st.lists(st.one_of(hard_texts, any_strings, byte_strings), max_size=6)


def compute_curves(tokenizer, texts, **options):
    return tokjax.reports.size_curves(tokenizer, texts, progress=False, **options)


def truncate_vocabulary(tokenizer, size):
    """The tokenizer that `size` ids make, without special tokens."""
    ranks = {token: id_ for token, id_ in tokenizer.vocabulary.ordinary.items() if id_ < size}
    return tokjax.byte_level_bpe(ranks, pattern=tokenizer.pattern, normalizer=tokenizer.normalizer)


def count_tokens_with_size(tokenizer, size, texts):
    texts = [tokjax.normalize(tokenizer, text) for text in texts]
    return sum(
        len(tokjax.encode_result(truncate_vocabulary(tokenizer, size), t, assume_normalized=True).ids)
        for t in texts
    )


@given(texts=all_texts)
def test_curve_matches_truncated_vocabularies(texts, tokenizer):
    (curve,) = compute_curves(tokenizer, iter(texts), sizes=[256, 257, 258, 259, 260, 300, 499, 500])
    assert curve.sizes == (256, 257, 258, 259, 260, 300, 499, 500)
    assert curve.tokens == tuple(count_tokens_with_size(tokenizer, size, texts) for size in curve.sizes)
    assert curve.nbytes == sum(len(tokjax.offsets.to_utf8(text)) for text in texts)
    for found, tokens in zip(curve.bytes_per_token, curve.tokens, strict=True):
        assert math.isnan(found) if not tokens else found == curve.nbytes / tokens


@get_max_examples(40)
@given(first=all_texts, second=all_texts)
@example(first=["e\u0301 \u00e9"], second=["e\u0301e\u0301"])
def test_several_tokenizers_and_kinds_each_read_once(first, second, tokenizer):
    """Patterns and normalisers of all kinds; the sources are iterators, though several counts are needed."""
    ordinary = dict(tokenizer.vocabulary.ordinary)
    against = {
        "same words": BYTES,
        "qwen2": tokjax.byte_level_bpe(ordinary, pattern="qwen2", special_tokens={"e\u0301": 999}),
        "qwen2 too": tokjax.byte_level_bpe(ordinary, pattern="qwen2"),
        "own": tokjax.byte_level_bpe(ordinary, pattern=r"(?<=a)b|[^\s]+|\s+"),
    }
    found = compute_curves(
        tokenizer,
        {"1": iter(first), "2": iter(second)},
        name="t",
        against=against,
        sizes=[256, 400],
    )
    assert [(curve.tokenizer, curve.kind) for curve in found] == [
        (name, kind) for name in ("t", *against) for kind in ("1", "2")
    ]
    for curve in found:
        each = tokenizer if curve.tokenizer == "t" else against[curve.tokenizer]
        texts = first if curve.kind == "1" else second
        assert curve.sizes == ((256,) if each is BYTES else (256, 400))
        assert curve.tokens == tuple(count_tokens_with_size(each, size, texts) for size in curve.sizes)
        assert curve.nbytes == sum(len(tokjax.offsets.to_utf8(text)) for text in texts)


def test_pretokens_are_counted_once_per_split(tokenizer, monkeypatch):
    counted = []
    count = curves_module.count_pretokens

    def counting(texts, **options):
        counted.append(options["pattern"])
        return count(texts, **options)

    monkeypatch.setattr(curves_module, "count_pretokens", counting)
    compute_curves(tokenizer, ["low lower"], against={"bytes": BYTES})
    assert counted == ["gpt2"]


@given(texts=all_texts)
def test_pretokens_in_many_batches(texts, tokenizer):
    (full,) = compute_curves(tokenizer, iter(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves_module, "_WORDS_AT_ONCE", 2)
        (in_parts,) = compute_curves(tokenizer, iter(texts))
    assert in_parts == full


def test_accepted_sizes(tokenizer):
    (curve,) = compute_curves(tokenizer, ["low"])
    assert curve.sizes == (256, 500)
    shifted = {bytes([i]): i + 10 for i in range(256)} | {b"lo": 300, b"low": 5000}
    (curve,) = compute_curves(tokjax.byte_level_bpe(shifted), ["low"])
    assert curve.sizes == (266, 512, 1024, 2048, 4096, 5001)
    assert curve.tokens == (3, 2, 2, 2, 2, 1)
    (curve,) = compute_curves(tokenizer, ["low"], sizes=[9999, 500, 256, 500, 8])
    assert curve.sizes == (256, 500)


def test_a_curve_is_that_of_smaller_training(corpus):
    """What it is for: the first ids are what a smaller vocabulary would have been."""
    from tokjax.trainer import train_bpe

    options = {"special_tokens": ["<|endoftext|>"], "progress": False}
    (curve,) = compute_curves(
        train_bpe(corpus, vocab_size=400, **options).tokenizer, corpus, sizes=[270, 330, 400]
    )
    for size, found in zip(curve.sizes, curve.bytes_per_token, strict=True):
        trained = train_bpe(corpus, vocab_size=size, **options)
        assert found == trained.stats.bytes_per_token


def test_files(tmp_path, tokenizer, corpus):
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(corpus), newline="")
    options = {"against": {"cl100k": tokjax.byte_level_bpe(RANKS, pattern="cl100k")}}
    of_file = compute_curves(tokenizer, tmp_path / "a.txt", separator="<|endoftext|>", **options)
    assert of_file == compute_curves(tokenizer, corpus, **options)


def test_progress(tokenizer, capsys):
    tokjax.reports.size_curves(tokenizer, ["low"])
    shown = capsys.readouterr()
    assert "encoding words" in shown.err
    assert shown.out == ""
    compute_curves(tokenizer, ["low"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"sizes": [255, 501]},
            "InvalidArgumentError",
            "sizes has none that tokenizer 't' can be cut to: those",
        ),
        ({"sizes": []}, "InvalidArgumentError", "those from 256 to 500"),
        ({"sizes": [1.5]}, "InvalidArgumentError", "a size must be an integer, not 1.5"),
        ({"sizes": [0]}, "InvalidArgumentError", "a size must be at least 1, not 0"),
        ({"against": {"t": BYTES}}, "InvalidArgumentError", "'t' names two tokenizers"),
        ({"separator": ""}, "InvalidArgumentError", "separator is the empty string"),
        ({"threads": 0}, "InvalidArgumentError", "threads must be at least 1"),
        (
            {"against": {"w": VocabularyStub()}},
            "UnsupportedTokenizerError",
            "tokenizer 'w' is a KnownWords, and only a byte-level BPE vocabulary can be cut to a smaller one",
        ),
    ],
)
def test_errors(tokenizer, options, error, message):
    with pytest.raises(getattr(tokjax, error), match=message):
        compute_curves(tokenizer, ["a"], name="t", **options)


def test_a_source_that_is_none_is_refused_before_another_is_read(tokenizer):
    texts = iter(["low"])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="is not a file"):
        compute_curves(tokenizer, {"1": texts, "2": "no/such/file"})
    assert next(texts) == "low"
