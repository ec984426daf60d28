"""Tests of size curves, against texts encoded with each truncated vocabulary."""

import math

import pytest
from hypothesis import example, given, strategies as st

import tokjax
from tests.reports.test_vocabulary_statistics import WhitespaceTokenizer
from tests.support.hypothesis_profiles import get_max_examples
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.reports import curves as curves_module

RANKS = {bytes([i]): i for i in range(256)}
BYTES = tokjax.byte_level_bpe(RANKS)
all_texts = st.lists(st.one_of(hard_texts, any_strings, byte_strings), max_size=6)


def compute_curves(tokenizer, texts, **options):
    return tokjax.reports.size_curves(tokenizer, texts, progress=False, **options)


def truncate_vocabulary(tokenizer, size):
    """Returns a tokenizer of the ids below `size`, without special tokens."""
    ranks = {token: id_ for token, id_ in tokenizer.vocabulary.ordinary.items() if id_ < size}
    return tokjax.byte_level_bpe(ranks, pattern=tokenizer.pattern, normalizer=tokenizer.normalizer)


def count_tokens_with_size(tokenizer, size, texts):
    texts = [tokjax.normalize(tokenizer, text) for text in texts]
    return sum(
        len(tokjax.encode_result(truncate_vocabulary(tokenizer, size), text, assume_normalized=True).ids)
        for text in texts
    )


@given(texts=all_texts)
def test_curve_matches_truncated_vocabularies(texts, tokenizer):
    (curve,) = compute_curves(tokenizer, iter(texts), sizes=[256, 257, 258, 259, 260, 300, 499, 500])
    assert curve.sizes == (256, 257, 258, 259, 260, 300, 499, 500)
    assert curve.tokens == tuple(count_tokens_with_size(tokenizer, size, texts) for size in curve.sizes)
    assert curve.nbytes == sum(len(tokjax.offsets.to_utf8(text)) for text in texts)
    for ratio, tokens in zip(curve.bytes_per_token, curve.tokens, strict=True):
        assert math.isnan(ratio) if not tokens else ratio == curve.nbytes / tokens


@get_max_examples(40)
@given(first=all_texts, second=all_texts)
@example(first=["e\u0301 \u00e9"], second=["e\u0301e\u0301"])
def test_several_tokenizers_and_kinds_of_text(first, second, tokenizer):
    # The sources are iterators, which can be read only once, and several patterns need counts of them.
    ordinary = dict(tokenizer.vocabulary.ordinary)
    against = {
        "same pattern": BYTES,
        "qwen2": tokjax.byte_level_bpe(ordinary, pattern="qwen2", special_tokens={"e\u0301": 999}),
        "qwen2 too": tokjax.byte_level_bpe(ordinary, pattern="qwen2"),
        "custom": tokjax.byte_level_bpe(ordinary, pattern=r"(?<=a)b|[^\s]+|\s+"),
    }
    curves = compute_curves(
        tokenizer,
        {"1": iter(first), "2": iter(second)},
        name="t",
        against=against,
        sizes=[256, 400],
    )
    assert [(curve.tokenizer, curve.kind) for curve in curves] == [
        (name, kind) for name in ("t", *against) for kind in ("1", "2")
    ]
    for curve in curves:
        each = tokenizer if curve.tokenizer == "t" else against[curve.tokenizer]
        texts = first if curve.kind == "1" else second
        assert curve.sizes == ((256,) if each is BYTES else (256, 400))
        assert curve.tokens == tuple(count_tokens_with_size(each, size, texts) for size in curve.sizes)
        assert curve.nbytes == sum(len(tokjax.offsets.to_utf8(text)) for text in texts)


def test_pretokens_are_counted_once_per_split(tokenizer, monkeypatch):
    patterns = []
    count_pretokens = curves_module.count_pretokens

    def record_pattern(texts, **options):
        patterns.append(options["pattern"])
        return count_pretokens(texts, **options)

    monkeypatch.setattr(curves_module, "count_pretokens", record_pattern)
    compute_curves(tokenizer, ["low lower"], against={"bytes": BYTES})
    assert patterns == ["gpt2"]


@given(texts=all_texts)
def test_pretokens_in_many_batches(texts, tokenizer):
    (full,) = compute_curves(tokenizer, iter(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves_module, "_PRETOKENS_PER_BATCH", 2)
        (batched,) = compute_curves(tokenizer, iter(texts))
    assert batched == full


def test_accepted_sizes(tokenizer):
    (curve,) = compute_curves(tokenizer, ["low"])
    assert curve.sizes == (256, 500)
    shifted = {bytes([i]): i + 10 for i in range(256)} | {b"lo": 300, b"low": 5000}
    (curve,) = compute_curves(tokjax.byte_level_bpe(shifted), ["low"])
    assert curve.sizes == (266, 512, 1024, 2048, 4096, 5001)
    assert curve.tokens == (3, 2, 2, 2, 2, 1)
    (curve,) = compute_curves(tokenizer, ["low"], sizes=[9999, 500, 256, 500, 8])
    assert curve.sizes == (256, 500)


def test_curve_equals_training_with_fewer_ids(corpus):
    from tokjax.trainer import train_bpe

    options = {"special_tokens": ["<|endoftext|>"], "progress": False}
    (curve,) = compute_curves(
        train_bpe(corpus, vocab_size=400, **options).tokenizer, corpus, sizes=[270, 330, 400]
    )
    for size, ratio in zip(curve.sizes, curve.bytes_per_token, strict=True):
        trained = train_bpe(corpus, vocab_size=size, **options)
        assert ratio == trained.stats.bytes_per_token


def test_files_and_separators(tmp_path, tokenizer, corpus):
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(corpus), newline="")
    options = {"against": {"cl100k": tokjax.byte_level_bpe(RANKS, pattern="cl100k")}}
    curves = compute_curves(tokenizer, tmp_path / "a.txt", separator="<|endoftext|>", **options)
    assert curves == compute_curves(tokenizer, corpus, **options)


def test_progress(tokenizer, capsys):
    tokjax.reports.size_curves(tokenizer, ["low"])
    shown = capsys.readouterr()
    assert "encoding pre-tokens" in shown.err
    assert shown.out == ""
    compute_curves(tokenizer, ["low"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"sizes": [255, 501]},
            "InvalidArgumentError",
            "no value of sizes is valid for tokenizer 't'; pass sizes",
        ),
        ({"sizes": []}, "InvalidArgumentError", "pass sizes from 256 to 500"),
        ({"sizes": [1.5]}, "InvalidArgumentError", "a size must be an integer, not 1.5"),
        ({"sizes": [0]}, "InvalidArgumentError", "a size must be at least 1, not 0"),
        ({"against": {"t": BYTES}}, "InvalidArgumentError", "'t' names two tokenizers"),
        ({"separator": ""}, "InvalidArgumentError", "separator is the empty string"),
        ({"threads": 0}, "InvalidArgumentError", "threads must be at least 1"),
        (
            {"against": {"w": WhitespaceTokenizer()}},
            "UnsupportedTokenizerError",
            "tokenizer 'w' is a WhitespaceTokenizer, and only a byte-level BPE vocabulary can be truncated",
        ),
    ],
)
def test_invalid_arguments_are_rejected(tokenizer, options, error, message):
    with pytest.raises(getattr(tokjax.errors, error), match=message):
        compute_curves(tokenizer, ["a"], name="t", **options)


def test_invalid_sources_are_rejected_before_any_is_read(tokenizer):
    texts = iter(["low"])
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="is not a file"):
        compute_curves(tokenizer, {"1": texts, "2": "no/such/file"})
    assert next(texts) == "low"
