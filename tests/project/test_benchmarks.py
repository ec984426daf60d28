"""Tests of the benchmarks: suites, the format of records, and rendering. Nothing is timed."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.corpus import fetch_corpus, write_documents
from benchmarks.inputs import CACHE_VARIABLE, SEPARATOR, InputError, read_documents, write_ranks
from benchmarks.names import CURVES
from benchmarks.record import (
    RESULTS,
    Measurement,
    RecordError,
    check_record,
    make_record,
    read_record,
    write_record,
)
from benchmarks.render import (
    FRONT_TABLES,
    PAGES,
    TABLE_MARKER,
    TABLE_MARKERS,
    render_page,
    render_table,
)
from benchmarks.sources import find_sources
from benchmarks.suites import SUITES
from benchmarks.tables.curves import PICTURES, make_slug
from benchmarks.tables.front import COMPARISONS, make_front_table
from benchmarks.timing import ProcessError, run_in_process, time_interleaved

ROOT = Path(__file__).parents[2]
SENTENCE = "The {} fox jumps over {} lazy Dogs, as it's wont to; naïve café №{}. "
FAST_RUNS = {"short"}
RUNS = [pytest.param(name, marks=[] if name in FAST_RUNS else [pytest.mark.slow]) for name in SUITES]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Replaces the cache of the benchmarks by an empty directory."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def texts(tmp_path):
    """Returns a directory with one text of 80 documents, each of one paragraph."""
    directory = tmp_path / "texts"
    directory.mkdir()
    documents = ["".join(SENTENCE.format(i, i * j, i + j) for j in range(5)) for i in range(80)]
    (directory / "en.txt").write_text(SEPARATOR.join(documents), encoding="utf-8")
    return directory


@pytest.fixture
def ranks(tmp_path, plain_tokenizer):
    ordinary = plain_tokenizer.vocabulary.ordinary
    path = tmp_path / "small.tiktoken"
    write_ranks(sorted(ordinary, key=ordinary.__getitem__), path)
    return path


@pytest.fixture
def small_run(texts, ranks, tmp_path):
    """Returns options of a run that takes seconds."""
    paths = ["--texts", texts, "--ranks", ranks, "--out", tmp_path / "out"]
    return ["--quick", "--megabytes", 0.03, "--no-install", *paths]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def get_output(result):
    """Returns the output with single spaces: the console wraps long lines."""
    return " ".join(result.output.split())


def make_example():
    rounds = {"tokjax": (1.0, 3.0, 2.0), "peer": (4.0, 4.0, 5.0)}
    measurements = [Measurement("task", name, rounds=rounds[name], reference="peer") for name in rounds]
    return make_record("short", ["tokjax"], {"quick": True}, [], measurements)


@pytest.mark.parametrize("suite", RUNS)
def test_suite_writes_a_record_that_renders(suite, small_run, tmp_path):
    done = run(suite, *small_run)
    assert done.exit_code == 0, done.output
    record = read_record(tmp_path / "out" / f"{suite}.json")
    assert record.benchmark == suite
    assert record.settings["quick"] is True
    assert record.versions["tokjax"]
    assert any(one.rounds for one in record.measurements)
    assert record.inputs
    assert all(len(one.sha256) == 64 and one.bytes > 0 for one in record.inputs)
    for name, (benchmark, _) in TABLE_MARKERS.items():
        if benchmark == suite:
            assert render_table(name, tmp_path / "out").splitlines()[-1] in done.output


@pytest.mark.slow
def test_failed_suite_is_reported_and_others_run(small_run, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.suites.kinds.VOCAB_SIZE", "many")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    monkeypatch.delitem(sys.modules, "benchmarks.suites.tokenizers", raising=False)
    done = run("kinds", "tokenizers", "short", *small_run)
    assert done.exit_code == 1
    assert "kinds failed: TypeError:" in get_output(done)
    assert "tokenizers skipped: sentencepiece is not installed; pip install" in get_output(done)
    assert "1 of 3 suites done" in get_output(done)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["short.json"]


def test_suites_are_listed():
    done = run("--list")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == list(SUITES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "error: unknown suite 'nosuch'; the suites are encode, texts,"),
        (["short", "--texts", "texts", "--ranks", "none"], "error: no such file: none; pass a file in"),
        (
            ["short", "--texts", "empty"],
            "error: empty has no *.txt files; make some with: python -m benchmarks",
        ),
        (["short", "--texts", "texts", "--ranks", "bad"], "error: bad is not in tiktoken's format:"),
        (
            ["short", "--texts", "texts", "--ranks", "few"],
            "error: few has 1 tokens; a vocabulary needs at least the 256 bytes",
        ),
        (["short", "--megabytes", "-1"], "error: --megabytes must be above 0, not -1"),
    ],
)
def test_usage_errors(arguments, message, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").write_text("not ranks at all\n")
    (tmp_path / "few").write_text("YQ== 0\n")
    done = run(*arguments)
    assert done.exit_code == 1
    assert message in get_output(done)


def test_runs_without_local_files(monkeypatch):
    documents = [SENTENCE * 40, "x = 1\n" * 50]
    monkeypatch.setattr("benchmarks.sources.iter_code_documents", lambda: iter(documents))
    sources = find_sources(None, None, code_megabytes=0.05)
    assert sources.main == "code"
    assert sorted(read_documents(sources.texts["code"])) == sorted(documents)
    assert "trained by tokjax on the text 'code'" in sources.ranks_note
    monkeypatch.setattr(
        "benchmarks.sources.iter_code_documents", lambda: pytest.fail("the cache already has the texts")
    )
    assert find_sources(None, None, code_megabytes=0.05) == sources


def test_documents_round_trip(tmp_path):
    path = write_documents(tmp_path / "x.txt", ["a", " ", f"no {SEPARATOR}", "ü\r\n", "c"], 100)
    assert sorted(read_documents(path)) == ["a", "c", "ü\r\n"]


def test_download_needs_apt_and_dpkg(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.corpus.shutil.which", lambda _: None)
    with pytest.raises(InputError, match="apt-get and dpkg, which are not installed"):
        fetch_corpus(tmp_path, 1, print)


def test_subprocess_returns_result_or_error():
    assert run_in_process("benchmarks.names:format_run_name", {"contender": "x", "threads": 2}) == "x; 2"
    with pytest.raises(ProcessError, match="format_run_name failed: TypeError"):
        run_in_process("benchmarks.names:format_run_name", {"nobody": 1})


def test_rounds_are_interleaved():
    called = []
    seconds = time_interleaved({name: lambda name=name: called.append(name) for name in "ab"}, 2)
    assert called == list("ababab")
    assert {name: len(rounds) for name, rounds in seconds.items()} == {"a": 2, "b": 2}
    called.clear()
    seconds = time_interleaved({name: lambda name=name: called.append(name) for name in "ab"}, 2, twice=True)
    assert called == list("abaabbaabb")
    assert {name: len(rounds) for name, rounds in seconds.items()} == {"a": 2, "b": 2}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_records_follow_the_format(path, tmp_path):
    record = read_record(path)
    assert record.benchmark == path.stem
    assert path.stem in SUITES
    assert record.settings["quick"] is False
    assert write_record(record, tmp_path).read_text() == path.read_text()


def test_medians_and_ratios_are_computed_from_rounds(tmp_path):
    record = make_example()
    assert [(one.median, one.ratio) for one in record.measurements] == [(2.0, 0.5), (4.0, 1.0)]
    assert read_record(write_record(record, tmp_path)) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"median": 3.0}, "the median is 3.0, but the rounds give 2.0"),
        ({"ratio": 0.4}, "the ratio is 0.4, but the rounds give 0.5"),
        ({"unit": "furlongs"}, "unknown unit 'furlongs'; the units are s, MB"),
        ({"left_out": "lost"}, "must have either a median or a reason"),
        ({"rounds": (-1.0,), "median": -1.0, "ratio": -0.25}, "a round is negative"),
        ({"contender": "peer", "ratio": 1.0}, "duplicate measurement"),
    ],
)
def test_inconsistent_records_are_rejected(change, message):
    record = make_example()
    first, second = record.measurements
    with pytest.raises(RecordError, match=message):
        check_record(replace(record, measurements=(replace(first, **change), second)))


def test_invalid_records_are_rejected(tmp_path):
    path = tmp_path / "short.json"
    path.write_text(json.dumps({"benchmark": "short", "inputs": []}))
    with pytest.raises(RecordError, match=r"short\.json is not a benchmark record"):
        read_record(path)


def test_pages_have_the_plots_and_only_known_tables():
    pages = "".join(page.read_text() for page in PAGES)
    assert {match["name"] for match in TABLE_MARKER.finditer(pages)} <= {*TABLE_MARKERS, *FRONT_TABLES}
    assert all(f"({PICTURES}/{make_slug(task)}.svg)" in pages for task in CURVES)


def test_rendering_replaces_only_text_between_markers(tmp_path):
    page = "before\n<!-- short -->\nold\n<!-- end -->\nbetween\n<!-- other -->\nkept\n<!-- end -->\n"
    assert "Not measured yet: `python -m benchmarks short`." in render_page(page, tmp_path)
    write_record(make_example(), tmp_path)
    rendered = render_page(page, tmp_path)
    assert "| task | 2000000.0 (0.5) | 4000000.0 (1.0) |" in rendered
    assert rendered.startswith("before\n<!-- short -->\n| one text | tokjax | peer |")
    assert rendered.endswith("<!-- end -->\nbetween\n<!-- other -->\nkept\n<!-- end -->\n")
    assert render_page(rendered, tmp_path) == rendered


def test_front_table_shows_measurements(tmp_path):
    table = make_front_table(RESULTS)
    record = read_record(RESULTS / "encode.json")
    ours, theirs = (
        next(one.median for one in record.select("warm", task="en") if one.contender == f"{library}, ids; 1")
        for library in ("tokjax", "tiktoken")
    )
    assert f"tiktoken {record.versions['tiktoken']}: {theirs / ours:.2g};" in table
    assert table.count("\n| ") == len(COMPARISONS)
    headlines = make_front_table(RESULTS, only_headlines=True)
    assert headlines.count("\n| ") == 4
    assert set(headlines.splitlines()[2:6]) < set(table.splitlines())
    (tmp_path / "encode.json").write_text((RESULTS / "encode.json").read_text())
    partial = make_front_table(tmp_path)
    assert "gigatoken" in partial
    assert "transformers" not in partial


@pytest.mark.slow
def test_partial_runs_do_not_overwrite_published_records(texts, ranks, tmp_path):
    arguments = ["short", "--texts", str(texts), "--ranks", str(ranks), "--rounds", "1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "cache" / "own" / "short.json").exists()
    rejected = CliRunner().invoke(app, [*arguments, "--out", str(ranks)])
    assert rejected.exit_code == 1
    assert "--out is not a directory" in rejected.output
