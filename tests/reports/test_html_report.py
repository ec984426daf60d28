"""Tests of the HTML page and the JSON values of a vocabulary report."""

import json
import re
import sys

import pytest

import tokjax
from tests.reports.conftest import HOSTILE_NAME
from tests.reports.test_tables import print_tables
from tests.support.html_pages import HTMLPage
from tokjax._util.imports import import_optional
from tokjax.reports.metrics import TEXT_METRICS, USE_METRICS, VOCABULARY_METRICS


def save_page(report, path):
    assert tokjax.reports.save_report_html(report, path) == path
    return path.read_text("utf-8")


@pytest.fixture(scope="module")
def page_text(matplotlib, report, tmp_path_factory):
    """Returns the page of the report, which several tests read."""
    return save_page(report, tmp_path_factory.mktemp("page") / "report.html")


def test_json(report):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(report), allow_nan=False))
    assert (described["tokenizers"], described["kinds"]) == (["trained", "bytes", "words"], ["en", "others"])
    for kind in (None, *report.kinds):
        for name in report.tokenizers:
            use = report.use(name, kind)
            values = described["overall"][name] if kind is None else described["uses"][kind][name]
            assert {metric.name: values[metric.name] for metric in USE_METRICS} == {
                metric.name: getattr(use, metric.name) for metric in USE_METRICS
            }
            assert values["used_lengths"] == use.used_lengths.tolist()
            assert values["most_frequent"] == [token._asdict() for token in use.most_frequent()]
    assert described["texts"]["en"]["words"] == report.use(kind="en").text.words
    words = described["vocabularies"]["words"]
    assert (words["vocab_size"], words["num_ordinary"], words["num_special"]) == (102, 4, 2)
    assert words["vocabulary_lengths"] == [0, 1, 0, 1, 0, 2]
    assert words["longest"][0] == {"id": 0, "token": "hello", "nbytes": 5, "times": 0}


@pytest.mark.usefixtures("matplotlib")
def test_empty_report(empty_report, tmp_path):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(empty_report), allow_nan=False))
    assert described["overall"]["tokenizer"]["bytes_per_token"] is None
    assert re.search(r"bytes per token +–\n", print_tables(tokjax.reports.report_tables(empty_report)))
    page = HTMLPage(save_page(empty_report, tmp_path / "empty.html"))
    assert ["bytes per token", "–"] in page.rows
    assert not any("nan" in text for text in page.texts)


def test_page_has_all_metrics(report, page_text):
    page = HTMLPage(page_text)
    assert "trained, bytes, words" in page.texts
    rows = iter(page.rows)
    for title, metrics, uses in (
        ("vocabulary", VOCABULARY_METRICS, [report.use(name) for name in report.tokenizers]),
        *((kind, USE_METRICS, [report.use(n, kind) for n in report.tokenizers]) for kind in report.kinds),
        ("all texts", USE_METRICS, [report.use(name) for name in report.tokenizers]),
    ):
        assert [title] in rows
        for metric in metrics:
            assert next(rows) == [metric.label, *map(metric.format_number, uses)]
    for kind in report.kinds:
        assert [
            kind,
            *(metric.format_number(report.use(kind=kind).text) for metric in TEXT_METRICS),
        ] in page.rows
    assert ["hello", "5", "0"] in page.rows
    assert page.tags.count("svg") == 3


def test_page_has_no_external_resources(page_text):
    assert "http" not in page_text.replace("http-equiv", "")
    assert "@import" not in page_text
    page = HTMLPage(page_text)
    assert not {"script", "link", "img", "iframe", "object", "image", "foreignobject"} & set(page.tags)
    for name, value in page.attributes:
        assert name != "src"
        assert not name.startswith("on")
        assert name not in ("href", "xlink:href") or value.startswith("#"), (name, value)
    assert ("http-equiv", "Content-Security-Policy") in page.attributes
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_page_ids_are_unique(page_text):
    page = HTMLPage(page_text)
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 0
    references = [value[1:] for name, value in page.attributes if name in ("href", "xlink:href")]
    references += [
        name for _, value in page.attributes for name in re.findall(r"url\(#([^)]+)\)", value or "")
    ]
    assert references
    assert set(references) <= set(ids)


@pytest.mark.usefixtures("matplotlib")
def test_page_escapes_names_and_tokens(hostile_report, tmp_path):
    text = save_page(hostile_report, tmp_path / "evil.html")
    assert HOSTILE_NAME not in text
    page = HTMLPage(text)
    assert "script" not in page.tags
    assert HOSTILE_NAME in page.texts  # As the text of a token.
    assert any(f'"{HOSTILE_NAME}' in heading for heading in page.texts)
    assert any("{{ 7 * 6 }}" in heading for heading in page.texts)
    assert f"$\\frac$ {HOSTILE_NAME}" in page.texts  # In a plot.
    assert not set(text) & set("\x1b\x00\u202e")


def test_page_does_not_depend_on_matplotlib_settings(report, page_text, tmp_path, matplotlib, monkeypatch):
    with matplotlib.rc_context({"lines.linewidth": 20, "font.size": 30}):
        before = dict(matplotlib.rcParams)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "matplotlib.pyplot", None)  # an import fails
            patch.delattr("matplotlib.pyplot", raising=False)
            again = save_page(report, tmp_path / "again.html")
        assert dict(matplotlib.rcParams) == before
    assert again == page_text


@pytest.mark.usefixtures("matplotlib")
def test_page_is_written_atomically(empty_report, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no such directory"):
        tokjax.reports.save_report_html(empty_report, tmp_path / "no" / "report.html")
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        tokjax.reports.save_report_html(empty_report, tmp_path / "report.html")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.usefixtures("matplotlib")
def test_missing_libraries_are_reported(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        tokjax.errors.MissingExtraError, match=r"an HTML report needs jinja2, which is not"
    ) as error:
        tokjax.reports.save_report_html(report, tmp_path / "report.html")
    assert "pip install 'tokjax[report]'" in str(error.value)
    assert isinstance(error.value, ImportError)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(
        tokjax.errors.MissingExtraError, match="x needs no_such_library, which is not installed"
    ):
        import_optional("no_such_library.part", extra="report", purpose="x")


def test_optional_library_bugs_are_raised(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_part"):
        import_optional("half_installed", extra="report", purpose="x")
