"""Tests of caches of Levanter, which are read and written here with `tensorstore`, as Levanter does."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tokjax
from tests.cli.test_commands import get_output, run
from tests.datasets.test_conversion import LARGE, TOKENIZER
from tests.support.id_datasets import write_id_dataset
from tokjax.datasets.conversion import levanter

tensorstore = pytest.importorskip("tensorstore")
CHUNK = 256 * 1024
DOCUMENTS = [[5, 6, 257], [], [7], list(range(200)), [257]]


def open_array(path, **options):
    """Opens an array with the layout that Levanter asks for when it opens or creates one."""
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": {
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [512 * CHUNK]}},
            "codecs": [
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [CHUNK],
                        "codecs": [{"name": "blosc", "configuration": {"clevel": 5}}],
                    },
                }
            ],
        },
    }
    return tensorstore.open(spec, **(options or {"open": True})).result()


def read_rows(path):
    """Reads the rows of a cache, as `JaggedArrayStore` does."""
    ledger = json.loads((path / "shard_ledger.json").read_text())
    offsets, data = open_array(path / "input_ids" / "offsets"), open_array(path / "input_ids" / "data")
    assert (offsets.dtype.name, data.dtype.name) == ("int64", "int32")
    assert offsets.shape == data.shape == (2**54,)
    count = int(offsets[0].read().result())
    assert ledger["is_finished"]
    assert ledger["total_num_rows"] == ledger["shard_rows"][""] == count
    bounds = offsets[: count + 1].read().result()
    bounds[0] = 0
    return [data[a:b].read().result().tolist() for a, b in zip(bounds, bounds[1:], strict=False)]


def write_cache(path, rows, *, dtype="int32", **ledger):
    """Writes a cache row by row."""
    new = {"create": True, "shape": [2**54]}
    offsets = open_array(path / "input_ids" / "offsets", dtype="int64", **new)
    data = open_array(path / "input_ids" / "data", dtype=dtype, **new)
    end = 0
    for i, row in enumerate(rows, 1):
        data[end : end + len(row)].write(np.array(row, dtype)).result()
        end += len(row)
        offsets[i].write(end).result()
        offsets[0].write(i).result()
    described = {"total_num_rows": len(rows), "shard_rows": {"": len(rows)}, "is_finished": True}
    (path / "shard_ledger.json").write_text(json.dumps(described | ledger))
    return path


def convert(path, tmp_path, tokenizer=TOKENIZER):
    tokjax.datasets.convert_dataset(path, tokenizer, tmp_path / "back", overwrite=True)
    return [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "back")]


def test_layout(tmp_path):
    dataset = write_id_dataset(DOCUMENTS, tmp_path / "data", TOKENIZER)
    target = tmp_path / "cache" / "train"
    assert tokjax.datasets.export_dataset(dataset, target, "levanter") == (target,)
    assert read_rows(target) == DOCUMENTS
    assert sorted(path.name for path in target.iterdir()) == ["input_ids", "shard_ledger.json"]
    assert convert(target, tmp_path) == DOCUMENTS
    converted = tokjax.open_dataset(tmp_path / "back").manifest.source
    files = [path for path in target.rglob("*") if path.is_file()]
    assert converted == {"converted": str(target), "num_bytes": sum(path.stat().st_size for path in files)}


def test_arrays_of_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(levanter, "_FILE_SIZE", 2 * CHUNK)
    monkeypatch.setitem(levanter._METADATA["chunk_grid"]["configuration"], "chunk_shape", [2 * CHUNK])
    ids = np.random.default_rng(0).integers(0, 70_000, 5 * CHUNK + 7, np.int32)
    dataset = write_id_dataset([ids[:100], ids[100:]], tmp_path / "data", LARGE)
    tokjax.datasets.export_dataset(dataset, tmp_path / "cache", "levanter")
    assert len(list((tmp_path / "cache" / "input_ids" / "data").rglob("?"))) > 3
    tokjax.datasets.convert_dataset(tmp_path / "cache", LARGE, tmp_path / "back")
    back = tokjax.open_dataset(tmp_path / "back")
    assert (back.read(0, back.num_tokens) == ids).all()
    assert back.document_lengths.tolist() == [100, len(ids) - 100]


@settings(max_examples=20)
@given(documents=st.lists(st.lists(st.integers(0, 257), max_size=5), max_size=5))
def test_round_trip(tmp_path_factory, documents):
    tmp_path = tmp_path_factory.mktemp("cache")
    dataset = write_id_dataset(documents, tmp_path / "data", TOKENIZER)
    tokjax.datasets.export_dataset(dataset, tmp_path / "cache", "levanter")
    assert read_rows(tmp_path / "cache") == documents
    assert convert(tmp_path / "cache", tmp_path) == documents
    if any(map(any, documents)):  # (tensorstore writes no file for zeros)
        assert convert(write_cache(tmp_path / "other", documents), tmp_path) == documents


def test_replacing(tmp_path):
    dataset, other = (
        write_id_dataset(DOCUMENTS, tmp_path / "data", TOKENIZER),
        write_id_dataset([[1]], tmp_path / "other", TOKENIZER),
    )
    tokjax.datasets.export_dataset(dataset, tmp_path / "cache", "levanter")
    with pytest.raises(tokjax.errors.DatasetExistsError, match="cache exists; to replace it, pass overwrite"):
        tokjax.datasets.export_dataset(other, tmp_path / "cache", "levanter")
    tokjax.datasets.export_dataset(other, tmp_path / "cache", "levanter", overwrite=True)
    assert read_rows(tmp_path / "cache") == [[1]]
    (tmp_path / "cache" / "notes.txt").write_text("mine")
    with pytest.raises(tokjax.errors.DatasetExistsError, match="holds 'notes.txt', which does not"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "cache", "levanter", overwrite=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(tokjax.errors.DatasetExistsError, match="full exists and is not a cache of Levanter"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "full", "levanter", overwrite=True)


class TestDamage:
    @pytest.fixture
    def cache(self, tmp_path):
        return write_cache(tmp_path / "cache", [[1, 2], [3]])

    def check(self, cache, tmp_path, message, **options):
        with pytest.raises(tokjax.errors.SourceError, match=message):
            tokjax.datasets.convert_dataset(cache, TOKENIZER, tmp_path / "back", **options)
        assert not (tmp_path / "back").exists()

    @pytest.mark.parametrize(
        ("ledger", "message"),
        [
            ({"is_finished": False}, "the cache is not finished, according to its shard_ledger.json"),
            ({"total_num_rows": "2"}, "the cache is not finished"),
            (
                {"layout": "sharded"},
                "the layout 'sharded', a directory for each shard; convert each of them,",
            ),
            ({"total_num_rows": 3}, "has 2 documents, its shard_ledger.json says 3; it is damaged"),
        ],
    )
    def test_ledgers(self, tmp_path, ledger, message):
        self.check(write_cache(tmp_path / "cache", [[1, 2], [3]], **ledger), tmp_path, message)

    def test_files_that_are_not_ledgers(self, cache, tmp_path):
        for text in ("", "[]", "{}", "[" * 100_000):
            (cache / "shard_ledger.json").write_text(text)
            self.check(cache, tmp_path, "is not a cache of Levanter: shard_ledger.json: ")
        (cache / "shard_ledger.json").unlink()
        self.check(cache, tmp_path, "is not a cache of Levanter", format="levanter")
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="can't detect a format from the name"):
            tokjax.datasets.convert_dataset(cache, TOKENIZER, tmp_path / "back")

    def test_arrays(self, cache, tmp_path):
        open_array(cache / "input_ids" / "offsets")[1].write(4).result()
        self.check(cache, tmp_path, "its offsets decrease; it is damaged")
        (cache / "input_ids" / "offsets" / "zarr.json").write_text("{}")
        self.check(cache, tmp_path, "offsets: is missing, damaged or not an array")
        shutil.rmtree(cache / "input_ids")
        self.check(cache, tmp_path, "offsets: is missing, damaged or not an array")

    def test_chunks(self, cache, tmp_path):
        for path in (cache / "input_ids" / "data" / "c").iterdir():
            path.write_bytes(path.read_bytes()[:-3])
        self.check(cache, tmp_path, "input_ids: is damaged")

    def test_missing_files(self, cache, tmp_path):
        (cache / "input_ids" / "data" / "c" / "0").unlink()
        self.check(cache, tmp_path, "data: the file c/0 is missing, of 1; the cache is damaged")

    def test_ids(self, tmp_path):
        cache = write_cache(tmp_path / "cache", [[1.5]], dtype="float32")
        self.check(cache, tmp_path, "input_ids: float32 of shape .*, not 1 integers; it is damaged")
        cache = write_cache(tmp_path / "other", [[300]])
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="other holds the id 300"):
            tokjax.datasets.convert_dataset(cache, TOKENIZER, tmp_path / "back")


def test_command(tmp_path):
    tokenizer = tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    write_id_dataset(DOCUMENTS, tmp_path / "data", TOKENIZER)
    get_output("convert", tmp_path / "data", "-o", tmp_path / "cache", "--format", "levanter")
    get_output("convert", tmp_path / "cache", "-o", tmp_path / "back", "-t", tokenizer)
    assert [ids.tolist() for ids in tokjax.open_dataset(tmp_path / "back")] == DOCUMENTS
    assert b"manifest.json" in run("convert", tmp_path / "cache", "-o", tmp_path / "again").stderr
