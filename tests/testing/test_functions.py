"""Tests of `check_array_function`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tokjax
from tokjax.testing import check_array_function

IDS = np.arange(12, dtype=np.int32).reshape(3, 4)
MASK = np.ones((3, 4), np.int32)


def test_functions_of_tokjax_pass():
    check_array_function(tokjax.causal_lm_labels, IDS, MASK)
    draws = tokjax.objectives.draw_uniform(np.random.default_rng(0), (3,))
    check_array_function(lambda ids, draws: ids * (draws < 0.5).astype(np.int32)[:, None], IDS, draws)
    check_array_function(lambda batch: batch._replace(ids=-batch.ids), tokjax.CausalLMBatch(IDS, MASK, IDS))


def increment_in_place(ids):
    ids[0] += 1
    return ids


def make_nondeterministic():
    calls = iter(range(9))
    return lambda ids: ids + np.int32(next(calls))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda ids: ids.sum(), r"eager JAX: array 0 is int32\[\], not int64\[\]"),
        (jnp.flip, "NumPy, second call: array 0 is a ArrayImpl"),
        (lambda ids: np.flip(np.asarray(ids)), "eager JAX: array 0 is a ndarray"),
        (lambda ids: ids if isinstance(ids, np.ndarray) else ids + 1, r"eager JAX: array 0 is \[\[ 1  2"),
        (lambda ids: ids if isinstance(ids, np.ndarray) else (ids,), "eager JAX: the structure is"),
        (
            lambda ids: ids if isinstance(ids, np.ndarray) else ids[:2],
            r"array 0 is int32\[2, 4\], not int32\[3, 4\]",
        ),
        (lambda ids: ids + 1 if isinstance(ids, jax.core.Tracer) else ids, "jax.jit: array 0 is"),
        (increment_in_place, r"the arguments after the call: array 0 is \[\[ 1  2"),
        (make_nondeterministic(), "NumPy, second call: array 0 is"),
    ],
)
def test_faulty_functions_are_detected(function, message):
    with pytest.raises(AssertionError, match=message):
        check_array_function(function, IDS.copy())


def test_functions_across_rows_must_agree_under_vmap():
    def subtract_size(ids):
        return ids - (ids.size - 12)

    check_array_function(subtract_size, IDS)
    with pytest.raises(AssertionError, match=r"jax.vmap: array 0"):
        check_array_function(
            lambda ids: ids[::-1] if ids.ndim == 2 and not _is_batch_tracer(ids) else ids, IDS
        )


def _is_batch_tracer(ids):
    return "Batch" in type(ids).__name__


@pytest.mark.parametrize(
    ("argument", "type_name"), [(3, "int"), (np.int32(3), "int32"), (jnp.zeros(2), "ArrayImpl")]
)
def test_non_arrays_are_rejected_before_the_call(argument, type_name):
    with pytest.raises(AssertionError, match=f"array 1 is a {type_name}, not a NumPy array; bind"):
        check_array_function(np.add, IDS, argument)


def test_functions_without_results_are_rejected():
    with pytest.raises(AssertionError, match="the function returns no arrays, but None"):
        check_array_function(lambda ids: ids.setflags(), IDS)
