"""Tests of the examples that train language models, on small corpora."""

import json
import random
import re
import signal

import pytest

from tests.support.example_runner import run_example, start_example, wait_for_lines

SENTENCES = [
    f"{who} {what} on the {where} ."
    for who in ("the cat", "a dog")
    for what in ("sat", "slept")
    for where in ("mat", "log")
]


def write_documents(path, documents):
    path.write_text("<|endoftext|>".join(documents), encoding="utf-8")
    return path


@pytest.fixture
def sentences(tmp_path):
    """Returns a file of documents with ten paragraphs of one to three sentences each."""
    rng = random.Random(0)
    documents = [
        "\n\n".join(" ".join(rng.choices(SENTENCES, k=rng.choice([1, 2, 3]))) for _ in range(10))
        for _ in range(40)
    ]
    return write_documents(tmp_path / "sentences.txt", documents)


@pytest.fixture
def functions(tmp_path):
    """Returns a file of Python source, in which docstrings follow from the names of functions."""
    documents = [
        "\n\n".join(
            f'def {verb}_{noun}(path):\n    """{verb.title()} the {noun} of a path."""\n    return {i}\n'
            for verb in ("read", "write", "find", "close")
            for noun in (f"name{i}", "size", "owner")
        )
        for i in range(40)
    ]
    return write_documents(tmp_path / "functions.py", documents)


SMALL = ("--megabytes", 0.3, "--vocab-size", 400, "--length", 32, "--steps", 20)


def parse_losses(output):
    """Returns the steps and the two columns of losses from the table in the output of a program."""
    lines = output.splitlines()
    rows = [line.split() for line in lines[lines.index("compiling the training step") + 2 :]]
    rows = [row for row in rows if row[0].isdigit()]
    return [int(row[0]) for row in rows], [float(row[1]) for row in rows], [float(row[2]) for row in rows]


@pytest.mark.slow
def test_train_lm(tmp_path, functions):
    done = run_example("train_lm.py", "--directory", tmp_path, "--corpus", functions, *SMALL)
    steps, training, held_out = parse_losses(done.stdout)
    assert (steps[0], steps[-1]) == (1, 20)
    assert training[-1] < training[0]
    before, after = re.search(r"bits per byte: (.+) before training, (.+) after", done.stdout).groups()
    assert (float(before), float(after)) == (held_out[0], held_out[-1])
    assert 1 < held_out[-1] < held_out[0] < 8
    expected = ["reading the corpus", "training a tokenizer with 400 tokens", "writing the dataset"]
    assert [text for text in expected if text not in done.stdout] == []


@pytest.mark.slow
def test_train_lm_with_default_options(tmp_path):
    done = run_example("train_lm.py", "--directory", tmp_path)
    steps, _, held_out = parse_losses(done.stdout)
    assert len(steps) > 5
    assert held_out[-1] < held_out[0] - 0.8


@pytest.mark.slow
def test_train_lm_reuses_its_dataset(tmp_path, sentences):
    first = run_example("train_lm.py", "--directory", tmp_path, *SMALL, "--steps", 1)
    assert "no dataset of these texts yet" in first.stdout
    second = run_example("train_lm.py", "--directory", tmp_path, *SMALL, "--learning-rate", 0, exit_code=1)
    assert second.stderr.endswith("the loss did not fall\n")
    assert "using the dataset of an earlier run" in second.stdout
    changed = ["--vocab-size", 300, "--corpus", sentences, "--steps", 1]
    third = run_example("train_lm.py", "--directory", tmp_path, *SMALL, *changed)
    assert "no dataset of these texts yet" in third.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train_lm.py --corpus missing.txt", "missing.txt"),
        ("train_lm.py --corpus .", ""),
        ("train_lm.py --corpus tiny.txt", ""),
        ("train_lm.py --megabytes nan", "megabytes is nan; pass the amount of text to read, such as 8"),
        ("train_lm.py --megabytes 0", "megabytes is 0.0; pass the amount of text to read, such as 8"),
        ("train_lm.py --corpus sentences.txt --directory tiny.txt/run", "tiny.txt"),
        ("finetune_packed.py --corpus tiny.txt", ""),
        (
            "finetune_packed.py --corpus sentences.txt --directory run",
            "there are no conversations: the corpus has no function with a docstring; pass --chats",
        ),
        ("finetune_packed.py --corpus functions.py --batch-size 4 --hosts 3 --directory run", ""),
        ("masked_lm.py --corpus tiny.txt", ""),
        ("span_corruption.py --corpus tiny.txt", ""),
        ("pipeline.py --corpus tiny.txt", ""),
        (
            "pipeline.py --corpus sentences.txt --batch-size 21 --vocab-size 280",
            "the corpus is too small: a batch needs 21 paragraphs",
        ),
        (
            "train_on_bytes.py --corpus sentences.txt --window 1048576 --vocab-size 300 --directory run",
            "the corpus is too small: a window has 1048576 bytes",
        ),
        ("dask_corpus.py --corpus missing.txt --directory run", "missing.txt"),
        ("grain_pipeline.py --corpus missing.txt --directory run", "missing.txt"),
        ("multi_host.py --corpus missing.txt --directory run", "missing.txt"),
        ("custom_tokenizer.py --corpus missing.txt --directory run", "missing.txt"),
        ("ner.py --data missing.conll", ""),
        ("ner.py --data empty.conll", ""),
        ("ner.py --data tiny.txt", ""),
    ],
)
def test_errors_are_one_line(command, message, sentences, functions, tmp_path):
    (tmp_path / "tiny.txt").write_text("tiny")
    (tmp_path / "empty.conll").touch()
    stderr = run_example(*command.split(), exit_code=1, cwd=tmp_path).stderr
    assert re.search(f"^error: .*{re.escape(message)}", stderr, re.MULTILINE)
    assert "Traceback" not in stderr
    assert "counting" not in stderr or not command.startswith("train_lm.py")


FINETUNING = ["--vocab-size", 300, "--length", 192, "--batch-size", 4, "--steps", 100]


def read_losses(directory):
    lines = (directory / "losses.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_finetune_packed(functions, tmp_path):
    """A run that is stopped by a signal and resumed on more hosts has the losses of one that is not."""
    arguments = ["--corpus", functions, *FINETUNING, "--directory"]
    done = run_example("finetune_packed.py", *arguments, tmp_path / "whole")
    whole = read_losses(tmp_path / "whole")
    assert [row["step"] for row in whole] == [*range(1, 101)]
    assert whole[-1]["loss"] < whole[0]["loss"] - 1
    assert re.search(r"456 conversations in \d+ batches, \d\d% of them tokens", done.stdout)

    directory = tmp_path / "stopped"
    with start_example("finetune_packed.py", *arguments, directory, "--hosts", 2) as running:
        wait_for_lines(directory / "losses.jsonl", 10, running)
        running.send_signal(signal.SIGTERM)
        output = running.communicate(timeout=120)[0]
    assert running.returncode == 0, output
    stopped = len(read_losses(directory))
    assert 10 <= stopped < 100
    assert f"stopped after step {stopped}; run it again to continue, with any number of hosts" in output

    done = run_example("finetune_packed.py", *arguments, directory, "--hosts", 4)
    resumed = read_losses(directory)
    assert [row["step"] for row in resumed] == [*range(1, 101)]
    difference = max(abs(a["loss"] - b["loss"]) for a, b in zip(whole, resumed, strict=True))
    assert difference < 2e-3  # floats are added in a different order


@pytest.mark.slow
def test_masked_lm(sentences):
    small = ["--vocab-size", 60, "--length", 16, "--batch-size", 16, "--steps", 60]
    done = run_example("masked_lm.py", "--corpus", sentences, *small)
    accuracy, baseline = map(
        float, re.search(r"accuracy: (.+)%; most frequent token: (.+)%", done.stdout).groups()
    )
    assert baseline < accuracy - 10
    assert "a paragraph: [CLS]" in done.stdout
    assert "[MASK]" in done.stdout


@pytest.mark.slow
def test_span_corruption(sentences):
    small = ["--vocab-size", 380, "--length", 32, "--batch-size", 16, "--steps", 60]
    done = run_example("span_corruption.py", "--corpus", sentences, *small)
    losses = re.search(r"nats per span token: (.+); unigram baseline: (.+)", done.stdout).groups()
    assert 0 < float(losses[0]) < float(losses[1]) - 0.2
    texts = re.search(r"inputs: (.*)</s>\ntargets: (.*)</s>", done.stdout, re.DOTALL).groups()
    sentinels = [re.findall("<extra_id_[0-9]+>", text) for text in texts]
    assert sentinels[0] == sentinels[1] != []


@pytest.mark.slow
def test_pipeline(sentences):
    small = ["--vocab-size", 280, "--batch-size", 8, "--steps", 40]
    done = run_example("pipeline.py", "--corpus", sentences, *small)
    assert "CausalLMBatch: 8 rows of" in done.stdout
    before, after = re.search(r"nats per token: (.+) before, (.+) after", done.stdout).groups()
    assert float(after) < float(before) - 1


@pytest.mark.slow
def test_train_on_bytes(sentences, tmp_path):
    options = ["--vocab-size", 300, "--window", 64, "--batch-size", 8, "--steps", 30, "--directory", tmp_path]
    done = run_example("train_on_bytes.py", "--corpus", sentences, *options)
    assert "the ids of the device equal those of the host" in done.stdout
    before, after = re.search(r"bits per byte: (.+) before training, (.+) after it", done.stdout).groups()
    assert float(after) < float(before) - 0.5


@pytest.mark.slow
def test_rewards_on_device():
    done = run_example("rewards_on_device.py", "--steps", 60, "--rows", 32)
    first, final = re.search(r"share of digits: (.+) at first, (.+) at the end", done.stdout).groups()
    assert float(final) > float(first) + 0.2
    sampled, encoded = re.search(r"first turns: (\d+), and (\d+) after encoding", done.stdout).groups()
    assert int(encoded) <= int(sampled)
