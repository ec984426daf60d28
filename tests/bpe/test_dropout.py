"""Tests of BPE dropout in the array engine, against the naive algorithm."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.oracles.bpe_dropout import compute_distribution, compute_keys, merge_all_naively
from tests.support.small_chunks import use_small_chunks
from tests.support.variants import mark_slow_except
from tokjax.bpe import dropout
from tokjax.bpe.array_engine import ArrayEngine, DropoutEngine
from tokjax.bpe.chunks import Segments
from tokjax.bpe.dropout import Dropout
from tokjax.bpe.merge_rules import make_rules_from_merges, make_rules_from_ranks
from tokjax.bpe.pre_tokenizers import PatternPreTokenizer
from tokjax.pretokenize.patterns import make_pattern_splitter

BYTES = {bytes([i]): i for i in range(256)}
PRE_TOKENIZER = PatternPreTokenizer(make_pattern_splitter("gpt2"))
texts = st.text("abcé ", max_size=40) | st.builds(
    str.__mul__, st.text("abc", min_size=1, max_size=4), st.integers(2, 30)
)
small = st.text("abcé", min_size=2, max_size=5).map(str.encode)


@st.composite
def merge_rules(draw):
    """Rules from ranks, in any order, or from merges."""
    tokens = draw(st.lists(small, unique=True, max_size=30))
    ranks = BYTES | {token: 256 + i for i, token in enumerate(tokens)}
    if draw(st.booleans()):
        return make_rules_from_ranks(ranks)
    splits = [(token[:i], token[i:]) for token in tokens for i in range(1, len(token))]
    merges = [pair for pair in draw(st.permutations(splits)) if {*pair} <= {*ranks}]
    return make_rules_from_merges(ranks, merges, ignore_merges=draw(st.booleans()))


def encode_naively(text, key, probability, rules):
    return merge_all_naively(
        [pretoken.encode() for pretoken in PRE_TOKENIZER.split(text)],
        lambda pretoken: [pretoken[i : i + 1] for i in range(len(pretoken))],
        rules.get_rank,
        probability,
        key,
    )


@given(
    rules=merge_rules(),
    segments=st.lists(texts, min_size=1, max_size=6),
    probability=st.sampled_from([0.01, 0.1, 0.5, 0.9, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    chunk=st.sampled_from([1, 7, 1000]),
    few=st.sampled_from([0, 2, 1000]),
    long=st.sampled_from([2, 9, 1000]),
    threads=st.sampled_from([1, 3]),
    data=st.data(),
)
def test_dropout_equals_naive_algorithm(rules, segments, probability, seed, chunk, few, long, threads, data):
    begins_text = [
        True,
        *data.draw(st.lists(st.booleans(), min_size=len(segments) - 1, max_size=len(segments) - 1)),
    ]
    with use_small_chunks(chunk) as patch:
        patch.setattr(dropout, "_FEW_PRETOKENS", few)
        patch.setattr(dropout, "_LONG_PRETOKEN", long)
        engine = DropoutEngine(ArrayEngine(rules, PRE_TOKENIZER), Dropout(probability, seed))
        encoded = engine.encode_segments(Segments(segments, False, np.array(begins_text)), threads)
    text_segments, expected = [], []
    for text, begins in zip(segments, begins_text, strict=True):
        text_segments = [] if begins else text_segments
        text_segments.append(text.encode())
        expected.append(encode_naively(text, compute_keys(text_segments, seed)[-1], probability, rules))
    assert np.diff(encoded.splits).tolist() == list(map(len, expected))
    assert encoded.ids.tolist() == [
        id_ for tokens in expected for token in tokens for id_ in rules.get_ids(token)
    ]


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize("probability", mark_slow_except([0.1, 0.5], [0.5]))
def test_distribution_is_that_of_the_naive_algorithm(monkeypatch, probability, few):
    """Each segmentation is as frequent as its exact probability, within 4.5 standard deviations."""
    monkeypatch.setattr(dropout, "_FEW_PRETOKENS", few)
    tokens = [b"es", b"lo", b"est", b"ow", b"low", b"we", b"wes", b"lowest", b" l"]
    rules = make_rules_from_ranks(BYTES | {token: 256 + i for i, token in enumerate(tokens)})
    count = 20_000
    engine = DropoutEngine(ArrayEngine(rules, PRE_TOKENIZER), Dropout(probability, 3))
    encoded = engine.encode_segments(Segments([" lowest" * count], False))
    names = {id_: token for token, id_ in rules.symbols.items()}
    rows = np.split(encoded.ids, np.flatnonzero(encoded.begins_word)[1:])
    frequencies = Counter(tuple(map(names.__getitem__, row.tolist())) for row in rows)
    exact = compute_distribution([bytes([byte]) for byte in b" lowest"], rules.get_rank, probability)
    assert math.isclose(sum(exact.values()), 1)
    assert frequencies.keys() <= exact.keys()
    for segmentation, expected in exact.items():
        deviation = math.sqrt(count * expected * (1 - expected))
        assert abs(frequencies[segmentation] - count * expected) <= 4.5 * deviation + 1, segmentation
