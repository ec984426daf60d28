"""Tests of array functions on several devices: equal values, and results sharded like the arguments."""

from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import tokjax
from tests.support.variants import mark_slow_except

ROWS, LENGTH = 8, 24
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 50, (ROWS, LENGTH)).astype(np.int32)
RANDOM_MASK = RNG.integers(0, 2, (ROWS, LENGTH)).astype(np.int32)
LENGTHS = RNG.integers(1, LENGTH, ROWS).astype(np.int32)
SEGMENTS = np.where(np.arange(LENGTH) < LENGTHS[:, None], np.sort(RNG.integers(1, 4, (ROWS, LENGTH))), 0)
SEGMENTS = SEGMENTS.astype(np.int32)
WORDS = np.sort(RNG.integers(0, 9, (ROWS, LENGTH))).astype(np.int32)
SPECIAL_IDS = {"sentinel_ids": range(100, 120), "eos_id": 60, "pad_id": 61}
DENOISERS = [*tokjax.objectives.UL2_DENOISERS, tokjax.objectives.Denoiser(0.25, None, mode_id=62)]


def make_draws(*shape):
    return tokjax.objectives.draw_uniform(np.random.default_rng(1), shape)


ROW_FUNCTIONS = {
    "labels": (tokjax.causal_lm_labels, IDS, RANDOM_MASK),
    "labels of segments": (
        lambda i, s: tokjax.causal_lm_labels(i, s, segment_ids=s),
        IDS,
        SEGMENTS,
    ),
    "padded": (lambda i, n: tokjax.quick.batch_pad_sequences(i, n, 30, -1), IDS, LENGTHS),
    "truncated": (lambda i, n: tokjax.quick.batch_pad_sequences(i, n, 5, -1), IDS, LENGTHS),
    "mask of lengths": (partial(tokjax.masks.create_attention_mask, max_length=LENGTH), LENGTHS),
    "cumulative lengths": (partial(tokjax.packing.cu_seqlens, max_segments=5), SEGMENTS),
    "segment lengths": (partial(tokjax.packing.segment_lengths, max_segments=5), SEGMENTS),
    "cuDNN's segments": (partial(tokjax.packing.cudnn_segments, max_segments=5), SEGMENTS),
    "attention": (lambda s: tokjax.masks.make_attention_mask(segment_ids=s, window=3), SEGMENTS),
    "attention to a prefix": (
        lambda m, s: tokjax.masks.make_attention_mask(in_prefix=m, attention_mask=s),
        RANDOM_MASK,
        SEGMENTS,
    ),
    "masked tokens": (
        lambda i, h, d: tokjax.objectives.masked_lm(i, d, mask_id=99, vocab_size=50, special_tokens_mask=h),
        IDS,
        RANDOM_MASK,
        make_draws(ROWS, 3, LENGTH),
    ),
    "masked words": (
        lambda i, h, w, d: tokjax.objectives.masked_lm(
            i, d, mask_id=99, replacement_ids=[7, 8, 9], special_tokens_mask=h, word_ids=w
        ),
        IDS,
        RANDOM_MASK,
        WORDS,
        make_draws(ROWS, 3, LENGTH),
    ),
    "corrupted spans": (
        partial(tokjax.objectives.span_corruption, **SPECIAL_IDS),
        IDS,
        RANDOM_MASK,
        make_draws(ROWS, LENGTH),
    ),
    "mixture of denoisers": (
        partial(tokjax.objectives.denoising_mixture, denoisers=DENOISERS, **SPECIAL_IDS),
        IDS,
        RANDOM_MASK,
        make_draws(ROWS, LENGTH + 1),
    ),
    "prefixes": (tokjax.objectives.prefix_lm, IDS, RANDOM_MASK, make_draws(ROWS)),
    "prompts": (partial(tokjax.objectives.completion_loss_mask, length=LENGTH), LENGTHS),
    "padding": (tokjax.masks.padding_mask, RANDOM_MASK),
    "prefix": (tokjax.masks.prefix_mask, RANDOM_MASK),
    "segments": (tokjax.masks.segment_mask, SEGMENTS),
    "additive": (tokjax.masks.additive_mask, RANDOM_MASK),
    "unmasked": (tokjax.masks.unmask_empty_rows, np.tile(RANDOM_MASK[:, None], (1, LENGTH, 1))),
    "one-based ids": (tokjax.quick.to_one_based, IDS),
    "zero-based ids": (tokjax.quick.to_zero_based, IDS),
    "sides of pairs": (tokjax.packing.split_preference_pairs, SEGMENTS, RANDOM_MASK),
    "roles": (tokjax.objectives.chat_loss_mask, IDS),
    "answers": (partial(tokjax.objectives.assistant_loss_mask, start_ids=[1], end_ids=[2]), IDS),
    "weights of labels": (tokjax.label_weights, IDS),
    "positions": (tokjax.compute_positions, RANDOM_MASK),
    "positions in segments": (lambda s: tokjax.compute_positions(s, segment_ids=s, offset=2), SEGMENTS),
    "labels of several tokens": (
        lambda i, s, m: tokjax.multi_token_labels(i, s, 3, segment_ids=s, loss_mask=m),
        IDS,
        SEGMENTS,
        RANDOM_MASK,
    ),
    "labels of several tokens with gaps": (
        partial(tokjax.multi_token_labels, num_future_tokens=2),
        IDS,
        RANDOM_MASK,
    ),
    "dual chunks": (partial(tokjax.packing.reorder_for_context_parallel, cp_size=4), IDS),
    "dual chunks restored": (partial(tokjax.packing.restore_context_parallel_order, cp_size=4), IDS),
    "stripes": (
        lambda i, s: tokjax.packing.reorder_for_context_parallel({"i": i, "s": s}, 4, strategy="striped"),
        IDS,
        SEGMENTS,
    ),
    "diffusion": (
        partial(tokjax.objectives.masked_diffusion, mask_id=99),
        IDS,
        RANDOM_MASK,
        make_draws(ROWS, LENGTH),
        make_draws(ROWS),
    ),
    "diffusion of segments": (
        lambda i, s, d, r: tokjax.objectives.masked_diffusion(i, s, d, r, mask_id=99, segment_ids=s),
        IDS,
        SEGMENTS,
        make_draws(ROWS, LENGTH),
        make_draws(ROWS, 3),
    ),
    "n-grams": (
        lambda i, s: tokjax.objectives.ngram_hash_ids(
            i, tables=[(1, 7), (3, 646_403)], multipliers=[2**40 + 1, 3, 5**20], pad_id=0, segment_ids=s
        ),
        IDS,
        SEGMENTS,
    ),
    "bytes of labels": (tokjax.objectives.label_byte_lengths, IDS, np.arange(52, dtype=np.int32)),
    "bits per byte": (tokjax.objectives.bits_per_byte, make_draws(ROWS, LENGTH), RANDOM_MASK),
}
OFFSETS = np.stack([np.arange(1, LENGTH + 1), np.arange(2, LENGTH + 2)], axis=-1) * np.ones((ROWS, 1, 1), int)
SPANS = np.array([[(1 + i % 3, 5), (6, 7)] for i in range(ROWS)], np.int32)
TAGS = tokjax.align.TagSet(["PER", "LOC"], scheme="BILOU")
ROW_FUNCTIONS |= {
    "labels of words": (
        lambda i, w: tokjax.align.labels_from_words(w, i, tagset=TAGS, label_all_tokens=True),
        IDS[:, :9] % 5,
        WORDS,
    ),
    "word ids of spans": (tokjax.align.word_ids_from_spans, OFFSETS.astype(np.int32), SPANS),
    "labels to words": (
        lambda i, w: tokjax.align.words_from_labels(w, i, num_words=9, method="majority", tagset=TAGS),
        IDS % 5,
        WORDS,
    ),
}


def convert_blocks(ids, segments, mask):
    blocks = tokjax.PackedBlocks(ids, segments, segments, segments, segments, mask)
    batches = blocks.to_maxtext(), blocks.to_levanter(), blocks.to_t5x(), blocks.to_tunix()
    return blocks.causal_lm_labels(), blocks.lengths, blocks.cu_seqlens(max_segments=5), batches


ROW_FUNCTIONS["blocks"] = convert_blocks, IDS, SEGMENTS, RANDOM_MASK
RAGGED = tokjax.Ragged(IDS.reshape(-1), np.arange(0, ROWS * LENGTH + 1, LENGTH, dtype=np.int32))
PLAN = tokjax.packing.plan_packing(RAGGED.lengths, 40, overlong="split")
FLAT_TOKEN_FUNCTIONS = {
    "padded": lambda r: tokjax.pad_ragged(r, length=30, pad_id=-1, side_columns={"x": r.ids}),
    "padded sequence": lambda r: tokjax.quick.pad_sequence(r.ids, 20, -1),
    "documents": lambda r: tokjax.masks.find_document_boundaries(r.ids, 3, max_documents=20),
    "packed": lambda r: tokjax.packing.apply_packing(PLAN, r, pad_id=-1),
    "middles": lambda r: tokjax.objectives.fill_in_the_middle(
        r, make_draws(ROWS, 4), prefix_id=101, middle_id=102, suffix_id=103, size=ROWS * (LENGTH + 3)
    ),
}


HAS_EXPLICIT_AXES = jax.__version_info__ >= (0, 9)
"""Whether array functions support explicit axes, which `jax.make_mesh` creates since this version."""


class Layout(NamedTuple):
    """Sharding of rows, and of tokens along the rows, over four devices."""

    shape: tuple[int, ...]
    names: tuple[str, ...]
    is_explicit: bool = HAS_EXPLICIT_AXES

    def make_mesh(self):
        kinds = jax.sharding.AxisType
        kind = kinds.Explicit if self.is_explicit else kinds.Auto
        return jax.make_mesh(self.shape, self.names, axis_types=(kind,) * len(self.names))

    def use_mesh(self, mesh):
        return jax.set_mesh(mesh) if HAS_EXPLICIT_AXES else nullcontext()

    def shard(self, mesh, array):
        """Puts the rows of an array, and its first axis of tokens if the layout shards it, on the mesh."""
        spec = ["data"]
        if "length" in self.names and LENGTH in array.shape[1:]:
            spec += [None] * array.shape[1:].index(LENGTH) + ["length"]
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))


ROWS_AND_LENGTH = Layout((2, 2), ("data", "length"))
LAYOUTS = {
    "rows and length": ROWS_AND_LENGTH,
    "rows": Layout((4,), ("data",)),
    "rows, automatic": Layout((4,), ("data",), is_explicit=False),
}


@pytest.fixture(params=mark_slow_except(LAYOUTS, ["rows and length"]))
def layout(request):
    return LAYOUTS[request.param]


def assert_equal(expected, actual):
    for left, right in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        assert right.dtype == left.dtype
        assert np.array_equal(left, right)


def check_shardings(result, layout, mesh, first):
    """Checks that axes of a result are sharded like those of the first argument, if they are explicit."""
    for leaf in jax.tree.leaves(result):
        shape = leaf.sharding.shard_shape(leaf.shape)
        if layout.is_explicit or "length" not in layout.names:
            assert shape[0] == ROWS // mesh.shape["data"]
        if layout.is_explicit and leaf.shape[1:2] == first.shape[1:2]:
            assert shape[1] == first.sharding.shard_shape(first.shape)[1]


def test_shardings():
    """Explicit shardings of all functions, which tracing computes: compilation takes ten times longer."""
    layout = ROWS_AND_LENGTH
    mesh = layout.make_mesh()
    with layout.use_mesh(mesh), jax.numpy_rank_promotion("raise"):  # (as users may set it)
        for function, *arrays in ROW_FUNCTIONS.values():
            sharded = [layout.shard(mesh, array) for array in arrays]
            result = jax.eval_shape(jax.jit(function), *sharded)
            if layout.is_explicit:
                check_shardings(result, layout, mesh, sharded[0])
        for function in FLAT_TOKEN_FUNCTIONS.values():
            jax.eval_shape(jax.jit(function), shard_tokens(mesh, PartitionSpec("data")))


COMPILED_FIRST = ["labels", "cumulative lengths", "attention", "masked words", "stripes"]


@pytest.mark.parametrize("name", mark_slow_except(ROW_FUNCTIONS, COMPILED_FIRST))
def test_rows(name, layout):
    function, *arrays = ROW_FUNCTIONS[name]
    mesh = layout.make_mesh()
    with layout.use_mesh(mesh), jax.numpy_rank_promotion("raise"):
        sharded = [layout.shard(mesh, array) for array in arrays]
        result = jax.jit(function)(*sharded)
    assert_equal(function(*arrays), result)
    check_shardings(result, layout, mesh, sharded[0])


def test_transformations_on_a_mesh():
    """Eager calls and `vmap` over sharded rows, outside of `jax.set_mesh`."""
    mesh = ROWS_AND_LENGTH.make_mesh()
    ids, segments = (ROWS_AND_LENGTH.shard(mesh, array) for array in (IDS, SEGMENTS))
    count = partial(tokjax.packing.cu_seqlens, max_segments=5)
    expected = tokjax.causal_lm_labels(IDS, SEGMENTS), count(SEGMENTS)

    def compute(ids, segments):
        return tokjax.causal_lm_labels(ids, segments), count(segments)

    assert_equal(expected, compute(ids, segments))
    assert_equal(expected, jax.jit(jax.vmap(compute))(ids, segments))


def shard_tokens(mesh, spec):
    return RAGGED._replace(
        ids=jax.device_put(RAGGED.ids, NamedSharding(mesh, spec)),
        row_splits=jax.device_put(RAGGED.row_splits, NamedSharding(mesh, PartitionSpec())),
    )


@pytest.mark.parametrize("name", mark_slow_except(FLAT_TOKEN_FUNCTIONS, ["packed", "documents"]))
@pytest.mark.parametrize(
    "spec", [pytest.param(PartitionSpec(), marks=pytest.mark.slow), PartitionSpec("data")]
)
def test_flat_tokens(name, spec, layout):
    function = FLAT_TOKEN_FUNCTIONS[name]
    mesh = layout.make_mesh()
    with layout.use_mesh(mesh):
        result = jax.jit(function)(shard_tokens(mesh, spec))
    assert_equal(function(RAGGED), result)
