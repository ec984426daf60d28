"""Tests of corpus files: text, JSON lines and Parquet, compressed or not, by path or glob pattern."""

import gzip
import sys

import loky
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.support.documents import read_bytes_of_documents, write_texts
from tests.support.rejections import rejects
from tests.support.text_strategies import hard_texts
from tokjax.corpus import tables
from tokjax.corpus.files import text_files
from tokjax.corpus.readers import FileChunk, iter_file_chunks
from tokjax.trainer import count_pretokens, counting
from tokjax.trainer.counting import sample_chunks

SEPARATOR = "<|endoftext|>"
TEXTS = ["low lower", "", "naïve café\nnew line", f"a{SEPARATOR}b", "日本語 text " * 50]


SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")


@pytest.mark.parametrize("suffix", SUFFIXES)
class TestEveryFormat:
    def test_documents_and_counts_equal_those_of_the_texts(self, tmp_path, suffix):
        path = write_texts(tmp_path / f"corpus{suffix}", TEXTS)
        expected = [part.encode() for text in TEXTS for part in text.split(SEPARATOR) if part]
        assert read_bytes_of_documents(path, SEPARATOR) == expected
        counts = count_pretokens(path, special_tokens=[SEPARATOR], progress=False)
        assert counts == count_pretokens(iter(TEXTS), special_tokens=[SEPARATOR], progress=False)
        (file,) = counts.files
        assert (file.path, file.nbytes) == (str(path.resolve()), path.stat().st_size)

    @given(texts=st.lists(hard_texts, max_size=8), longest=st.integers(1, 60))
    def test_documents_do_not_depend_on_the_chunk_size(self, tmp_path_factory, suffix, texts, longest):
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        path = write_texts(tmp_path_factory.mktemp("corpus") / f"corpus{suffix}", texts)
        expected = [part.encode() for text in texts for part in text.split(SEPARATOR) if part]
        if suffix.startswith(".txt"):
            expected = [part for part in SEPARATOR.join(texts).encode().split(SEPARATOR.encode()) if part]
        chunks = iter_file_chunks(text_files(path), [SEPARATOR], longest, safe_splits=False)
        pieces = [text for chunk in chunks for text, _ in chunk.read()]
        documents = [
            part for text in pieces for part in tokjax.offsets.to_utf8(text).split(SEPARATOR.encode())
        ]
        assert list(filter(None, documents)) == expected

    def test_files_are_encoded_in_batches(self, tmp_path, suffix, plain_tokenizer):
        path = write_texts(tmp_path / f"corpus{suffix}", TEXTS)
        batches = tokjax.encode_files(plain_tokenizer, str(tmp_path / "corpus*"), separator=SEPARATOR)
        decoded = [text for batch in batches for text in tokjax.decode_batch(plain_tokenizer, batch)]
        assert decoded == [part for text in TEXTS for part in text.split(SEPARATOR) if part]
        assert path.exists()

    def test_an_empty_file_is_logged_and_skipped(self, tmp_path, suffix, caplog):
        caplog.set_level("WARNING", "tokjax")
        path = write_texts(tmp_path / f"corpus{suffix}", [])
        other = write_texts(tmp_path / f"other{suffix}", ["text"])
        expected = [f"1 of 2 files had no text: {path}"]
        assert read_bytes_of_documents([path, other], SEPARATOR) == [b"text"]
        assert caplog.messages == expected
        assert dict(count_pretokens([path, other], progress=False).items()) == {b"text": 1}
        assert caplog.messages == expected * 2


@given(
    parts=st.lists(
        st.sampled_from(["aa", "a", "b", " ", "\n", "ab ", "é", "word "]), min_size=1, max_size=60
    ),
    longest=st.integers(1, 30),
)
def test_compressed_text_chunk_boundaries(tmp_path_factory, parts, longest):
    text = "".join(parts)
    directory = tmp_path_factory.mktemp("corpus")
    (directory / "c.txt.gz").write_bytes(gzip.compress(text.encode()))
    (directory / "c.txt").write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokjax.trainer.counting._CHUNK_BYTES", longest)
        compressed, plain = (
            count_pretokens(directory / name, special_tokens=["aa"], progress=False)
            for name in ("c.txt.gz", "c.txt")
        )
    assert compressed == plain == count_pretokens([text], special_tokens=["aa"], progress=False)


def test_glob_patterns(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("b.txt", "a.txt", "deep/c.txt", "[odd].txt"):
        (tmp_path / name).write_text(name)
    assert [path.name for path in text_files(f"{tmp_path}/*.txt").paths] == ["[odd].txt", "a.txt", "b.txt"]
    deep = text_files([f"{tmp_path}/**/*.txt", tmp_path / "a.txt"])
    assert [path.name for path in deep.paths] == ["[odd].txt", "a.txt", "b.txt", "c.txt", "a.txt"]
    assert list(tokjax.corpus.read_documents(str(tmp_path / "[odd].txt"), None)) == [b"[odd].txt"]
    assert count_pretokens(str(tmp_path / "?.txt"), progress=False).documents == 2
    with rejects(r"no\*\.txt' matches no file; for a text"):
        text_files(f"{tmp_path}/no*.txt")


def test_parquet_files_of_a_directory_in_any_case(tmp_path):
    for name in ("a.parquet", "b.PARQUET", "deep/c.Parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": [name]}), tmp_path / name)
    (tmp_path / "d.parquet.crc").write_bytes(b"not read")
    (tmp_path / "e.parquet").mkdir()
    assert list(tokjax.corpus.read_documents(tmp_path, None)) == ["a.parquet", "b.PARQUET", "deep/c.Parquet"]


def test_hidden_and_temporary_files_of_a_directory_are_ignored(tmp_path):
    directory = tmp_path / "_raw"
    names = [".copy/a.parquet", "._a.parquet", "_temporary/0/a.parquet", "_key=1/b.parquet", "a_.parquet"]
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": [name]}), directory / name)
    assert list(tokjax.corpus.read_documents(directory, None)) == ["_key=1/b.parquet", "a_.parquet"]
    pattern = str(directory / "_temporary" / "**" / "*.parquet")
    assert list(tokjax.corpus.read_documents(pattern, None)) == ["_temporary/0/a.parquet"]


def test_field_and_format_options(tmp_path):
    path = write_texts(tmp_path / "corpus.jsonl", ["one", "two"], field="content")
    assert list(tokjax.corpus.read_documents(text_files(path, field="content"), None)) == ["one", "two"]
    as_text = tokjax.corpus.read_documents(text_files(path, format="text"), None)
    assert list(as_text) == [path.read_bytes()]
    odd = write_texts(tmp_path / "corpus.jsonl", ["one"]).rename(tmp_path / "corpus.dat")
    assert list(tokjax.corpus.read_documents(text_files(odd, format="jsonl"), None)) == ["one"]


class TestInvalidFiles:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b"not json", r"c\.jsonl, the line at byte 12: not JSON: .*format='text'"),
            (b"[1]", "a JSON object is expected, not a list"),
            (b'{"body": "x"}', r"no field 'text', it has \['body'\]; pass text_files\(PATH, field=NAME\)"),
            (b'{"text": 3}', "the field 'text' is a int, not a string"),
            (b'{"text": "\xff"}', r"c\.jsonl: byte 23 \(0xff\) is not valid UTF-8"),
            (b"[" * 100_000, "not JSON"),
        ],
    )
    def test_invalid_records(self, tmp_path, line, message):
        path = tmp_path / "c.jsonl"
        path.write_bytes(b'{"text": 1}\n'.replace(b"1", b'""', 1)[:-1] + b"\n" + line)
        message = message.replace("byte 12", "byte 13")
        with pytest.raises(tokjax.errors.SourceError, match=message):
            list(tokjax.corpus.read_documents(path, None))

    def test_dictionary_and_binary_columns(self, tmp_path):
        path = tmp_path / "c.parquet"
        for column in (pa.array(["a", "b"]).dictionary_encode(), pa.array([b"a", b"b"], pa.binary())):
            pq.write_table(pa.table({"text": column}), path)
            assert read_bytes_of_documents(path) == [b"a", b"b"]

    def test_damaged_parquet(self, tmp_path):
        path = write_texts(tmp_path / "c.parquet", TEXTS)
        with pytest.raises(tokjax.errors.SourceError, match=r"no column 'body', of \['n', 'text'\]"):
            list(tokjax.corpus.read_documents(text_files(path, field="body"), None))
        with pytest.raises(tokjax.errors.SourceError, match="the column 'n' holds int64, not strings"):
            list(tokjax.corpus.read_documents(text_files(path, field="n"), None))
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(tokjax.errors.SourceError, match="truncated or damaged, or not Parquet"):
            list(tokjax.corpus.read_documents(path, None))

    def test_missing_pyarrow_is_reported(self, tmp_path, monkeypatch):
        path = write_texts(tmp_path / "c.parquet", TEXTS)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(tokjax.errors.MissingExtraError, match=r"pip install 'tokjax\[parquet\]'"):
            list(tokjax.corpus.read_documents(path, None))

    def test_invalid_options_are_rejected(self, tmp_path):
        with rejects("format must be 'auto', .* not 'xml'"):
            text_files(tmp_path, format="xml")
        with rejects("field must be the name of a field, not 3"):
            text_files(tmp_path, field=3)
        with rejects("paths must be str or os.PathLike, not int"):
            text_files([3])
        with rejects("paths is empty"):
            text_files([])
        (tmp_path / "c.txt.lz4").write_bytes(b"text")
        with rejects(r"c\.txt\.lz4' is compressed.* lz4 -d, or"):
            text_files(tmp_path / "c.txt.lz4")
        as_it_is = text_files(tmp_path / "c.txt.lz4", format="text")
        assert list(tokjax.corpus.read_documents(as_it_is, None)) == [b"text"]

    def test_a_file_that_is_truncated_while_it_is_read(self, tmp_path):
        path = tmp_path / "c.txt"
        path.write_bytes(b"some words " * 100)
        (chunk,) = iter_file_chunks(text_files(path), [], 10_000, safe_splits=True)
        path.write_bytes(b"some")
        with pytest.raises(tokjax.errors.SourceError, match=r"c\.txt: became shorter while it was read"):
            chunk.read()


class TestSampling:
    @given(sizes=st.lists(st.integers(1, 9), max_size=30), budget=st.integers(1, 200), seed=st.integers(0, 3))
    def test_sample_is_as_small_as_the_budget_allows(self, sizes, budget, seed):
        chunks = [FileChunk("", i, i + size, size) for i, size in enumerate(sizes)]
        sample = sample_chunks(iter(chunks), budget, seed)
        assert sample == sample_chunks(iter(chunks), budget, seed)
        assert sample == [chunk for chunk in chunks if chunk in sample]
        nbytes = sum(chunk.nbytes for chunk in sample)
        assert sample == chunks if sum(sizes) < budget else budget <= nbytes < budget + 9

    def test_another_seed_samples_other_chunks(self):
        chunks = [FileChunk("", i, i + 1, 1) for i in range(100)]
        samples = [tuple(chunk.start for chunk in sample_chunks(chunks, 10, seed)) for seed in range(20)]
        assert len(set(samples)) == 20
        assert len({start for starts in samples for start in starts}) > 80

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_counts_of_a_sample(self, tmp_path, suffix, monkeypatch):
        monkeypatch.setattr(tables, "_ROWS_PER_READ", 10)
        monkeypatch.setattr(counting, "_MIN_SAMPLED_BYTES", 1)
        texts = [f"number {i} of many" for i in range(3000)]
        path = write_texts(tmp_path / f"c{suffix}", texts)
        options = {"special_tokens": [SEPARATOR], "progress": False, "max_bytes": 10_000}
        counts = count_pretokens(path, **options, seed=1)
        assert 3_000 < counts.nbytes < 11_000
        for workers in (1, 2):
            assert counts == count_pretokens(path, **options, seed=1, workers=workers)
        assert counts != count_pretokens(path, **options, seed=2)

    def test_invalid_options_are_rejected(self):
        with rejects("max_bytes must be at least 1, not 0"):
            count_pretokens(["a"], max_bytes=0)
        with rejects("seed must be an integer"):
            count_pretokens(["a"], max_bytes=1, seed="s")


def test_relative_paths_in_workers_with_another_directory(tmp_path, monkeypatch):
    for name, text in (("a", "first"), ("b", "second file")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text(text)
    monkeypatch.chdir(tmp_path / "a")
    with loky.ProcessPoolExecutor(1) as executor:
        executor.submit(int).result()  # starts the worker in the first directory
        monkeypatch.chdir(tmp_path / "b")
        counts = count_pretokens("x.txt", executor=executor, progress=False)
    assert dict(counts.items()) == {b"second": 1, b" file": 1}


@pytest.mark.parametrize("text", ["язык слово\n", "日本語 テキスト\n", "한국어 문장\n", "ab é\n"])
def test_text_in_any_script_is_split(tmp_path, text):
    path = tmp_path / "x.txt"
    path.write_text(text * 500, "utf-8")
    chunks = iter_file_chunks(text_files(path), [], 300, safe_splits=True)
    assert max(chunk.nbytes for chunk in chunks) < 400


@given(
    parts=st.lists(
        st.sampled_from([*"aZ9 \n", "é", "я", "\u0301", "½", "。", "\xad", "𝒜", "\ud7ff", "日"]),
        min_size=1,
        max_size=80,
    ),
    longest=st.integers(1, 20),
    pattern=st.sampled_from(["gpt2", "cl100k", "o200k", "qwen2", "whitespace", r"\S+|\s+"]),
)
def test_chunk_boundaries_preserve_pretokens(tmp_path_factory, parts, longest, pattern):
    path = tmp_path_factory.mktemp("corpus") / "x.txt"
    path.write_bytes("".join(parts).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokjax.trainer.counting._CHUNK_BYTES", longest)
        split_counts = count_pretokens(path, pattern=pattern, progress=False, workers=1)
    assert split_counts == count_pretokens([path.read_bytes()], pattern=pattern, progress=False)
