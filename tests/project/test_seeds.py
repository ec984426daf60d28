"""Tests of the results that the project's source documents print, with 0-based ids and `(batch, length)`."""

import io

import numpy as np
import pytest

import tokjax

PAD = 0


@pytest.fixture
def core():
    """A WordPiece tokenizer whose 0-based ids are one less than the printed 1-based ids (Julia)."""
    return tokjax.wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"])


@pytest.fixture
def results(core):
    """Results of three texts. All words of the last one are unknown."""
    texts = ["hello world", "world hello world", "offset demo"]
    views = [tokjax.tokenization_view(core, text) for text in texts]
    return tokjax.encode_batch_result(core, views, assume_normalized=True)


def test_offsets_reference(core):
    assumed = tokjax.encode_result(core, "hello world", assume_normalized=True)
    assert assumed.metadata.offsets_reference == "input_text"
    default = tokjax.encode_result(core, "hello world")
    assert default.metadata.offsets_reference == "tokenizer_normalized_text"
    assert np.array_equal(assumed.offsets, default.offsets)


def test_items_of_batch_equal_single_results(core, results):
    for text, result in zip(["hello world", "world hello world", "offset demo"], results, strict=True):
        assert result == tokjax.encode_result(core, text, assume_normalized=True)
        assert len(result.ids) == len(result.offsets) == len(result.attention_mask)


def test_columns_of_a_result(results):
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
    assert tokjax.quick.to_one_based(result.ids).tolist() == [3, 6, 7, 4]
    assert set(result.attention_mask.tolist()) == {1}
    assert set(result.token_type_ids.tolist()) == {0}
    unknown = results[2]
    assert unknown.offsets.tolist() == [[0, 0], [1, 7], [8, 12], [0, 0]]
    assert unknown.special_tokens_mask[1] == 1
    assert tokjax.offsets.has_nonempty_span(unknown.offsets[1])


def test_lengths_of_results(results):
    assert [len(r.ids) for r in results] == [4, 5, 4]
    assert [r.attention_mask.tolist() for r in results] == [[1] * 4, [1] * 5, [1] * 4]


def test_collate_and_label(core, results):
    batch = tokjax.collate_padded_batch(results, pad_id=tokjax.pad_id(core))
    assert batch.ids.shape == batch.attention_mask.shape == batch.special_tokens_mask.shape == (3, 5)
    assert tokjax.quick.to_one_based(batch.ids).tolist() == [
        [3, 6, 7, 4, 1],
        [3, 7, 6, 7, 4],
        [3, 2, 2, 4, 1],
    ]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 0], [1] * 5, [1, 1, 1, 1, 0]]
    assert batch.special_tokens_mask.tolist() == [[1, 0, 0, 1, 1], [1, 0, 0, 0, 1], [1] * 5]
    labels = tokjax.causal_lm_labels(batch.ids, batch.attention_mask, ignore_index=-100)
    assert labels.tolist() == [[5, 6, 3, -100, -100], [6, 5, 6, 3, -100], [1, 1, 3, -100, -100]]
    assert tokjax.quick.to_one_based(labels).tolist() == [
        [6, 7, 4, -100, -100],
        [7, 6, 7, 4, -100],
        [2, 2, 4, -100, -100],
    ]


def test_pack(core, results):
    separator_id = tokjax.special_tokens(core).get("sep", None)
    packed = tokjax.pack_blocks(results, block_size=6, pad_id=PAD, eos_id=separator_id)
    assert tokjax.quick.to_one_based(packed.ids).tolist() == [
        [3, 6, 7, 4, 4, 3],
        [7, 6, 7, 4, 4, 3],
        [2, 2, 4, 1, 1, 1],
    ]
    assert packed.attention_mask.tolist() == [[1] * 6, [1] * 6, [1, 1, 1, 0, 0, 0]]
    assert packed.total_tokens == 15
    assert packed.segment_ids.tolist() == [[1, 1, 1, 1, 1, 2], [1, 1, 1, 1, 1, 2], [1, 1, 1, 0, 0, 0]]


def test_chunk_boundaries_example():
    text = b"Text1<|endoftext|>Text2<|endoftext|>Text3"
    assert len(text) == 41
    boundaries = tokjax.corpus.find_chunk_boundaries(io.BytesIO(text), 2, b"<|endoftext|>")
    assert boundaries == [0, 23, 41]
    chunks = [text[a:b] for a, b in zip(boundaries, boundaries[1:], strict=False)]
    assert chunks == [b"Text1<|endoftext|>Text2", b"<|endoftext|>Text3"]


def test_bytes_per_token_example():
    text = "The apparent meaning is for the masses, and the inner meaning is for the learned."
    assert len(text) == 81  # the document says 93
    assert len(text.encode()) / len(text.split()) == pytest.approx(5.4)
    byte_tokenizer = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)})
    assert len(text.encode()) / len(tokjax.encode(byte_tokenizer, text)) == 1.0


def test_padding_ratio_example():
    lengths = np.array([50, 230, 128, 512])
    mask = tokjax.masks.create_attention_mask(lengths, 512)
    assert mask.sum() == 920
    assert mask.size == 2048
    assert round(100 * (1 - mask.sum() / mask.size)) == 55
    assert [round(100 * (1 - row.mean())) for row in mask] == [90, 55, 75, 0]


def test_special_tokens_by_role(core):
    special = tokjax.special_tokens(core)
    assert special == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert [special[role] for role in ("pad", "unk", "cls", "sep", "mask")] == list(special.values())
    assert "eos" not in tokjax.special_tokens(tokjax.byte_level(["<s>"], bos_token="<s>"))
    tokenizer = tokjax.byte_level(["</s>", "eos"], eos_token="</s>")
    assert tokjax.special_tokens(tokenizer)["eos"] == tokjax.token_to_id(tokenizer, "eos")


def test_fields():
    sizes = {256: ("uint8", 1), 257: ("uint16", 2), 65_536: ("uint16", 2), 65_537: ("uint32", 4)}
    for size, (dtype, nbytes) in sizes.items():
        tokens = {"[UNK]": 0, "[PAD]": 1, "</s>": 2, "low": size - 1}
        tokenizer = tokjax.models.word_level(tokens, special_tokens=["</s>"], eos_token="</s>")
        for field in (tokjax.TokenizedTextField(tokenizer), tokjax.PackedTokenField(tokenizer)):
            assert (field.token_dtype, field.bytes_per_token) == (np.dtype(dtype), nbytes)
    assert tokjax.RawTextField(9, "UTF8") == tokjax.RawTextField(max_chars=9, encoding="utf-8")
    for encoding in ("latin-1", "no such encoding", None):
        message = f"encoding is {encoding!r}, and texts are stored as UTF-8; omit it, and decode bytes of"
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.RawTextField(encoding=encoding)


def test_token_cache_size_example():
    chunks, length = 1_836_079, 257
    assert round(chunks * length * np.dtype(np.int64).itemsize / 2**30, 1) == 3.5
    assert round(chunks * length * np.dtype(np.uint16).itemsize / 2**20) == 900
