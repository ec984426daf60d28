"""Datasets whose files are damaged, missing or forged are refused."""

import json
import resource

import numpy as np
import pytest

import tokjax
from tokjax._util.files import compute_json_checksum
from tokjax.datasets.manifest import MANIFEST_FILE


def test_missing_dataset(tmp_path):
    with pytest.raises(
        tokjax.errors.DatasetIncompleteError, match="nothing is there; make it with write_dataset"
    ):
        tokjax.open_dataset(tmp_path / "data")
    with pytest.raises(tokjax.errors.DatasetIncompleteError, match=r"has no manifest\.json"):
        tokjax.open_dataset(tmp_path)


def test_another_tokenizer(written, plain_tokenizer, tokenizer):
    with pytest.raises(tokjax.errors.DatasetMismatchError) as error:
        tokjax.open_dataset(written, plain_tokenizer)
    assert tokjax.fingerprint(tokenizer) in str(error.value)
    assert tokjax.fingerprint(plain_tokenizer) in str(error.value)


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_truncated_shard(written, keep):
    shard = written / "shard-00001.tokens.npy"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="shard-00001"):
        tokjax.open_dataset(written)


def test_a_missing_shard(written):
    (written / "shard-00001.tokens.npy").unlink()
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"shard-00001\.tokens\.npy is missing"):
        tokjax.open_dataset(written)


@pytest.mark.parametrize("name", ["shard-00001.num_tokens.npy", "tokenizer.tokjax.json"])
def test_another_missing_file(written, name):
    (written / name).unlink()
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="is missing"):
        tokjax.open_dataset(written)


def test_an_index_that_does_not_add_up(written):
    path = written / "shard-00001.num_tokens.npy"
    lengths = np.load(path)
    np.save(path, lengths + np.ones_like(lengths))
    unseen = tokjax.open_dataset(written, verify_on_touch=False)
    for read in (lambda: unseen.document_splits, lambda: unseen[unseen.manifest.shards[0].num_documents]):
        with pytest.raises(
            tokjax.errors.DatasetCorruptError, match=r"its documents have \d+ items, its data"
        ):
            read()
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="was altered: its SHA-256"):
        tokjax.open_dataset(written).document_splits  # noqa: B018
    np.save(path, lengths[:-1])
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="the manifest says"):
        tokjax.open_dataset(written)


def test_an_altered_tokenizer(written):
    path = written / "tokenizer.tokjax.json"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"tokenizer\.tokjax\.json was altered"):
        tokjax.open_dataset(written).verify()


def test_too_many_open_files_is_no_corruption(field, tmp_path):
    tokjax.write_dataset(["low"] * 300, field, tmp_path / "many", shard_size=1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, limits[1]))
    try:
        dataset = tokjax.open_dataset(tmp_path / "many")
        assert len(dataset.read(0, dataset.num_tokens)) == dataset.num_tokens
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_one_bit(written):
    shard = written / "shard-00001.tokens.npy"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    dataset = tokjax.open_dataset(written)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="was altered: its SHA-256 is"):
        dataset.verify()
    assert len(dataset.read(0, 100)) == 100  # (another shard)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"shard-00001\.tokens\.npy was altered"):
        dataset.read(0, dataset.num_tokens)
    assert len(tokjax.open_dataset(written, verify_on_touch=False).read(0, dataset.num_tokens))


def read_all(path, tokenizer):
    dataset = tokjax.open_dataset(path, tokenizer)
    dataset.read(0, dataset.num_tokens)
    dataset.documents  # noqa: B018
    dataset.verify()


def set_byte(path, index, value):
    """Overwrites one byte of a file in place: truncating a file makes some file systems wait for the disk."""
    with path.open("r+b") as file:
        file.seek(index)
        file.write(bytes([value]))


def test_any_byte(field, tmp_path):
    """Each byte of each file altered in turn: nothing is read as if nothing had happened."""
    path = tmp_path / "small"
    tokjax.write_dataset([(9, "low lower"), (3, "é")], field, path)
    tokenizer, manifest = field.tokenizer, (path / MANIFEST_FILE).read_bytes()
    for file in path.iterdir():
        data = file.read_bytes()
        step = 1 if len(data) < 3000 else 97
        for index in range(0, len(data), step):
            set_byte(file, index, data[index] ^ 1)
            with pytest.raises((tokjax.errors.DatasetError, tokjax.errors.TokenizerFormatError)):
                read_all(path, tokenizer)
            set_byte(file, index, data[index])
    assert (path / MANIFEST_FILE).read_bytes() == manifest
    tokjax.open_dataset(path, tokenizer).verify()


def test_another_shape(written):
    path = written / "shard-00001.tokens.npy"
    values = np.load(path)
    np.save(path, values.view(np.uint8).reshape(-1))
    dataset = tokjax.open_dataset(written, verify_on_touch=False)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"holds \(\d+,\) of uint8"):
        dataset.read(0, dataset.num_tokens)


def test_a_pickle_is_never_loaded(written):
    np.save(written / "shard-00001.tokens.npy", np.array([print], object), allow_pickle=True)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="shard-00001"):
        tokjax.open_dataset(written)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda m: m["plan"].update(vocab_size=3), tokjax.errors.DatasetCorruptError, "was altered"),
        (
            lambda m: m.update(schema_version=4),
            tokjax.errors.DatasetMismatchError,
            "version 4; this tokjax reads.*version 3; a newer tokjax wrote it",
        ),
        (
            lambda m: m.update(schema_version=1),
            tokjax.errors.DatasetMismatchError,
            "version 1; this tokjax reads.*version 3; write the dataset again",
        ),
        (
            lambda m: m.update(format="other"),
            tokjax.errors.DatasetMismatchError,
            r"manifest\.json is of the format 'other', not 'tokjax-dataset'$",
        ),
        (lambda m: m.pop("format"), tokjax.errors.DatasetCorruptError, "is damaged"),
        (lambda m: m.clear(), tokjax.errors.DatasetCorruptError, "is damaged"),
    ],
)
def test_an_altered_manifest(written, change, error, message):
    path = written / MANIFEST_FILE
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(error, match=message):
        tokjax.open_dataset(written)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"format": "tokjax-dataset"}'])
def test_invalid_manifest(written, text):
    (written / MANIFEST_FILE).write_text(text)
    message = "is damaged: TypeError.'a JSON object is expected" if text in ("[]", "null") else "is damaged"
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=message):
        tokjax.open_dataset(written)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda m: m.update(tokenizer_file="../tokenizer.json"),
            tokjax.errors.DatasetCorruptError,
            r"tokenizer_file is '\.\./tokenizer\.json'",
        ),
        (
            lambda m: m["shards"][0]["files"].update({"/etc/passwd": [3, "0"]}),
            tokjax.errors.DatasetCorruptError,
            "'/etc/passwd'",
        ),
        (
            lambda m: m["shards"][0].update(name="../x"),
            tokjax.errors.DatasetCorruptError,
            "outside its directory",
        ),
        (lambda m: m.pop("num_items"), tokjax.errors.DatasetCorruptError, "lacks a field"),
        (lambda m: m.update(num_items=7), tokjax.errors.DatasetCorruptError, "num_items=.*, it says 7"),
        (
            lambda m: m["shards"][0].update(num_documents="3"),
            tokjax.errors.DatasetCorruptError,
            "num_documents is '3'",
        ),
        (lambda m: m["shards"][0].update(num_items=-1), tokjax.errors.DatasetCorruptError, "num_items is -1"),
        (lambda m: m["shards"].append(m["shards"][0]), tokjax.errors.DatasetCorruptError, "shards is"),
        (
            lambda m: m["shards"][0].update(bucket_documents=[1, -1]),
            tokjax.errors.DatasetCorruptError,
            "bucket_documents is",
        ),
        (lambda m: m["plan"].update(options=[]), tokjax.errors.DatasetCorruptError, "options is"),
        (lambda m: m["plan"].update(type_id=99), tokjax.errors.DatasetMismatchError, "type id 99"),
    ],
)
def test_a_forged_manifest(written, change, error, message):
    """With a checksum that is right, as a forger would make it."""
    path = written / MANIFEST_FILE
    manifest = json.loads(path.read_text())
    manifest.pop("checksum")
    change(manifest)
    manifest["checksum"] = compute_json_checksum(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(error, match=message):
        tokjax.open_dataset(written)
