"""Tests of training bundles: round trips, recorded sources, overwriting, damaged files."""

import hashlib
import json

import numpy as np
import pytest

import tokjax
from tokjax._util.atomic_files import compute_json_checksum
from tokjax.errors import BundleError, BundleExistsError
from tokjax.trainer import (
    load_training_bundle,
    save_training_bundle,
    train_bpe,
    train_sentencepiece,
)


@pytest.fixture
def trained(tmp_path, corpus):
    (tmp_path / "corpus.txt").write_text("<|endoftext|>".join(corpus * 3))
    return train_bpe(
        tmp_path / "corpus.txt",
        vocab_size=np.int64(400),
        special_tokens=["<|endoftext|>"],
        pattern=(r"\d", r" ?\w+"),
        progress=False,
    )


@pytest.fixture
def bundle(trained, tmp_path):
    return save_training_bundle(trained, tmp_path / "bundle")


def test_duplicate_merges_are_saved(tmp_path):
    texts = ["abc"] * 5 + ["bc"] * 9 + ["xab"] * 20 + ["zbc"] * 9 + ["ab"] * 3 + ["ababab"] * 4
    trained = train_bpe(texts, vocab_size=300, progress=False)
    assert save_training_bundle(trained, tmp_path / "b").trained.merges == trained.merges


def test_any_iterable_is_recorded(tmp_path):
    for values in ({"x"}, iter("x"), np.array(["x"])):
        trained = train_sentencepiece(
            ["ab ab"], vocab_size=np.int64(40), progress=False, user_defined_symbols=values
        )
        assert save_training_bundle(trained, tmp_path / "b", overwrite=True).trained == trained
        assert trained.options["user_defined_symbols"] == ["x"]
        assert b"x" in trained.tokenizer.vocabulary.ordinary


def test_sources_are_recorded(trained, bundle, tmp_path):
    (source,) = bundle.sources
    data = (tmp_path / "corpus.txt").read_bytes()
    assert source.path == str((tmp_path / "corpus.txt").resolve())
    assert source.nbytes == len(data)
    assert source.sha256 == hashlib.sha256(data).hexdigest()
    assert set(bundle.versions) == {"python", "tokjax", "numpy", "regex", "sentencepiece"}


@pytest.mark.parametrize("change", ["changed", "deleted"])
def test_changed_source_has_no_checksum(trained, tmp_path, change):
    path = tmp_path / "corpus.txt"
    if change == "deleted":
        path.unlink()
    else:
        path.write_text("other")
    (source,) = save_training_bundle(trained, tmp_path / "bundle").sources
    assert source.sha256 is None


def test_overwrite_replaces_only_bundles(trained, bundle, tmp_path, corpus):
    with pytest.raises(BundleExistsError, match=r"bundle exists; to replace it, pass overwrite=True"):
        save_training_bundle(trained, tmp_path / "bundle")
    other = train_bpe(corpus, vocab_size=300, progress=False)
    replaced = save_training_bundle(other, tmp_path / "bundle", overwrite=True)
    assert replaced.trained == other
    (tmp_path / "bundle" / "mine.txt").write_text("precious")
    with pytest.raises(BundleExistsError, match=r"holds 'mine\.txt', which does not belong to a training"):
        save_training_bundle(other, tmp_path / "bundle", overwrite=True)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("precious")
    with pytest.raises(BundleExistsError, match="exists and is not a training bundle"):
        save_training_bundle(other, tmp_path / "letters", overwrite=True)
    assert (tmp_path / "letters" / "letter.txt").read_text() == "precious"


def rewrite_manifest(directory, **values):
    """Replaces values of a manifest, and updates its checksum."""
    manifest = json.loads((directory / "manifest.json").read_bytes()) | values
    del manifest["checksum"]
    manifest["checksum"] = compute_json_checksum(manifest)
    (directory / "manifest.json").write_text(json.dumps(manifest))


class TestInvalidBundles:
    def test_other_versions_and_formats(self, bundle):
        rewrite_manifest(bundle.path, version=1)
        with pytest.raises(BundleError, match="has version 1 of the format; .* reads version 2"):
            load_training_bundle(bundle.path)
        rewrite_manifest(bundle.path, format="other")
        with pytest.raises(BundleError, match="not the manifest of a training bundle"):
            load_training_bundle(bundle.path)

    def test_missing_bundle(self, tmp_path):
        for path in (tmp_path, tmp_path / "nothing"):
            with pytest.raises(BundleError, match=r"is not a training bundle: it has no manifest\.json"):
                load_training_bundle(path)

    def test_missing_or_altered_tokenizer(self, bundle, corpus):
        file = bundle.path / "tokenizer.tokjax.json"
        data = file.read_bytes()
        for damaged in (data[:-5], data.replace(b"1", b"2", 1)):
            file.write_bytes(damaged)
            with pytest.raises(BundleError, match="tokenizer.tokjax.json: (not JSON|altered or damaged)"):
                load_training_bundle(bundle.path)
        tokjax.save_tokenizer(train_bpe(corpus, vocab_size=300, progress=False).tokenizer, file)
        with pytest.raises(BundleError, match="is not the tokenizer of the manifest"):
            load_training_bundle(bundle.path)
        file.unlink()
        with pytest.raises(BundleError, match="No such file.*tokenizer.tokjax.json"):
            load_training_bundle(bundle.path)

    def test_truncated_or_altered_manifest(self, bundle):
        file = bundle.path / "manifest.json"
        data = file.read_text()
        for damaged in (data[:-10], "[" * 100_000, ""):
            file.write_text(damaged)
            with pytest.raises(BundleError, match="invalid or truncated JSON"):
                load_training_bundle(bundle.path)
        file.write_text(data.replace('"bytes": ', '"bytes": 1'))
        with pytest.raises(BundleError, match="altered or damaged: its contents do not have the checksum"):
            load_training_bundle(bundle.path)

    def test_inconsistent_values(self, bundle):
        rewrite_manifest(bundle.path, stats={"notes": []})
        with pytest.raises(BundleError, match="values of the bundle are inconsistent"):
            load_training_bundle(bundle.path)
