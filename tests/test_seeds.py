"""The printed results of the documents that the project comes from, 0-based and `(batch, length)`."""

import io

import numpy as np
import pytest

import tokjax
from tokjax import TokenizationResult

CLS, SEP, UNK, PAD = 2, 3, 1, 0


def wordpiece(tokens, ids, offsets, special):
    """A result as a WordPiece tokenizer gives it."""
    n = len(ids)
    return TokenizationResult(
        ids=ids,
        tokens=tokens,
        offsets=offsets,
        special_tokens_mask=special,
        attention_mask=[1] * n,
        token_type_ids=[0] * n,
    )


@pytest.fixture
def results():
    """`hello world`, `world hello world`, `offset demo`, with ids one less than in 1-based Julia."""
    return [
        wordpiece(
            ["[CLS]", "hello", "world", "[SEP]"],
            [CLS, 5, 6, SEP],
            [(0, 0), (1, 6), (7, 12), (0, 0)],
            [1, 0, 0, 1],
        ),
        wordpiece(
            ["[CLS]", "world", "hello", "world", "[SEP]"],
            [CLS, 6, 5, 6, SEP],
            [(0, 0), (1, 6), (7, 12), (13, 18), (0, 0)],
            [1, 0, 0, 0, 1],
        ),
        wordpiece(
            ["[CLS]", "[UNK]", "[UNK]", "[SEP]"],
            [CLS, UNK, UNK, SEP],
            [(0, 0), (1, 7), (8, 12), (0, 0)],
            [1, 1, 1, 1],
        ),
    ]


def test_inspect_a_result(results):
    text = "hello world"
    result = results[0]
    rows = [
        (token, id_, tuple(span), special, tokjax.try_span_substring(text, span))
        for token, id_, span, special in zip(
            result.tokens,
            result.ids.tolist(),
            result.offsets.tolist(),
            result.special_tokens_mask.tolist(),
            strict=True,
        )
    ]
    assert rows == [
        ("[CLS]", 2, (0, 0), 1, ""),
        ("hello", 5, (1, 6), 0, "hello"),
        ("world", 6, (7, 12), 0, "world"),
        ("[SEP]", 3, (0, 0), 1, ""),
    ]
    assert tokjax.to_one_based(result.ids).tolist() == [3, 6, 7, 4]
    assert set(result.attention_mask.tolist()) == {1}
    unknown = results[2]
    assert unknown.special_tokens_mask[1] == 1
    assert tokjax.has_nonempty_span(unknown.offsets[1])


def test_lengths_differ(results):
    assert [len(r.ids) for r in results] == [4, 5, 4]
    assert [r.attention_mask.tolist() for r in results] == [[1] * 4, [1] * 5, [1] * 4]


def test_collate_and_label(results):
    batch = tokjax.collate_padded_batch(results, pad_id=PAD)
    assert batch.ids.shape == batch.attention_mask.shape == batch.special_tokens_mask.shape == (3, 5)
    assert tokjax.to_one_based(batch.ids).tolist() == [[3, 6, 7, 4, 1], [3, 7, 6, 7, 4], [3, 2, 2, 4, 1]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 0], [1] * 5, [1, 1, 1, 1, 0]]
    assert batch.special_tokens_mask.tolist() == [[1, 0, 0, 1, 1], [1, 0, 0, 0, 1], [1] * 5]
    labels = tokjax.causal_lm_labels(batch.ids, batch.attention_mask, ignore_index=-100)
    assert labels.tolist() == [[5, 6, 3, -100, -100], [6, 5, 6, 3, -100], [1, 1, 3, -100, -100]]
    assert tokjax.to_one_based(labels).tolist() == [
        [6, 7, 4, -100, -100],
        [7, 6, 7, 4, -100],
        [2, 2, 4, -100, -100],
    ]


def test_pack(results):
    packed = tokjax.pack_blocks(results, block_size=6, pad_id=PAD, eos_id=SEP)
    assert tokjax.to_one_based(packed.ids).tolist() == [
        [3, 6, 7, 4, 4, 3],
        [7, 6, 7, 4, 4, 3],
        [2, 2, 4, 1, 1, 1],
    ]
    assert packed.attention_mask.tolist() == [[1] * 6, [1] * 6, [1, 1, 1, 0, 0, 0]]
    assert packed.total_tokens == 15
    assert packed.segment_ids.tolist() == [[1, 1, 1, 1, 1, 2], [1, 1, 1, 1, 1, 2], [1, 1, 1, 0, 0, 0]]


def test_the_picture_of_chunk_boundaries():
    text = b"Text1<|endoftext|>Text2<|endoftext|>Text3"
    assert len(text) == 41
    boundaries = tokjax.find_chunk_boundaries(io.BytesIO(text), 2, b"<|endoftext|>")
    assert boundaries == [0, 23, 41]
    chunks = [text[a:b] for a, b in zip(boundaries, boundaries[1:], strict=False)]
    assert chunks == [b"Text1<|endoftext|>Text2", b"<|endoftext|>Text3"]


def test_bytes_per_token_of_the_sentence():
    text = "The apparent meaning is for the masses, and the inner meaning is for the learned."
    assert len(text) == 81  # the document says 93
    assert len(text.encode()) / len(text.split()) == pytest.approx(5.4)
    of_bytes = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)})
    assert len(text.encode()) / len(tokjax.encode(of_bytes, text)) == 1.0


def test_the_padding_problem():
    lengths = np.array([50, 230, 128, 512])
    mask = tokjax.create_attention_mask(lengths, 512)
    assert mask.sum() == 920
    assert mask.size == 2048
    assert round(100 * (1 - mask.sum() / mask.size)) == 55
    assert [round(100 * (1 - row.mean())) for row in mask] == [90, 55, 75, 0]


def test_dtypes_by_vocabulary():
    from tokjax.store.fields import token_dtype

    assert [token_dtype(n).name for n in (256, 257, 50_257, 65_536, 65_537, 128_256)] == [
        "uint8",
        "uint16",
        "uint16",
        "uint16",
        "uint32",
        "uint32",
    ]


def test_the_size_of_the_token_cache():
    chunks, length = 1_836_079, 257
    assert round(chunks * length * np.dtype(np.int64).itemsize / 2**30, 1) == 3.5
    assert round(chunks * length * np.dtype(np.uint16).itemsize / 2**20) == 900
