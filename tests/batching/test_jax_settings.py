"""Tests of array functions under JAX settings: rank promotion, a transfer guard, symbolic shapes."""

import inspect
import re
from functools import partial

import jax
import numpy as np
import pytest
from jax import export

import tokjax
from tests.batching import test_device_mesh
from tests.batching.test_device_mesh import (
    IDS,
    LENGTH,
    PLAN,
    RAGGED,
    ROW_FUNCTIONS,
    ROWS,
    assert_equal,
    make_draws,
)
from tests.support.rejections import rejects
from tests.support.variants import mark_slow_except

LOSS_MASK = (IDS.reshape(-1) % 3 > 0).astype(np.int32)
FLAT_TOKEN_FUNCTIONS = {
    "padded": partial(tokjax.pad_ragged, length=30, pad_id=-1),
    "padded without truncation": partial(
        tokjax.pad_ragged, length=30, pad_id=-1, pad_side="left", truncation=None
    ),
    "collated": partial(tokjax.collate_padded_batch, pad_id=-1),
    "packed by plan": lambda r: tokjax.packing.apply_packing(PLAN, r, pad_id=-1),
    "packed": partial(tokjax.pack_blocks, block_size=40, pad_id=-1, eos_id=3),
    "middles": lambda r: tokjax.objectives.fill_in_the_middle(
        r, DRAWS, prefix_id=101, middle_id=102, suffix_id=103
    ),
    "documents": lambda r: tokjax.masks.find_document_boundaries(r.ids, 3),
    "documents up to a maximum": lambda r: tokjax.masks.find_document_boundaries(r.ids, 3, max_documents=50),
    "one sequence": lambda r: tokjax.quick.pad_sequence(r.ids, 300, 0),
}
DRAWS = jax.device_put(make_draws(ROWS, 4))
FIXED_LENGTH_FUNCTIONS = {"corrupted spans", "mixture of denoisers", "bits per byte"}
FIXED_LENGTH_FUNCTIONS |= {"dual chunks", "dual chunks restored", "stripes"}
EXPORTED_FIRST = {"labels of segments", "attention", "dual chunks"}
HOST_FUNCTIONS = {
    *("align_spans", "batch_to_dict", "byte_to_token", "char_to_token", "token_to_span", "token_to_word"),
    *("word_to_tokens", "spans_from_characters", "spans_from_labels", "spans_to_characters", "trim_offsets"),
    *("merge_windows", "span_columns", "plan_packing", "causal_mask"),
    *("create_causal_mask", "sliding_window_mask", "span_corruption_lengths"),
    "compute_input_and_target_lengths",
}
"""Functions that do not compute with JAX arrays, or return NumPy arrays or lists."""


def test_all_array_functions_are_tested():
    tested = "".join(map(inspect.getsource, (test_device_mesh, inspect.getmodule(test_rows))))
    modules = (tokjax, tokjax.align, tokjax.masks, tokjax.objectives, tokjax.packing)
    packages = ("tokjax.batching", *(module.__name__ for module in modules[1:]))
    public = {
        name
        for module in modules
        for name in module.__all__
        if inspect.isfunction(value := getattr(module, name)) and value.__module__.startswith(packages)
    }
    assert (
        public - HOST_FUNCTIONS
        == set(re.findall(r"tokjax\.(?:\w+\.)?(\w+)", tested)) & public - HOST_FUNCTIONS
    )
    assert public >= HOST_FUNCTIONS


def run_with_strict_settings(function, *arrays):
    with jax.transfer_guard("disallow"), jax.numpy_rank_promotion("raise"):
        return function(*arrays)


@pytest.mark.parametrize("name", mark_slow_except(ROW_FUNCTIONS, ["labels of segments"]))
def test_rows(name):
    function, *arrays = ROW_FUNCTIONS[name]
    assert_equal(function(*arrays), run_with_strict_settings(function, *jax.device_put(arrays)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FLAT_TOKEN_FUNCTIONS)
def test_flat_tokens(name):
    function = FLAT_TOKEN_FUNCTIONS[name]
    expected = function(jax.tree.map(np.asarray, RAGGED))
    assert_equal(expected, run_with_strict_settings(function, jax.device_put(RAGGED)))


@pytest.mark.parametrize("name", mark_slow_except(ROW_FUNCTIONS, EXPORTED_FIRST))
def test_symbolic_shapes(name):
    function, *arrays = ROW_FUNCTIONS[name]
    symbols = {ROWS: "rows"} if name in FIXED_LENGTH_FUNCTIONS else {ROWS: "rows", LENGTH: "length"}
    scope = export.SymbolicScope()
    shapes = [
        jax.ShapeDtypeStruct(
            export.symbolic_shape(",".join(symbols.get(n, str(n)) for n in array.shape), scope=scope),
            array.dtype,
        )
        for array in arrays
    ]
    exported = export.export(jax.jit(function))(*shapes)
    assert_equal(function(*arrays), exported.call(*arrays))


def test_symbolic_number_of_tokens():
    scope = export.SymbolicScope()
    tokens = jax.ShapeDtypeStruct(export.symbolic_shape("tokens", scope=scope), np.int32)
    splits = jax.ShapeDtypeStruct((ROWS + 1,), np.int32)
    shapes = tokjax.Ragged(tokens, splits)
    for function in (FLAT_TOKEN_FUNCTIONS["padded"], FLAT_TOKEN_FUNCTIONS["packed by plan"]):
        exported = export.export(jax.jit(function))(shapes)
        assert_equal(function(RAGGED), exported.call(RAGGED))


def test_symbolic_length_is_rejected_where_tables_need_a_length():
    ids = jax.ShapeDtypeStruct(export.symbolic_shape("2, length"), np.int32)
    corrupt = partial(tokjax.objectives.span_corruption, sentinel_ids=[9], eos_id=1, pad_id=0)
    with rejects("rows have the symbolic length length, .* fixed"):
        export.export(jax.jit(lambda i: corrupt(i, i, i.astype(np.float32))))(ids)


def test_options_with_equal_values_are_distinguished():
    """1, 1.0 and True are equal, but only 1 is an id."""
    ids = jax.device_put(IDS)
    tokjax.quick.to_one_based(ids, ignore_index=1)
    for wrong in (1.0, True):
        with rejects("ignore_index must be an integer"):
            tokjax.quick.to_one_based(ids, ignore_index=wrong)


def test_eager_calls_check_values():
    segments = jax.device_put(np.array([[1, 2, 3, 0]], np.int32))
    with rejects("a row has 3 segments, more than max_segments=2"):
        run_with_strict_settings(tokjax.packing.cu_seqlens, segments, 2)
    with rejects("row 0 has 24 tokens, more than the length 20"):
        run_with_strict_settings(
            partial(tokjax.pad_ragged, length=20, pad_id=0, truncation=None), jax.device_put(RAGGED)
        )
