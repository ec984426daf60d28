"""Tests of writing dataset directories, and of reading them back."""

import json
import shutil

import numpy as np
import pytest

import tokjax
from tests.support.rejections import rejects
from tokjax.datasets.manifest import MANIFEST_FILE
from tokjax.errors import DatasetExistsError, DisallowedSpecialTokenError, MissingSpecialTokenError

BYTES = {bytes([i]): i for i in range(256)}


def build_stream(tokenizer, texts):
    """Returns the ids of all documents with EOS after each. Reference implementation."""
    return [
        id_
        for text in texts
        for id_ in [
            *tokjax.encode(tokenizer, text, add_special_tokens=False).tolist(),
            tokjax.eos_id(tokenizer),
        ]
    ]


def test_shard_is_closed_by_the_document_that_reaches_its_size(tmp_path):
    texts = ["aaaa", "bbbb", "c", "dddddddd", "ee", "f"]
    tokjax.write_dataset(texts, tokjax.RawTextField(), tmp_path / "data", shard_size=np.int32(4))
    shards = tokjax.open_dataset(tmp_path / "data").manifest.shards
    assert [shard.num_items for shard in shards] == [4, 4, 9, 3]


def test_files_are_plain_arrays_and_json(written, tokenizer, corpus):
    manifest = json.loads((written / MANIFEST_FILE).read_text())
    shards = sorted(written.glob("shard-*.tokens.npy"))
    assert len(shards) == len(manifest["shards"]) > 2
    tokens = [np.load(shard, mmap_mode="r") for shard in shards]
    assert all(isinstance(part, np.memmap) and part.dtype == np.uint16 for part in tokens)
    assert np.concatenate(tokens).tolist() == build_stream(tokenizer, corpus * 5)
    assert manifest["plan"]["field"] == "PackedTokenField"
    assert manifest["plan"]["type_id"] == 42
    assert manifest["plan"]["tokenizer_fingerprint"] == tokjax.fingerprint(tokenizer)
    assert manifest["num_items"] == sum(map(len, tokens))
    assert tokjax.load_tokenizer(written) == tokenizer
    assert not list(written.glob("*doc_id*"))


def test_windows_across_shards(written, tokenizer, corpus):
    dataset = tokjax.open_dataset(written)
    stream = build_stream(tokenizer, corpus * 5)
    starts = [0, 150, 199, len(stream) - 300]
    assert dataset.gather(starts, 300).tolist() == [stream[s : s + 300] for s in starts]
    assert dataset.gather(starts, 300).dtype == np.int32
    assert dataset.gather([], 3).shape == (0, 3)
    for wrong in (-1, len(stream) - 2, 2**63 - 1):
        with rejects(f"is out of range: the dataset has {len(stream)} ids"):
            dataset.gather([wrong], 3)


def test_documents_without_ids(tmp_path):
    plain = tokjax.PackedTokenField(tokjax.byte_level_bpe(BYTES), add_eos_between_docs=False)
    tokjax.write_dataset(["", "ab", ""], plain, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert [ids.tolist() for ids in dataset] == [[], [97, 98], []]
    assert dataset.manifest.plan.data_dtype == "uint8"
    tokjax.write_dataset(["", ""], plain, tmp_path / "empty")
    assert tokjax.open_dataset(tmp_path / "empty").read(0, 0).tolist() == []


@pytest.mark.parametrize(("size", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_dtype_holds_the_vocabulary(size, dtype, tmp_path):
    """The EOS token has the largest id; it is written, read and batched."""
    tokenizer = tokjax.byte_level_bpe(BYTES, special_tokens={"</s>": size - 1}, eos_token="</s>")
    tokjax.write_dataset(["ab", "c"], tokjax.PackedTokenField(tokenizer, chunk_tokens=5), tmp_path / "data")
    assert np.load(tmp_path / "data" / "shard-00000.tokens.npy").dtype == dtype
    dataset = tokjax.open_dataset(tmp_path / "data", tokenizer)
    batch = tokjax.PackedTokenLoader(dataset, batch_size=1).batch_at(0)
    assert batch.ids.tolist() == [[97, 98, size - 1, 99, size - 1]]
    assert batch.ids.dtype == np.int32


def test_tokenizer_without_eos(plain_tokenizer):
    with pytest.raises(MissingSpecialTokenError, match="needs the tokenizer's eos token.*eos_token=NAME"):
        tokjax.PackedTokenField(plain_tokenizer)
    with rejects("chunk_tokens must be at least 1"):
        tokjax.PackedTokenField(plain_tokenizer, chunk_tokens=0)
    with rejects("chunk_tokens must be an integer, not 4.5"):
        tokjax.PackedTokenField(plain_tokenizer, 4.5)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("one text", r"pass \[text\]"),
        ([1], "document 0 must be str or bytes, not int"),
        (["a", (1, "b")], "mixes texts, .* document 1"),
        ([(1, "a", "b")], "a tuple of 3"),
        ([(-1, "a")], "id of document 0 is -1"),
        ([("x", "a")], "id of document 0 is 'x'"),
        ([(3, "a"), (True, "b")], "id of document 1 is True"),
        ([(3, "a"), (4, "b"), (2**64, "c")], "id of document 2 is 18446744073709551616; ids are integers"),
        ([(0, None)], "document 0 must be str or bytes"),
    ],
)
def test_invalid_documents(field, tmp_path, documents, message):
    with rejects(message):
        tokjax.write_dataset(documents, field, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    for wrong in (0, 2.5, None):
        with rejects("shard_size"):
            tokjax.write_dataset([], field, tmp_path / "data", shard_size=wrong)


def test_special_tokens_in_documents(tokenizer, tmp_path):
    documents = [(70, "low"), (71, "a <|pad|> b")]
    with pytest.raises(DisallowedSpecialTokenError, match=r"in document 71, the text holds .*'<\|pad\|>'"):
        tokjax.write_dataset(documents, tokjax.PackedTokenField(tokenizer), tmp_path / "data")
    assert not list(tmp_path.iterdir())
    for name, options in (("ids", {"allowed_special": {"<|pad|>"}}), ("text", {"disallowed_special": ()})):
        tokjax.write_dataset(documents, tokjax.PackedTokenField(tokenizer, **options), tmp_path / name)
        dataset = tokjax.open_dataset(tmp_path / name)
        assert (tokjax.pad_id(tokenizer) in dataset.document(1)) == (name == "ids")
        assert tokjax.decode(tokenizer, dataset.document(1)[:-1]) == "a <|pad|> b"
    assert dataset.manifest.plan.options["disallowed_special"] == []


class TestExistingDataset:
    def test_other_files_are_not_deleted(self, written, field, tmp_path):
        for name, text in (("manifest.json", '{"name": "x"}'), ("cat.jpg", "cat")):
            (tmp_path / "app").mkdir(exist_ok=True)
            (tmp_path / "app" / name).write_text(text)
            with pytest.raises(DatasetExistsError, match="is not a dataset, so it is not replaced"):
                tokjax.write_dataset(["a"], field, tmp_path / "app", overwrite=True)
            assert (tmp_path / "app" / name).read_text() == text
        with pytest.raises(
            DatasetExistsError,
            match=r"app exists \(.*\); to replace a dataset, pass overwrite=True; otherwise pass another",
        ):
            tokjax.write_dataset(["a"], field, tmp_path / "app")
        (written / "checkpoint.npz").write_bytes(b"precious")
        with pytest.raises(DatasetExistsError, match=r"holds 'checkpoint\.npz'.*move it away"):
            tokjax.write_dataset(["a"], field, written, overwrite=True)
        assert (written / "checkpoint.npz").read_bytes() == b"precious"
        (tmp_path / "new.incomplete").mkdir()
        (tmp_path / "new.incomplete" / "notes.txt").write_text("mine")
        with pytest.raises(DatasetExistsError, match=r"holds 'notes\.txt'"):
            tokjax.write_dataset(["a"], field, tmp_path / "new")
        (tmp_path / "plain.incomplete").write_text("mine")
        with pytest.raises(DatasetExistsError, match=r"plain\.incomplete"):
            tokjax.write_dataset(["a"], field, tmp_path / "plain")

    def test_failed_replacement(self, written, field):
        def raise_after_one_document():
            yield "low"
            raise RuntimeError("the source broke")

        with pytest.raises(RuntimeError, match="the source broke"):
            tokjax.write_dataset(raise_after_one_document(), field, written, overwrite=True)
        tokjax.open_dataset(written).verify()

    def test_symbolic_link(self, written, field, tmp_path):
        (tmp_path / "link").symlink_to(written)
        tokjax.write_dataset(["low"], field, tmp_path / "link", overwrite=True)
        assert tokjax.open_dataset(written).num_documents == 1
        assert (tmp_path / "link").is_symlink()

    @pytest.mark.parametrize("name", ["data.replaced.partial", "data.deleted.partial"])
    @pytest.mark.parametrize("contents", ["notes", "dataset"])
    @pytest.mark.parametrize("exists", [False, True])
    def test_unrelated_directories_are_kept(self, field, tmp_path, name, contents, exists):
        """Neither renamed to the target nor deleted, even if it is a dataset."""
        if exists:
            tokjax.write_dataset(["a"], field, tmp_path / "data")
        tokjax.write_dataset(["mine"], field, tmp_path / name)
        if contents == "notes":
            shutil.rmtree(tmp_path / name)
            (tmp_path / name).write_text("mine")
        with pytest.raises(
            DatasetExistsError, match=f"{name} is in the way: no writer made it.*move it away"
        ):
            tokjax.write_dataset(["b"], field, tmp_path / "data", overwrite=True)
        assert (tmp_path / name).is_file() or tokjax.open_dataset(tmp_path / name).num_documents == 1
        assert (tmp_path / "data").exists() == exists


@pytest.mark.parametrize("field", [tokjax.RawTextField, "packed", None])
def test_invalid_fields(field, tmp_path):
    with rejects("field must be a field, such as PackedTokenField"):
        tokjax.write_dataset(["a"], field, tmp_path / "data")
