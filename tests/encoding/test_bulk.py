"""Tests of `tokjax.encoding.bulk`, of encoding with threads, and of decoding batches."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.small_chunks import use_small_chunks
from tests.support.text_strategies import any_strings, byte_strings, hard_texts
from tokjax.encoding import bulk
from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError, UnknownTokenError
from tokjax.models import assembly


@given(st.lists(hard_texts | byte_strings | any_strings, max_size=6), st.booleans())
def test_array_ids_equal_separately_encoded_ids(tokenizer, texts, special):
    arrays = tokjax.encode_to_array(
        tokenizer, texts, add_special_tokens=special, disallowed_special=(), threads=1
    )
    rows = [
        tokjax.encode(tokenizer, text, add_special_tokens=special, disallowed_special=()) for text in texts
    ]
    assert [part.tolist() for part in np.split(arrays.ids, arrays.row_splits[1:-1])][: len(rows)] == [
        row.tolist() for row in rows
    ]
    assert arrays.offsets is None
    counts = tokjax.count_tokens(tokenizer, texts, add_special_tokens=special, disallowed_special=())
    assert counts.tolist() == [len(row) for row in rows]
    assert counts.dtype == np.int64


def test_counting_one_text_returns_an_int(tokenizer):
    assert tokjax.count_tokens(tokenizer, "low low") == len(tokjax.encode(tokenizer, "low low"))
    assert isinstance(tokjax.count_tokens(tokenizer, b"low"), int)
    assert tokjax.count_tokens(tokenizer, "", add_special_tokens=False) == 0


def test_counting_reads_an_iterable_in_groups(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr(bulk, "_BATCH_BYTES", 100)
    expected = [len(tokjax.encode(tokenizer, text)) for text in corpus * 5]
    assert tokjax.count_tokens(tokenizer, iter(corpus * 5)).tolist() == expected
    with pytest.raises(DisallowedSpecialTokenError, match="holds the special token"):
        tokjax.count_tokens(tokenizer, ["a", "<|pad|>"])


@pytest.fixture
def many_small_chunks():
    with use_small_chunks() as patch:
        patch.setattr(assembly, "_TOKENS_PER_GROUP", 16)
        yield


@pytest.mark.usefixtures("many_small_chunks")
@pytest.mark.parametrize("threads", [1, 5])
def test_result_does_not_depend_on_threads(tokenizer, corpus, threads):
    texts = [*corpus, "", "<|endoftext|>", "a<|pad|><|pad|>b" * 9, *corpus]
    separate = [tokjax.encode_result(tokenizer, text, allowed_special="all") for text in texts]
    batch = tokjax.encode_batch_result(tokenizer, texts, allowed_special="all", threads=threads)
    assert list(batch) == separate


def write_file(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("size", [10, 1 << 20])
@pytest.mark.parametrize("separator", ["<|endoftext|>", "\n", None])
def test_file_batches_contain_the_documents(tokenizer, corpus, tmp_path, monkeypatch, size, separator):
    monkeypatch.setattr(bulk, "_BATCH_BYTES", size)
    texts = ["<|endoftext|>".join([*corpus, "", *corpus]), "", "\n\nx\n"]
    paths = [write_file(tmp_path / f"{i}.txt", text.encode()) for i, text in enumerate(texts)]
    batches = list(
        tokjax.encode_files(tokenizer, paths, separator=separator, return_offsets=True, disallowed_special=())
    )
    documents = [part for text in texts for part in ([text] if separator is None else text.split(separator))]
    expected = [
        tokjax.encode_result(tokenizer, part, return_masks=False, disallowed_special=())
        for part in documents
        if part
    ]
    assert [result for batch in batches for result in batch] == expected
    assert size > 1000 or len(batches) > 1


def test_counting_invalid_texts(tokenizer):
    for wrong, expected in ((bytearray(b"abc"), "str or bytes, not bytearray"), (3, "an iterable, not 3")):
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=expected):
            tokjax.count_tokens(tokenizer, wrong)


def test_single_path_as_string(tokenizer, tmp_path, capfd):
    path = write_file(tmp_path / "one.txt", b"low\nlower\n")
    (batch,) = tokjax.encode_files(
        tokenizer, str(path), separator="\n", add_special_tokens=False, progress=True
    )
    assert tokjax.decode_batch(tokenizer, batch) == ["low", "lower"]
    assert batch.offsets is None
    assert "Encoding" in capfd.readouterr().err


def test_invalid_arguments_raise_before_iteration(tokenizer, tmp_path):
    with pytest.raises(InvalidArgumentError, match="is not a file"):
        tokjax.encode_files(tokenizer, [str(tmp_path / "none.txt")], separator=None)
    with pytest.raises(InvalidArgumentError, match="pass None if each file is one document"):
        tokjax.encode_files(tokenizer, write_file(tmp_path / "a", b"a"), separator="")
    for arguments, message in (
        ({"separator": "\ud800"}, "which no file in UTF-8 contains"),
        ({"separator": None, "progress": np.ones(2)}, "progress must be one value, not the array"),
        ({"separator": b"\n"}, "separator must be str or None, not bytes"),
        ({"separator": None, "threads": 0}, "threads must be at least 1"),
        ({"separator": None, "threads": 2**31}, "threads must be at most 1024, not 2147483648"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            tokjax.encode_files(tokenizer, write_file(tmp_path / "a", b"a"), **arguments)
    with pytest.raises(InvalidArgumentError, match=r"must be str or os\.PathLike, not bytes"):
        tokjax.encode_files(tokenizer, [b"a"], separator=None)


@given(st.lists(hard_texts | byte_strings, max_size=6))
def test_decode_batch_equals_decode(tokenizer, texts):
    batch = tokjax.encode_batch_result(tokenizer, texts, disallowed_special=())
    for skip in (False, True):
        expected = [tokjax.decode(tokenizer, row.ids, skip_special_tokens=skip) for row in batch]
        assert tokjax.decode_batch(tokenizer, batch, skip_special_tokens=skip) == expected
        assert tokjax.decode_batch(tokenizer, batch.ragged, skip_special_tokens=skip) == expected
        rows = [row.ids.tolist() for row in batch]
        assert tokjax.decode_batch(tokenizer, rows, skip_special_tokens=skip) == expected
    table = tokenizer.vocabulary.bytes_by_id
    for row in batch:
        assert tokjax.decode_bytes(tokenizer, row.ids) == b"".join(table[i] for i in row.ids.tolist())


def test_decoding_in_blocks(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr("tokjax.core.protocol._IDS_PER_BLOCK", 7)
    batch = tokjax.encode_batch_result(tokenizer, corpus, add_special_tokens=False)
    assert tokjax.decode_batch(tokenizer, batch) == corpus


def test_decoding_invalid_ids(tokenizer):
    assert tokjax.decode_batch(tokenizer, []) == []
    with pytest.raises(UnknownTokenError, match="has no id 99999"):
        tokjax.decode_batch(tokenizer, [[1], [99999]])
    with pytest.raises(InvalidArgumentError, match="takes a batch, a Ragged or rows of ids, not str"):
        tokjax.decode_batch(tokenizer, "ids")
    with pytest.raises(InvalidArgumentError, match="decode_batch takes many"):
        tokjax.decode(tokenizer, [[1, 2]])
