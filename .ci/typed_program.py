"""A user's program for type checkers, with the installed tokjax. They must report its wrong calls."""

from typing import Any, assert_type

import jax
import numpy as np
from numpy.typing import NDArray

import tokjax
from tokjax.trainer import Trained, train_bpe

TEXTS = ["the cat sat on the mat", "naïve café"]

trained = train_bpe(TEXTS * 9, vocab_size=280, special_tokens=["<|endoftext|>"], progress=False)
assert_type(trained, Trained[tokjax.models.ByteLevelBPE])
assert_type(trained.tokenizer, tokjax.models.ByteLevelBPE)
assert_type(trained.merges, tuple[tuple[bytes, bytes], ...])

ids = tokjax.encode(trained.tokenizer, "the cat")
assert_type(ids, NDArray[np.int32])
assert_type(tokjax.decode(trained.tokenizer, ids), str)
assert_type(tokjax.eos_id(trained.tokenizer), int | None)
assert_type(tokjax.vocab_size(trained.tokenizer), int)

batch = tokjax.encode_batch_result(trained.tokenizer, TEXTS)
assert_type(batch, tokjax.TokenizationBatch)
assert_type(batch[0], tokjax.TokenizationResult)
assert_type(batch[0].tokens, tuple[str, ...])
spans = [(start, stop) for start, stop in batch[0].offsets]  # not `None`, as they are computed by default

packed = tokjax.pack_blocks(batch, block_size=16, pad_id=0)
assert_type(packed, tokjax.PackedBlocks)
assert_type(packed.ids, np.ndarray[Any, Any] | jax.Array)
labels = tokjax.causal_lm_labels(packed.ids, packed.attention_mask, segment_ids=packed.segment_ids)
assert_type(tokjax.packing.plan_packing(np.array([3, 4]), 8), tokjax.packing.PackingPlan)
assert_type(next(tokjax.pipelines.batched(TEXTS, 2)), list[str])


def get_first_batch(batches: tokjax.PackedTokenLoader) -> tokjax.PackedBlocks:
    """Returns the first batch of a loader, whose type follows from the type of the loader."""
    for arrays in tokjax.datasets.prefetch_to_device(batches):
        assert_type(arrays, tokjax.PackedBlocks)
    return batches.batch_at(0)


def load_dataset(path: str) -> None:
    """Loads a dataset, whose type is known only if it is passed."""
    dataset = tokjax.open_dataset(path, trained.tokenizer, verify_on_touch=False)
    assert_type(dataset, tokjax.datasets.RawTextDataset | tokjax.datasets.TokenDataset)
    assert_type(dataset.vocab_size, int)
    stream = tokjax.open_dataset(path, dataset_type=tokjax.datasets.PackedDataset)
    assert_type(stream, tokjax.datasets.PackedDataset)
    loader = tokjax.PackedTokenLoader(dataset, batch_size=2, seed=1)
    assert_type(loader.batch_at(0).causal_lm_labels(), np.ndarray[Any, Any] | jax.Array)
    assert_type(get_first_batch(loader), tokjax.PackedBlocks)
    chunks = tokjax.PackedTokenLoader([stream, stream], batch_size=2, documents=False)
    assert_type(chunks, tokjax.PackedTokenLoader[tokjax.datasets.TokenChunks])
    assert_type(chunks.shard(0, 2).batch_at(0), tokjax.datasets.TokenChunks)
    assert_type(chunks.map(len).batch_at(0), int)
    padded = tokjax.datasets.SequenceLoader(dataset, batch_size=2)
    for columns in padded.map(tokjax.batch_to_dict):
        assert_type(columns, dict[str, Any])
    tokjax.PackedTokenLoader(stream, batch_size=2, shufle=True)  # type: ignore[call-overload]
    tokjax.open_dataset(path, verify=True)  # type: ignore[call-overload]


tokjax.encode_result(trained.tokenizer, 5)  # type: ignore[arg-type]
tokjax.pack_blocks(batch, block_size="16", pad_id=0)  # type: ignore[arg-type]
tokjax.pack_blocks(batch, block_size=16)  # type: ignore[call-arg]
print(tokjax.encode_everything)  # type: ignore[attr-defined]
