"""Fixtures of the tests of commands."""

import json

import pytest

from tests.cli.test_commands import get_output


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, corpus):
    """Makes a corpus, and runs `train` and `pack` on it."""
    workspace = tmp_path_factory.mktemp("cli")
    (workspace / "corpus.txt").write_text("<|endoftext|>".join(corpus * 3))
    trained = get_output(
        "train", workspace / "corpus.txt", "--out", workspace / "t.json", "--vocab-size", 400
    )
    assert "bytes per token" in trained
    packed = get_output(
        "pack",
        workspace / "corpus.txt",
        "--tokenizer",
        workspace / "t.json",
        "--out",
        workspace / "data",
        "--chunk-tokens",
        16,
    )
    assert "PackedTokenField" in packed
    return workspace


@pytest.fixture
def records(tmp_path):
    """Returns a JSON lines file with the text in the field `body`; trains a tokenizer on it."""
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps({"body": f"hello {word}"}) + "\n" for word in ("ground", "water")))
    get_output("train", path, "-o", tmp_path / "t.json", "--text-column", "body", "--vocab-size", 260, "-q")
    return path
