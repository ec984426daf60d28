"""Tests of dataset reports: statistics against direct computation, and the command."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tokjax
from tests.cli.test_commands import get_output
from tests.conftest import CORPUS
from tests.support.loader_cases import FIELDS, TEXTS, TOKENIZER


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reported")
    for name, field in FIELDS.items():
        tokjax.write_dataset(TEXTS, field, directory / name, shard_size=500)
    return {path.name: tokjax.open_dataset(path) for path in directory.iterdir()}


@pytest.mark.parametrize("name", FIELDS)
def test_statistics(datasets, name):
    dataset = datasets[name]
    report = tokjax.reports.dataset_report(dataset, batch_size=10)
    lengths = np.array(
        [len(dataset[row]) if name != "raw" else len(dataset.text_bytes(row)) for row in range(97)]
    )
    assert report.lengths["shortest"] == lengths.min()
    assert report.lengths["median"] == np.sort(lengths)[48]
    assert report.lengths["longest"] == lengths.max()
    assert report.num_documents == 97
    longest, batch, buckets, packed = (padding.share for padding in report.padding)
    assert longest == pytest.approx(1 - lengths.sum() / (97 * lengths.max()))
    assert 0 <= batch <= longest
    chunk = 16 if name == "packed" else lengths.max()
    assert packed == pytest.approx(1 - lengths.sum() / (np.ceil(lengths.sum() / chunk) * chunk))
    assert 0 <= buckets <= longest
    assert report.bytes_per_token == (None if name == "raw" else report.num_bytes / lengths.sum())
    assert report.num_dropped == 0
    assert json.loads(json.dumps(asdict(report)))["num_documents"] == 97


def test_bucketed_datasets_use_their_boundaries(datasets):
    report = tokjax.reports.dataset_report(datasets["bucketed"])
    lengths = datasets["bucketed"].document_lengths
    padded = np.array([16, 32, 50])[np.searchsorted([16, 32, 50], lengths)]
    assert report.padding[2].strategy == "length buckets 16, 32, 50"
    assert report.padding[2].share == pytest.approx(1 - lengths.sum() / padded.sum())
    assert report.padding[2].shapes == len(set(padded))


@given(lengths=st.lists(st.integers(0, 70), min_size=1, max_size=40), size=st.integers(1, 50))
def test_padding_to_the_longest_in_the_batch(tmp_path_factory, lengths, size):
    path = tmp_path_factory.mktemp("padding") / "data"
    tokjax.write_dataset(["x" * length for length in lengths], tokjax.RawTextField(), path)
    report = tokjax.reports.dataset_report(tokjax.open_dataset(path), batch_size=size)
    if not sum(lengths):
        assert report.padding == ()
        return
    order = tokjax._util.permutation.permute(np.arange(len(lengths)), len(lengths), 0)
    shuffled = np.array(lengths)[order]
    batches = [shuffled[start : start + size] for start in range(0, len(lengths), size)]
    num_positions = sum(len(batch) * batch.max() for batch in batches)
    assert report.padding[1].share == pytest.approx(1 - sum(lengths) / num_positions)


def test_bytes_per_token_includes_truncated_tokens(tmp_path):
    num_inserted = 2 * 20
    for name, field in (
        ("tokenized", tokjax.TokenizedTextField(TOKENIZER, max_tokens=10)),
        ("bucketed", tokjax.datasets.BucketedTokenField(TOKENIZER, [4], max_tokens=10)),
    ):
        tokjax.write_dataset(["x" * 1000] * 20, field, tmp_path / name, shard_size=50)
        report = tokjax.reports.dataset_report(tokjax.open_dataset(tmp_path / name))
        assert (report.num_cut, report.num_dropped, report.num_items) == (20, 20 * 992, 20 * 10)
        assert report.bytes_per_token == 20_000 / (20_000 + num_inserted)
        shown = " ".join(get_output("stats", tmp_path / name).split())
        for row in ("bytes per token 0.998", "truncated documents 20", "removed by truncation 19,840"):
            assert row in shown
    assert json.loads(json.dumps(asdict(report)))["bytes_per_token"] < 1
    tokjax.write_dataset(["aé" * 4, b"\xff\xff", "a"], tokjax.RawTextField(max_chars=1), tmp_path / "raw")
    assert tokjax.reports.dataset_report(tokjax.open_dataset(tmp_path / "raw")).num_dropped == 11 + 1


def test_empty_dataset(tmp_path):
    tokjax.write_dataset([], tokjax.RawTextField(), tmp_path / "none")
    report = tokjax.reports.dataset_report(tokjax.open_dataset(tmp_path / "none"))
    assert report.padding == ()
    assert report.lengths["longest"] == 0


def test_stats_command(tmp_path):
    text = tmp_path / "<b>.txt"
    text.write_text("|".join(CORPUS))
    tokjax.write_dataset(text, FIELDS["packed"], tmp_path / "data", separator="|")
    numbers = tmp_path / "r.json"
    shown = get_output("stats", tmp_path / "data", "--json", numbers, "--batch-size", 4)
    assert "padding with 4 documents per batch" in shown
    assert json.loads(numbers.read_text())["sources"][0][0].endswith("<b>.txt")
    tokjax.write_dataset(CORPUS, FIELDS["raw"], tmp_path / "raw")
    assert "bytes per document" in get_output("stats", tmp_path / "raw")


def test_report_from_path(datasets):
    dataset = datasets["packed"]
    assert tokjax.reports.dataset_report(str(dataset.path)) == tokjax.reports.dataset_report(dataset)
    with pytest.raises(
        tokjax.errors.InvalidArgumentError, match="must be an open dataset or its path, not 3"
    ):
        tokjax.reports.dataset_report(3)
