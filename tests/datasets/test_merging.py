"""Tests of merging datasets."""

import pytest

import tokjax
from tests.conftest import CORPUS
from tests.datasets.test_conversion import TOKENIZER
from tests.support.rejections import rejects


class TestMerging:
    def test_document_ids(self, tmp_path):
        buckets = tokjax.datasets.BucketedTokenField(TOKENIZER, [2, 4], max_tokens=9)
        texts = ["x" * (i * 5 % 9) for i in range(10)]
        paths = [self.write(tmp_path / str(i), texts, field=buckets) for i in range(2)]
        tokjax.datasets.merge_datasets(paths, tmp_path / "numbered")
        assert sorted(tokjax.open_dataset(tmp_path / "numbered").documents["doc_id"]) == list(range(20))
        custom = self.write(tmp_path / "custom", [(i, "xxxx") for i in (0, 1, 7, 8)])
        first, continuing = self.write(tmp_path / "first", texts), self.write(tmp_path / "next", [(10, "a")])
        tokjax.datasets.merge_datasets([first, continuing, custom], tmp_path / "both")
        both = tokjax.open_dataset(tmp_path / "both")
        assert both.documents["doc_id"].tolist() == [*range(11), 0, 1, 7, 8]
        both.verify()
        *shards, last = both.manifest.shards
        assert [shard.is_numbered for shard in both.manifest.shards] == [True] * len(shards) + [False]
        names = [path.name for path in (tmp_path / "both").glob("*.doc_id.npy")]
        assert names == [f"{last.name}.doc_id.npy"]  # only ids that are not the running count have files

    def test_custom_document_ids_are_preserved(self, tmp_path):
        first = self.write(tmp_path / "1", [(0, "a"), (1, "b")])
        second = self.write(tmp_path / "2", [(1, "c"), (0, "d")])
        tokjax.datasets.merge_datasets([first, second], tmp_path / "12")
        assert tokjax.open_dataset(tmp_path / "12").documents["doc_id"].tolist() == [0, 1, 1, 0]
        tokjax.datasets.merge_datasets([second, first, tmp_path / "12"], tmp_path / "more")
        more = tokjax.open_dataset(tmp_path / "more")
        assert more.documents["doc_id"].tolist() == [1, 0, 2, 3, 0, 1, 1, 0]
        assert [shard.is_numbered for shard in more.manifest.shards] == [False, True, False, False]
        buckets = tokjax.datasets.BucketedTokenField(TOKENIZER, [2], max_tokens=9)
        third = self.write(tmp_path / "3", [(1, "cccc"), (0, "dddd")], field=buckets)
        fourth = self.write(tmp_path / "4", ["eeee", "f"], field=buckets)
        tokjax.datasets.merge_datasets([fourth, third, fourth], tmp_path / "343")
        full = tokjax.open_dataset(tmp_path / "343")
        assert full.documents["doc_id"].tolist() == [1, 0, 1, 0, 5, 4]
        tokjax.datasets.merge_datasets([fourth, fourth], tmp_path / "44")
        tokjax.datasets.merge_datasets([tmp_path / "44", fourth], tmp_path / "444")
        assert tokjax.open_dataset(tmp_path / "444").documents["doc_id"].tolist() == [1, 0, 3, 2, 5, 4]

    def write(self, path, texts, **options):
        field = options.pop("field", tokjax.PackedTokenField(TOKENIZER))
        tokjax.write_dataset(texts, field, path, shard_size=80, **options)
        return path

    def test_equals_writing_all_documents(self, tmp_path):
        first, second = self.write(tmp_path / "1", CORPUS), self.write(tmp_path / "2", CORPUS[:2])
        merged = tokjax.datasets.merge_datasets([first, second, first], tmp_path / "all")
        assert merged.num_documents == 2 * len(CORPUS) + 2
        full = tokjax.open_dataset(tmp_path / "all")
        self.write(tmp_path / "expected", CORPUS + CORPUS[:2] + CORPUS)
        expected = tokjax.open_dataset(tmp_path / "expected")
        assert full.read(0, full.num_tokens).tolist() == expected.read(0, expected.num_tokens).tolist()
        assert full.documents.tolist() == expected.documents.tolist()
        full.verify()

    def test_different_fields_are_rejected(self, tmp_path):
        first = self.write(tmp_path / "1", CORPUS)
        second = self.write(tmp_path / "2", CORPUS, field=tokjax.PackedTokenField(TOKENIZER, chunk_tokens=8))
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="written with options=.*only datasets"):
            tokjax.datasets.merge_datasets([first, second], tmp_path / "all")
        for paths in ("x", first, 5, iter([first]), [], [tokjax.open_dataset(first)]):
            with rejects("must be a list of the paths of dataset"):
                tokjax.datasets.merge_datasets(paths, tmp_path / "all")


def test_altered_files_are_not_copied(written, tmp_path):
    for name in ("shard-00001.tokens.npy", "tokenizer.tokjax.json"):
        data = (written / name).read_bytes()
        (written / name).write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        with pytest.raises(tokjax.errors.DatasetCorruptError, match=f"{name} was altered: its SHA-256 is"):
            tokjax.datasets.merge_datasets([written], tmp_path / "again")
        (written / name).write_bytes(data)
    assert not (tmp_path / "again.incomplete").exists()


def test_moved_source_files(tmp_path):
    text, moved = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text("low|lower")
    tokjax.write_dataset(text, tokjax.RawTextField(), tmp_path / "data", separator="|")
    written = (tmp_path / "data" / "manifest.json").stat()
    text.rename(moved)
    tokjax.write_dataset(moved, tokjax.RawTextField(), tmp_path / "data", separator="|")  # (writes nothing)
    assert (tmp_path / "data" / "manifest.json").stat() == written
