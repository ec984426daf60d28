"""Tests of the command `tokjax train`."""

import json
import os
import re
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


def test_counts_are_saved_and_reused(workspace, tmp_path):
    counts = tmp_path / "counts.npz"
    command = ["train", "-q", "--vocab-size", 300, "--pattern", "cl100k"]
    get_output(*command, workspace / "corpus.txt", "--save-counts", counts, "-o", tmp_path / "a.json")
    get_output("train", "-q", "--vocab-size", 300, counts, "-o", tmp_path / "b.json")
    get_output(*command, workspace / "corpus.txt", "-o", tmp_path / "c.json")
    first, *others = (tokjax.load_tokenizer(tmp_path / f"{name}.json") for name in "abc")
    assert others == [first, first]


@pytest.fixture(scope="module")
def saved_counts(workspace):
    path = workspace / "counts"
    options = ["--save-counts", path, "-o", workspace / "counted.json", "--vocab-size", 300, "--quiet"]
    get_output("train", workspace / "corpus.txt", *options)
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["corpus.txt"], "but .*corpus.txt does not; count it first"),
        (["--max-bytes", 5], "pre-token counts, which can't be used with --max-bytes"),
        (["--save-counts", "q.npz"], "can't be used with"),
        (["--text-column", "x"], "can't be used with"),
        (["--model", "unigram"], "or a SentencePiece model"),
        (["--special-token", "the"], "texts were not split at 'the'"),
    ],
)
def test_options_incompatible_with_counts_are_rejected(workspace, saved_counts, tmp_path, options, message):
    options = [workspace / option if option == "corpus.txt" else option for option in options]
    done = run("train", saved_counts, *options, "-o", tmp_path / "y.json")
    assert done.returncode
    assert re.search(message, strip_frames(done.stderr)), done.stderr
    assert not (tmp_path / "y.json").exists()


def test_sample_of_json_lines(corpus, tmp_path):
    lines = [json.dumps({"body": text}) for text in corpus * 3]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    options = ["--vocab-size", 300, "-o", tmp_path / "t.json"]
    failed = run("train", tmp_path / "*.jsonl", *options)
    assert failed.returncode == 1
    assert b"has no field 'text', it has ['body']; pass --text-column NAME" in failed.stderr
    output = get_output("train", tmp_path / "*.jsonl", "--text-column", "body", "--max-bytes", 100, *options)
    assert "documents" in output


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


LANGUAGES = {
    "en": "the meaning of the word is in the use of the word " * 30,
    "de": "die Bedeutung des Wortes ist der Gebrauch des Wortes " * 2,
}


@pytest.fixture(scope="module")
def languages(tmp_path_factory):
    """Writes a corpus for each language."""
    directory = tmp_path_factory.mktemp("languages")
    for name, text in LANGUAGES.items():
        (directory / f"{name}.txt").write_text(text)
    return directory


def count(texts, **options):
    from tokjax.trainer import count_pretokens

    options = {"special_tokens": ["<|endoftext|>"], **options}
    return {name: count_pretokens([text], progress=False, **options) for name, text in texts.items()}


def test_weights_equal_mix_counts(languages, tmp_path):
    from tokjax.trainer import load_pretoken_counts, mix_counts, train_bpe

    sources = [languages / "en.txt", languages / "de.*t"]
    command = ["train", *sources, "--weight", 1, "--weight", 2.5, "--vocab-size", 290, "-q"]
    get_output(*command, "-o", tmp_path / "t.json", "--save-counts", tmp_path / "c.npz")
    mixed = mix_counts(count(LANGUAGES), {"en": 1, "de": 2.5})
    expected = train_bpe(mixed, vocab_size=290, progress=False)
    assert tokjax.load_tokenizer(tmp_path / "t.json") == expected.tokenizer
    assert load_pretoken_counts(tmp_path / "c.npz") == mixed


def test_weights_of_saved_counts(languages, tmp_path):
    command = ["train", "--vocab-size", 290, "-q"]
    weights = ["--weight", 1, "--weight", 1]
    counts = [tmp_path / f"{name}.npz" for name in LANGUAGES]
    for name, path in zip(LANGUAGES, counts, strict=True):
        get_output(
            *command, languages / f"{name}.txt", "--save-counts", path, "-o", tmp_path / f"{name}.json"
        )
    get_output(*command, *counts, *weights, "-o", tmp_path / "a.json")
    get_output(*command, *(languages / f"{name}.txt" for name in LANGUAGES), *weights, "-o", tmp_path / "b")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "options", [[], ["--max-bytes", 1 << 20], ["--pattern", "o200k", "--min-frequency", 2]]
)
def test_continue_equals_continue_bpe(workspace, languages, tmp_path, options):
    from tokjax.trainer import continue_bpe, load_training_bundle

    base, out = workspace / "t.json", tmp_path / "bundle"
    command = ["train", languages / "de.txt", "--continue-from", base, "--vocab-size", 410, "-q"]
    get_output(*command, "-o", out, "--bundle", *options)
    passed = {"pattern": "o200k", "min_frequency": 2} if "--pattern" in options else {}
    tokenizer = tokjax.load_tokenizer(base)
    expected, _ = continue_bpe(tokenizer, [LANGUAGES["de"]], vocab_size=410, progress=False, **passed)
    assert tokjax.load_tokenizer(out) == expected.tokenizer
    assert tokjax.vocab_size(expected.tokenizer) == 410
    assert load_training_bundle(out).trained.options == expected.options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weight", 1], "there are 2 FILES and 1 values of --weight; pass one for each of FILES"),
        (["--weight", 1, "--weight", 0], "the weight of 'de.txt' is 0; leave the source out"),
        (["--weight", 1, "--model", "unigram"], "--weight can't be used with --model unigram"),
        (["en.txt", "--weight", 1, "--weight", 1, "--weight", 1], "en.txt is passed twice"),
        (
            ["--continue-from", "t.json", "--special-token", "<s>"],
            "--special-token can't be used with --continue-from",
        ),
        (["--continue-from", "words.json"], "words.json is a WordLevelTokenizer; only byte-level BPE"),
        (["--continue-from", "space.json"], "space.json adds a space before texts (add_prefix_space=True)"),
        (
            ["--continue-from", "t.json", "--vocab-size", 300],
            "--vocab-size is 300; the 400 ids of the tokenizer need at least 400",
        ),
    ],
)
def test_options_of_several_sources_are_checked(workspace, languages, tmp_path, options, message):
    tokenizers = {
        "t.json": tokjax.load_tokenizer(workspace / "t.json"),
        "words.json": tokjax.word_level(["[UNK]", "low"]),
        "space.json": tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}, add_prefix_space=True),
    }
    for name, tokenizer in tokenizers.items():
        tokjax.save_tokenizer(tokenizer, languages / name)
    done = run("train", "en.txt", "de.txt", *options, "-o", tmp_path / "out.json", cwd=languages)
    assert done.returncode
    assert message in strip_frames(done.stderr)
    assert b"pre-tokens" not in done.stderr  # no file was counted
    assert not (tmp_path / "out.json").exists()


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
    remaining = ["-o", tmp_path / "new.json", "--save-counts", records]
    assert "records.jsonl exists; to replace it" in run_rejected(*command, *remaining)
    for options in (remaining, ["-o", records]):
        stderr = run_rejected(*command, *options, "--overwrite")
        assert "records.jsonl is one of the source files; pass another output file" in stderr
    assert (records.read_bytes(), out.read_bytes()) == before
    get_output(*command, "-o", out, "--overwrite")
    assert tokjax.vocab_size(tokjax.load_tokenizer(out)) == 261
