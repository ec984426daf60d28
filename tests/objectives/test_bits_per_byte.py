"""Tests of bits per byte, against an oracle that adds in the same order, and against float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.oracles import objectives as oracle
from tests.support.rejections import rejects
from tokjax.objectives import bits_per_byte, label_byte_lengths

losses = st.floats(0, 40, width=32, allow_subnormal=False)


@given(st.lists(st.tuples(losses, st.integers(0, 9)), max_size=40))
def test_bits_per_byte(tokens):
    nll, num_bytes = np.float32([t[0] for t in tokens]), np.array([t[1] for t in tokens], np.int32)
    actual = bits_per_byte(nll, num_bytes)
    assert actual.dtype == np.float32
    total = int(num_bytes.sum())
    if total == 0:
        assert np.isnan(actual)
        return
    counted = [loss if size else np.float32(0) for loss, size in zip(nll, num_bytes, strict=True)]
    assert actual == oracle.fold_sum(counted) * np.float32(math.log2(math.e)) / np.float32(total)
    exact = math.fsum(loss for loss, size in tokens if size) / math.log(2) / total
    assert actual == pytest.approx(exact, rel=1e-6)


def test_sums_of_long_rows_are_exact_in_float32():
    """Adding one after another would have an error of 1 in 10**5 here."""
    rng = np.random.default_rng(0)
    nll = rng.gamma(2, 1.5, 100_003).astype(np.float32)
    num_bytes = rng.integers(1, 9, nll.shape)
    expected = nll.astype(np.float64).sum() / math.log(2) / num_bytes.sum()
    assert bits_per_byte(nll, num_bytes) == pytest.approx(expected, rel=2e-7)
    in_jax = bits_per_byte(jnp.asarray(nll), jnp.asarray(num_bytes))
    assert float(in_jax) == bits_per_byte(nll, num_bytes)


def test_ignored_labels_and_special_tokens_are_left_out():
    byte_lengths = np.array([0, 4, 3])  # id 0 is special
    labels = np.array([[2, 0, -100, 1], [-100, -100, 0, 0]])
    num_bytes = label_byte_lengths(labels, byte_lengths)
    assert num_bytes.dtype == np.int32
    assert num_bytes.tolist() == [[3, 0, 0, 4], [0, 0, 0, 0]]
    nll = np.float32([[math.log(8), 99, np.nan, math.log(16)], [np.inf, 1, 1, 1]])
    per_row = bits_per_byte(nll, num_bytes)
    assert per_row[0] == 1
    assert np.isnan(per_row[1])
    assert bits_per_byte(nll.reshape(-1), num_bytes.reshape(-1)) == 1
    assert np.isnan(bits_per_byte(np.zeros((2, 0), np.float32), np.zeros((2, 0), int))).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_losses_of_any_float_dtype(dtype):
    nll = jnp.array([0.5, 1.25], dtype if dtype != "float64" else "float32")
    host = np.asarray(nll).astype(dtype)
    num_bytes = np.array([2, 1])
    assert bits_per_byte(host, num_bytes) == np.float32(1.75) * np.float32(math.log2(math.e)) / np.float32(3)
    assert bits_per_byte(nll, jnp.asarray(num_bytes)) == bits_per_byte(host, num_bytes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bits_per_byte(np.array([1]), np.array([1])), "nll must be floats, .*in nats, not int"),
        (lambda: bits_per_byte(np.float32(1), 1), r"nll must have shape \(\.\.\., length\), not \(\)"),
        (
            lambda: bits_per_byte(np.zeros(2), np.zeros(3, int)),
            r"nll has shape \(2,\), and num_bytes \(3,\); the shapes must be equal",
        ),
        (lambda: bits_per_byte(np.zeros(2), np.zeros(2)), "num_bytes must be integers, not float64"),
        (
            lambda: label_byte_lengths(np.array([3]), np.array([1, 1])),
            "labels contains 3, which is neither ignore_index=-100 nor an id below 2",
        ),
        (lambda: label_byte_lengths(np.array([-1]), np.array([1, 1])), "labels contains -1"),
        (
            lambda: label_byte_lengths(np.array([1]), np.array([[1]])),
            r"byte_lengths must have shape \(vocab_size,\), not \(1, 1\); pass tokjax\.token_byte_lengths",
        ),
        (lambda: label_byte_lengths(np.array([1]), np.array([1]), ignore_index="x"), "ignore_index must be"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with rejects(message):
        call()


def test_symbolic_length_is_rejected():
    shape = jax.export.symbolic_shape("2, length")
    nll, num_bytes = (jax.ShapeDtypeStruct(shape, dtype) for dtype in (np.float32, np.int32))
    with rejects("symbolic length length, .* export it with a fixed length"):
        jax.export.export(jax.jit(bits_per_byte))(nll, num_bytes)
