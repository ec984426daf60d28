"""Blocks as other libraries name and take them: their segments, lengths and columns."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.numpy_jax_agreement import assert_agrees

segments = st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=1, max_size=4)


@given(segments)
def test_segments(lengths):
    width = max(map(sum, lengths)) + 1
    rows = [[i for i, n in enumerate(row, 1) for _ in range(n)] for row in lengths]
    ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
    found = assert_agrees(partial(tokjax.packing.segment_lengths, max_segments=5), ids)
    assert found.tolist() == [row + [0] * (5 - len(row)) for row in lengths]
    bounds = assert_agrees(partial(tokjax.packing.cu_seqlens, max_segments=5), ids)
    assert bounds.tolist() == [np.cumsum([0, *row, *[0] * (5 - len(row))]).tolist() for row in lengths]
    packed = assert_agrees(partial(tokjax.packing.cudnn_segments, max_segments=5), ids)
    for row, seqlen, offsets in zip(lengths, packed["q_seqlen"], packed["q_offsets"], strict=True):
        assert seqlen.tolist() == row + [-1] * (5 - len(row))
        assert offsets.tolist() == np.cumsum([0, *row])[: len(row)].tolist() + [-1] * (6 - len(row))
    assert packed["kv_seqlen"].tolist() == packed["q_seqlen"].tolist()
    assert packed["kv_offsets"].tolist() == packed["q_offsets"].tolist()


def test_segments_of_one_row_and_too_many():
    assert tokjax.packing.cu_seqlens(np.array([1, 2, 2, 0]), 2).tolist() == [0, 1, 3]
    assert tokjax.packing.segment_lengths(np.zeros((0, 4), np.int32), 2).shape == (0, 2)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="a row has 3 segments, more than max_segments=2"
    ):
        tokjax.packing.segment_lengths(np.array([[1, 2, 3]]), 2)
    for row in ([0, 0, 1], [1, 0, 2], [2, 1]):
        with pytest.raises(
            tokjax.errors.InvalidArgumentError, match=r"ascending order along a row, with padding \(0\) after"
        ):
            tokjax.packing.cu_seqlens(np.array([row]), 2)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"segment_ids must have shape \(\.\.\., length\)"
    ):
        tokjax.packing.cu_seqlens(np.int32(1), 2)
    traced = jax.jit(partial(tokjax.packing.segment_lengths, max_segments=2))(jnp.array([[1, 2, 3, 3]]))
    assert traced.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    "count", [tokjax.packing.segment_lengths, tokjax.packing.cu_seqlens, tokjax.packing.cudnn_segments]
)
def test_segments_need_space(count):
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="max_segments must be at least 1, not 0"):
        count(np.zeros((1, 3), np.int32), 0)


@pytest.fixture
def packed():
    rows = tokjax.ragged_from_rows([[5, 6, 7], [8], [9, 9]])
    return tokjax.pack_blocks(rows, block_size=5, pad_id=0, strategy="best_fit", max_segments=2)


def test_views(packed):
    assert packed.ids.tolist() == [[5, 6, 7, 9, 9], [8, 0, 0, 0, 0]]
    assert packed.causal_lm_labels().tolist() == [[6, 7, -100, 9, -100], [-100] * 5]
    answers = packed.causal_lm_labels(loss_mask=packed.ids != 7, ignore_index=-1)
    assert answers[0].tolist() == [6, -1, -1, 9, -1]
    assert packed.lengths.tolist() == [5, 1]
    assert packed.cu_seqlens(2).tolist() == [[0, 3, 5], [0, 1, 1]]


def test_maxtext(packed):
    batch = assert_agrees(lambda p: p.to_maxtext(), packed)
    assert batch["inputs"].tolist() == packed.ids.tolist()
    assert batch["targets"].tolist() == [[6, 7, 0, 9, 0], [0] * 5]
    assert batch["inputs_segmentation"].tolist() == [[1, 1, 1, 2, 2], [1, 0, 0, 0, 0]]
    assert batch["targets_segmentation"].tolist() == [[1, 1, 0, 2, 0], [0] * 5]
    assert batch["inputs_position"].tolist() == batch["targets_position"].tolist()
    assert batch["inputs_position"].tolist() == [[0, 1, 2, 0, 1], [0] * 5]


def test_levanter(packed):
    batch = packed.to_levanter()
    assert batch["loss_weight"].dtype == np.float32
    assert batch["loss_weight"].tolist() == [[1, 1, 0, 1, 0], [0] * 5]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 2, 2], [1, -1, -1, -1, -1]]
    assert batch["tokens"] is packed.ids
    of_first_line = packed.to_levanter("loss_mask")
    assert of_first_line.keys() == {"tokens", "loss_mask", "segment_ids"}
    assert of_first_line["loss_mask"].dtype == np.int32  # (it is combined with another by `&` there)
    assert of_first_line["loss_mask"].tolist() == [[1, 1, 0, 1, 0], [0] * 5]
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="loss_name must be 'loss_weight' or 'loss_mask'"
    ):
        packed.to_levanter("mask")


def test_that_a_token_has_the_id_0_does_not_leave_it_out():
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows([[3, 0, 0]]), block_size=4, pad_id=0)
    maxtext = blocks.to_maxtext()
    assert maxtext["targets"].tolist() == [[0, 0, 0, 0]]
    assert maxtext["targets_segmentation"].tolist() == [[1, 1, 0, 0]]
    assert blocks.to_levanter()["loss_weight"].tolist() == [[1, 1, 0, 0]]


def test_grain_packs_alike():
    grain = pytest.importorskip("grain.python")
    experimental = pytest.importorskip("grain.experimental")
    rows = [[1, 2, 3, 4], [5, 6, 7], [9, 9], [8]]
    source = grain.MapDataset.source([{"tokens": np.array(row, np.int32)} for row in rows]).to_iter_dataset()
    theirs = list(
        experimental.FirstFitPackIterDataset(source, length_struct={"tokens": 6}, num_packing_bins=2)
    )
    ours = tokjax.pack_blocks(tokjax.ragged_from_rows(rows), block_size=6, pad_id=0, strategy="best_fit")
    ours = ours.to_grain()
    assert sorted(theirs[0]) == sorted(ours)
    by_first = {tuple(block["tokens"].tolist()): block for block in theirs}
    for i, ids in enumerate(ours["tokens"].tolist()):
        theirs_too = by_first[tuple(ids)]
        assert {name: values[i].tolist() for name, values in ours.items()} == {
            name: values.tolist() for name, values in theirs_too.items()
        }


def test_transformers_finds_segments_where_positions_begin_again():
    rows = tokjax.ragged_from_rows([[1, 2, 3, 4], [*range(11, 21)]])
    options = {"strategy": "first_fit", "overlong": "split", "positions": "document"}
    blocks = tokjax.pack_blocks(rows, block_size=8, pad_id=0, **options)
    assert blocks.positions.tolist() == [[0, 1, 2, 3, 8, 9, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7]]
    with jax.numpy_rank_promotion("raise"):
        found = jax.jit(tokjax.PackedBlocks.to_huggingface)(blocks)["position_ids"]
    assert found.tolist() == [[0, 1, 2, 3, 0, 1, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7]]


def test_integers_are_as_wide_as_torch_needs_them(packed):
    views = packed.to_huggingface(), jax.jit(tokjax.PackedBlocks.to_huggingface)(packed)
    for name, values in views[0].items():
        assert values.dtype == np.int64
        assert views[1][name].dtype == np.int32
        assert values.tolist() == views[1][name].tolist()


@pytest.mark.slow
def test_a_model_of_transformers_keeps_documents_apart_without_a_cache():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, max_position_embeddings=64, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()
    rows = [[5, 6, 7, 8], [9, 10, 11], [12, 13, 14, 15, 16]]
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows(rows), block_size=14, pad_id=0)
    batch = {name: torch.from_numpy(values) for name, values in blocks.to_huggingface().items()}
    with torch.no_grad():
        alone = [model(input_ids=torch.tensor([row]), labels=torch.tensor([row])) for row in rows]
        packed = model(**batch, use_cache=False)
        mixed = model(**batch)
    logits = torch.cat([output.logits[0] for output in alone])
    torch.testing.assert_close(packed.logits[0, :12], logits, rtol=1e-5, atol=1e-5)
    assert (mixed.logits[0, :12] - logits).abs().max() > 0.01
    labels = sum(len(row) - 1 for row in rows)
    loss = sum(float(output.loss) * (len(row) - 1) for output, row in zip(alone, rows, strict=True)) / labels
    assert float(packed.loss) == pytest.approx(loss, rel=1e-5)


def test_transformers_flatten_alike():
    transformers = pytest.importorskip("transformers")
    rows = [[5, 6, 7], [8], [9, 9]]
    theirs = transformers.DataCollatorWithFlattening(return_tensors="np")(
        [{"input_ids": row} for row in rows]
    )
    ours = tokjax.pack_blocks(tokjax.ragged_from_rows(rows), block_size=6, pad_id=0).to_huggingface()
    assert sorted(ours) == ["input_ids", "labels", "position_ids"]
    for name, values in ours.items():
        assert values.tolist() == theirs[name].tolist(), name
    padded = tokjax.pack_blocks(tokjax.ragged_from_rows(rows), block_size=8, pad_id=0).to_huggingface()
    assert padded["labels"].tolist() == [[-100, 6, 7, -100, -100, 9, -100, -100]]
