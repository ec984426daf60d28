"""The commands, as a shell runs them."""

import subprocess
import sys

import pytest

import tokjax


def run(*arguments, stdin=None, **options):
    return subprocess.run(
        [sys.executable, "-m", "tokjax", *map(str, arguments)],
        capture_output=True,
        input=stdin,
        check=False,
        env={"COLUMNS": "120", "PATH": ""},
        **options,
    )


def output_of(*arguments, **options):
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus):
    """A corpus, and the tokenizer and dataset that the commands made of it."""
    place = tmp_path_factory.mktemp("cli")
    (place / "corpus.txt").write_text("<|endoftext|>".join(corpus * 3))
    trained = output_of("train", place / "corpus.txt", "--out", place / "t.json", "--vocab-size", 400)
    assert "bytes per token" in trained
    packed = output_of(
        "pack",
        place / "corpus.txt",
        "--tokenizer",
        place / "t.json",
        "--out",
        place / "data",
        "--chunk-tokens",
        16,
    )
    assert "PackedTokenField" in packed
    return place


def test_train(place, corpus):
    from tokjax.trainer import train_bpe

    tokenizer = tokjax.load_tokenizer(place / "t.json")
    expected = train_bpe(corpus * 3, vocab_size=400, special_tokens=["<|endoftext|>"], progress=False)
    assert tokenizer == expected.tokenizer


def test_pack(place, corpus):
    dataset = tokjax.open_dataset(place / "data", tokjax.load_tokenizer(place / "t.json"))
    assert dataset.num_documents == len(corpus) * 3
    assert dataset.chunk_tokens == 16
    again = run("pack", place / "corpus.txt", "-t", place / "t.json", "-o", place / "data")
    assert again.returncode == 1
    assert b"exists; pass overwrite=True" in again.stderr
    quiet = run(
        "pack", place / "corpus.txt", "-t", place / "t.json", "-o", place / "data", "--overwrite", "-q"
    )
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, b"", b"")


def test_inspect(place):
    shown = output_of("inspect", "the [bold]é[/bold]", "--tokenizer", place / "t.json")
    assert "[1, 2)" in shown
    assert "[bold]" in shown
    assert "<|endoftext|>" in shown
    piped = output_of("inspect", "-", "-t", place / "t.json", stdin=b"\xff")
    assert "\\xff" in piped
    refused = run("inspect", "a<|endoftext|>", "-t", place / "t.json")
    assert refused.returncode == 1
    allowed = output_of("inspect", "a<|endoftext|>", "-t", place / "t.json", "--allow-special")
    assert allowed.count("yes") == 2


def test_stats(place):
    shown = output_of("stats", place / "data", "--verify")
    for part in ("tokens", "documents", "uint16", "bytes per token", "sha256:"):
        assert part in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "no/such/place"], b"nothing is there; make it with write_dataset"),
        (["train", "no/such/file", "-o", "t.json"], b"is not a file"),
        (["inspect", "a", "-t", "no/such/tokenizer.json"], b"No such file"),
    ],
)
def test_errors_are_one_line_without_a_traceback(arguments, message, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in b" ".join(done.stderr.split())
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"error: ")


def test_help():
    overview = output_of("--help")
    for command in ("train", "pack", "inspect", "stats"):
        assert command in overview
        assert output_of(command, "--help").count("\n") > 5
    assert run("nonsense").returncode == 2
    assert run("train").returncode == 2
