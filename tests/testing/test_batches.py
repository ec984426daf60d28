"""Tests of `check_batch`, which run it for all batch types."""

import inspect
from functools import partial

import jax
import numpy as np
import pytest

import tokjax
from tests.batching.test_device_mesh import IDS, RANDOM_MASK, SPECIAL_IDS, make_draws
from tests.support.loader_cases import PAD, TEXTS, TOKENIZER
from tests.support.variants import mark_slow_except
from tokjax import PackedBlocks
from tokjax.testing import check_batch

ROWS, LENGTH = IDS.shape
RESULTS = tokjax.encode_batch_result(TOKENIZER, TEXTS[:ROWS])
BLOCKS = tokjax.pack_blocks(RESULTS, block_size=12, pad_id=PAD, eos_id=1)
MASKED_BLOCKS = tokjax.pack_blocks(
    RESULTS, block_size=12, pad_id=PAD, eos_id=1, loss_mask=[row.ids % 3 > 0 for row in RESULTS]
)
BLOCK_FUNCTIONS = [
    PackedBlocks.causal_lm_labels,
    PackedBlocks.to_maxtext,
    PackedBlocks.to_levanter,
    PackedBlocks.to_t5x,
    PackedBlocks.to_tunix,
    PackedBlocks.to_grain,
    partial(PackedBlocks.cu_seqlens, max_segments=9),
    lambda blocks: blocks.lengths,
]
BATCHES = {
    "packed": (BLOCKS, *BLOCK_FUNCTIONS),
    "packed with a loss mask": (MASKED_BLOCKS, *BLOCK_FUNCTIONS),
    "padded": (
        tokjax.collate_padded_batch(RESULTS, pad_id=PAD),
        lambda b: tokjax.causal_lm_labels(b.ids, b.attention_mask),
    ),
    "padded ids": (tokjax.collate_padded_batch(RESULTS, pad_id=PAD, columns=["ids"]),),
    "causal LM": (tokjax.CausalLMBatch(IDS, RANDOM_MASK, IDS),),
    "masked LM": (
        tokjax.objectives.masked_lm(
            IDS, make_draws(ROWS, 3, LENGTH), mask_id=99, vocab_size=50, special_tokens_mask=RANDOM_MASK
        ),
    ),
    "masked diffusion": (
        tokjax.objectives.masked_diffusion(
            IDS, RANDOM_MASK, make_draws(ROWS, LENGTH), make_draws(ROWS), mask_id=99
        ),
    ),
    "span corruption": (
        tokjax.objectives.span_corruption(IDS, RANDOM_MASK, make_draws(ROWS, LENGTH), **SPECIAL_IDS),
    ),
    "denoising mixture": (
        tokjax.objectives.denoising_mixture(
            IDS,
            RANDOM_MASK,
            make_draws(ROWS, LENGTH + 1),
            denoisers=tokjax.objectives.UL2_DENOISERS,
            **SPECIAL_IDS,
        ),
    ),
    "prefix LM": (tokjax.objectives.prefix_lm(IDS, RANDOM_MASK, make_draws(ROWS)),),
    "chunks": (tokjax.datasets.TokenChunks(IDS), lambda chunks: chunks.inputs, lambda chunks: chunks.targets),
    "preference pairs": (
        tokjax.packing.split_preference_pairs(BLOCKS.segment_ids, np.asarray(BLOCKS.ids) % 2 == 0),
    ),
}
NON_BATCHES = {
    *(
        "Ragged",
        "PackingPlan",
        "SpanColumns",
        "SpanLabels",
        "MergedWindows",
        "Windows",
        "EncodedChat",
        "EncodedChats",
        "PreTokens",
    ),
    *("DeviceBytes", "DeviceTokens", "RowsWithColumns"),
}
"""Named tuples of arrays that are not batches: inputs of batching functions, and results of encoding."""


def test_all_batch_types_are_tested():
    namespaces = [value for name in tokjax.__all__ if inspect.ismodule(value := getattr(tokjax, name))]
    # Records of the `quick_` functions also contain strings.
    public = {
        name: getattr(module, name)
        for module in (tokjax, *namespaces)
        for name in module.__all__
        if not name.startswith("Quick")
    }
    array_fields = {
        name
        for name, value in public.items()
        if inspect.isclass(value)
        and issubclass(value, tuple)
        and any("Array" in str(kind) for kind in inspect.get_annotations(value).values())
    }
    assert array_fields - NON_BATCHES == {type(batch).__name__ for batch, *_ in BATCHES.values()}


@pytest.mark.parametrize("name", mark_slow_except(BATCHES, ["padded ids", "chunks"]))
def test_batch_types_pass_the_check(name):
    check_batch(*BATCHES[name])


@pytest.mark.parametrize("name", BATCHES)
def test_repr_of_batches_is_short(name):
    batch = BATCHES[name][0]
    for shown in (repr(batch), repr(jax.device_put(batch))):
        assert len(shown.splitlines()) <= 4
        assert all(len(line) <= 88 for line in shown.splitlines())
        assert f"=int32[{len(batch[0])}" in shown
    assert "ids='x'" in repr(jax.tree.map(lambda _: "x", BLOCKS))


def test_repr_shows_dtypes_and_shapes():
    assert repr(BLOCKS) == (
        "PackedBlocks(ids=int32[14,12], attention_mask=int32[14,12], segment_ids=int32[14,12],\n"
        "    positions=int32[14,12], document_ids=int32[14,12])"
    )


def test_batches_of_loaders_pass_the_check(written):
    check_batch(tokjax.PackedTokenLoader(tokjax.open_dataset(written), batch_size=4).batch_at(0))


def test_total_tokens_of_slices_and_rows():
    assert BLOCKS.total_tokens.dtype == np.int32
    part = jax.tree.map(lambda a: a[:3], BLOCKS)
    assert part.total_tokens == part.attention_mask.sum()
    by_row = jax.jit(jax.vmap(lambda row: row.total_tokens))(BLOCKS)
    assert by_row.tolist() == BLOCKS.lengths.tolist()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"ids": IDS, "total": np.zeros((), np.int32)}, r"\['total'\] has shape \(\)"),
        ({"ids": IDS, "weights": np.ones(3)}, "arrays have different numbers of rows: .*'weights'.*: 3"),
        ({"ids": IDS, "step": 3}, r"\['step'\] is a int, not a NumPy array"),
        ({}, "the batch has no arrays"),
        ({"ids": IDS[:1]}, "the batch has 1 rows; pass a batch of at least 2"),
    ],
)
def test_non_batches_are_rejected(batch, message):
    with pytest.raises(AssertionError, match=message):
        check_batch(batch)


def subtract_first_id(batch):
    return batch["ids"] - batch["ids"].reshape(-1)[0]


def sum_over_second_axis(batch):
    ids = batch["ids"]
    return ids.sum(axis=min(ids.ndim - 1, 1), dtype=np.int32)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (subtract_first_id, "subtract_first_id, jax"),
        (sum_over_second_axis, "sum_over_second_axis, microbatches"),
    ],
)
def test_functions_across_rows_are_rejected(function, message):
    with pytest.raises(AssertionError, match=message):
        check_batch({"ids": IDS}, function)
