"""Tests of datasets whose files are damaged, missing or forged."""

import json

import numpy as np
import pytest

import tokjax
from tokjax.datasets.manifest import MANIFEST_FILE


@pytest.mark.parametrize(
    "name", ["shard-00001.tokens.npy", "shard-00001.num_tokens.npy", "tokenizer.tokjax.json"]
)
def test_truncated_and_missing_files(written, name):
    data = (written / name).read_bytes()
    for num_bytes in (0, 5, -1):
        (written / name).write_bytes(data[:num_bytes])
        with pytest.raises(tokjax.errors.DatasetCorruptError, match=f"{name} was altered: it has"):
            tokjax.open_dataset(written)
    (written / name).unlink()
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=f"{name} is missing"):
        tokjax.open_dataset(written)


def test_pickled_arrays_are_never_loaded(written):
    np.save(written / "shard-00001.tokens.npy", np.array([print], object), allow_pickle=True)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="shard-00001"):
        tokjax.open_dataset(written)


def test_lengths_that_do_not_match_the_data(written):
    path = written / "shard-00001.num_tokens.npy"
    lengths = np.load(path)
    np.save(path, lengths + np.ones_like(lengths))
    unverified = tokjax.open_dataset(written, verify_on_touch=False)
    for read in (
        lambda: unverified.document_splits,
        lambda: unverified[unverified.manifest.shards[0].num_documents],
        lambda: tokjax.PlannedLoader(unverified, batch_size=1, block_size=512, pad_id=0),
    ):
        with pytest.raises(
            tokjax.errors.DatasetCorruptError, match=r"its documents have \d+ items in total, its data"
        ):
            read()
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="was altered: its SHA-256"):
        tokjax.open_dataset(written).document_splits  # noqa: B018
    np.save(path, lengths[:-1])
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="the manifest says"):
        tokjax.open_dataset(written)


def test_flipped_bit(written):
    shard = written / "shard-00001.tokens.npy"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    dataset = tokjax.open_dataset(written)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match="was altered: its SHA-256 is"):
        dataset.verify()
    assert len(dataset.read(0, 100)) == 100  # (the first shard is intact)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"shard-00001\.tokens\.npy was altered"):
        dataset.read(0, dataset.num_tokens)
    assert len(tokjax.open_dataset(written, verify_on_touch=False).read(0, dataset.num_tokens))


def read_all(path, tokenizer):
    dataset = tokjax.open_dataset(path, tokenizer)
    dataset.read(0, dataset.num_tokens)
    dataset.documents  # noqa: B018
    dataset.verify()


def set_byte(path, index, value):
    """Overwrites one byte of a file in place.

    Writing the whole file again truncates it first, after which some file systems wait for the disk.
    """
    with path.open("r+b") as file:
        file.seek(index)
        file.write(bytes([value]))


def test_every_altered_byte_is_detected(field, tmp_path):
    """Alters each byte of each file in turn; reading must raise an error every time."""
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


def test_data_with_another_shape(written):
    path = written / "shard-00001.tokens.npy"
    values = np.load(path)
    np.save(path, values.view(np.uint8).reshape(-1))
    dataset = tokjax.open_dataset(written, verify_on_touch=False)
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"has shape \(\d+,\) and dtype uint8"):
        dataset.read(0, dataset.num_tokens)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda m: m["plan"].update(vocab_size=3), "Corrupt", "was altered"),
        (
            lambda m: m.update(schema_version=5),
            "Mismatch",
            "and 4; a newer version of tokjax wrote it",
        ),
        (
            lambda m: m.update(schema_version=1),
            "Mismatch",
            "reads.*3 and 4; write the dataset again",
        ),
        (lambda m: m.update(format="other"), "Mismatch", "has the format 'other', not 'tokjax-dataset'$"),
        (lambda m: m.pop("format"), "Corrupt", "is damaged"),
        (lambda m: m.clear(), "Corrupt", "is damaged"),
    ],
)
def test_altered_manifest(written, change, error, message):
    path = written / MANIFEST_FILE
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(getattr(tokjax.errors, f"Dataset{error}Error"), match=message):
        tokjax.open_dataset(written)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"format": "tokjax-dataset"}'])
def test_invalid_manifest(written, text):
    (written / MANIFEST_FILE).write_text(text)
    message = "is damaged: TypeError.'expected a JSON object" if text in ("[]", "null") else "is damaged"
    with pytest.raises(tokjax.errors.DatasetCorruptError, match=message):
        tokjax.open_dataset(written)


def test_manifest_with_too_many_values(written):
    with tokjax.limits(json_values=9), pytest.raises(tokjax.errors.DatasetCorruptError, match="limit is 9;"):
        tokjax.open_dataset(written)
