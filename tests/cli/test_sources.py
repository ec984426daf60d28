"""Tests of the sources of commands: invalid files, standard input, long texts, interrupts."""

import errno
import io
import json
from unittest.mock import Mock

import numpy as np
import pytest
import typer

import tokjax
from tests.cli.test_commands import run, strip_frames
from tokjax._util.urls import save_stream
from tokjax.cli.commands import app
from tokjax.datasets import shard_writing, writer

EOS = "<|endoftext|>"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, tokenizer, plain_tokenizer):
    """Writes source files, and tokenizers with and without special tokens, none of which declares an EOS."""
    workspace = tmp_path_factory.mktemp("sources")
    (workspace / "c.txt").write_text(EOS.join(f"document {i} low lower" for i in range(40)))
    (workspace / "latin.txt").write_bytes("café".encode("latin-1"))
    (workspace / "d").mkdir()
    (workspace / "d" / "a.txt").write_text("text")
    (workspace / "hf").mkdir()
    (workspace / "list.json").write_text('[{"text": "a"}]')
    (workspace / "table.csv").write_text("id,body\n1,one\n2,two\n")
    np.save(workspace / "ids.npy", np.arange(9))
    tokjax.save_tokenizer(tokenizer, workspace / "t.json")
    tokjax.save_tokenizer(plain_tokenizer, workspace / "plain.json")
    tokjax.formats.export_tokenizer(tokenizer, workspace / "hf" / "tokenizer.json", format="huggingface")
    return workspace


@pytest.fixture
def shell(workspace, tmp_path):
    """Returns a function that runs a command line in the workspace; `OUT` in it is a new directory."""

    def run_line(line, stdin=b"", code=0):
        arguments = [part.replace("OUT", str(tmp_path)) for part in line.split()]
        done = run(*arguments, stdin=stdin, cwd=workspace)
        assert done.returncode == code, done.stderr.decode()
        return strip_frames(done.stderr if code else done.stdout)

    return run_line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "pack c.txt -t hf/tokenizer.json -o OUT/d",
            "unless --no-eos is passed, and the tokenizer declares no eos token; pass --eos",
        ),
        ("pack c.txt -t t.json -o OUT/d --eos-token x", "error: --eos-token is 'x', which is not among"),
        ("pack c.txt -o OUT/d", "error: --tokenizer FILE is required unless --field raw is passed"),
        ("pack latin.txt -t t.json -o OUT/d", "convert it with iconv -f latin1 -t utf-8"),
        (
            "pack d -t t.json -o OUT/d",
            "'d' is a directory without Parquet files; pass a pattern, such as 'd/**",
        ),
        (
            "pack /dev/null -t t.json -o OUT/d",
            "or pipe it to the command, with - in place of the file's name",
        ),
        (
            "pack ids.npy -t t.json -o OUT/d",
            "JSON lines, CSV or Parquet, or for token ids run tokjax convert",
        ),
        ("pack list.json -t t.json -o OUT/d", "expected, not a list; write one object per line"),
        ("pack table.csv -t t.json -o OUT/d", "no column 'text', of ['id', 'body']; pass --text-column NAME"),
        ("pack c.txt -t t.json -o OUT/d --format xml", "error: --format must be 'auto', 'text',"),
        (
            "pack c.txt -t t.json -o OUT/d --field raw --shard-size 0",
            "--shard-size must be at least 1, not 0",
        ),
        ("pack c.txt -t none.json -o OUT/d", "error: 'none.json': no such file"),
        ("pack - -t t.json -o OUT/d", "error: standard input is empty; there is nothing to read"),
        ("train c.txt -o OUT/t --vocab-size 5", "error: --vocab-size is 5; 256 bytes and 1 special tokens"),
        ("train c.txt -o s3://bucket/t.json", "error: 's3://bucket/t.json' is a URL"),
        ("inspect --file none.txt -t t.json", "error: none.txt: No such file or directory"),
        ("inspect --file d -t t.json", "error: source 'd' is a directory"),
        ("stats d", "is not a dataset: it has no manifest.json; write one with tokjax pack"),
        ("convert none.npy -o OUT/d", "none.npy does not exist"),
        ("convert ids.npy -o OUT/d", "ids.npy is a file of token ids: pass --tokenizer FILE, the tokenizer"),
        (
            "convert c.txt -t t.json -o OUT/d",
            "can't detect a format from the name 'c.txt'; pass --format, one of ('nanogpt',",
        ),
    ],
)
def test_error_hints_are_for_a_shell(shell, tmp_path, line, message):
    stderr = shell(line, code=1)
    assert message in stderr
    assert "path.read_bytes" not in stderr
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("report c.txt -t hf/tokenizer.json --kind x", "'x' is not NAME=PATH"),
        ("inspect -t t.json", "pass TEXT, - for standard input, or --file FILE"),
        ("inspect a --file c.txt -t t.json", "pass TEXT, - for standard input, or --file FILE"),
        ("inspect a -t t.json --limit 0", "--limit"),
    ],
)
def test_usage_errors(shell, line, message):
    assert message in shell(line, code=2)


class TestEos:
    @pytest.mark.parametrize("file", ["t.json", "hf/tokenizer.json"])
    def test_eos_token_option(self, shell, tmp_path, file):
        shell(f"pack c.txt -t {file} -o OUT/d --eos-token {EOS} -q")
        dataset = tokjax.open_dataset(tmp_path / "d")
        eos = tokjax.eos_id(dataset.tokenizer)
        assert dataset.num_documents == 40
        assert dataset.read(0, dataset.num_tokens).tolist().count(eos) == 40

    def test_no_eos(self, shell, tmp_path):
        shell(f"pack c.txt -t plain.json -o OUT/d --no-eos --separator {EOS} -q")
        dataset = tokjax.open_dataset(tmp_path / "d")
        assert dataset.num_documents == 40
        assert not dataset.field.add_eos_between_docs

    def test_converted_documents_end_at_eos(self, shell, workspace, tmp_path):
        eos = tokjax.load_tokenizer(workspace / "t.json").vocabulary.special[EOS]
        np.save(tmp_path / "x.npy", np.array([1, eos, 2, eos]))
        shell(f"convert OUT/x.npy -t t.json -o OUT/d --eos-token {EOS}")
        assert tokjax.open_dataset(tmp_path / "d").num_documents == 2


def test_a_dataset_is_exported_without_options_of_token_files(shell, tmp_path):
    shell(f"pack c.txt -t t.json -o OUT/d --eos-token {EOS} -q")
    for option in ("--tokenizer t.json", f"--eos-token {EOS}", "--chunk-tokens 8"):
        message = f"d is a dataset, and {option.split()[0]} is only for converting a file of token ids to one"
        assert message in shell(f"convert OUT/d -o OUT/x.bin {option}", code=1)
    (tmp_path / "other").mkdir()
    assert "other is not a dataset" in shell("convert OUT/other -o OUT/x.bin --chunk-tokens 8", code=1)
    assert not (tmp_path / "x.bin").exists()


class TestSeparator:
    """By default, plain text is split at the EOS token. A record that mentions it is one document."""

    text = f"OpenAI uses {EOS} to end texts"

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        (tmp_path / "a.txt").write_text(f"one{EOS}two")
        (tmp_path / "a.jsonl").write_text(json.dumps({"text": self.text}))
        (tmp_path / "a.csv").write_text(f"text\n{self.text}\n")

    def pack(self, shell, tmp_path, files, options="--special text", **stdin):
        shell(f"pack {files} -t t.json --eos-token {EOS} -o OUT/d -q --overwrite {options}", **stdin)
        dataset = tokjax.open_dataset(tmp_path / "d")
        return [tokjax.decode(dataset.tokenizer, ids[:-1]) for ids in dataset]

    @pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
    def test_records_are_documents(self, shell, tmp_path, name):
        assert self.pack(shell, tmp_path, f"OUT/{name}") == [self.text]
        error = shell(f"pack OUT/{name} -t t.json --eos-token {EOS} -o OUT/e", code=1)
        assert f"holds the special token '{EOS}'" in error
        assert self.pack(shell, tmp_path, f"OUT/{name}", f"--separator {EOS}") == self.text.split(EOS)

    def test_text_and_records_together(self, shell, tmp_path):
        assert self.pack(shell, tmp_path, "OUT/a.txt OUT/a.jsonl") == ["one", "two", self.text]
        paths = [tmp_path / name for name in ("a.txt", "a.jsonl")]
        assert list(tokjax.corpus.read_documents(paths, EOS)) == [b"one", b"two", self.text]

    def test_standard_input_and_reports(self, shell, tmp_path):
        line = (tmp_path / "a.jsonl").read_bytes()
        assert self.pack(shell, tmp_path, "-", "--special text --format jsonl", stdin=line) == [self.text]
        shell("report OUT/a.jsonl -t OUT/d/tokenizer.tokjax.json --json OUT/r.json -q")
        assert json.loads((tmp_path / "r.json").read_text())["texts"][0]["documents"] == 1


class TestStandardInput:
    def test_documents(self, shell, workspace, tmp_path):
        options = f"-t t.json --eos-token {EOS} -q"
        shell(f"pack - -o OUT/piped {options}", stdin=(workspace / "c.txt").read_bytes())
        shell(f"pack c.txt -o OUT/read {options}")
        piped, read = (tokjax.open_dataset(tmp_path / name) for name in ("piped", "read"))
        assert piped.num_documents == 40
        assert piped.read(0, piped.num_tokens).tolist() == read.read(0, read.num_tokens).tolist()

    def test_together_with_files(self, shell, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"text": "two"}')
        shell("pack - OUT/a.jsonl --field raw -o OUT/d -q", stdin=b"one")
        assert list(tokjax.open_dataset(tmp_path / "d")) == ["one", "two"]
        shell("pack - --field raw -o OUT/e -q --format tsv", stdin=b"id\ttext\n1\tone\n")
        assert list(tokjax.open_dataset(tmp_path / "e")) == ["one"]

    def test_records(self, shell, tmp_path):
        lines = b'{"body": "one"}\n{"body": "two"}\n'
        shell("pack - --field raw --format jsonl --text-column body -o OUT/d -q", stdin=lines)
        assert list(tokjax.open_dataset(tmp_path / "d")) == ["one", "two"]
        damaged, options = (
            lines + b"{\n\xff\n",
            "--field raw --format jsonl --text-column body -o OUT/d --overwrite",
        )
        assert "line at byte 32: not JSON" in shell(f"pack - {options}", stdin=lines + b"{\n", code=1)
        printed = shell(f"pack - {options} --skip-bad-records", stdin=damaged)
        assert "skipped bad records 2" in printed
        assert list(tokjax.open_dataset(tmp_path / "d")) == ["one", "two"]

    def test_full_disk(self, monkeypatch):
        monkeypatch.setattr("shutil.copyfileobj", Mock(side_effect=OSError(errno.ENOSPC, "disk full")))
        with pytest.raises(OSError, match=r"disk full: .*tokjax-.*0'$"):
            save_stream(io.BytesIO(b"a"), "standard input")

    def test_training(self, shell, workspace, tmp_path):
        text = (workspace / "c.txt").read_bytes()
        shell("train c.txt -o OUT/read.json --vocab-size 270 -q")
        shell("train - -o OUT/piped.json --vocab-size 270 -q", stdin=text)
        assert (tmp_path / "piped.json").read_bytes() == (tmp_path / "read.json").read_bytes()


class TestInspect:
    def test_limit(self, shell):
        output = shell("inspect --file c.txt -t t.json -n 3 --special text")
        assert "3 of " in output
        assert "(see --limit)" in output
        assert output.count("[") == 3

    def test_long_file_is_read_up_to_limit(self, shell, tmp_path):
        (tmp_path / "long.txt").write_text("word " * 20_000)
        assert "2 of more tokens (see --limit)" in shell("inspect --file OUT/long.txt -t t.json -n 2")


def test_interrupted_command_resumes(shell, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writing, "_BATCH_SIZE", 100)
    command = "pack c.txt --field raw --separator <|endoftext|> --shard-size 200 -q -o OUT/"

    def batch_until_interrupt(*arguments, iter_batches=writer.iter_batches, **options):
        for i, batch in enumerate(iter_batches(*arguments, **options)):
            if i == 6:
                raise KeyboardInterrupt
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(writer, "iter_batches", batch_until_interrupt)
        stderr = shell(command + "d", code=130)
    assert stderr == "interrupted: run the same command again to resume after the last finished shard"
    remaining = [path for path in tmp_path.rglob("shard-*") if "incomplete" in str(path)]
    assert remaining
    modified = {path.name: path.stat().st_mtime_ns for path in remaining}
    shell(command + "d")
    shell(command + "uninterrupted")
    resumed = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "d").iterdir()}
    assert sum(resumed[name] == modified_ns for name, modified_ns in modified.items()) >= 2
    for path in (tmp_path / "uninterrupted").iterdir():
        assert path.read_bytes() == (tmp_path / "d" / path.name).read_bytes()


def test_help_of_each_command(shell):
    overview = shell("--help")
    for name, command in typer.main.get_group(app).commands.items():
        assert name in overview
        shown = shell(f"{name} --help")
        assert "Usage:" in shown
        assert [option for param in command.params for option in param.opts if option not in shown] == []
