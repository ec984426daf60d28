"""Tests of the command `tokjax train`."""

import json
import os
import signal
import subprocess
import sys

import pytest

import tokjax
from tests.cli.test_commands import get_output, run, strip_frames
from tests.cli.test_hints import run_rejected

# Runs `train`, which waits during merging. SIGINT is ignored or not, whatever the parent process does.
SCRIPT_THAT_WAITS_WHILE_MERGING = """
import signal, sys
ignored, *arguments = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored == "True" else signal.default_int_handler)
from tokjax.cli import main
from tokjax.trainer.bpe import batched_training
advance = batched_training._Merger.advance
def wait_and_advance(*args):
    print("merging", flush=True)
    sys.stdin.read()
    return advance(*args)
batched_training._Merger.advance = wait_and_advance
sys.argv[1:] = arguments
main()
"""


def test_train_equals_train_bpe(workspace, corpus):
    from tokjax.trainer import train_bpe

    tokenizer = tokjax.load_tokenizer(workspace / "t.json")
    expected = train_bpe(corpus * 3, vocab_size=400, special_tokens=["<|endoftext|>"], progress=False)
    assert tokenizer == expected.tokenizer


def test_export(workspace, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    arguments = ["export", "--tokenizer", workspace / "t.json", "--out", tmp_path / "new" / "hf"]
    exported = tmp_path / "new" / "hf" / "tokenizer.json"
    assert get_output(*arguments).split() == [str(exported)]
    text = "a lower café"
    expected = tokjax.encode(tokjax.load_tokenizer(workspace / "t.json"), text).tolist()
    assert tokenizers.Tokenizer.from_file(str(exported)).encode(text).ids == expected
    assert "tokenizer.json exists; to replace it, pass --overwrite" in run_rejected(*arguments)
    get_output(*arguments, "--overwrite")
    message = (
        "--format must be 'tokjax', 'huggingface', 'gpt2', 'sentencepiece', 'tiktoken', 'wordpiece', not"
    )
    assert message in run_rejected(*arguments, "--format", "x")


@pytest.mark.parametrize(
    ("model", "options", "kind"),
    [
        ("bpe", ["--tie-break", "huggingface"], "ByteLevelBPE"),
        ("wordpiece", ["--cased", "--limit-alphabet", 200], "WordPieceTokenizer"),
        ("word-level", ["--special-token", "[X]"], "WordLevelTokenizer"),
        ("unigram", ["--byte-fallback", "--character-coverage", 1], "SentencePieceTokenizer"),
        ("sentencepiece-bpe", ["--byte-fallback"], "SentencePieceTokenizer"),
        ("char", [], "SentencePieceTokenizer"),
        ("word", [], "SentencePieceTokenizer"),
    ],
)
def test_every_model(workspace, tmp_path, model, options, kind):
    out = tmp_path / "new" / "dir" / "t.json"
    output = get_output(
        "train", workspace / "corpus.txt", "-m", model, "-o", out, "--vocab-size", 400, *options
    )
    assert "bytes per token" in output
    tokenizer = tokjax.load_tokenizer(out)
    assert type(tokenizer).__name__ == kind
    assert tokjax.vocab_size(tokenizer) <= 400
    assert len(tokjax.encode(tokenizer, "the inner meaning"))


def test_json_lines(corpus, tmp_path):
    lines = [json.dumps({"body": text}) for text in corpus * 3]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    options = ["--vocab-size", 300, "-o", tmp_path / "t.json"]
    failed = run("train", tmp_path / "*.jsonl", *options)
    assert failed.returncode == 1
    assert b"has no field 'text', it has ['body']; pass --text-column NAME" in failed.stderr
    assert "documents" in get_output("train", tmp_path / "*.jsonl", "--text-column", "body", *options)


def test_bundle(workspace, tmp_path):
    from tokjax.trainer import load_training_bundle

    command = ["train", workspace / "corpus.txt", "--vocab-size", 300, "-o", tmp_path / "b"]
    get_output(*command, "--bundle")
    assert load_training_bundle(tmp_path / "b").trained.options["vocab_size"] == 300
    assert "to replace it, pass --overwrite" in run_rejected(*command, "--bundle")
    without_bundle = run(*command)
    assert without_bundle.returncode == 1
    assert "is a training bundle; pass --bundle --overwrite" in strip_frames(without_bundle.stderr)
    get_output(*command, "--bundle", "--overwrite", "-q")
    assert tokjax.load_tokenizer(tmp_path / "b") == load_training_bundle(tmp_path / "b").trained.tokenizer


def test_options_of_other_models_are_rejected(workspace, tmp_path):
    done = run("train", workspace / "corpus.txt", "-m", "unigram", "--cased", "-o", tmp_path / "t.json")
    message = "cased can't be used with --model unigram, which accepts --byte-fallback, --character-coverage"
    assert (done.returncode, message in strip_frames(done.stderr)) == (2, True)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT")
@pytest.mark.parametrize("ignored", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sigint_interrupts_training(tmp_path, ignored):
    (tmp_path / "corpus.txt").write_text("the cat sat on the mat")
    arguments = ["train", tmp_path / "corpus.txt", "-o", tmp_path / "t.json", "--vocab-size", 260, "-q"]
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT_THAT_WAITS_WHILE_MERGING, *map(str, [ignored, *arguments])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"merging\n"
    process.send_signal(signal.SIGINT)
    if ignored:
        _, output = process.communicate(b"continue")
    else:  # standard input stays open, so only the signal can end the process
        output = process.stderr.read()
        process.communicate()
    assert process.returncode == (0 if ignored else 130)
    assert (b"interrupted" in output) is not ignored
    assert (tmp_path / "t.json").exists() is ignored


def test_existing_files_are_not_replaced_without_overwrite(records, tmp_path):
    command = ["train", records, "--text-column", "body", "--vocab-size", 261, "-q"]
    out = tmp_path / "t.json"
    before = records.read_bytes(), out.read_bytes()
    assert "t.json exists; to replace it, pass --overwrite" in run_rejected(*command, "-o", out)
    stderr = run_rejected(*command, "-o", records, "--overwrite")
    assert "records.jsonl is one of the source files; pass another output file" in stderr
    assert (records.read_bytes(), out.read_bytes()) == before
    get_output(*command, "-o", out, "--overwrite")
    assert tokjax.vocab_size(tokjax.load_tokenizer(out)) == 261
