"""Tests of paths that begin with `~`, which are not expanded."""

import re
from pathlib import Path

import pytest

import tokjax
from tests.cli.test_hints import run_rejected
from tokjax.trainer import save_training_bundle, train_bpe

TOKENIZER = tokjax.byte_level(["</s>", "<pad>"], eos_token="</s>", pad_token="<pad>")
FIELD = tokjax.TokenizedTextField(TOKENIZER)


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    """Returns an open dataset, in a current directory that has no `~`."""
    monkeypatch.chdir(tmp_path)
    tokjax.write_dataset(["low", "lower"], FIELD, "low")
    (tmp_path / "ids.npy").write_bytes(b"")
    return tokjax.open_dataset("low")


CALLS = {
    "write": lambda _: tokjax.write_dataset(["low"], FIELD, "~/low"),
    "open": lambda _: tokjax.open_dataset("~/low"),
    "download": lambda _: tokjax.open_dataset("memory://low", download_dir="~/low"),
    "plan": lambda dataset: tokjax.PlannedLoader(dataset, batch_size=1, block_size=8, plan_dir="~/low"),
    "merge": lambda _: tokjax.datasets.merge_datasets(["low"], "~/low"),
    "bundle": lambda _: save_training_bundle(train_bpe(["low"], vocab_size=256, progress=False), "~/low"),
    "export": lambda _: tokjax.formats.export_tokenizer(TOKENIZER, "~/low", "gpt2"),
    "source": lambda _: tokjax.write_dataset("~/low", FIELD, "out"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_paths_are_rejected(dataset, tmp_path, call):
    message = f"'~/low' begins with ~, which is not expanded; pass '{Path('~/low').expanduser()}'"
    with pytest.raises(tokjax.errors.InvalidArgumentError, match=re.escape(message)):
        call(dataset)
    assert not (tmp_path / "~").exists()


def test_paths_of_commands(dataset, tmp_path):
    """A shell expands `~` at the start of an argument, but not in `--out=~/low`."""
    (tmp_path / "c.txt").write_text("low lower")
    tokjax.save_tokenizer(TOKENIZER, tmp_path / "t.json")
    for arguments in (
        ["train", "c.txt", "--out=~/low/t.json"],
        ["pack", "c.txt", "--field=raw", "--out=~/low"],
        ["report", "c.txt", "-t", "t.json", "--json=~/low/r.json"],
    ):
        assert "begins with ~, which is not expanded" in run_rejected(*arguments)
    assert not (tmp_path / "~").exists()


def test_files_whose_names_begin_with_a_tilde(dataset, tmp_path):
    (tmp_path / "~low").write_text("low")
    assert list(tokjax.corpus.read_documents("~low", None)) == [b"low"]
    tokjax.write_dataset(["low"], FIELD, "./~/low")
    assert len(tokjax.open_dataset("./~/low")) == 1
