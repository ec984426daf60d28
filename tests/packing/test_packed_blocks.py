"""Tests of packed blocks as batches of other libraries."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.numpy_jax_agreement import assert_agrees
from tests.support.rejections import rejects


@pytest.fixture
def packed():
    rows = tokjax.ragged_from_rows([[5, 6, 7], [8], [9, 9]])
    return tokjax.pack_blocks(rows, block_size=5, pad_id=0, strategy="best_fit", max_segments=2)


def test_labels_and_lengths(packed):
    assert packed.ids.tolist() == [[5, 6, 7, 9, 9], [8, 0, 0, 0, 0]]
    assert packed.causal_lm_labels().tolist() == [[6, 7, -100, 9, -100], [-100] * 5]
    masked = packed.causal_lm_labels(loss_mask=packed.ids != 7, ignore_index=-1)
    assert masked[0].tolist() == [6, -1, -1, 9, -1]
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
    old_batch = packed.to_levanter("loss_mask")
    assert old_batch.keys() == {"tokens", "loss_mask", "segment_ids"}
    assert old_batch["loss_mask"].dtype == np.int32  # levanter combines it with another mask by `&`
    assert old_batch["loss_mask"].tolist() == [[1, 1, 0, 1, 0], [0] * 5]
    with rejects("loss_name must be 'loss_weight' or 'loss_mask'"):
        packed.to_levanter("mask")


def test_t5x_equals_the_example_of_seqio():
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows([[3, 9, 1], [4, 1]]), block_size=6, pad_id=0)
    batch = assert_agrees(lambda p: p.to_t5x(), blocks)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "decoder_target_tokens": [[3, 9, 1, 4, 1, 0]],
        "decoder_input_tokens": [[0, 3, 9, 0, 4, 0]],
        "decoder_loss_weights": [[1, 1, 1, 1, 1, 0]],
        "decoder_segment_ids": [[1, 1, 1, 2, 2, 0]],
        "decoder_positions": [[0, 1, 2, 0, 1, 0]],
    }
    masked = blocks._replace(loss_mask=np.array([[0, 1, 1, 0, 1, 0]], np.int32))
    batch = assert_agrees(lambda p: p.to_t5x(bos_id=7), masked)
    assert batch["decoder_input_tokens"].tolist() == [[7, 3, 9, 7, 4, 0]]
    assert batch["decoder_loss_weights"].tolist() == [[0, 1, 1, 0, 1, 0]]


def test_tunix(packed):
    batch = assert_agrees(lambda p: p.to_tunix(), packed)
    assert batch["input_tokens"].tolist() == packed.ids.tolist()
    assert batch["input_mask"].tolist() == [[0, 1, 1, 0, 1], [0] * 5]
    assert batch["positions"].tolist() == packed.positions.tolist()
    mask = tokjax.masks.make_attention_mask(segment_ids=packed.segment_ids)
    assert batch["attention_mask"].tolist() == mask[:, 0].tolist()
    # Tunix compares the logits of each token with the next token, where its mask is set.
    labels = packed.causal_lm_labels()[:, :-1]
    assert (np.where(batch["input_mask"], packed.ids, -100)[:, 1:] == labels).all()
    masked = packed._replace(loss_mask=np.array([[1, 0, 1, 1, 1], [1, 0, 0, 0, 0]], np.int32))
    assert masked.to_tunix()["input_mask"].tolist() == [[0, 0, 1, 0, 1], [0] * 5]


def test_tokens_with_the_pad_id_count_as_targets():
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows([[3, 0, 0]]), block_size=4, pad_id=0)
    maxtext = blocks.to_maxtext()
    assert maxtext["targets"].tolist() == [[0, 0, 0, 0]]
    assert maxtext["targets_segmentation"].tolist() == [[1, 1, 0, 0]]
    assert blocks.to_levanter()["loss_weight"].tolist() == [[1, 1, 0, 0]]


def test_blocks_equal_those_of_grain():
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
    by_ids = {tuple(block["tokens"].tolist()): block for block in theirs}
    for i, ids in enumerate(ours["tokens"].tolist()):
        their_block = by_ids[tuple(ids)]
        assert {name: values[i].tolist() for name, values in ours.items()} == {
            name: values.tolist() for name, values in their_block.items()
        }


def test_huggingface_positions_restart_with_each_segment():
    rows = tokjax.ragged_from_rows([[1, 2, 3, 4], [*range(11, 21)]])
    options = {"strategy": "first_fit", "overlong": "split", "positions": "document"}
    blocks = tokjax.pack_blocks(rows, block_size=8, pad_id=0, **options)
    assert blocks.positions.tolist() == [[0, 1, 2, 3, 8, 9, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7]]
    with jax.numpy_rank_promotion("raise"):
        actual = jax.jit(tokjax.PackedBlocks.to_huggingface)(blocks)["position_ids"]
    assert actual.tolist() == [[0, 1, 2, 3, 0, 1, 0, 0], [0, 1, 2, 3, 4, 5, 6, 7]]


def test_huggingface_dtypes(packed):
    batches = packed.to_huggingface(), jax.jit(tokjax.PackedBlocks.to_huggingface)(packed)
    for name, values in batches[0].items():
        assert values.dtype == np.int64
        assert batches[1][name].dtype == np.int32
        assert values.tolist() == batches[1][name].tolist()


@pytest.mark.parametrize("flash", [False, True])
def test_batch_equals_that_of_transformers_collator(flash):
    transformers = pytest.importorskip("transformers")
    rows = [[5, 6, 7], [8], [9, 9]]
    collate = transformers.DataCollatorWithFlattening(return_tensors="np", return_flash_attn_kwargs=flash)
    theirs = collate([{"input_ids": row} for row in rows])
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows(rows), block_size=6, pad_id=0)
    ours = blocks.to_huggingface(flash_attention=flash)
    assert sorted(ours) == sorted(theirs)
    padded = tokjax.pack_blocks(tokjax.ragged_from_rows(rows), block_size=8, pad_id=0)
    assert padded.to_huggingface()["labels"].tolist() == [[-100, 6, 7, -100, -100, 9, -100, -100]]
    for name, values in ours.items():
        assert np.array_equal(values, theirs[name]), name
        assert np.asarray(values).dtype == np.asarray(theirs[name]).dtype, name
    if flash:
        assert type(ours["max_length_q"]) is type(theirs["max_length_q"]) is int


@pytest.mark.slow
@given(
    rows=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=7), max_size=8),
    leading=st.sampled_from([(), (1,), (2,)]),
)
def test_flash_attention_has_the_segments_of_all_blocks(rows, leading):
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows(rows), block_size=7, pad_id=0)
    blocks = jax.tree.map(lambda array: np.broadcast_to(array, (*leading, *array.shape)), blocks)
    batch = blocks.to_huggingface(flash_attention=True)
    on_device = jax.tree.map(jax.numpy.asarray, blocks).to_huggingface(flash_attention=True)
    # Slow and obvious: a segment is a run of tokens with equal (block, segment id).
    flat = blocks.segment_ids.reshape(-1).tolist()
    runs = [len([*run]) for _, run in itertools.groupby((i // 7, segment) for i, segment in enumerate(flat))]
    for each in (batch, on_device):
        assert (
            each["cu_seq_lens_q"].tolist() == each["cu_seq_lens_k"].tolist() == np.cumsum([0, *runs]).tolist()
        )
        assert each["cu_seq_lens_q"].dtype == np.int32
        assert each["max_length_q"] == each["max_length_k"] == max(runs, default=0)
    assert isinstance(on_device["cu_seq_lens_q"], jax.Array)


def test_flash_attention_under_jit(packed):
    convert = jax.jit(lambda blocks: blocks.to_huggingface(flash_attention=True))
    with rejects("flash_attention=True needs the number of segments, which"):
        convert(packed)


LLAMA_ROWS = [[5, 6, 7, 8], [9, 10, 11], [12, 13, 14, 15, 16]]


def make_llama(torch, transformers):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, max_position_embeddings=64, **sizes)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.slow
def test_transformers_models_separate_documents_without_a_cache():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = make_llama(torch, transformers)
    blocks = tokjax.pack_blocks(tokjax.ragged_from_rows(LLAMA_ROWS), block_size=14, pad_id=0)
    batch = {name: torch.from_numpy(values) for name, values in blocks.to_huggingface().items()}
    with torch.no_grad():
        alone = [model(input_ids=torch.tensor([row]), labels=torch.tensor([row])) for row in LLAMA_ROWS]
        packed = model(**batch, use_cache=False)
        mixed = model(**batch)
    logits = torch.cat([output.logits[0] for output in alone])
    torch.testing.assert_close(packed.logits[0, :12], logits, rtol=1e-5, atol=1e-5)
    assert (mixed.logits[0, :12] - logits).abs().max() > 0.01
    labels = sum(len(row) - 1 for row in LLAMA_ROWS)
    loss = (
        sum(float(output.loss) * (len(row) - 1) for output, row in zip(alone, LLAMA_ROWS, strict=True))
        / labels
    )
    assert float(packed.loss) == pytest.approx(loss, rel=1e-5)
