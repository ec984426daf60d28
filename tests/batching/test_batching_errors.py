"""Tests of the errors of batching functions: invalid ids, other result types, and invalid shapes."""

import numpy as np
import pytest

import tokjax
from tests.support.rejections import rejects


@pytest.mark.parametrize("wrong", [None, 1.5, "0", True, 2**31])
def test_invalid_ids_are_rejected(wrong):
    ragged, flat = tokjax.ragged_from_rows([[1]]), np.array([1])
    with rejects("pad_id (is|must be)"):
        tokjax.collate_padded_batch(ragged, pad_id=wrong)
    with rejects("pad_id (is|must be)"):
        tokjax.pack_blocks(ragged, block_size=2, pad_id=wrong)
    if wrong is not None:
        with rejects("eos_id (is|must be)"):
            tokjax.pack_blocks(ragged, block_size=2, pad_id=0, eos_id=wrong)
    with rejects("pad_value (is|must be)"):
        tokjax.quick.pad_sequence(flat, 2, wrong)
    with rejects("eos_token (is|must be)"):
        tokjax.masks.find_document_boundaries(flat, wrong)
    with rejects("ignore_index (is|must be)"):
        tokjax.causal_lm_labels(flat, flat, ignore_index=wrong)


def test_other_result_types_are_rejected(tokenizer):
    batch = tokjax.encode_batch_result(tokenizer, ["a", "b"])
    chat = tokjax.encode_chat(tokenizer, [{"role": "user", "content": "a"}], "{{ messages[0].content }}")
    for passed, message in (
        (tokjax.quick.quick_encode_batch(tokenizer, ["a"]), "of type QuickBatch: pass its results"),
        ([batch, batch], "result 0 is of type TokenizationBatch: pass the batch itself, or all results"),
        ([batch[0], chat], "result 1 is of type EncodedChat: pass its tokens, chat.result"),
        (chat, "is of type EncodedChat: pass its tokens, chat.result"),
        ([[1, 2]], "result 0 is of type list: for rows of plain ids pass tokjax.ragged_from_rows"),
    ):
        with rejects(message):
            tokjax.collate_padded_batch(passed, pad_id=0)


def test_invalid_shapes_are_rejected():
    for call in (
        lambda: tokjax.quick.pad_sequence(np.array([1]), -1, 0),
        lambda: tokjax.quick.batch_pad_sequences(np.array([[1]]), np.array([1]), -1, 0),
    ):
        with rejects("max_length must be at least 0, not -1"):
            call()
    with rejects(r"must have shape \(n,\), not \(1, 1\)"):
        tokjax.quick.pad_sequence(np.array([[1]]), 2, 0)
    with rejects(r"\(batch, width\)"):
        tokjax.quick.batch_pad_sequences(np.array([1]), np.array([1]), 2, 0)
    with rejects(r"\(2, 1\) and \(1,\)"):
        tokjax.quick.batch_pad_sequences(np.array([[1], [2]]), np.array([1]), 2, 0)
    for call in (
        lambda: tokjax.masks.create_causal_mask(-1),
        lambda: tokjax.masks.create_attention_mask(1, -1),
    ):
        with rejects("at least 0, not -1"):
            call()
