"""Tests of the command `tokjax report`."""

import json

import pytest

import tokjax
from tests.cli.test_commands import get_output, run


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, corpus, tokenizer, plain_tokenizer):
    """Writes texts of two kinds, and three tokenizer files, two of which have the same name."""
    workspace = tmp_path_factory.mktemp("report")
    (workspace / "en.txt").write_text("<|endoftext|>".join(corpus[:3]), newline="")
    (workspace / "more.txt").write_text(corpus[3], newline="")
    (workspace / "code.txt").write_text(corpus[5], newline="")
    (workspace / "other").mkdir()
    with_eos = tokjax.byte_level_bpe(
        dict(tokenizer.vocabulary.ordinary),
        special_tokens=dict(tokenizer.vocabulary.special),
        eos_token="<|endoftext|>",
    )
    tokjax.save_tokenizer(with_eos, workspace / "t.json")
    tokjax.save_tokenizer(plain_tokenizer, workspace / "plain.json")
    tokjax.save_tokenizer(plain_tokenizer, workspace / "other" / "t.json")
    return workspace


def test_output_equals_that_of_reports(workspace, corpus):
    output = get_output(
        *("report", workspace / "en.txt", workspace / "more.txt", "--kind", f"code={workspace / 'code.txt'}"),
        *("--tokenizer", workspace / "t.json", "--against", workspace / "plain.json"),
        *("--json", workspace / "new" / "report.json"),
    )
    loaded = tokjax.load_tokenizer(workspace / "t.json"), tokjax.load_tokenizer(workspace / "plain.json")
    options = {"name": "t", "against": {"plain": loaded[1]}, "progress": False}
    texts = {"text": corpus[:4], "code": [corpus[5]]}  # split at the EOS token
    report = tokjax.reports.vocabulary_report(loaded[0], texts, **options)
    described = json.loads((workspace / "new" / "report.json").read_text())
    assert described == tokjax.reports.report_to_json(report)
    assert f"{report.use('plain', 'code').bytes_per_token:.3f}" in output


def test_custom_separator(workspace):
    arguments = ["report", workspace / "en.txt", "-t", workspace / "t.json", "--json", workspace / "r.json"]
    for separator, documents in (("", 1), (r"\t", 2)):
        get_output(*arguments, "--separator", separator)
        described = json.loads((workspace / "r.json").read_text())
        assert described["texts"][0]["documents"] == documents


def test_tokenizers_with_equal_names(workspace):
    done = run(
        *("report", workspace / "en.txt", "-q", "--json", workspace / "r.json"),
        *("-t", workspace / "t.json", "--against", workspace / "other" / "t.json"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    described = json.loads((workspace / "r.json").read_text())
    names = [str(workspace / "t.json"), str(workspace / "other" / "t.json")]
    assert list(described["metrics"][0]) == ["kind", "metric", *names]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("-t {}/t.json", 2, "no text was passed; pass files, or kinds of text with"),
        ("--kind code.txt -t {}/t.json", 2, "'code.txt' is not NAME=PATH"),
        ("--kind =code.txt -t {}/t.json", 2, "'=code.txt' is not NAME=PATH"),
        ("{}/en.txt", 2, "--tokenizer"),
        ("no-such.txt -t {}/t.json", 1, "error: source 'no-such.txt' is not a file"),
        ("{}/en.txt -t no-such.json", 1, "no such file"),
        ("{0}/en.txt -t {0}/t.json --against {0}/t.json", 2, "duplicate tokenizer"),
    ],
)
def test_errors(workspace, arguments, code, message):
    done = run("report", *arguments.format(workspace).split())
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr
