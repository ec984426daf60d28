"""Tests of converting and exporting datasets, and of the dataset commands."""

import io
import struct

import numpy as np
import pytest

import tokjax
from tests.cli.test_commands import get_output, run
from tests.conftest import CORPUS
from tests.support.byte_tokenizers import make_byte_tokenizer

TOKENIZER = make_byte_tokenizer("</s>", tokens=[b"lo"])
LARGE = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)}, special_tokens={"</s>": 70_000}, eos_token="</s>"
)


@pytest.fixture
def dataset(tmp_path):
    tokjax.write_dataset(CORPUS, tokjax.PackedTokenField(TOKENIZER), tmp_path / "data", shard_size=100)
    return tokjax.open_dataset(tmp_path / "data")


def make_npy(header):
    """Returns an `.npy` file with a header that NumPy's parser rejects."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize("name", ["x.bin", "x.npy", "x.idx"])
@pytest.mark.parametrize("batch_tokens", [1, 50, 1 << 22])
def test_round_trip(dataset, tmp_path, name, batch_tokens, monkeypatch):
    monkeypatch.setattr("tokjax.datasets.conversion._BATCH_TOKENS", batch_tokens)
    paths = tokjax.datasets.export_dataset(dataset, tmp_path / name)
    assert [path.name for path in paths] == (["x.bin", "x.idx"] if name == "x.idx" else [name])
    tokjax.datasets.convert_dataset(tmp_path / name, TOKENIZER, tmp_path / "back", shard_size=60)
    back = tokjax.open_dataset(tmp_path / "back", TOKENIZER)
    assert back.read(0, back.num_tokens).tolist() == dataset.read(0, dataset.num_tokens).tolist()
    assert back.document_splits.tolist() == dataset.document_splits.tolist()
    assert back.manifest.plan.data_dtype == "uint16"
    assert len(back.manifest.shards) > 3
    back.verify()


def test_exported_files_have_the_layout_of_the_other_program(dataset, tmp_path):
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


def test_int64_rows(tmp_path):
    """Rows of a fixed number of `int64` ids, which `uint16` stores in a quarter of the space."""
    chunks = np.random.default_rng(0).integers(0, 258, (500, 33))
    np.save(tmp_path / "cache.npy", chunks)
    tokjax.datasets.convert_dataset(tmp_path / "cache.npy", TOKENIZER, tmp_path / "data", chunk_tokens=33)
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert [dataset[i].tolist() for i in range(500)] == chunks.tolist()
    small = (tmp_path / "data" / "shard-00000.tokens.npy").stat().st_size
    assert small * 3.9 < (tmp_path / "cache.npy").stat().st_size


def make_array(values):
    """Returns the contents of the `.npy` file of an array."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("x.bin", b"abc", "has 3 bytes, an odd number"),
        ("x.bin", np.array([5, 258], "<u2").tobytes(), r"the id 258 \(at index 1\)"),
        ("x.npy", make_array([3, -1]), r"holds the id -1 \(at index 1\)"),
        ("x.npy", make_array(np.zeros(3)), "float64 of 1 dim"),
        ("x.npy", make_array(np.zeros((2, 2, 2), int)), "int64 of 3 dim"),
        ("x.npy", b"abc", r"not an \.npy file"),
        ("x.npy", make_npy("{'descr': '<u2', 'fortran_order': 63,), }"), r"not an \.npy file"),
        ("x.npy", make_npy("{'a': " + "-" * 9000 + "1}"), r"not an \.npy file"),
        ("x.npy", make_npy("(" * 5000), r"not an \.npy file"),
        ("x.idx", b"abc", "is not a Megatron index"),
        ("x.idx", b"MMIDIDX\x00\x00" + bytes(25), "version 0"),
        ("x.txt", b"abc", r"can't detect a format from the name 'x\.txt'; pass format"),
    ],
)
def test_invalid_files_are_rejected(tmp_path, name, contents, message):
    (tmp_path / name).write_bytes(contents)
    error = {"the id": tokjax.errors.DatasetMismatchError, "can't ": tokjax.errors.InvalidArgumentError}
    expected = next((error[part] for part in error if part in message), tokjax.errors.SourceError)
    with pytest.raises(expected, match=message):
        tokjax.datasets.convert_dataset(tmp_path / name, TOKENIZER, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["none", "none.bin", "none.idx", "none.npy", "none.array_record"])
def test_missing_files(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: '.*{name}'"):
        tokjax.datasets.convert_dataset(tmp_path / name, TOKENIZER, tmp_path / "data")


@pytest.mark.parametrize("tokenizer", [TOKENIZER, LARGE])
def test_uint32_ids_without_a_header_are_rejected(tmp_path, tokenizer):
    """Read as `uint16`, they would be twice as many ids, and every second one 0 or 1."""
    path = tmp_path / "x.bin"
    ids = np.tile([9, 0, 70_000 if tokenizer is LARGE else 257, 8], 16)
    ids.astype("<u4").tofile(path)
    with pytest.raises(
        tokjax.errors.SourceError,
        match=r"x\.bin: every second of its first 128 numbers is at most [01], so its ids are probably "
        r"uint32, and files of nanoGPT are uint16; convert the file that numpy\.save",
    ):
        tokjax.datasets.convert_dataset(path, tokenizer, tmp_path / "data")
    np.zeros(128, "<u2").tofile(path)
    tokjax.datasets.convert_dataset(path, tokenizer, tmp_path / "data")
    assert tokjax.open_dataset(tmp_path / "data").num_tokens == 128


@pytest.mark.parametrize(
    ("name", "contents", "named", "message"),
    [
        ("x.pt", b"", None, r"'torch' is not read or written; numpy\.save\('ids\.npy', torch\.load\(PATH, w"),
        ("x.bin", (20240520).to_bytes(4, "little"), None, r"begins with a header of llm\.c; pass the docum"),
        ("x.bin", b"", "llm.c", r"'llm\.c' is not read or written; .* numpy\.fromfile\(PATH, 'uint16', of"),
        ("shard_ledger.json", b"", None, r"'levanter' is not read or written; .* which tensorstore reads"),
    ],
)
def test_formats_that_other_libraries_read(tmp_path, dataset, name, contents, named, message):
    path = tmp_path / "files" / name
    path.parent.mkdir()
    path.write_bytes(contents)
    source = path.parent if path.suffix == ".json" else path
    with pytest.raises(tokjax.errors.TokjaxError, match=message):
        tokjax.datasets.convert_dataset(source, TOKENIZER, tmp_path / "out", format=named)
    if named or name == "x.pt":
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.datasets.export_dataset(dataset, path, named, overwrite=True)


def test_truncated_megatron_files(dataset, tmp_path):
    data, index = tokjax.datasets.export_dataset(dataset, tmp_path / "x.idx")
    data.write_bytes(data.read_bytes()[:-2])
    with pytest.raises(
        tokjax.errors.SourceError, match=r"x\.bin: has \d+ bytes, x\.idx says \d+ ids of uint16"
    ):
        tokjax.datasets.convert_dataset(index, TOKENIZER, tmp_path / "out")
    index.write_bytes(index.read_bytes()[:-3])
    with pytest.raises(tokjax.errors.SourceError, match="truncated"):
        tokjax.datasets.convert_dataset(index, TOKENIZER, tmp_path / "out")


def test_ids_that_a_format_cannot_represent(tmp_path):
    tokjax.write_dataset(["a"], tokjax.PackedTokenField(LARGE), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="uint16, and the vocabulary has 70,001 ids"):
        tokjax.datasets.export_dataset(dataset, tmp_path / "x.bin")
    tokjax.datasets.export_dataset(dataset, tmp_path / "x.idx")
    for name in ("x.idx", "x.bin"):
        tokjax.datasets.convert_dataset(tmp_path / name, LARGE, tmp_path / "back", overwrite=True)
        assert tokjax.open_dataset(tmp_path / "back").read(0, 2).tolist() == [97, 70_000]


@pytest.mark.parametrize(
    ("sizes", "documents", "expected"),
    [
        ([3, 0, 7], [0, 1, 2, 3], [[0, 1, 2], [], [3, 4, 5, 6, 7, 8, 9]]),
        ([3, 3, 4], [0, 2, 2, 3], [[0, 1, 2, 3, 4, 5], [], [6, 7, 8, 9]]),
        ([4, 6], [], [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]),
    ],
)
def test_megatron_documents(tmp_path, sizes, documents, expected):
    write_megatron(tmp_path, sizes, 2 * np.cumsum([0, *sizes])[:-1], documents)
    tokjax.datasets.convert_dataset(tmp_path / "x.idx", TOKENIZER, tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert [dataset.document(i).tolist() for i in range(dataset.num_documents)] == expected


def test_an_index_makes_a_file_of_ids_megatrons(tmp_path):
    path, index = tmp_path / "x.bin", tmp_path / "x.idx"
    write_megatron(tmp_path, [3, 0, 7], [0, 6, 6], [0, 1, 2, 3])
    tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    get_output("convert", path, "-t", tmp_path / "t.json", "-o", tmp_path / "data")
    assert [len(ids) for ids in tokjax.open_dataset(tmp_path / "data")] == [3, 0, 7]
    tokjax.datasets.convert_dataset(path, TOKENIZER, tmp_path / "named", format="nanogpt")
    assert len(tokjax.open_dataset(tmp_path / "named")) == 1
    index.write_bytes(b"another program's index")
    tokjax.datasets.convert_dataset(path, TOKENIZER, tmp_path / "other")
    assert len(tokjax.open_dataset(tmp_path / "other")) == 1
    index.unlink()
    index.mkdir()
    tokjax.datasets.convert_dataset(path, TOKENIZER, tmp_path / "directory")
    assert len(tokjax.open_dataset(tmp_path / "directory")) == 1


def write_megatron(directory, sizes, offsets, documents):
    """Writes ten ids, 0 to 9, and an index with the given columns."""
    (directory / "x.bin").write_bytes(np.arange(10, dtype="<u2").tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, len(sizes), len(documents))
    columns = np.array(sizes, "<i4").tobytes() + np.array([*offsets, *documents], "<i8").tobytes()
    (directory / "x.idx").write_bytes(header + columns)


@pytest.mark.parametrize(
    ("sizes", "offsets", "documents"),
    [
        ([3, 3, 4], [0, 6, 12], [0, 2]),
        ([3, 3, 4], [0, 6, 12], [1, 3]),
        ([3, 3, 4], [0, 6, 12], [0, 2, 1, 3]),
        ([3, 3, 4], [0, 6, 12], [0, -1, 3]),
        ([3, -3, 10], [0, 6, 0], [0, 1, 2, 3]),
        ([3, 3, 4], [8, 0, 14], [0, 1, 2, 3]),
    ],
)
def test_damaged_megatron_index(tmp_path, sizes, offsets, documents):
    write_megatron(tmp_path, sizes, offsets, documents)
    with pytest.raises(tokjax.errors.SourceError, match="are inconsistent: damaged"):
        tokjax.datasets.convert_dataset(tmp_path / "x.idx", TOKENIZER, tmp_path / "out")


@pytest.mark.parametrize("call", ["merge", "convert"])
def test_finished_shards_of_an_interrupted_writer_need_overwrite(tmp_path, monkeypatch, call):
    def texts():
        yield from CORPUS * 10
        raise RuntimeError("stopped")

    field = tokjax.PackedTokenField(TOKENIZER)
    tokjax.write_dataset(CORPUS[:2], field, tmp_path / "one")
    tokjax.datasets.export_dataset(tokjax.open_dataset(tmp_path / "one"), tmp_path / "x.bin")
    monkeypatch.setattr("tokjax.datasets.shard_writing._BATCH_SIZE", 60)
    with pytest.raises(RuntimeError, match="stopped"):
        tokjax.write_dataset(texts(), field, tmp_path / "out", shard_size=60)
    remaining = {path.name: path.read_bytes() for path in (tmp_path / "out.incomplete").iterdir()}
    assert "shard-00001.tokens.npy" in remaining

    def write(**options):
        if call == "merge":
            return tokjax.datasets.merge_datasets([tmp_path / "one"], tmp_path / "out", **options)
        return tokjax.datasets.convert_dataset(tmp_path / "x.bin", TOKENIZER, tmp_path / "out", **options)

    with pytest.raises(
        tokjax.errors.DatasetExistsError,
        match=r"out\.incomplete holds finished files of an interrupted writer; .* overwrite=True",
    ):
        write()
    assert {path.name: path.read_bytes() for path in (tmp_path / "out.incomplete").iterdir()} == remaining
    write(overwrite=True)
    tokjax.open_dataset(tmp_path / "out").verify()
    assert not (tmp_path / "out.incomplete").exists()


@pytest.mark.parametrize("field", ["raw", "tokenized", "bucketed", "packed"])
def test_pack_command_by_field(tmp_path, field):
    text, tokenizer = tmp_path / "a.txt", tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    text.write_text("low</s>lower")
    options = ["--bucket", 4, "--bucket", 8, "--max-tokens", 10] if field == "bucketed" else []
    result = get_output("pack", text, "-t", tokenizer, "-o", tmp_path / "data", "--field", field, *options)
    dataset = tokjax.open_dataset(tmp_path / "data")
    assert dataset.manifest.plan.field in result
    assert len(dataset) == 2
    if field == "bucketed":
        assert dataset.bucket_boundaries == (4, 8, 10)


def test_pack_command_without_a_tokenizer(tmp_path):
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


def test_dataset_commands(tmp_path):
    text, tokenizer = tmp_path / "a.txt", tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    text.write_text("low</s>lower</s>")
    get_output("pack", text, "-t", tokenizer, "-o", tmp_path / "data")
    assert "files verified" in get_output("verify", tmp_path / "data")
    result = get_output("merge", tmp_path / "data", tmp_path / "data", "-o", tmp_path / "twice")
    assert "4" in result
    assert "x.bin" in get_output("convert", tmp_path / "data", "-o", tmp_path / "x.bin").replace("\n", "")
    get_output("convert", tmp_path / "x.bin", "-t", tokenizer, "-o", tmp_path / "back")
    assert len(tokjax.open_dataset(tmp_path / "back")) == 2
    without = run("convert", tmp_path / "x.bin", "-o", tmp_path / "again")
    assert without.returncode == 1
    assert b"pass --tokenizer FILE" in without.stderr


def test_documents_that_are_too_long_for_a_megatron_index(tmp_path, monkeypatch):
    tokjax.write_dataset(["short", "a longer one"], tokjax.PackedTokenField(TOKENIZER), tmp_path / "data")
    dataset = tokjax.open_dataset(tmp_path / "data")
    lengths = np.array([6, 1 << 31])
    monkeypatch.setitem(dataset.__dict__, "document_lengths", lengths)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError,
        match=r"document 1 has 2,147,483,648 ids, and Megatron's index holds lengths up to 2,147,483,647; "
        r"pass format='npy'",
    ):
        tokjax.datasets.export_dataset(dataset, tmp_path / "ids.idx")
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]
