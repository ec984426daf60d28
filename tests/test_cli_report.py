"""The command `tokjax report`, as a shell runs it."""

import json

import pytest

import tokjax
from tests.test_cli import output_of, run


@pytest.fixture(scope="module")
def place(tmp_path_factory, corpus, tokenizer, plain_tokenizer):
    """Texts of two kinds, and three tokenizer files, two of which have one name."""
    place = tmp_path_factory.mktemp("report")
    (place / "en.txt").write_text("<|endoftext|>".join(corpus[:3]), newline="")
    (place / "more.txt").write_text(corpus[3], newline="")
    (place / "code.txt").write_text(corpus[5], newline="")
    (place / "other").mkdir()
    with_eos = tokjax.byte_level_bpe(
        dict(tokenizer.vocabulary.ordinary),
        special_tokens=dict(tokenizer.vocabulary.special),
        eos_token="<|endoftext|>",
    )
    tokjax.save_tokenizer(with_eos, place / "t.json")
    tokjax.save_tokenizer(plain_tokenizer, place / "plain.json")
    tokjax.save_tokenizer(plain_tokenizer, place / "other" / "t.json")
    return place


@pytest.mark.usefixtures("matplotlib")
def test_numbers_of_named_kinds(place, corpus):
    shown = output_of(
        *("report", place / "en.txt", place / "more.txt", "--kind", f"code={place / 'code.txt'}"),
        *("--tokenizer", place / "t.json", "--against", place / "plain.json"),
        *("--json", place / "new" / "report.json", "--html", place / "pages" / "report.html", "--curve"),
    )
    loaded = tokjax.load_tokenizer(place / "t.json"), tokjax.load_tokenizer(place / "plain.json")
    options = {"name": "t", "against": {"plain": loaded[1]}, "progress": False}
    texts = {"text": corpus[:4], "code": [corpus[5]]}  # cut at the EOS token
    report = tokjax.vocabulary_report(loaded[0], texts, **options)
    curves = tokjax.size_curves(loaded[0], texts, **options)
    described = json.loads((place / "new" / "report.json").read_text())
    assert described == tokjax.report_to_json(report, curves)
    assert f"{report.use('plain', 'code').bytes_per_token:.3f}" in shown
    assert "bytes per token by size: code" in shown
    page = (place / "pages" / "report.html").read_text("utf-8")
    assert page == tokjax.save_report_html(report, place / "here.html", curves=curves).read_text("utf-8")


def test_without_curves_and_with_a_separator_of_ones_own(place):
    arguments = ["report", place / "en.txt", "-t", place / "t.json", "--json", place / "r.json"]
    for separator, documents in (("the", 5), ("", 1), (r"\t", 2)):
        shown = output_of(*arguments, "--separator", separator)
        described = json.loads((place / "r.json").read_text())
        assert described["texts"]["text"]["documents"] == documents
        assert described["curves"] == []
        assert "by size" not in shown


def test_tokenizers_of_one_name_are_told_apart(place):
    output_of(
        *("report", place / "en.txt", "-t", place / "t.json", "--against", place / "other" / "t.json"),
        *("--json", place / "r.json"),
    )
    described = json.loads((place / "r.json").read_text())
    assert described["tokenizers"] == [str(place / "t.json"), str(place / "other" / "t.json")]


def test_quiet(place):
    done = run(
        "report", place / "en.txt", "-t", place / "t.json", "--json", place / "q.json", "--curve", "-q"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (place / "q.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("-t {}/t.json", 2, "no text was passed; name files, or kinds of text with"),
        ("--kind code.txt -t {}/t.json", 2, "'code.txt' is not NAME=PATH"),
        ("--kind =code.txt -t {}/t.json", 2, "'=code.txt' is not NAME=PATH"),
        ("{}/en.txt", 2, "--tokenizer"),
        ("no-such.txt -t {}/t.json", 1, "error: source 'no-such.txt' is not a file"),
        ("{}/en.txt -t no-such.json", 1, "No such file"),
        ("{0}/en.txt -t {0}/t.json --against {0}/t.json", 2, "a tokenizer was passed twice"),
    ],
)
def test_errors(place, arguments, code, message):
    done = run("report", *arguments.format(place).split())
    assert done.returncode == code
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_help():
    assert "report" in output_of("--help")
    shown = output_of("report", "--help")
    for option in (
        "--tokenizer",
        "--against",
        "--kind",
        "--separator",
        "--curve",
        "--html",
        "--json",
        "--quiet",
    ):
        assert option in shown
