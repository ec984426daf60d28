"""Ladders of lengths: against every other ladder, and where they are used."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokjax
from tests.oracles import ladders as oracle
from tokjax import LengthBuckets

few_lengths = st.lists(st.integers(0, 14), min_size=1, max_size=12)


@given(few_lengths, st.integers(1, 4), st.integers(1, 4))
def test_no_ladder_pads_less(lengths, rungs, multiple_of):
    ladder = LengthBuckets.fit(lengths, rungs, multiple_of=multiple_of)
    assert oracle.places(ladder, lengths) == oracle.fewest_places(lengths, rungs, multiple_of)
    assert len(ladder) <= rungs
    assert all(rung % multiple_of == 0 for rung in ladder)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_rung_more_or_less_among_many(seed, rungs):
    """What no ladder of many rungs can be compared with in full: moving any one of them pads no less."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(4, 1, 500).astype(int)
    ladder = LengthBuckets.fit(lengths, rungs)
    assert len(ladder) == rungs
    least = ladder.padding(lengths)
    distinct = np.unique(lengths).tolist()
    for moved in rng.integers(0, rungs - 1, 5).tolist() if rungs > 1 else []:
        for instead in rng.choice(distinct, 5).tolist():
            other = LengthBuckets([*ladder[:moved], *ladder[moved + 1 :], max(instead, 1)])
            assert other.padding(lengths) >= least
    assert LengthBuckets.fit(lengths, rungs + 1).padding(lengths) < least


def test_as_many_rungs_as_lengths_pad_nothing():
    lengths = [7, 3, 3, 40]
    for rungs in (3, 4, 100):
        assert LengthBuckets.fit(lengths, rungs) == LengthBuckets([3, 7, 40])
    assert LengthBuckets.fit(lengths, 3).padding(lengths) == 0
    assert LengthBuckets.fit([0, 0], 2) == LengthBuckets([1])


@given(st.lists(st.integers(1, 99), min_size=1, max_size=9), st.lists(st.integers(0, 99), max_size=20))
def test_rungs_and_padding(rungs, lengths):
    ladder = LengthBuckets(rungs)
    lengths = [length for length in lengths if length <= max(rungs)]
    expected = [min(rung for rung in rungs if rung >= length) for length in lengths]
    assert ladder.rung_of(lengths).tolist() == expected
    assert ladder.padding(lengths) == (sum(expected) - sum(lengths)) / max(sum(expected), 1)
    if lengths:
        for width in ({len(lengths)}, {1, len(lengths)}):
            shaped = np.array(lengths, np.uint16).reshape(*width, -1)
            assert ladder.rung_of(shaped).shape == shaped.shape
        assert ladder.rung_of(jnp.array(lengths)).tolist() == expected
        assert ladder.rung_of(lengths[0]) == expected[0]


@given(st.integers(1, 500), st.integers(0, 5000), st.floats(1.01, 10), st.integers(1, 64))
def test_geometric_by_factor(shortest, more, factor, multiple_of):
    longest = shortest + more
    ladder = LengthBuckets.geometric(shortest, longest, factor=factor, multiple_of=multiple_of)
    assert ladder[0] >= shortest
    assert ladder[0] - shortest < multiple_of
    assert longest <= ladder[-1] < longest + multiple_of
    assert all(rung % multiple_of == 0 for rung in ladder)
    for low, high in zip(ladder, ladder[1:], strict=False):
        assert low < high < low * factor + multiple_of * (1 + 1e-9)


@given(st.integers(1, 500), st.integers(0, 5000), st.integers(1, 30), st.integers(1, 64))
def test_geometric_by_number(shortest, more, rungs, multiple_of):
    longest = shortest + more
    ladder = LengthBuckets.geometric(shortest, longest, rungs=rungs, multiple_of=multiple_of)
    assert longest <= ladder[-1] < longest + multiple_of
    assert len(ladder) <= rungs
    if multiple_of == 1 and longest >= shortest * 2 ** (rungs - 1):
        assert len(ladder) == rungs


def test_geometric():
    assert LengthBuckets.geometric(64, 1024).rungs == (64, 128, 256, 512, 1024)
    assert LengthBuckets.geometric(64, 1024, rungs=5).rungs == (64, 128, 256, 512, 1024)
    assert LengthBuckets.geometric(8, 64, rungs=10).rungs == (8, 11, 13, 16, 21, 26, 32, 41, 51, 64)
    assert LengthBuckets.geometric(10, 14, factor=1.1).rungs == (10, 11, 13, 14)
    assert LengthBuckets.geometric(10, 1000, rungs=1, multiple_of=64).rungs == (1024,)
    assert LengthBuckets.geometric(7, 7).rungs == LengthBuckets.geometric(7, 7, rungs=3).rungs == (7,)


def test_a_ladder_is_a_value():
    ladder = LengthBuckets([256, 64, 128, 64])
    assert repr(ladder) == "LengthBuckets([64, 128, 256])"
    assert eval(repr(ladder)) == ladder
    assert pickle.loads(pickle.dumps(ladder)) == ladder
    assert hash(ladder) == hash(LengthBuckets(np.array([64, 128, 256])))
    assert ladder != LengthBuckets([64, 128])
    assert (list(ladder), len(ladder), ladder[-1], 128 in ladder) == ([64, 128, 256], 3, 256, True)
    with pytest.raises(AttributeError):
        ladder.rungs = ()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LengthBuckets([]), r"no bucket holds nothing; give LengthBuckets\(\[64, 128\]\)"),
        (lambda: LengthBuckets(64), r"made of its lengths, not of 64; give LengthBuckets\(\[64, 128\]\)"),
        (lambda: LengthBuckets([64, 0]), "a bucket must be at least 1, not 0"),
        (lambda: LengthBuckets([1.5]), "a bucket must be an integer, not 1.5"),
        (lambda: LengthBuckets([4]).rung_of([1, 9]), r"a length is 9, and no bucket of \[4\] holds it"),
        (lambda: LengthBuckets([4]).padding([5]), "cut rows to 4, or add a bucket"),
        (lambda: LengthBuckets([4]).rung_of([-1]), "lengths must be at least 0, and one is -1"),
        (lambda: LengthBuckets([4]).rung_of([0.5]), "lengths must be integers"),
        (lambda: jax.jit(LengthBuckets([4]).rung_of)(jnp.arange(3)), "choose the rung on the host"),
        (lambda: LengthBuckets.fit([], 2), "there are no lengths to fit rungs to"),
        (lambda: LengthBuckets.fit([2**31], 2), "lengths holds 2147483648, which does not fit int32"),
        (lambda: LengthBuckets.fit([1], 0), "rungs must be at least 1, not 0"),
        (lambda: LengthBuckets.fit([1], 1, multiple_of=0), "multiple_of must be at least 1, not 0"),
        (lambda: LengthBuckets.geometric(0, 4), "shortest must be at least 1, not 0"),
        (lambda: LengthBuckets.geometric(5, 4), "longest must be at least 5, not 4"),
        (lambda: LengthBuckets.geometric(1, 4, factor=1), "factor must be above 1"),
        (lambda: LengthBuckets.geometric(1, 4, factor=0.5), "factor must be a number, at least 1.0, not 0.5"),
        (lambda: LengthBuckets.geometric(1, 4, factor=2, rungs=2), "give factor=2 or rungs=2, not both"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(tokjax.InvalidArgumentError, match=message):
        call()


def test_collation_on_a_ladder():
    rows = tokjax.ragged_from_rows([[1] * 5, [2] * 3])
    ladder = LengthBuckets([4, 8])
    assert tokjax.collate_padded_batch(rows, pad_id=0, buckets=ladder).ids.shape == (2, 8)
    short = LengthBuckets([4])
    with pytest.raises(
        tokjax.InvalidArgumentError, match=r"longest row has 5 tokens, and no bucket of \[4\]"
    ):
        tokjax.collate_padded_batch(rows, pad_id=0, buckets=short)
    cut = tokjax.collate_padded_batch(rows, pad_id=0, buckets=short, truncation="right")
    assert cut.ids.tolist() == [[1, 1, 1, 1], [2, 2, 2, 0]]


def test_datasets_and_loaders_on_a_ladder(tmp_path):
    tokenizer = tokjax.byte_level(["</s>", "<pad>"], eos_token="</s>", pad_token="<pad>")
    texts = ["x" * (i % 23) for i in range(100)]
    ladder = LengthBuckets.fit([i % 23 + 1 for i in range(100)], 3)
    field = tokjax.BucketedTokenField(tokenizer, ladder, max_tokens=ladder[-1])
    assert field.bucket_boundaries == ladder.rungs
    tokjax.write_dataset(texts, field, tmp_path / "bucketed")
    tokjax.write_dataset(texts, tokjax.TokenizedTextField(tokenizer), tmp_path / "tokens")
    for name, options in (("bucketed", {}), ("tokens", {"bucket_boundaries": ladder})):
        loader = tokjax.BucketedLoader(tokjax.open_dataset(tmp_path / name), batch_size=8, **options)
        assert {batch.ids.shape[1] for batch in loader} == set(ladder)
