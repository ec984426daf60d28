"""Tests of the hints in error messages: they name options and commands of the shell."""

import ast
import copy
import pickle
import re
from pathlib import Path

import pytest
import typer

import tokjax
from tests.cli.test_commands import get_output, run
from tokjax.cli.commands import app
from tokjax.cli.options import describe_error
from tokjax.errors import Hint, make_overwrite_hint

PACKAGE = Path(tokjax.__file__).parent


def run_rejected(*arguments, **options):
    """Runs a command that must fail with one of the library's errors, and returns its standard error."""
    done = run(*arguments, **options)
    assert done.returncode == 1, done.stdout
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def test_text_column_of_pack_and_report(records, tmp_path):
    tokenizer_options = ["-t", tmp_path / "t.json"]
    for command in (["pack", "-o", tmp_path / "data", *tokenizer_options], ["report", *tokenizer_options]):
        stderr = run_rejected(*command, records)
        assert "has no field 'text', it has ['body']; pass --text-column NAME" in stderr
        get_output(*command, records, "--text-column", "body")
    assert tokjax.open_dataset(tmp_path / "data").num_documents == 2
    get_output("pack", records, *tokenizer_options, "-o", tmp_path / "lines", "--format", "text", "-q")
    assert tokjax.open_dataset(tmp_path / "lines").num_documents == 1


def test_verify_checks_each_dataset(records, tmp_path):
    options = ["-t", tmp_path / "t.json", "--text-column", "body", "-q"]
    for name in "ab":
        get_output("pack", records, "-o", tmp_path / name, *options)
    data = tmp_path / "a" / "shard-00000.tokens.npy"
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    done = run("verify", tmp_path / "a", tmp_path / "none", tmp_path / "b")
    assert done.returncode == 1
    assert re.search(r"shard-00000\.tokens\.npy was altered", done.stderr.decode())
    assert "none: the path does not exist; write it with tokjax pack" in done.stderr.decode()
    assert re.fullmatch(r".*b: \d+ files verified\n", done.stdout.decode())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("inspect a<|endoftext|> -t %/t.json", "to recognize it, pass --special recognize; to encode it as"),
        ("inspect a<|endoftext|> -t %/t.json", "as ordinary text, pass --special text\n"),
        ("train %/none.txt -o %/n.json", "/none.txt' is not a file\n"),
        ("stats %/none", "none: the path does not exist; write it with tokjax pack\n"),
        (
            "pack %/a.lz4 -t %/t.json -o %/data",
            "unpack it with lz4 -d, or compress it with gzip, bzip2, xz or zstd\n",
        ),
        ("pack %/bad.jsonl -t %/t.json -o %/data", "to read the file as plain text pass --format text\n"),
        ("inspect a -t %/vocab.txt", "put a tokenizer_config.json with do_lower_case into its directory\n"),
    ],
)
def test_hints_name_shell_options(records, tmp_path, command, message):
    (tmp_path / "a.lz4").touch()
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nA\n")
    assert message in run_rejected(*command.replace("%", str(tmp_path)).split())


def test_hint_for_cased_vocabularies_works(records, tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nA\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert " A " in get_output("inspect", "A", "-t", tmp_path / "vocab.txt")


def iter_shell_hints():
    """Yields the `shell` argument of each `Hint` in the library, without formatted values."""
    sources = (path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    for source in (source for source in sources if "Hint(" in source):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Hint":
                shell = node.args[-1]
                yield "".join(
                    part.value
                    for part in ast.walk(shell)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )


def test_hints_name_existing_commands_and_options():
    commands = typer.main.get_group(app).commands
    options = {name for command in commands.values() for param in command.params for name in param.opts}
    hints = list(iter_shell_hints())
    assert len(hints) > 20
    for hint in hints:
        assert options.issuperset(re.findall(r"--[a-z]+(?:-[a-z]+)*", hint)), hint
        command_names = re.findall(r"(?:run|see|with) tokjax (\w+)|^tokjax (\w+)", hint)
        assert set(commands).issuperset(name for pair in command_names for name in pair if name), hint


def test_error_ends_with_its_hint():
    hint = make_overwrite_hint("replace it")
    for error in (
        tokjax.errors.DatasetExistsError("x exists", hint=hint),
        tokjax.TokjaxError("x exists", hint=hint),
    ):
        for duplicate in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert str(duplicate) == "x exists; to replace it, pass overwrite=True"
            assert (duplicate.message, duplicate.hint) == ("x exists", hint)
        assert describe_error(error) == "x exists; to replace it, pass --overwrite"
    plain = tokjax.errors.InvalidArgumentError("x exists")
    assert (str(plain), plain.message, plain.hint) == ("x exists", "x exists", None)
    assert describe_error(tokjax.TokjaxError("no text", hint=Hint("pass [text]", ""))) == "no text"


def test_arguments_are_named_as_options():
    for message, expected in {
        "max_tokens must be at least 1, not 0": "--max-tokens must be at least 1, not 0",
        "max_tokens fits": "max_tokens fits",
        "min_stride must be 1": "min_stride must be 1",
    }.items():
        assert describe_error(tokjax.errors.InvalidArgumentError(message), {"--max-tokens"}) == expected


def test_hint_for_unencodable_output():
    with pytest.raises(UnicodeEncodeError) as raised:
        "ï".encode("ascii")
    assert describe_error(raised.value).endswith("; set PYTHONIOENCODING=utf-8 to print it")


def test_errors_of_servers_name_the_url():
    error = ConnectionError("access denied")
    error.add_note("while s3://bucket/a.jsonl was read")
    assert describe_error(error) == "access denied, while s3://bucket/a.jsonl was read"
