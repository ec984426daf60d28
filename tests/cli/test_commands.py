"""Tests of the command line application and of the commands `pack`, `inspect` and `stats`."""

import io
import re
import subprocess
import sys

import pytest

import tokjax
from tokjax.cli import main


def run(*arguments, stdin=b"", cwd="."):
    """Runs a command in this process, which is a second faster than a new one."""
    stdin, stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(content), "utf-8", "surrogateescape") for content in (stdin, b"", b"")
    )
    arguments = ["tokjax", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        patch.setattr(sys, "argv", arguments)
        for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            patch.setattr(sys, name, stream)
        patch.chdir(cwd)
        with pytest.raises(SystemExit) as exit_info:
            main()
    outputs = []
    for stream in (stdout, stderr):
        stream.flush()
        outputs.append(stream.buffer.getvalue())
    return subprocess.CompletedProcess(arguments, exit_info.value.code or 0, *outputs)


def strip_frames(output):
    """Decodes an output, and removes frames and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", output.decode()).split())


def get_output(*arguments, **options):
    """Runs a command that must succeed, and returns its standard output."""
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_pack(workspace, corpus):
    dataset = tokjax.open_dataset(workspace / "data", tokjax.load_tokenizer(workspace / "t.json"))
    assert dataset.num_documents == len(corpus) * 3
    assert dataset.chunk_tokens == 16
    again = run("pack", workspace / "corpus.txt", "-t", workspace / "t.json", "-o", workspace / "data")
    assert again.returncode == 1
    assert b"to replace it, pass --overwrite" in again.stderr
    quiet = run(
        "pack",
        workspace / "corpus.txt",
        "-t",
        workspace / "t.json",
        "-o",
        workspace / "data",
        "--overwrite",
        "-q",
    )
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, b"", b"")


def test_inspect(workspace):
    output = get_output("inspect", "the [bold]é[/bold]", "--tokenizer", workspace / "t.json")
    assert "[1, 2)" in output
    assert " [ " in output  # Rich markup in the text is printed literally
    assert "<|endoftext|>" in output
    piped = get_output("inspect", "-", "-t", workspace / "t.json", stdin=b"\xff")
    assert "\\xff" in piped
    rejected = run("inspect", "a<|endoftext|>", "-t", workspace / "t.json")
    assert rejected.returncode == 1
    assert b"--special text" in rejected.stderr
    recognized = get_output("inspect", "a<|endoftext|>", "-t", workspace / "t.json", "--special", "recognize")
    assert recognized.count("yes") == 2
    ordinary = get_output("inspect", "a<|endoftext|>", "-t", workspace / "t.json", "--special", "text")
    assert ordinary.count("yes") == 1
    escaped = get_output("inspect", "-", "-t", workspace / "t.json", stdin=b"\x1b]0;title\x07")
    assert "\x1b" not in escaped
    assert "\x07" not in escaped


def test_paths_with_rich_markup(workspace):
    path = workspace / "x[/red]"
    packed = get_output("pack", workspace / "corpus.txt", "-t", workspace / "t.json", "-o", path)
    assert "x[/red]" in packed
    assert "x[/red]" in get_output("stats", path)


def test_stats(workspace):
    output = get_output("stats", workspace / "data", "--verify")
    for part in ("tokens", "documents", "uint16", "bytes per token", "sha256:"):
        assert part in output


def test_program(tmp_path):
    """Errors are one line without a traceback. Other tests run commands in this process."""
    assert get_output("--version").strip() == f"tokjax {tokjax.__version__}"
    assert run("nonsense").returncode == run("train").returncode == 2
    done = subprocess.run(
        [sys.executable, "-m", "tokjax", "stats", "no/such/dataset"],
        capture_output=True,
        check=False,
        env={"COLUMNS": "120", "PATH": ""},
        cwd=tmp_path,
        text=True,
    )
    message = "error: .*the path does not exist; write it with tokjax pack\n"
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(message, done.stderr)
