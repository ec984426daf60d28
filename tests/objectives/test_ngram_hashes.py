"""Tests of n-gram hashes, against Python integers, the formula of Engram, and n-grams as numbers."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.oracles import objectives as oracle
from tests.support.array_strategies import draw_integer_arrays
from tests.support.rejections import rejects
from tokjax.objectives import ngram_hash_ids

any_id = st.integers(0, 9) | st.integers(0, 2**31 - 1)
sizes = st.sampled_from([1, 2, 97, 2**16, 646_403, 2**24 + 1, 2**31 - 1]) | st.integers(1, 2**31 - 1)


@given(st.data(), st.integers(0, 2), st.integers(0, 6), st.sampled_from(["xor", "add"]))
def test_ngram_hash_ids(data, rows, length, combine):
    values = data.draw(st.lists(any_id, min_size=rows * length, max_size=rows * length))
    ids = np.array(values, np.int32).reshape(rows, length)
    segments = data.draw(st.none() | draw_integer_arrays((rows, length), 0, 2))
    multipliers = data.draw(st.lists(st.integers(1, 2**64 - 1), min_size=1, max_size=4))
    tables = data.draw(st.lists(st.tuples(st.integers(1, len(multipliers)), sizes), min_size=1, max_size=4))
    pad_id = data.draw(any_id)
    actual = ngram_hash_ids(
        ids, tables=tables, multipliers=multipliers, pad_id=pad_id, segment_ids=segments, combine=combine
    )
    assert actual.dtype == np.int32
    assert actual.shape == (rows, length, len(tables))
    assert actual.tolist() == [
        oracle.hash_ngrams(
            ids[i].tolist(),
            tables,
            multipliers,
            pad_id,
            None if segments is None else segments[i].tolist(),
            combine,
        )
        for i in range(rows)
    ]


def test_hashes_are_those_of_engram():
    """The formula of DeepSeek's code, in int64: products of padded shifts, combined by xor, modulo primes."""
    rng = np.random.default_rng(0)
    vocab_size, pad_id, max_n = 129_280, 2, 3
    ids = rng.integers(0, vocab_size, (4, 50))
    multipliers = rng.integers(0, (2**63 - 1) // vocab_size // 2, max_n) * 2 + 1
    primes = {2: [646_403, 646_411], 3: [646_421, 646_423]}
    expected = []
    for n, sizes in primes.items():
        shifted = [np.pad(ids, ((0, 0), (k, 0)), constant_values=pad_id)[:, :50] for k in range(n)]
        mix = np.bitwise_xor.reduce([shifted[k] * multipliers[k] for k in range(n)])
        expected += [mix % size for size in sizes]
    tables = [(n, size) for n, sizes in primes.items() for size in sizes]
    actual = ngram_hash_ids(ids, tables=tables, multipliers=multipliers, pad_id=pad_id)
    assert actual.tolist() == np.stack(expected, axis=-1).tolist()
    in_jax = ngram_hash_ids(jnp.asarray(ids), tables=tables, multipliers=multipliers, pad_id=pad_id)
    assert in_jax.tolist() == actual.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": []}, r"tables is empty; pass \(n, size\) of at least one table"),
        ({"tables": [5]}, r"tables must hold pairs \(n, size\), not 5"),
        ({"tables": [(3, 10)]}, "a table has n-grams of 3 tokens, but there are 2 multipliers"),
        ({"tables": [(0, 10)]}, "n of a table must be at least 1, not 0"),
        ({"tables": [(1, 0)]}, "size of a table must be at least 1, not 0"),
        ({"tables": [(1, 2**31)]}, "size of a table must be at most 2147483647, not 2147483648"),
        ({"multipliers": [0, 1]}, "multipliers must be at least 1, not 0"),
        ({"multipliers": [1, 2**64]}, "multipliers must be at most 18446744073709551615, not"),
        ({"multipliers": [1.5, 1]}, "multipliers must be an integer, not 1.5"),
        ({"pad_id": None}, "pad_id is None"),
        ({"pad_id": -1}, "ids and pad_id must be at least 0, not -1"),
        ({"ids": np.array([3, -100])}, "ids and pad_id must be at least 0, not -100"),
        ({"segment_ids": [1]}, r"segment_ids has shape \(1,\), and ids \(2,\)"),
        ({"combine": "sum"}, "combine must be 'xor' or 'add', not 'sum'"),
    ],
)
def test_invalid_arguments_are_rejected(options, message):
    arguments = {"ids": np.array([1, 2]), "tables": [(2, 9)], "multipliers": [1, 3], "pad_id": 0, **options}
    with rejects(message):
        ngram_hash_ids(arguments.pop("ids"), **arguments)
