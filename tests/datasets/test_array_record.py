"""Tests of ArrayRecord files, as Grain and MaxText read them."""

import functools
import operator
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.cli.test_commands import get_output, run
from tests.datasets.test_conversion import LARGE, TOKENIZER
from tests.support.byte_tokenizers import make_byte_tokenizer
from tests.support.id_datasets import write_id_dataset
from tests.support.record_files import make_example, write_array_record
from tests.support.rejections import rejects

pytest.importorskip("array_record.python.array_record_module")
pytest.importorskip("google.protobuf.message")
BOS = 258
WITH_BOS = make_byte_tokenizer("</s>", "<s>", tokens=[b"lo"])
DOCUMENTS = [[5, 6, 257], [], [7], list(range(200)), [257]]


def read_records(path):
    """Reads records as Grain does."""
    sources = pytest.importorskip("array_record.python.array_record_data_source")
    with sources.ArrayRecordDataSource(str(path)) as source:
        return [source[i] for i in range(len(source))]


def test_each_record_is_an_example(tmp_path):
    target = tmp_path / "train.array_record"
    dataset = write_id_dataset(DOCUMENTS, tmp_path / "data", TOKENIZER)
    assert tokjax.datasets.export_dataset(dataset, target) == (target,)
    assert read_records(target) == [make_example({"input_ids": ids}) if ids else EMPTY for ids in DOCUMENTS]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [target.name]
    with pytest.raises(tokjax.errors.DatasetExistsError, match="train.array_record exists; to replace it"):
        tokjax.datasets.export_dataset(dataset, target)
    tokjax.datasets.export_dataset(
        write_id_dataset([[1]], tmp_path / "one", TOKENIZER), target, overwrite=True
    )
    assert read_records(target) == [make_example({"input_ids": [1]})]


EMPTY = bytes.fromhex("0a11 0a0f 0a09") + b"input_ids" + bytes.fromhex("1202 1a00")


@given(
    documents=st.lists(st.lists(st.integers(0, 70_000), max_size=9), max_size=5),
    max_tokens=st.none() | st.integers(1, 5),
    batch_tokens=st.integers(1, 9),
)
def test_round_trip(tmp_path_factory, documents, max_tokens, batch_tokens):
    tmp_path = tmp_path_factory.mktemp("records")
    dataset = write_id_dataset(documents, tmp_path / "data", LARGE)
    [path] = tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record", max_tokens=max_tokens)
    field = tokjax.PackedTokenField(LARGE, add_eos_between_docs=False)
    tokjax.write_dataset(path, field, tmp_path / "back", text_column="input_ids")
    back = [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "back")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokjax.datasets.conversion._BATCH_TOKENS", batch_tokens)
        tokjax.datasets.convert_dataset(path, LARGE, tmp_path / "converted")
    assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "converted")] == back
    if max_tokens is None:
        assert back == documents
    else:
        starts = [(ids, i) for ids in documents for i in range(0, max(len(ids), 1), max_tokens)]
        assert back == [ids[i : i + max_tokens] for ids, i in starts]


def test_conversion_adds_no_special_tokens(tmp_path):
    dataset = write_id_dataset([[1, 2], [3]], tmp_path / "data", WITH_BOS)
    [path] = tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record")
    tokjax.datasets.convert_dataset(path, WITH_BOS, tmp_path / "back")
    assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "back")] == [[BOS, 1, 2], [BOS, 3]]


def test_records_without_ids(tmp_path):
    for i, example in enumerate([{"text": b"low"}, {"input_ids": [0.5]}, {"input_ids": b"low"}]):
        path = write_array_record(tmp_path / f"{i}.array_record", [make_example(example)])
        message = r"record 0: there are no integers in the feature 'input_ids', of \['\w+'\]; for another"
        with pytest.raises(tokjax.errors.SourceError, match=message):
            tokjax.datasets.convert_dataset(path, TOKENIZER, tmp_path / "data")


def test_texts(tmp_path):
    texts = ["low", "naïve café", "日本語 " * 99]
    tokjax.write_dataset(texts, tokjax.RawTextField(), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    [path] = tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record")
    assert read_records(path) == [make_example({"text": text.encode()}) for text in texts]
    tokjax.write_dataset(path, tokjax.RawTextField(), tmp_path / "back")
    assert list(tokjax.open_dataset(tmp_path / "back")) == texts
    with rejects("dataset must be a TokenDataset, not a RawTextDataset, to write the format 'npy'"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "a.npy")
    with rejects("max_tokens is for .* of a RawTextDataset"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "b.array_record", max_tokens=3)


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    dataset = write_id_dataset(DOCUMENTS, tmp_path / "data", TOKENIZER)
    monkeypatch.setattr(type(dataset), "document", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    error = RuntimeError("write() failed: No space left on device; at byte 204800")
    monkeypatch.setattr(type(dataset), "document", Mock(side_effect=error))
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '.*a\.array_record'$"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record")


def test_files_in_a_forked_process(tmp_path, monkeypatch):
    """After a file was written, the library would crash in a forked child."""
    dataset = write_id_dataset(DOCUMENTS, tmp_path / "data", TOKENIZER)
    tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record")
    monkeypatch.setattr("os.getpid", lambda: 1)
    with rejects("forked after its parent wrote .*'spawn'"):
        tokjax.datasets.convert_dataset(tmp_path / "a.array_record", TOKENIZER, tmp_path / "out")


def test_options(tmp_path):
    dataset = write_id_dataset(DOCUMENTS, tmp_path / "data", TOKENIZER)
    with rejects("max_tokens is for format='array_record' and datasets of ids, and the format is 'npy', of"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "a.npy", max_tokens=3)
    with rejects("max_tokens must be .* 1"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record", max_tokens=0)


def test_packing_of_grain(tmp_path):
    """Grain packs the parsed records, as MaxText does; it rejects records that are longer than a row."""
    grain = pytest.importorskip("grain")
    pytest.importorskip("grain.experimental")
    from tokjax.corpus.array_record import parse_example

    dataset = write_id_dataset([ids for ids in DOCUMENTS if ids], tmp_path / "data", TOKENIZER)
    [path] = tokjax.datasets.export_dataset(dataset, tmp_path / "a.array_record", max_tokens=16)
    source = grain.MapDataset.source(grain.sources.ArrayRecordDataSource([str(path)]))
    rows = source.map(lambda record: {"inputs": parse_example(record, "")["input_ids"].astype(np.int32)})
    packed = grain.experimental.FirstFitPackIterDataset(
        rows.to_iter_dataset(), length_struct={"inputs": 16}, num_packing_bins=2
    )
    ids = [row["inputs"][row["inputs_segment_ids"] > 0] for row in packed]
    assert sorted(np.concatenate(ids).tolist()) == sorted(functools.reduce(operator.iadd, DOCUMENTS, []))


def test_command(tmp_path):
    tokenizer = tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    write_id_dataset([[1, 2, 257], [3, 257]], tmp_path / "data", TOKENIZER)
    target = tmp_path / "a.array_record"
    get_output("convert", tmp_path / "data", "-o", target, "--max-tokens", 2)
    assert len(read_records(target)) == 3
    get_output("convert", target, "-t", tokenizer, "-o", tmp_path / "out")
    assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "out")] == [[1, 2], [257], [3, 257]]
    result = run("convert", target, "-t", tokenizer, "-o", tmp_path / "new", "--max-tokens", 2)
    assert b"is not a dataset, and --max-tokens is for" in b" ".join(result.stderr.split())
    options = ["--text-column", "input_ids", "--no-eos"]
    get_output("pack", target, "-t", tokenizer, "-o", tmp_path / "back", *options)
    assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "back")] == [[1, 2], [257], [3, 257]]
