"""The examples are programs: run them, in small."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
AS_A_USER = {
    name: value
    for name, value in os.environ.items()
    if name not in ("JAX_NUMPY_DTYPE_PROMOTION", "XLA_FLAGS")  # optax needs implicit promotion
}


def run_train_lm(directory, *arguments):
    small = ["--directory", directory, "--megabytes", 0.3, "--vocab-size", 400, "--length", 32, "--steps", 20]
    return subprocess.run(
        [sys.executable, EXAMPLES / "train_lm.py", *map(str, [*small, *arguments])],
        capture_output=True,
        text=True,
        check=False,
        env=AS_A_USER,
    )


def test_train_lm(tmp_path):
    first = run_train_lm(tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "bits per byte" in first.stdout
    assert "no dataset of these texts yet" in first.stdout
    second = run_train_lm(tmp_path, "--learning-rate", 0)
    assert second.returncode == 1
    assert "the loss did not fall" in second.stdout
    assert "using the dataset of an earlier run" in second.stdout
    third = run_train_lm(tmp_path, "--vocab-size", 300, "--corpus", EXAMPLES / "train_lm.py", "--steps", 1)
    assert "no dataset of these texts yet" in third.stdout


@pytest.mark.parametrize("corpus", ["missing.txt", ".", "tiny.txt"])
def test_train_lm_on_no_corpus(tmp_path, corpus):
    (tmp_path / "tiny.txt").write_text("tiny")
    done = run_train_lm(tmp_path / "run", "--corpus", tmp_path / corpus)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def run_example(name, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=AS_A_USER,
    )


def test_pipeline(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n\n".join("low lower lowest " * (i % 40 + 1) for i in range(200)))
    small = ["--corpus", tmp_path / "corpus.txt", "--vocab-size", 280, "--batch-size", 8, "--steps", 40]
    done = run_example("pipeline.py", *small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CausalLMBatch: 8 rows of" in done.stdout
    traces, rungs = re.search(r"(\d+) traces, for a ladder of \[(.*)\]", done.stdout).groups()
    assert 1 < int(traces) <= len(rungs.split(", "))
    assert "loss" in done.stdout
    (tmp_path / "tiny.txt").write_text("tiny")
    for corpus in ("tiny.txt", "missing.txt"):
        failed = run_example("pipeline.py", "--corpus", tmp_path / corpus)
        assert failed.returncode == 1
        assert failed.stderr.startswith("error: ")


@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_pipeline_in_too_few_steps_to_compare(steps):
    failed = run_example("pipeline.py", "--steps", steps)
    assert failed.returncode == 1
    assert failed.stderr == (
        f"error: --steps must be at least 2, not {steps}: the first losses and the last are compared\n"
    )


def conll_of_sentences(count):
    """People come after a title, and places after "in"; no name is there twice."""
    names = [
        f"{a}{b}{c}" for a in ("Ka", "Lo", "Mi", "Nu") for b in ("ré", "so", "ta", "vo") for c in "abcdefgh"
    ]
    lines = []
    for i in range(count):
        person, place = names[2 * i], names[2 * i + 1]
        words = [("Mr", "O"), (person, "I-PER"), ("lives", "O"), ("in", "O"), (place, "I-LOC"), (".", "O")]
        lines += [f"{word} {tag}" for word, tag in words] + [""]
    return "\n".join(lines)


def test_ner_on_conll(tmp_path):
    path = tmp_path / "people.conll"
    path.write_text(conll_of_sentences(60), encoding="utf-8")
    done = run_example("ner.py", "--data", path, "--steps", 100, "--vocab-size", 300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "54 texts, 108 spans; held out 6" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if "│ all " in line]
    assert float(row.split("│")[4]) > 0.9


def test_ner_on_docstrings():
    done = run_example("ner.py", "--texts", 100, "--steps", 2, "--vocab-size", 400)
    assert "whole spans in held-out texts" in done.stdout, done.stdout + done.stderr
    assert "no better than known names" in done.stdout
    assert done.returncode == 1


@pytest.mark.parametrize("content", [None, "", "one line\n"])
def test_ner_on_no_data(tmp_path, content):
    path = tmp_path / "words.conll"
    if content is not None:
        path.write_text(content)
    done = run_example("ner.py", "--data", path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_help(example):
    done = subprocess.run([sys.executable, example, "--help"], capture_output=True, text=True, check=True)
    assert "usage" in done.stdout
