"""Datasets of other programs' token files, and theirs of ours; datasets joined, and made again."""

import re
import struct

import numpy as np
import pytest

import tokjax
from tests.cli.test_commands import get_output, run
from tests.conftest import CORPUS

TOKENIZER = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)} | {b"lo": 256}, special_tokens={"</s>": 257}, eos_token="</s>"
)
LARGE = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)}, special_tokens={"</s>": 70_000}, eos_token="</s>"
)


@pytest.fixture
def dataset(tmp_path):
    tokjax.write_dataset(CORPUS, tokjax.PackedTokenField(TOKENIZER), tmp_path / "data", shard_size=100)
    return tokjax.open_dataset(tmp_path / "data")


def make_npy(header):
    """An `.npy` file of a header that NumPy's parser fails at."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize("name", ["x.bin", "x.npy", "x.idx"])
@pytest.mark.parametrize("at_once", [1, 50, 1 << 22])
def test_round_trip(dataset, tmp_path, name, at_once, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.conversion._AT_ONCE", at_once)
    paths = tokjax.datasets.export_dataset(dataset, tmp_path / name)
    assert [path.name for path in paths] == (["x.bin", "x.idx"] if name == "x.idx" else [name])
    tokjax.datasets.convert_dataset(tmp_path / name, TOKENIZER, tmp_path / "back", shard_size=60)
    back = tokjax.open_dataset(tmp_path / "back", TOKENIZER)
    assert back.read(0, back.num_tokens).tolist() == dataset.read(0, dataset.num_tokens).tolist()
    assert back.document_splits.tolist() == dataset.document_splits.tolist()
    assert back.manifest.plan.data_dtype == "uint16"
    assert len(back.manifest.shards) > 3
    back.verify()


def test_files_are_as_the_other_programs_read_them(dataset, tmp_path):
    tokjax.datasets.export_dataset(dataset, tmp_path / "x.bin")
    stream = dataset.read(0, dataset.num_tokens)
    assert np.memmap(tmp_path / "x.bin", dtype=np.uint16, mode="r").tolist() == stream.tolist()
    with pytest.raises(
        tokjax.errors.DatasetExistsError, match=r"x\.bin exists; to replace it, pass overwrite=True"
    ):
        tokjax.datasets.export_dataset(dataset, tmp_path / "x.idx")
    tokjax.datasets.export_dataset(dataset, tmp_path / "x.idx", overwrite=True)
    index = (tmp_path / "x.idx").read_bytes()
    assert struct.unpack("<9sQBQQ", index[:34]) == (b"MMIDIDX\x00\x00", 1, 8, len(dataset), len(dataset) + 1)
    pointers = np.frombuffer(index, np.int64, len(dataset), 34 + 4 * len(dataset))
    assert pointers.tolist() == (2 * dataset.document_splits[:-1]).tolist()
    tokjax.datasets.export_dataset(dataset, tmp_path / "x.npy")
    assert np.load(tmp_path / "x.npy").tolist() == stream.tolist()


def test_an_int64_cache(tmp_path):
    """Chunks of ids, as the design note on uint16 describes them: a row each."""
    chunks = np.random.default_rng(0).integers(0, 258, (500, 33))
    np.save(tmp_path / "cache.npy", chunks)
    tokjax.datasets.convert_dataset(tmp_path / "cache.npy", TOKENIZER, tmp_path / "data", chunk_tokens=33)
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert [dataset[i].tolist() for i in range(500)] == chunks.tolist()
    small = (tmp_path / "data" / "shard-00000.tokens.npy").stat().st_size
    assert small * 3.9 < (tmp_path / "cache.npy").stat().st_size


def test_ids_that_are_all_the_same(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(5, np.int32))
    tokjax.datasets.convert_dataset(tmp_path / "x.npy", TOKENIZER, tmp_path / "data")
    assert tokjax.open_dataset(tmp_path / "data").read(0, 5).tolist() == [0] * 5


@pytest.mark.parametrize(
    ("name", "contents", "error", "message"),
    [
        ("x.bin", b"abc", tokjax.errors.SourceError, "has 3 bytes, which are no uint16 ids"),
        (
            "x.bin",
            np.array([5, 258], "<u2").tobytes(),
            tokjax.errors.DatasetMismatchError,
            r"the id 258 \(at 1\)",
        ),
        ("x.npy", b"abc", tokjax.errors.SourceError, r"no \.npy file"),
        (
            "x.npy",
            make_npy("{'descr': '<u2', 'fortran_order': 63,), }"),
            tokjax.errors.SourceError,
            r"no \.npy file",
        ),
        ("x.npy", make_npy("{'a': " + "-" * 9000 + "1}"), tokjax.errors.SourceError, r"no \.npy file"),
        ("x.npy", make_npy("(" * 5000), tokjax.errors.SourceError, r"no \.npy file"),
        ("x.idx", b"abc", tokjax.errors.SourceError, "is no index of Megatron"),
        ("x.idx", b"MMIDIDX\x00\x00" + bytes(25), tokjax.errors.SourceError, "version 0"),
        (
            "x.txt",
            b"abc",
            tokjax.errors.InvalidArgumentError,
            r"'x.txt' is can't be told by its name; pass format",
        ),
    ],
)
def test_invalid_files_are_rejected(tmp_path, name, contents, error, message):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(error, match=message):
        tokjax.datasets.convert_dataset(tmp_path / name, TOKENIZER, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_invalid_arrays_are_rejected(tmp_path):
    for array, message in ((np.zeros(3), "float64 of 1 dim"), (np.zeros((2, 2, 2), int), "int64 of 3 dim")):
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(tokjax.errors.SourceError, match=message):
            tokjax.datasets.convert_dataset(tmp_path / "x.npy", TOKENIZER, tmp_path / "data")
    np.save(tmp_path / "x.npy", np.array([3, -1]))
    with pytest.raises(tokjax.errors.DatasetMismatchError, match=r"holds the id -1 \(at 1\)"):
        tokjax.datasets.convert_dataset(tmp_path / "x.npy", TOKENIZER, tmp_path / "data")


def test_a_truncated_megatron(dataset, tmp_path):
    data, index = tokjax.datasets.export_dataset(dataset, tmp_path / "x.idx")
    data.write_bytes(data.read_bytes()[:-2])
    with pytest.raises(
        tokjax.errors.SourceError, match=r"x\.bin: has \d+ bytes, x\.idx says \d+ ids of uint16"
    ):
        tokjax.datasets.convert_dataset(index, TOKENIZER, tmp_path / "out")
    index.write_bytes(index.read_bytes()[:-3])
    with pytest.raises(tokjax.errors.SourceError, match="cut short"):
        tokjax.datasets.convert_dataset(index, TOKENIZER, tmp_path / "out")


def test_what_a_format_can_t_hold(tmp_path):
    tokjax.write_dataset(["a"], tokjax.PackedTokenField(LARGE), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="uint16, and the vocabulary has 70,001 ids"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "x.bin")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=r"a \.pt is not written"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "x.pt")
    tokjax.datasets.export_dataset(dataset, tmp_path / "x.idx")
    tokjax.datasets.convert_dataset(tmp_path / "x.idx", LARGE, tmp_path / "back")
    assert tokjax.open_dataset(tmp_path / "back").read(0, 2).tolist() == [97, 70_000]


@pytest.mark.parametrize(
    ("sizes", "documents", "expected"),
    [
        ([3, 0, 7], [0, 1, 2, 3], [[0, 1, 2], [], [3, 4, 5, 6, 7, 8, 9]]),
        ([3, 3, 4], [0, 2, 2, 3], [[0, 1, 2, 3, 4, 5], [], [6, 7, 8, 9]]),
        ([4, 6], [], [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]),
    ],
)
def test_documents_of_megatron(tmp_path, sizes, documents, expected):
    write_megatron(tmp_path, sizes, 2 * np.cumsum([0, *sizes])[:-1], documents)
    tokjax.datasets.convert_dataset(tmp_path / "x.idx", TOKENIZER, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert [dataset.document(i).tolist() for i in range(dataset.num_documents)] == expected


def write_megatron(directory, sizes, places, documents):
    """Ten ids, from 0 to 9, and an index of them."""
    (directory / "x.bin").write_bytes(np.arange(10, dtype="<u2").tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, len(sizes), len(documents))
    columns = np.array(sizes, "<i4").tobytes() + np.array([*places, *documents], "<i8").tobytes()
    (directory / "x.idx").write_bytes(header + columns)


@pytest.mark.parametrize(
    ("sizes", "places", "documents"),
    [
        ([3, 3, 4], [0, 6, 12], [0, 2]),
        ([3, 3, 4], [0, 6, 12], [1, 3]),
        ([3, 3, 4], [0, 6, 12], [0, 2, 1, 3]),
        ([3, 3, 4], [0, 6, 12], [0, -1, 3]),
        ([3, -3, 10], [0, 6, 0], [0, 1, 2, 3]),
        ([3, 3, 4], [8, 0, 14], [0, 1, 2, 3]),
    ],
)
def test_a_damaged_megatron(tmp_path, sizes, places, documents):
    write_megatron(tmp_path, sizes, places, documents)
    with pytest.raises(tokjax.errors.SourceError, match="do not add up: damaged"):
        tokjax.datasets.convert_dataset(tmp_path / "x.idx", TOKENIZER, tmp_path / "out")


class TestMerging:
    def test_ids_of_documents(self, tmp_path):
        buckets = tokjax.BucketedTokenField(TOKENIZER, [2, 4], max_tokens=9)
        texts = ["x" * (i * 5 % 9) for i in range(10)]
        paths = [self.write(tmp_path / str(i), texts, field=buckets) for i in range(2)]
        tokjax.datasets.merge_datasets(paths, tmp_path / "numbered")
        assert sorted(tokjax.open_dataset(tmp_path / "numbered").documents["doc_id"]) == list(range(20))
        passed = self.write(tmp_path / "given", [(i, "xxxx") for i in (0, 1, 7, 8)])
        one = self.write(tmp_path / "one", texts)
        tokjax.datasets.merge_datasets([one, passed], tmp_path / "both")
        both = tokjax.open_dataset(tmp_path / "both")
        assert both.documents["doc_id"].tolist() == [*range(10), 0, 1, 7, 8]
        both.verify()

    def test_custom_document_ids_are_preserved(self, tmp_path):
        one = self.write(tmp_path / "1", [(0, "a"), (1, "b")])
        two = self.write(tmp_path / "2", [(1, "c"), (0, "d")])
        tokjax.datasets.merge_datasets([one, two], tmp_path / "12")
        assert tokjax.open_dataset(tmp_path / "12").documents["doc_id"].tolist() == [0, 1, 1, 0]
        tokjax.datasets.merge_datasets([two, one, tmp_path / "12"], tmp_path / "more")
        more = tokjax.open_dataset(tmp_path / "more")
        assert more.documents["doc_id"].tolist() == [1, 0, 2, 3, 0, 1, 1, 0]
        assert [shard.is_numbered for shard in more.manifest.shards] == [False, True, False, False]
        buckets = tokjax.BucketedTokenField(TOKENIZER, [2], max_tokens=9)
        three = self.write(tmp_path / "3", [(1, "cccc"), (0, "dddd")], field=buckets)
        four = self.write(tmp_path / "4", ["eeee", "f"], field=buckets)
        tokjax.datasets.merge_datasets([four, three, four], tmp_path / "343")
        full = tokjax.open_dataset(tmp_path / "343")
        assert full.documents["doc_id"].tolist() == [1, 0, 1, 0, 5, 4]
        tokjax.datasets.merge_datasets([four, four], tmp_path / "44")
        tokjax.datasets.merge_datasets([tmp_path / "44", four], tmp_path / "444")
        assert tokjax.open_dataset(tmp_path / "444").documents["doc_id"].tolist() == [1, 0, 3, 2, 5, 4]

    def test_only_ids_that_are_not_the_running_count_have_files(self, tmp_path):
        numbered = self.write(tmp_path / "numbered", CORPUS)
        count = len(tokjax.open_dataset(numbered).documents)
        fitting = self.write(tmp_path / "fitting", [(2 * count, "a"), (2 * count + 1, "b")])
        other = self.write(tmp_path / "other", [(7, "a"), (1, "b")])
        tokjax.datasets.merge_datasets([numbered, numbered, fitting, other], tmp_path / "all")
        *shards, last = tokjax.open_dataset(tmp_path / "all").manifest.shards
        assert all(shard.is_numbered for shard in shards)
        assert not last.is_numbered
        found = [path.name for path in (tmp_path / "all").glob("*.doc_id.npy")]
        assert found == [f"{last.name}.doc_id.npy"]

    def write(self, path, texts, **options):
        field = options.pop("field", tokjax.PackedTokenField(TOKENIZER))
        tokjax.write_dataset(texts, field, path, shard_size=80, **options)
        return path

    def test_is_writing_all_at_once(self, tmp_path):
        one, two = self.write(tmp_path / "1", CORPUS), self.write(tmp_path / "2", CORPUS[:2])
        merged = tokjax.datasets.merge_datasets([one, two, one], tmp_path / "all")
        assert merged.num_documents == 2 * len(CORPUS) + 2
        full = tokjax.open_dataset(tmp_path / "all")
        self.write(tmp_path / "at once", CORPUS + CORPUS[:2] + CORPUS)
        at_once = tokjax.open_dataset(tmp_path / "at once")
        assert full.read(0, full.num_tokens).tolist() == at_once.read(0, at_once.num_tokens).tolist()
        assert full.documents.tolist() == at_once.documents.tolist()
        full.verify()

    def test_of_other_kinds_is_refused(self, tmp_path):
        one = self.write(tmp_path / "1", CORPUS)
        two = self.write(tmp_path / "2", CORPUS, field=tokjax.PackedTokenField(TOKENIZER, chunk_tokens=8))
        with pytest.raises(tokjax.errors.DatasetMismatchError, match="written with options=.*only datasets"):
            tokjax.datasets.merge_datasets([one, two], tmp_path / "all")
        shard = one / "shard-00001.tokens.npy"
        shard.write_bytes(shard.read_bytes()[:-1] + b"\x02")
        with pytest.raises(tokjax.errors.DatasetCorruptError, match=r"shard-00001\.tokens\.npy was altered"):
            tokjax.datasets.merge_datasets([one, one], tmp_path / "all")
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="paths is a list of directories"):
            tokjax.datasets.merge_datasets("x", tmp_path / "all")


@pytest.mark.parametrize("call", ["merge", "convert"])
def test_what_a_killed_writer_left_is_not_deleted_unasked(tmp_path, monkeypatch, call):
    def texts():
        yield from CORPUS * 10
        raise RuntimeError("stopped")

    field = tokjax.PackedTokenField(TOKENIZER)
    tokjax.write_dataset(CORPUS[:2], field, tmp_path / "one")
    tokjax.datasets.export_dataset(tokjax.open_dataset(tmp_path / "one"), tmp_path / "x.bin")
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 60)
    with pytest.raises(RuntimeError, match="stopped"):
        tokjax.write_dataset(texts(), field, tmp_path / "out", shard_size=60)
    left = {path.name: path.read_bytes() for path in (tmp_path / "out.incomplete").iterdir()}
    assert "shard-00001.tokens.npy" in left

    def write(**options):
        if call == "merge":
            return tokjax.datasets.merge_datasets([tmp_path / "one"], tmp_path / "out", **options)
        return tokjax.datasets.convert_dataset(tmp_path / "x.bin", TOKENIZER, tmp_path / "out", **options)

    with pytest.raises(
        tokjax.errors.DatasetExistsError,
        match=r"out\.incomplete holds what a writer that was stopped had finished; .* overwrite=True",
    ):
        write()
    assert {path.name: path.read_bytes() for path in (tmp_path / "out.incomplete").iterdir()} == left
    write(overwrite=True)
    tokjax.open_dataset(tmp_path / "out").verify()
    assert not (tmp_path / "out.incomplete").exists()


def test_moved_source_files(tmp_path):
    text, moved = tmp_path / "a.txt", tmp_path / "b.txt"
    text.write_text("low|lower")
    tokjax.write_dataset(text, tokjax.RawTextField(), tmp_path / "data", separator="|")
    text.rename(moved)
    tokjax.write_dataset(moved, tokjax.RawTextField(), tmp_path / "data", separator="|")  # (does nothing)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError,
        match=r"data was made from files that are not where they were: .*a\.txt' is not a file; put",
    ):
        tokjax.datasets.rebuild_dataset(tmp_path / "data", trust_source=True)


def test_a_source_at_a_url_is_refused(tmp_path):
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=r"'file://.*x\.bin' is a URL; write_dataset and"
    ):
        tokjax.datasets.convert_dataset(f"file://{tmp_path}/x.bin", TOKENIZER, tmp_path / "out")
    tokenizer = tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    shown = run("convert", f"file://{tmp_path}/x.bin", "-t", tokenizer, "-o", tmp_path / "out")
    assert b"is a URL; write_dataset" in shown.stderr


def test_rebuilding(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("low|lower")
    field = tokjax.TokenizedTextField(TOKENIZER, max_tokens=5)
    tokjax.write_dataset(text, field, tmp_path / "data", separator="|")
    text.write_text("low|lower|lowest")
    (tmp_path / "data" / "shard-00000.tokens.npy").unlink()  # (a damaged one, too)
    tokjax.datasets.rebuild_dataset(tmp_path / "data", trust_source=True)
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert len(dataset) == 3
    assert dataset.field == field
    other = tokjax.byte_level(eos_token="</s>", special_tokens=["</s>"])
    tokjax.datasets.rebuild_dataset(tmp_path / "data", other, trust_source=True)
    assert tokjax.open_dataset(tmp_path / "data").vocab_size == 257
    tokjax.write_dataset(["a"], field, tmp_path / "other")
    with pytest.raises(tokjax.errors.DatasetIncompleteError, match="was not made from files"):
        tokjax.datasets.rebuild_dataset(tmp_path / "other", trust_source=True)


def test_files_that_a_manifest_names_are_read_on_request_only(tmp_path):
    texts = [tmp_path / f"{i}.txt" for i in range(7)]
    for text in texts:
        text.write_text("low")
    tokjax.write_dataset(texts, tokjax.RawTextField(), tmp_path / "data")
    named = (
        r"rebuilt from the files that its manifest names: '.*/0\.txt', .*'.*/4\.txt' and 2 more; to read them"
    )
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match=f"{named}, pass trust_source=True, and for other"
    ):
        tokjax.datasets.rebuild_dataset(tmp_path / "data")
    shown = run("rebuild", tmp_path / "data", "--overwrite")
    assert shown.returncode == 1
    assert b"to read them, pass --trust-source, and for other files run tokjax pack" in shown.stderr


@pytest.mark.parametrize("field", ["raw", "tokenized", "bucketed", "packed"])
def test_packing_by_field(tmp_path, field):
    text, tokenizer = tmp_path / "a.txt", tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    text.write_text("low</s>lower")
    options = ["--bucket", 4, "--bucket", 8, "--max-tokens", 10] if field == "bucketed" else []
    shown = get_output("pack", text, "-t", tokenizer, "-o", tmp_path / "data", "--field", field, *options)
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert dataset.manifest.plan.field in shown
    assert len(dataset) == 2
    if field == "bucketed":
        assert dataset.bucket_boundaries == (4, 8, 10)


def test_packing_texts_without_a_tokenizer(tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("low\n\nlower</s>\n\nlow\\n\tx")
    get_output("pack", text, "-o", tmp_path / "one", "--field", "raw", "-q")
    assert list(tokjax.open_dataset(tmp_path / "one")) == [text.read_text()]
    for separator, documents in (
        (r"\n\n", ["low", "lower</s>", "low\\n\tx"]),
        ("\n\n", ["low", "lower</s>", "low\\n\tx"]),
        (r"\t", ["low\n\nlower</s>\n\nlow\\n", "x"]),
        (r"\\n", ["low\n\nlower</s>\n\nlow", "\tx"]),
        (r"\s>", ["low\n\nlower</s>\n\nlow\\n\tx"]),
    ):
        options = ["--field", "raw", "--separator", separator, "--overwrite", "--quiet"]
        get_output("pack", text, "-o", tmp_path / "data", *options)
        assert list(tokjax.open_dataset(tmp_path / "data")) == documents
    refused = run("pack", text, "-o", tmp_path / "ids")
    assert refused.returncode == 1
    assert b"--tokenizer FILE is required unless --field raw" in refused.stderr


def test_commands(tmp_path):
    text, tokenizer = tmp_path / "a.txt", tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    text.write_text("low</s>lower</s>")
    get_output("pack", text, "-t", tokenizer, "-o", tmp_path / "data")
    assert "files verified" in get_output("verify", tmp_path / "data")
    shown = get_output("merge", tmp_path / "data", tmp_path / "data", "-o", tmp_path / "twice")
    assert "4" in shown
    assert "x.bin" in get_output("convert", tmp_path / "data", "-o", tmp_path / "x.bin").replace("\n", "")
    get_output("convert", tmp_path / "x.bin", "-t", tokenizer, "-o", tmp_path / "back")
    assert len(tokjax.open_dataset(tmp_path / "back")) == 2
    without = run("convert", tmp_path / "x.bin", "-o", tmp_path / "again")
    assert without.returncode == 1
    assert b"pass --tokenizer FILE" in without.stderr
    text.write_text("low</s>")
    get_output("rebuild", tmp_path / "data", "--overwrite", "--trust-source")
    assert len(tokjax.open_dataset(tmp_path / "data")) == 1


@pytest.mark.parametrize(("header", "dtype"), [((20240520, 1), "<u2"), ((20240801, 7), "<u4")])
def test_files_of_llm_c(tmp_path, monkeypatch, header, dtype):
    monkeypatch.chdir(tmp_path)
    ids = np.array([257, 1, 2, 257, 3], dtype)
    numbers = np.zeros(256, "<i4")
    numbers[:3] = *header, len(ids)
    (tmp_path / "train.bin").write_bytes(numbers.tobytes() + ids.tobytes())
    with pytest.raises(tokjax.errors.SourceError, match=r"begins with a header of llm.c, whose") as caught:
        tokjax.datasets.convert_dataset("train.bin", LARGE, tmp_path / "back")
    exec(re.search(r"convert what (np\.save.*) writes", str(caught.value))[1])
    tokjax.datasets.convert_dataset("ids.npy", TOKENIZER, tmp_path / "back")
    assert tokjax.open_dataset(tmp_path / "back").read(0, 5).tolist() == [1, 2, 257, 3, 257]
