"""Tests of the records `TokenizationResult` and `TokenizationBatch`, and of `Ragged`."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tokjax
from tests.support.rejections import rejects
from tests.support.sentencepiece_models import train_sentencepiece_models
from tokjax import Ragged, TokenizationResult
from tokjax.core.records import ResultMetadata, make_batch_without_copy


@pytest.fixture
def result(tokenizer):
    return tokjax.encode_result(tokenizer, "hello <b>wörld</b>")


@pytest.fixture
def batch(tokenizer):
    return tokjax.encode_batch_result(tokenizer, ["hello world", "", "naïve \n"])


def get_columns(result):
    return [getattr(result, name) for name in ("ids", "attention_mask", *LAZY)]


def test_attributes_are_immutable(result, batch):
    with pytest.raises(AttributeError):
        result.ids = np.zeros(3)
    with pytest.raises(AttributeError):
        result.anything = 1
    with pytest.raises(AttributeError):
        batch.ragged = None
    with pytest.raises(AttributeError):
        del batch.metadata
    with pytest.raises(AttributeError):
        result.metadata.model = "other"


LAZY = ["offsets", "word_ids", "sequence_ids", "special_tokens_mask", "token_type_ids"]


def make_lazy_batch(compute):
    """Makes a batch of two texts, whose word ids are computed when they are first read."""
    return make_batch_without_copy(
        Ragged(np.arange(3, dtype=np.int32), np.array([0, 1, 3])),
        ResultMetadata("test"),
        lambda ids: tuple(map(str, ids)),
        has_attention_mask=True,
        lazy=["word_ids"],
        compute=lambda _: compute(),
    )


def test_threads_get_the_same_column():
    started = threading.Barrier(8)
    lazy = make_lazy_batch(lambda: np.arange(3, dtype=np.int32))
    with ThreadPoolExecutor(8) as pool:
        columns = list(pool.map(lambda _: started.wait() >= 0 and lazy.word_ids, range(8)))
    assert all(column is columns[0] for column in columns)
    with pytest.raises(ValueError, match="read-only"):
        columns[0][0] = 1


def test_failed_column_can_be_read_again():
    results = iter([MemoryError, None])

    def compute():
        if error := next(results):
            raise error
        return np.zeros(3, np.int32)

    lazy = make_lazy_batch(compute)
    with pytest.raises(MemoryError):
        lazy[0].word_ids  # noqa: B018
    assert lazy[0].word_ids.tolist() == [0]


def test_inputs_are_copied():
    ids = np.array([1, 2, 3], np.int32)
    window = ids[:2]
    writable_view = ids[:]
    window.setflags(write=False)
    result = TokenizationResult(ids=ids, tokens=["a", "b", "c"])
    view = TokenizationResult(ids=window, tokens=["a", "b"])
    batch = tokjax.TokenizationBatch(
        tokjax.make_ragged(ids, [0, 3]), tokjax.ResultMetadata("test"), lambda ids: tuple(map(str, ids))
    )
    assert ids.flags.writeable
    writable_view[:] = 9
    assert result.ids.tolist() == batch.ids.tolist() == [1, 2, 3]
    assert view.ids.tolist() == [1, 2]


def test_batch_is_a_sequence(batch, tokenizer):
    assert len(batch) == 3
    assert np.shares_memory(batch[2].ids, batch.ids)
    assert np.shares_memory(batch[2].offsets, batch.offsets)
    assert [len(r) for r in batch] == batch.lengths.tolist()
    assert batch[-1] == batch[2] == tokjax.encode_result(tokenizer, "naïve \n")
    assert batch[1:] == [batch[1], batch[2]]
    assert batch.index(batch[2]) == 2
    with pytest.raises(IndexError, match="batch of 3 texts has no text 3"):
        batch[3]


def test_equality_compares_values(result, batch, tokenizer):
    same = tokjax.encode_result(tokenizer, "hello <b>wörld</b>")
    assert result == same
    assert hash(result) == hash(same)
    assert result != tokjax.encode_result(tokenizer, "hello <b>wörld</b>", return_offsets=False)
    assert result != "hello"
    same_batch = tokjax.encode_batch_result(tokenizer, ["hello world", "", "naïve \n"])
    assert batch == same_batch
    assert hash(batch) == hash(same_batch)
    assert batch != tokjax.encode_batch_result(tokenizer, ["hello world"])


def test_pickle_and_copy(result, batch):
    for copied in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert copied == result
        assert not any(column.flags.writeable for column in get_columns(copied))
    for copied in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        assert copied == batch
        assert copied[0] == batch[0]
        assert not copied.ids.flags.writeable
    assert len(pickle.dumps(batch)) < 3000  # without the vocabulary


def test_arrays_can_not_be_made_writable(result, batch):
    for array in (*get_columns(result), *batch.ragged, *get_columns(batch[0])):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.parametrize("text", ["low", "löw", "low " * 3000], ids=["ASCII", "Unicode", "long"])
def test_ids_without_special_tokens_can_not_be_made_writable(text):
    """Nothing copies these ids after the engine has computed them."""
    byte_level = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)})
    words = tokjax.wordpiece(["[UNK]", "low"])
    for tokenizer in (byte_level, words, train_sentencepiece_models()["bpe"]):
        batch = tokjax.encode_batch_result(tokenizer, [text])
        for ids in (batch.ids, batch[0].ids, tokjax.encode_result(tokenizer, text).ids):
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                ids.flags.writeable = True


def test_batches_with_different_tokens_are_not_equal():
    ranks = {bytes([i]): i for i in range(256)}
    shifted = {bytes([i]): (i + 1) % 256 for i in range(256)}
    left = tokjax.encode_batch_result(tokjax.byte_level_bpe(ranks), ["b"])
    right = tokjax.encode_batch_result(tokjax.byte_level_bpe(shifted), ["a"])
    assert left.ids.tolist() == right.ids.tolist()
    assert left != right
    assert left[0] != right[0]


def test_html_is_escaped(result, batch):
    page = result._repr_html_()
    assert "<b>" not in page
    assert "&lt;" in page
    assert "bytes [1, " in page
    assert batch._repr_html_().count("<li>") == 3
    assert "\x1b" not in TokenizationResult(ids=[1], tokens=["\x1b[2J"])._repr_html_()
    quoted = TokenizationResult(ids=[1], tokens=['"><script>'])
    assert "<script>" not in quoted._repr_html_()


def test_inconsistent_columns_are_rejected():
    assert TokenizationResult(ids=[], tokens=[], offsets=[]).offsets.shape == (0, 2)
    with rejects(r"offsets must have shape \(2, 2\) for 2 tokens, not \(1, 2\)"):
        TokenizationResult(ids=[1, 2], tokens=["a", "b"], offsets=[(1, 2)])
    with rejects("does not fit int32"):
        TokenizationResult(ids=[2**31], tokens=["a"])
    with rejects("integers"):
        TokenizationResult(ids=[1.5], tokens=["a"])


def test_make_ragged_rejects_invalid_columns():
    with rejects("never decrease"):
        tokjax.make_ragged([1, 2], [0, 2, 1])
    with rejects("ends at 1, but there are 2 ids"):
        tokjax.make_ragged([1, 2], [0, 1])
    with rejects("no column 'colour'"):
        tokjax.make_ragged([1], [0, 1], colour=[1])
    with rejects(r"offsets must have shape \(1, 2\)"):
        tokjax.make_ragged([1], [0, 1], offsets=[1])
    with rejects("row 1 has shape"):
        tokjax.ragged_from_rows([[1], [[2]]])


def test_ragged_is_a_pytree():
    import jax
    import jax.numpy as jnp

    ragged = tokjax.make_ragged([1, 2, 3], [0, 1, 3])
    on_device = jax.tree.map(jnp.asarray, ragged)
    assert isinstance(on_device, Ragged)
    assert jax.jit(lambda r: r.lengths)(on_device).tolist() == [1, 2]
    stacked = jax.tree.map(lambda x: jnp.stack([x, x]), on_device)
    assert jax.vmap(lambda r: r.ids.sum())(stacked).tolist() == [6, 6]
