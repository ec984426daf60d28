"""What the commands say where they refuse: which options would work, and what is never lost."""

import ast
import copy
import json
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


@pytest.fixture
def records(tmp_path):
    """Records whose text is not in `text`, and a tokenizer trained on them."""
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps({"body": f"hello {word}"}) + "\n" for word in ("ground", "there")))
    get_output("train", path, "-o", tmp_path / "t.json", "--text-column", "body", "--vocab-size", 260, "-q")
    return path


def run_rejected(*arguments, **options):
    done = run(*arguments, **options)
    assert done.returncode == 1, done.stdout
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def test_a_column_is_named_alike_in_all_commands(records, tmp_path):
    made_by = ["-t", tmp_path / "t.json"]
    for command in (["pack", "-o", tmp_path / "data", *made_by], ["report", *made_by]):
        said = run_rejected(*command, records)
        assert "has no field 'text', it has ['body']; pass --text-column NAME" in said
        get_output(*command, records, "--text-column", "body")
    assert tokjax.open_dataset(tmp_path / "data").num_documents == 2
    get_output("pack", records, *made_by, "-o", tmp_path / "lines", "--format", "text", "-q")
    assert tokjax.open_dataset(tmp_path / "lines").num_documents == 1


def test_patterns_are_packed(records, tmp_path):
    options = ["-t", tmp_path / "t.json", "--text-column", "body", "-q"]
    get_output("pack", tmp_path / "*.jsonl", "-o", tmp_path / "data", *options)
    assert tokjax.open_dataset(tmp_path / "data").num_documents == 2


def test_training_replaces_nothing_unasked(records, tmp_path):
    command = ["train", records, "--text-column", "body", "--vocab-size", 261, "-q"]
    out = tmp_path / "t.json"
    before = records.read_bytes(), out.read_bytes()
    assert "t.json exists; to replace it, pass --overwrite" in run_rejected(*command, "-o", out)
    remaining = ["-o", tmp_path / "new.json", "--save-counts", records]
    assert "records.jsonl exists; to replace it" in run_rejected(*command, *remaining)
    for options in (remaining, ["-o", records]):
        said = run_rejected(*command, *options, "--overwrite")
        assert "records.jsonl is one of the source files; pass another file to write" in said
    assert (records.read_bytes(), out.read_bytes()) == before
    get_output(*command, "-o", out, "--overwrite")
    assert tokjax.vocab_size(tokjax.load_tokenizer(out)) == 261


def test_each_dataset_is_verified(records, tmp_path):
    options = ["-t", tmp_path / "t.json", "--text-column", "body", "-q"]
    for name in "ab":
        get_output("pack", records, "-o", tmp_path / name, *options)
    data = tmp_path / "a" / "shard-00000.tokens.npy"
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    done = run("verify", tmp_path / "a", tmp_path / "none", tmp_path / "b")
    assert done.returncode == 1
    assert re.search(r"shard-00000\.tokens\.npy was altered", done.stderr.decode())
    assert "none: the path does not exist; write it with tokjax pack" in done.stderr.decode()
    assert re.fullmatch(r".*b: \d+ files are as they were written\n", done.stdout.decode())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("inspect a<|endoftext|> -t %/t.json", "to recognise it, pass --special recognise; to encode it as"),
        ("inspect a<|endoftext|> -t %/t.json", "as ordinary text, pass --special text\n"),
        ("train %/none.txt -o %/n.json", "/none.txt' is not a file\n"),
        ("stats %/none", "none: the path does not exist; write it with tokjax pack\n"),
        (
            "pack %/a.zst -t %/t.json -o %/data",
            "unpack it with zstd -d, or compress it with gzip, bzip2 or xz\n",
        ),
        ("pack %/bad.jsonl -t %/t.json -o %/data", "to read the file as plain text pass --format text\n"),
        ("inspect a -t %/vocab.txt", "put a tokenizer_config.json with do_lower_case into its directory\n"),
    ],
)
def test_advice_names_shell_commands(records, tmp_path, command, said):
    (tmp_path / "a.zst").touch()
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nA\n")
    assert said in run_rejected(*command.replace("%", str(tmp_path)).split())


def test_the_advice_on_cased_vocabularies_helps(records, tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nA\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert " A " in get_output("inspect", "A", "-t", tmp_path / "vocab.txt")


def test_a_dataset_that_was_joined_can_be_packed_again_only(records, tmp_path):
    get_output(
        "pack", records, "-t", tmp_path / "t.json", "--text-column", "body", "-o", tmp_path / "a", "-q"
    )
    get_output("merge", tmp_path / "a", tmp_path / "a", "-o", tmp_path / "b")
    said = run_rejected("rebuild", tmp_path / "b", "--overwrite")
    assert "run tokjax pack FILES --out PATH --overwrite" in said


def hints_for_a_shell():
    """Each second argument of `Hint` in the library, without the values in it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Hint":
                shell = node.args[-1]
                yield "".join(
                    each.value
                    for each in ast.walk(shell)
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )


def test_hints_name_commands_and_options_that_there_are():
    commands = typer.main.get_group(app).commands
    options = {name for command in commands.values() for each in command.params for name in each.opts}
    hints = list(hints_for_a_shell())
    assert len(hints) > 20
    for hint in hints:
        assert options.issuperset(re.findall(r"--[a-z]+(?:-[a-z]+)*", hint)), hint
        named = re.findall(r"(?:run|see|with) tokjax (\w+)|^tokjax (\w+)", hint)
        assert set(commands).issuperset(name for pair in named for name in pair if name), hint


def test_an_error_ends_with_its_hint():
    hint = make_overwrite_hint("replace it")
    for error in (
        tokjax.errors.DatasetExistsError("x exists", hint=hint),
        tokjax.TokjaxError("x exists", hint=hint),
    ):
        for each in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert str(each) == "x exists; to replace it, pass overwrite=True"
            assert (each.message, each.hint) == ("x exists", hint)
        assert describe_error(error) == "x exists; to replace it, pass --overwrite"
    plain = tokjax.errors.InvalidArgumentError("x exists")
    assert (str(plain), plain.message, plain.hint) == ("x exists", "x exists", None)
    assert describe_error(tokjax.TokjaxError("no text", hint=Hint("pass [text]", ""))) == "no text"


def test_arguments_are_shown_as_options():
    for message, shown in {
        "max_tokens must be at least 1, not 0": "--max-tokens must be at least 1, not 0",
        "max_tokens fits": "max_tokens fits",
        "min_stride must be 1": "min_stride must be 1",
    }.items():
        assert describe_error(tokjax.errors.InvalidArgumentError(message), {"--max-tokens"}) == shown


def test_characters_that_an_output_cannot_show():
    with pytest.raises(UnicodeEncodeError) as raised:
        "ï".encode("ascii")
    assert describe_error(raised.value).endswith("; to show it all the same, set PYTHONIOENCODING=utf-8")
