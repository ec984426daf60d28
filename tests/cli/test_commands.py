"""The commands, as a shell runs them."""

import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest

import tokjax
from tokjax.cli import main

# The command with its arguments, whatever its parent does with SIGINT. It waits in the middle of merging.
WAITS_WHILE_MERGING = """
import signal, sys
ignored, *arguments = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_IGN if ignored == "True" else signal.default_int_handler)
from tokjax.cli import main
from tokjax.trainer.bpe import batched_merging
advance = batched_merging._Merger.advance
def wait_and_advance(*args):
    print("merging", flush=True)
    sys.stdin.read()
    return advance(*args)
batched_merging._Merger.advance = wait_and_advance
sys.argv[1:] = arguments
main()
"""


def run(*arguments, stdin=b"", cwd="."):
    """Runs a command within this process: a process of its own takes a second more, and is of `run_in_process`."""
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
        with pytest.raises(SystemExit) as end:
            main()
    shown = []
    for stream in (stdout, stderr):
        stream.flush()
        shown.append(stream.buffer.getvalue())
    return subprocess.CompletedProcess(arguments, end.value.code or 0, *shown)


def run_in_process(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tokjax", *map(str, arguments)],
        capture_output=True,
        check=False,
        env={"COLUMNS": "120", "PATH": ""},
        **options,
    )


def strip_colours(shown):
    """What was printed, without frames and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", shown.decode()).split())


def get_output(*arguments, **options):
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, corpus):
    """A corpus, and the tokenizer and dataset that the commands made of it."""
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


def test_train(workspace, corpus):
    from tokjax.trainer import train_bpe

    tokenizer = tokjax.load_tokenizer(workspace / "t.json")
    expected = train_bpe(corpus * 3, vocab_size=400, special_tokens=["<|endoftext|>"], progress=False)
    assert tokenizer == expected.tokenizer


class TestTrain:
    """Every kind of vocabulary, from the shell."""

    @pytest.mark.parametrize(
        ("model", "options", "kind"),
        [
            ("bpe", ["--tie-break", "huggingface", "--max-token-length", 5], "ByteLevelBPE"),
            ("wordpiece", ["--cased", "--limit-alphabet", 200], "WordPieceTokenizer"),
            ("word-level", ["--special-token", "[X]"], "WordLevelTokenizer"),
            ("unigram", ["--byte-fallback", "--character-coverage", 1], "SentencePieceTokenizer"),
            ("sentencepiece-bpe", ["--byte-fallback"], "SentencePieceTokenizer"),
            ("char", [], "SentencePieceTokenizer"),
            ("word", [], "SentencePieceTokenizer"),
        ],
    )
    def test_every_model(self, workspace, tmp_path, model, options, kind):
        out = tmp_path / "t.json"
        shown = get_output(
            "train", workspace / "corpus.txt", "-m", model, "-o", out, "--vocab-size", 400, *options
        )
        assert "bytes per token" in shown
        tokenizer = tokjax.load_tokenizer(out)
        assert type(tokenizer).__name__ == kind
        assert tokjax.vocab_size(tokenizer) <= 400
        assert len(tokjax.encode(tokenizer, "the inner meaning"))

    def test_counts_are_saved_and_reused(self, workspace, tmp_path):
        counts = tmp_path / "counts.npz"
        command = ["train", "-q", "--vocab-size", 300, "--pattern", "cl100k"]
        get_output(*command, workspace / "corpus.txt", "--save-counts", counts, "-o", tmp_path / "a.json")
        get_output("train", "-q", "--vocab-size", 300, counts, "-o", tmp_path / "b.json")
        get_output(*command, workspace / "corpus.txt", "-o", tmp_path / "c.json")
        first, *others = (tokjax.load_tokenizer(tmp_path / f"{name}.json") for name in "abc")
        assert others == [first, first]

    def test_counts_of_several_files_are_added_up(self, workspace, tmp_path):
        command = ["train", "--vocab-size", 300, "--quiet"]
        for name in ("a.counts", "b.counts"):
            keep = ["--save-counts", tmp_path / name, "-o", tmp_path / f"{name}.json"]
            get_output(*command, workspace / "corpus.txt", *keep)
        get_output(*command, tmp_path / "?.counts", "-o", tmp_path / "c.json")
        get_output(*command, workspace / "corpus.txt", workspace / "corpus.txt", "-o", tmp_path / "d.json")
        assert (tmp_path / "c.json").read_bytes() == (tmp_path / "d.json").read_bytes()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["corpus.txt"], "and .*corpus.txt none; count that first"),
            (["--max-bytes", 5], "trained on as they are: no --max-bytes"),
            (["--save-counts", "q.npz"], "trained on as they are"),
            (["--text-column", "x"], "trained on as they are"),
            (["--model", "unigram"], "nor a model of SentencePiece"),
            (
                ["--special-token", "the"],
                r"special_tokens=\('<\|endoftext\|>',\), not \('the',\)",
            ),
        ],
    )
    def test_options_that_counts_can_not_follow(self, workspace, tmp_path, options, message):
        counts = tmp_path / "counts"
        keep = ["--save-counts", counts, "-o", tmp_path / "x.json"]
        get_output("train", "--vocab-size", 300, "--quiet", workspace / "corpus.txt", *keep)
        options = [workspace / option if option == "corpus.txt" else option for option in options]
        done = run("train", counts, *options, "-o", tmp_path / "y.json")
        assert done.returncode
        assert re.search(message, strip_colours(done.stderr)), done.stderr
        assert not (tmp_path / "y.json").exists()

    def test_a_bundle_is_not_overwritten_by_a_tokenizer(self, workspace, tmp_path):
        command = ["train", workspace / "corpus.txt", "--vocab-size", 300, "--quiet", "-o", tmp_path / "b"]
        get_output(*command, "--bundle")
        done = run(*command)
        assert done.returncode == 1
        assert "is a training bundle, and holds its tokenizer" in strip_colours(done.stderr)
        tokjax.trainer.load_training_bundle(tmp_path / "b")

    def test_records_and_a_part_of_them(self, corpus, tmp_path):
        lines = [json.dumps({"body": text}) for text in corpus * 3]
        (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
        options = ["--vocab-size", 300, "-o", tmp_path / "t.json"]
        failed = run("train", tmp_path / "*.jsonl", *options)
        assert failed.returncode == 1
        assert b"has no field 'text', it has ['body']; pass --text-column NAME" in failed.stderr
        shown = get_output(
            "train", tmp_path / "*.jsonl", "--text-column", "body", "--max-bytes", 100, *options
        )
        assert "documents" in shown

    def test_a_bundle(self, workspace, tmp_path):
        from tokjax.trainer import load_training_bundle

        options = ["--vocab-size", 300, "-o", tmp_path / "b", "--bundle", "--checkpoint", tmp_path / "c.npz"]
        get_output("train", workspace / "corpus.txt", *options)
        assert load_training_bundle(tmp_path / "b").trained.options["vocab_size"] == 300
        again = run("train", workspace / "corpus.txt", *options)
        assert again.returncode == 1
        assert b"to replace it, pass --overwrite" in again.stderr
        get_output("train", workspace / "corpus.txt", *options, "--overwrite", "-q")
        assert tokjax.load_tokenizer(tmp_path / "b") == load_training_bundle(tmp_path / "b").trained.tokenizer

    def test_an_option_of_another_model_is_refused(self, workspace, tmp_path):
        refused = run(
            "train", workspace / "corpus.txt", "-o", tmp_path / "t", "-m", "unigram", "--pattern", "gpt2"
        )
        assert refused.returncode == 2
        assert b"--pattern can't be used with --model unigram" in refused.stderr

    @pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT to send")
    @pytest.mark.parametrize("ignored", [False, True])
    def test_ctrl_c(self, tmp_path, ignored):
        (tmp_path / "corpus.txt").write_text("the cat sat on the mat")
        arguments = ["train", tmp_path / "corpus.txt", "-o", tmp_path / "t.json", "--vocab-size", 260, "-q"]
        process = subprocess.Popen(
            [sys.executable, "-c", WAITS_WHILE_MERGING, *map(str, [ignored, *arguments])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout.readline() == b"merging\n"
        process.send_signal(signal.SIGINT)
        if ignored:
            _, shown = process.communicate(b"continue")
        else:  # its input stays open: nothing but the signal can end it
            shown = process.stderr.read()
            process.communicate()
        assert process.returncode == (0 if ignored else 130)
        assert (b"interrupted" in shown) is not ignored
        assert (tmp_path / "t.json").exists() is ignored


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
    shown = get_output("inspect", "the [bold]é[/bold]", "--tokenizer", workspace / "t.json")
    assert "[1, 2)" in shown
    assert "│ [ " in shown  # markup in the text is text
    assert "<|endoftext|>" in shown
    piped = get_output("inspect", "-", "-t", workspace / "t.json", stdin=b"\xff")
    assert "\\xff" in piped
    refused = run("inspect", "a<|endoftext|>", "-t", workspace / "t.json")
    assert refused.returncode == 1
    assert b"--special text" in refused.stderr
    recognised = get_output("inspect", "a<|endoftext|>", "-t", workspace / "t.json", "--special", "recognise")
    assert recognised.count("yes") == 2
    ordinary = get_output("inspect", "a<|endoftext|>", "-t", workspace / "t.json", "--special", "text")
    assert ordinary.count("yes") == 1
    harmless = get_output("inspect", "-", "-t", workspace / "t.json", stdin=b"\x1b]0;title\x07")
    assert "\x1b" not in harmless
    assert "\x07" not in harmless


def test_names_that_look_like_markup(workspace):
    odd = workspace / "x[/red]"
    packed = get_output("pack", workspace / "corpus.txt", "-t", workspace / "t.json", "-o", odd)
    assert "x[/red]" in packed
    assert "x[/red]" in get_output("stats", odd)


def test_train_makes_the_directory_first(workspace):
    get_output(
        "train",
        workspace / "corpus.txt",
        "-o",
        workspace / "new" / "dir" / "t.json",
        "--vocab-size",
        270,
        "-q",
    )
    assert tokjax.vocab_size(tokjax.load_tokenizer(workspace / "new" / "dir" / "t.json")) == 270


def test_stats(workspace):
    shown = get_output("stats", workspace / "data", "--verify")
    for part in ("tokens", "documents", "uint16", "bytes per token", "sha256:"):
        assert part in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack", __file__, "-t", "no/such/tokenizer.json", "-o", "."], b"No such file"),
        (["stats", "no/such/place"], b"the path does not exist; write it with tokjax pack"),
        (["train", "no/such/file", "-o", "t.json"], b"is not a file"),
        (["inspect", "a", "-t", "no/such/tokenizer.json"], b"No such file"),
    ],
)
def test_errors_are_one_line_without_a_traceback(arguments, message, tmp_path):
    done = run_in_process(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"error: ")


def test_help():
    overview = get_output("--help")
    for command in ("train", "pack", "inspect", "stats"):
        assert command in overview
        assert get_output(command, "--help").count("\n") > 5
    assert run("nonsense").returncode == 2
    assert run("train").returncode == 2


def test_the_version():
    assert run_in_process("--version").stdout.decode().strip() == f"tokjax {tokjax.__version__}"
