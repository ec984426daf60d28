"""Tests of llm.c's token files, in which a special token comes before each text."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.cli.test_commands import get_output, run
from tests.datasets.test_conversion import LARGE, TOKENIZER
from tests.support.id_datasets import write_id_dataset

EOS, BOS = 257, 258
WITH_BOS = tokjax.byte_level_bpe(
    {bytes([i]): i for i in range(256)},
    special_tokens={"</s>": EOS, "<s>": BOS},
    eos_token="</s>",
    bos_token="<s>",
)
HEADERS = {"<u2": (20240520, 1), "<u4": (20240801, 7)}


def write_file(path, ids, dtype="<u2", count=None):
    """Writes a header and ids."""
    header = np.zeros(256, "<i4")
    header[:3] = *HEADERS[dtype], len(ids) if count is None else count
    path.write_bytes(header.tobytes() + np.array(ids, dtype).tobytes())
    return path


def read_file(path, dtype="<u2"):
    header = np.fromfile(path, "<i4", 256)
    ids = np.fromfile(path, dtype, offset=1024)
    assert header.tolist() == [*HEADERS[dtype], len(ids)] + [0] * 253
    return ids.tolist()


def convert(path, tokenizer, out, **options):
    tokjax.datasets.convert_dataset(path, tokenizer, out, **options)
    dataset = tokjax.open_dataset(out)
    return dataset, [ids.tolist() for ids in dataset]


class TestReading:
    @pytest.mark.parametrize(("tokenizer", "dtype"), [(TOKENIZER, "<u2"), (LARGE, "<u4")])
    @pytest.mark.parametrize("batch_tokens", [1, 2, 1 << 22])
    def test_eos_moves_to_the_end_of_each_document(
        self, tmp_path, monkeypatch, tokenizer, dtype, batch_tokens
    ):
        monkeypatch.setattr("tokjax.datasets.conversion.token_streams.BATCH_TOKENS", batch_tokens)
        eos = tokjax.eos_id(tokenizer)
        path = write_file(tmp_path / "train.bin", [eos, 1, 2, eos, 3, eos], dtype)
        dataset, documents = convert(path, tokenizer, tmp_path / "data")
        assert documents == [[1, 2, eos], [3, eos], [eos]]
        assert dataset.manifest.source["converted"] == str(path)

    @pytest.mark.parametrize("batch_tokens", [1, 3, 1 << 22])
    def test_a_file_that_begins_inside_of_a_document(self, tmp_path, monkeypatch, batch_tokens):
        monkeypatch.setattr("tokjax.datasets.conversion.token_streams.BATCH_TOKENS", batch_tokens)
        path = write_file(tmp_path / "train.bin", [7, 8, EOS, 1, 2, EOS, 3])
        assert convert(path, TOKENIZER, tmp_path / "data")[1] == [[7, 8], [1, 2, EOS], [3, EOS]]

    def test_documents_that_begin_with_bos(self, tmp_path):
        path = write_file(tmp_path / "train.bin", [9, BOS, 1, 2, BOS, 3, EOS, BOS], "<u4")
        _, documents = convert(path, WITH_BOS, tmp_path / "data")
        assert documents == [[9], [BOS, 1, 2], [BOS, 3, EOS], [BOS]]
        path = write_file(tmp_path / "eos.bin", [EOS, 1, 2, EOS, 3])
        assert convert(path, WITH_BOS, tmp_path / "eos")[1] == [[1, 2, EOS], [3, EOS]]

    def test_files_without_documents(self, tmp_path):
        assert convert(write_file(tmp_path / "a.bin", []), TOKENIZER, tmp_path / "none")[1] == []
        path = write_file(tmp_path / "b.bin", [1, 2])
        assert convert(path, TOKENIZER, tmp_path / "one")[1] == [[1, 2]]
        without_eos = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)})
        assert convert(path, without_eos, tmp_path / "without")[1] == [[1, 2]]

    def test_invalid_files(self, tmp_path):
        def check(message, **options):
            with pytest.raises(tokjax.errors.SourceError, match=message):
                tokjax.datasets.convert_dataset(path, TOKENIZER, tmp_path / "data", **options)

        path = write_file(tmp_path / "train.bin", [1, 2], count=3)
        check("has 1028 bytes, its header says 3 ids of uint16, which are 1030 bytes; it is truncated")
        write_file(path, [1, 2], count=-1)
        check("its header says -1 ids")
        path.write_bytes(path.read_bytes()[:100])
        check("has 100 bytes, its header says -1 ids")
        path.write_bytes(np.array([20240520, 2, 0], "<i4").tobytes())
        check("is not a token file of llm.c: it begins with the numbers 20240520 and 2, not", format="llm.c")
        path.write_bytes(b"")
        check("is not a token file of llm.c", format="llm.c")
        write_file(path, [1, 2])
        check("begins with a header of llm.c; pass format='llm.c'", format="nanogpt")


class TestWriting:
    def test_layout(self, tmp_path):
        dataset = write_id_dataset([[1, 2], [], [3]], tmp_path / "data", TOKENIZER, add_eos_between_docs=True)
        target = tmp_path / "train.bin"
        assert tokjax.datasets.export_dataset(dataset, target, "llm.c") == (target,)
        assert read_file(target) == [EOS, 1, 2, EOS, EOS, 3]
        with pytest.raises(tokjax.errors.DatasetExistsError, match=r"train\.bin exists; to replace it"):
            tokjax.datasets.export_dataset(dataset, target, "llm.c")
        large = write_id_dataset([[1, 2], [3]], tmp_path / "large", LARGE, add_eos_between_docs=True)
        tokjax.datasets.export_dataset(large, target, "llm.c", overwrite=True)
        assert read_file(target, "<u4") == [70_000, 1, 2, 70_000, 3]

    def test_documents_that_begin_with_bos(self, tmp_path):
        dataset = write_id_dataset([[1, 2], [3]], tmp_path / "data", WITH_BOS, add_eos_between_docs=True)
        tokjax.datasets.export_dataset(dataset, tmp_path / "train.bin", "llm.c")
        assert read_file(tmp_path / "train.bin") == [BOS, 1, 2, EOS, BOS, 3, EOS]

    @pytest.mark.parametrize(
        ("documents", "tokenizer", "message"),
        [
            ([[1, EOS], [2], [3]], TOKENIZER, "document 2 ends with the id 3, not with the EOS id 257, so"),
            ([[1, EOS, 2], [3, EOS]], TOKENIZER, "document 0 contains the EOS id 257 before its end, so"),
            (
                [[1, EOS], [2, EOS, 3, EOS]],
                TOKENIZER,
                "document 1 contains the EOS id 257 before its end, so",
            ),
            ([[1], [2, BOS]], WITH_BOS, "the id 258 at index 4 is the BOS token, and no document"),
            ([[1, EOS], []], TOKENIZER, "document 1 is empty, and llm.c's files have no empty documents"),
            (
                [[1], [2]],
                tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}),
                "the tokenizer declares no EOS token; pass format='npy'",
            ),
        ],
    )
    def test_documents_that_the_file_would_not_have(self, tmp_path, documents, tokenizer, message):
        dataset = write_id_dataset(documents, tmp_path / "data", tokenizer)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match=message):
            tokjax.datasets.export_dataset(dataset, tmp_path / "train.bin", "llm.c")
        assert not (tmp_path / "train.bin").exists()

    def test_bos_inside_of_a_document(self, tmp_path):
        path = write_file(tmp_path / "a.bin", [EOS, 1, 2])
        tokjax.datasets.convert_dataset(path, WITH_BOS, tmp_path / "data")
        dataset = tokjax.open_dataset(tmp_path / "data")
        tokjax.datasets.export_dataset(dataset, tmp_path / "b.bin", "llm.c")
        assert (tmp_path / "b.bin").read_bytes() == path.read_bytes()
        np.save(tmp_path / "ids.npy", np.array([1, BOS, EOS]))
        tokjax.datasets.convert_dataset(tmp_path / "ids.npy", WITH_BOS, tmp_path / "inside")
        with pytest.raises(
            tokjax.errors.InvalidArgumentError,
            match="the id 258 at index 1 is the BOS token, and no document",
        ):
            tokjax.datasets.export_dataset(
                tokjax.open_dataset(tmp_path / "inside"), tmp_path / "c.bin", "llm.c"
            )

    def test_too_many_ids(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tokjax.datasets.conversion.llm_c._MAX_IDS", 2)
        dataset = write_id_dataset([[1, 2, EOS]], tmp_path / "data", TOKENIZER)
        with pytest.raises(tokjax.errors.InvalidArgumentError, match="3 ids, and llm.c's header .* up to 2"):
            tokjax.datasets.export_dataset(dataset, tmp_path / "train.bin", "llm.c")


@given(
    ids=st.lists(st.sampled_from([1, 2, EOS, BOS]), max_size=12),
    has_bos=st.booleans(),
    batch_tokens=st.integers(1, 5),
)
def test_round_trips(tmp_path_factory, ids, has_bos, batch_tokens):
    """Any file, and any dataset that was made of a file, is the same after conversion and export."""
    tmp_path = tmp_path_factory.mktemp("llm.c")
    tokenizer, ids = (WITH_BOS, ids) if has_bos else (TOKENIZER, [i for i in ids if i != BOS])
    path = write_file(tmp_path / "a.bin", ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokjax.datasets.conversion.token_streams.BATCH_TOKENS", batch_tokens)
        dataset, documents = convert(path, tokenizer, tmp_path / "data")
        special = BOS if BOS in ids else EOS
        starts = [i for i in range(len(ids)) if i == 0 or ids[i] == special]
        expected = [ids[a:b] for a, b in itertools.pairwise([*starts, len(ids)])]
        if special == EOS:
            expected = [[*part[1:], EOS] if part[0] == EOS else part for part in expected]
        assert documents == expected
        tokjax.datasets.export_dataset(dataset, tmp_path / "b.bin", "llm.c")
    assert (tmp_path / "b.bin").read_bytes() == path.read_bytes()


def test_command(tmp_path):
    tokenizer = tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    path = write_file(tmp_path / "train.bin", [EOS, 1, 2])
    get_output("convert", path, "-t", tokenizer, "-o", tmp_path / "data")
    get_output("convert", tmp_path / "data", "-o", tmp_path / "back.bin", "--format", "llm.c")
    assert (tmp_path / "back.bin").read_bytes() == path.read_bytes()
    result = run("convert", path, "-t", tokenizer, "-o", tmp_path / "again", "--format", "nanogpt")
    assert b"pass --format llm.c" in b" ".join(result.stderr.split())
