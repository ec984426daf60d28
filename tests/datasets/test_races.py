"""Tests of datasets that are replaced or changed by another process while they are opened or read.

The tests replace a dataset at a hook inside of the reader, to simulate the other process.
"""

import os
import pickle
import shutil
import signal
import subprocess
import sys

import pytest

import tokjax
from tokjax.datasets import dataset_files, dataset_types as opening

FIELD = tokjax.PackedTokenField(tokjax.byte_level(["</s>"], eos_token="</s>"), chunk_tokens=4)
SHARD = "shard-00001.tokens.npy"


def write(path, texts, **options):
    tokjax.write_dataset(texts, FIELD, path, shard_size=1, **options)


def read_text(dataset, row):
    return tokjax.decode(FIELD.tokenizer, dataset[row], skip_special_tokens=True)


@pytest.fixture
def old(tmp_path):
    write(tmp_path / "data", ["aaaa", "bbbb"])
    return tmp_path / "data"


def replace_at(monkeypatch, module, name, path, *, when="before"):
    """Patches a function so that its first call replaces the dataset by one of the same shapes.

    Returns:
        List of the arguments of all calls.
    """
    called, function = [], getattr(module, name)

    def hooked(*args, **options):
        is_first = not called
        called.append(args)
        if is_first and when == "before":
            write(path, ["cccc", "dddd"], overwrite=True)
        result = function(*args, **options)
        if is_first and when == "after":
            write(path, ["cccc", "dddd"], overwrite=True)
        return result

    monkeypatch.setattr(module, name, hooked)
    return called


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ["open_regular", "get_identity", "compute_sha256"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_replacement_while_a_shard_is_opened(old, monkeypatch, name, when, verify):
    """The reader returns data of the dataset that it opened, or raises an error."""
    dataset = tokjax.open_dataset(old, verify_on_touch=verify)
    assert read_text(dataset, 0) == "aaaa"
    called = replace_at(monkeypatch, dataset_files, name, old, when=when)
    try:
        result = read_text(dataset, 1)
    except tokjax.errors.DatasetCorruptError as error:
        result = str(error)
    assert result == "bbbb" or "was replaced by another dataset after it was opened" in result
    assert called or not verify


@pytest.mark.parametrize("name", ["read_manifest_and_identity", "_get_identity"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_replacement_while_the_dataset_is_opened(old, monkeypatch, name, when):
    called = replace_at(monkeypatch, opening, name, old, when=when)
    dataset = tokjax.open_dataset(old)
    assert called
    if (name, when) == ("read_manifest_and_identity", "after"):
        with pytest.raises(tokjax.errors.DatasetCorruptError, match="was replaced by another dataset"):
            read_text(dataset, 1)
    else:
        assert read_text(dataset, 1) == "dddd"


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_change_after_the_manifest_was_read(old, monkeypatch, change):
    """The manifest does not match the files any more. A new dataset with other shapes is opened."""
    read, texts = opening.read_manifest_and_identity, ["longer than that", "d", "more"]

    def read_and_change(directory):
        result = read(directory)
        monkeypatch.undo()
        write(old, texts, overwrite=True) if change == "replaced" else shutil.rmtree(old)
        return result

    monkeypatch.setattr(opening, "read_manifest_and_identity", read_and_change)
    if change == "replaced":
        assert [read_text(tokjax.open_dataset(old), row) for row in range(3)] == texts
    else:
        with pytest.raises(tokjax.errors.DatasetError):
            tokjax.open_dataset(old)


def test_dataset_is_missing_between_two_renames(old, monkeypatch):
    moved = old.with_name("data.replaced.partial")
    old.rename(moved)
    sleeps = []
    monkeypatch.setattr(opening.time, "sleep", lambda _: sleeps.append(1) or moved.rename(old))
    assert read_text(tokjax.open_dataset(old), 1) == "bbbb"
    assert sleeps == [1]


def test_replaced_shard_is_verified_again(old, monkeypatch):
    dataset = tokjax.open_dataset(old)
    assert read_text(dataset, 1) == "bbbb"
    monkeypatch.setattr(dataset, "_open_shards", tokjax.datasets.downloads.OpenShards())
    shard, contents = old / SHARD, (old / SHARD).read_bytes()
    status = shard.stat()
    altered = contents.replace(contents[-4:], b"abcd")
    shard.write_bytes(altered)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))  # (restores the modification time)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"shard-00001\.tokens\.npy was altered"):
        read_text(dataset, 1)


class TestVerifiedFiles:
    """A pickled dataset carries the identities of verified files, which are void once a file changes."""

    @pytest.fixture
    def verified_names(self, monkeypatch):
        names, compare = [], dataset_files.DatasetFiles._compare
        monkeypatch.setattr(
            dataset_files.DatasetFiles,
            "_compare",
            lambda self, name, *args: names.append(name) or compare(self, name, *args),
        )
        return names

    def test_pickle(self, old, verified_names, monkeypatch):
        dataset = tokjax.open_dataset(old)
        dataset.verify()
        assert len(verified_names) == len(dataset.manifest.all_files)
        verified_names.clear()
        monkeypatch.setattr(dataset_files, "read_manifest_and_identity", None)  # it is not read again
        again = pickle.loads(pickle.dumps(dataset))
        assert read_text(again, 1) == "bbbb"
        assert again.tokenizer is not None
        assert verified_names == []

    def test_changed_file_is_verified_again(self, old, verified_names):
        dataset = tokjax.open_dataset(old)
        dataset.verify()
        pickled = pickle.dumps(dataset)
        verified_names.clear()
        (old / SHARD).touch()
        assert read_text(pickle.loads(pickled), 1) == "bbbb"
        assert verified_names == [SHARD]
        (old / SHARD).write_bytes((old / "shard-00000.tokens.npy").read_bytes())
        with pytest.raises(tokjax.errors.DatasetCorruptError, match="was altered"):
            read_text(pickle.loads(pickled), 1)


class TestWithoutMemoryMap:
    def test_truncation_does_not_change_the_data(self, old):
        mapped, unmapped = tokjax.open_dataset(old), tokjax.open_dataset(old, memory_map=False)
        assert read_text(mapped, 1) == read_text(unmapped, 1) == "bbbb"
        with (old / SHARD).open("r+b") as file:
            file.truncate(0)
        assert read_text(unmapped, 1) == "bbbb"

    def test_truncation_ends_processes_with_mapped_files(self, old):
        program = f"""
import os, tokjax
dataset = tokjax.open_dataset({str(old)!r})
dataset[1]
os.truncate({str(old / SHARD)!r}, 0)
print(len(dataset[1]))
"""
        process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
        assert (process.returncode, process.stdout) == (-signal.SIGBUS, b""), process.stderr


@pytest.mark.parametrize("kind", ["pipe", "directory", "loop"])
class TestSpecialFiles:
    """Files that are not regular are rejected; no call waits for the other end of a pipe."""

    @staticmethod
    def replace_file(path, kind):
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        else:
            path.symlink_to(path.name)

    def test_manifest(self, old, kind):
        self.replace_file(old / "manifest.json", kind)
        with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"manifest\.json is not a regular file"):
            tokjax.open_dataset(old)
        write(old, ["new"], overwrite=True)
        assert read_text(tokjax.open_dataset(old), 0) == "new"

    @pytest.mark.parametrize("name", [SHARD, "tokenizer.tokjax.json"])
    def test_other_files(self, old, kind, name):
        dataset = tokjax.open_dataset(old)
        self.replace_file(old / name, kind)
        with pytest.raises(
            tokjax.errors.DatasetCorruptError, match=rf"{name} can't be read: not a regular file"
        ):
            read_text(dataset, 1), dataset.tokenizer
        with pytest.raises(tokjax.errors.DatasetCorruptError):
            tokjax.open_dataset(old)
        with pytest.raises(tokjax.errors.DatasetError):
            tokjax.datasets.merge_datasets([old], old.with_name("whole"))

    @pytest.mark.parametrize("name", ["tokenizer.tokjax.json", "tokenizer.json", "tokenizer.model"])
    def test_tokenizer(self, tmp_path, kind, name):
        (tmp_path / name).write_bytes(b"")
        self.replace_file(tmp_path / name, kind)
        expected = "is not a regular file|No such file|no tokenizer in a|unknown tokenizer"
        for path in (tmp_path, tmp_path / name):
            with pytest.raises((tokjax.errors.TokenizerFormatError, FileNotFoundError), match=expected):
                tokjax.load_tokenizer(path)

    def test_progress_record(self, old, kind):
        incomplete = old.rename(old.with_name("data.incomplete"))
        (incomplete / "manifest.json").unlink()
        (incomplete / "progress.jsonl").touch()
        self.replace_file(incomplete / "progress.jsonl", kind)
        write(old, ["new"], overwrite=True)
        assert read_text(tokjax.open_dataset(old), 0) == "new"


def test_circular_symlink(tmp_path):
    (tmp_path / "data").symlink_to("data")
    with pytest.raises(tokjax.errors.DatasetIncompleteError, match="no dataset at .*data"):
        tokjax.open_dataset(tmp_path / "data")
    with pytest.raises(
        tokjax.errors.DatasetExistsError, match="data is a symbolic link in a loop; delete it"
    ):
        write(tmp_path / "data", ["a"])
