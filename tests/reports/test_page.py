"""A report as tables, as JSON and as a page."""

import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import tokjax
from tests.reports.test_measuring import BYTES, VocabularyStub
from tokjax._util.imports import import_optional
from tokjax.reports.metrics import (
    TEXT_METRICS,
    USE_METRICS,
    VOCABULARY_METRICS,
    LengthBin,
    compute_length_bins,
)

HOSTILE_NAME = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def report(tokenizer, corpus):
    return tokjax.reports.vocabulary_report(
        tokenizer,
        {"en": corpus[:3], "others": corpus[3:]},
        name="trained",
        against={"bytes": BYTES, "words": VocabularyStub()},
        progress=False,
    )


@pytest.fixture(scope="module")
def curves(tokenizer, corpus):
    return tokjax.reports.size_curves(
        tokenizer,
        {"en": corpus[:3], "others": corpus[3:]},
        name="trained",
        against={"bytes": BYTES},
        progress=False,
    )


@pytest.fixture(scope="module")
def hostile_report():
    """Names and tokens that would steer a page, a terminal or a plot if they were not taken for text."""
    ranks = {bytes([i]): i for i in range(256)} | {
        HOSTILE_NAME.encode(): 256,
        b"\x1b[2J\xe2\x80\xae[red]": 257,
    }
    tokenizer = tokjax.byte_level_bpe(ranks, pattern=r"\S+")
    texts = {f"$\\frac$ {HOSTILE_NAME}": [HOSTILE_NAME] * 9, "_日本\x00\x1b[2J": ["\x1b[2J\u202e[red]"] * 9}
    options = {"name": f'"{HOSTILE_NAME}', "against": {"_{{ 7 * 6 }}[red]": tokenizer}, "progress": False}
    return (
        tokjax.reports.vocabulary_report(tokenizer, texts, **options),
        tokjax.reports.size_curves(tokenizer, texts, **options),
    )


@pytest.fixture(scope="module")
def empty_report():
    empty = (
        tokjax.reports.vocabulary_report(BYTES, [], progress=False),
        tokjax.reports.size_curves(BYTES, [], progress=False),
    )
    assert empty[0].use().tokens == 0
    return empty


def print_tables(tables):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(*tables)
    return captured.get()


def save_page(report, curves, path):
    assert tokjax.reports.save_report_html(report, path, curves=curves) == path
    return path.read_text("utf-8")


class Page(html.parser.HTMLParser):
    """The tags of a page with their attributes, its texts, and the cells of its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.rows, self.open = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data.strip()


def test_tables(report, curves):
    shown = print_tables(tokjax.reports.report_tables(report, curves))
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown.split("tokens of trained")[0]  # no number and no label is cut
    numbers = shown[shown.index("numbers") :]
    block = numbers[numbers.index("\nothers ") : numbers.index("\nall together")]
    uses = [report.use(name, "others") for name in report.tokenizers]
    for number in USE_METRICS:
        row = re.search(rf"^  {number.label} +([^a-z]*)$", block, re.MULTILINE)
        assert row.group(1).split() == [number.shown(use) for use in uses], number.label
    for curve in curves:
        part = shown[shown.index(f"bytes per token by size: {curve.kind}") :]
        for size, found in zip(curve.sizes, curve.bytes_per_token, strict=True):
            assert f"{found:.3f}" in re.search(rf"^{size:,} .*$", part, re.MULTILINE).group()


def test_tables_of_tokens(report):
    shown = print_tables(tokjax.reports.report_tables(report))
    of_words = shown[shown.index("tokens of words") :]
    assert re.search(r"hello +5 +0 +\[UNK\] +\d+", of_words)
    lengths = of_words[of_words.index("lengths") :]
    assert re.search(r"^1 +25.00% +█+ +\d", lengths, re.MULTILINE)  # one of the four words
    assert "by size" not in shown


def test_many_tokenizers_come_in_several_tables(tokenizer):
    against = {f"number {i}": BYTES for i in range(5)}
    report = tokjax.reports.vocabulary_report(tokenizer, ["low"], against=against, progress=False)
    numbers = [table for table in tokjax.reports.report_tables(report) if str(table.title) == "numbers"]
    assert [len(table.columns) - 1 for table in numbers] == [4, 2]
    assert max(map(len, print_tables(numbers).splitlines())) <= 80


def test_tables_escape_names_and_tokens(hostile_report):
    shown = print_tables(tokjax.reports.report_tables(*hostile_report))
    assert "[red]" in shown
    assert "\\x1b[2J" in shown
    assert not set(shown) & set("\x1b\x00\u202e")


def test_json(report, curves):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(report, curves), allow_nan=False))
    assert (described["tokenizers"], described["kinds"]) == (["trained", "bytes", "words"], ["en", "others"])
    for kind in (None, *report.kinds):
        for name in report.tokenizers:
            use = report.use(name, kind)
            found = described["overall"][name] if kind is None else described["uses"][kind][name]
            assert {number.name: found[number.name] for number in USE_METRICS} == {
                number.name: getattr(use, number.name) for number in USE_METRICS
            }
            assert found["used_lengths"] == use.used_lengths.tolist()
            assert found["most_frequent"] == [token._asdict() for token in use.most_frequent()]
    assert described["texts"]["en"]["words"] == report.use(kind="en").text.words
    words = described["vocabularies"]["words"]
    assert (words["vocab_size"], words["num_ordinary"], words["num_special"]) == (102, 4, 2)
    assert words["vocabulary_lengths"] == [0, 1, 0, 1, 0, 2]
    assert words["longest"][0] == {"id": 0, "token": "hello", "nbytes": 5, "times": 0}
    assert described["curves"][0] == {
        "tokenizer": "trained",
        "kind": "en",
        "nbytes": curves[0].nbytes,
        "sizes": [256, 500],
        "tokens": list(curves[0].tokens),
        "bytes_per_token": list(curves[0].bytes_per_token),
    }


@pytest.mark.usefixtures("matplotlib")
def test_empty_report_is_shown(empty_report, tmp_path):
    described = json.loads(json.dumps(tokjax.reports.report_to_json(*empty_report), allow_nan=False))
    assert described["overall"]["tokenizer"]["bytes_per_token"] is None
    assert described["curves"][0]["bytes_per_token"] == [None]
    assert re.search(r"bytes per token +–\n", print_tables(tokjax.reports.report_tables(*empty_report)))
    page = Page(save_page(*empty_report, tmp_path / "nothing.html"))
    assert ["bytes per token", "–"] in page.rows
    assert not any("nan" in text for text in page.texts)


@pytest.mark.usefixtures("matplotlib")
def test_the_page_has_every_number(report, curves, tmp_path):
    page = Page(save_page(report, curves, tmp_path / "report.html"))
    assert "trained, bytes, words" in page.texts
    rows = iter(page.rows)
    for heading, numbers, uses in (
        ("vocabulary", VOCABULARY_METRICS, [report.use(name) for name in report.tokenizers]),
        *((kind, USE_METRICS, [report.use(n, kind) for n in report.tokenizers]) for kind in report.kinds),
        ("all together", USE_METRICS, [report.use(name) for name in report.tokenizers]),
    ):
        assert [heading] in rows
        for number in numbers:
            assert next(rows) == [number.label, *map(number.shown, uses)]
    for kind in report.kinds:
        assert [kind, *(number.shown(report.use(kind=kind).text) for number in TEXT_METRICS)] in page.rows
    assert ["hello", "5", "0"] in page.rows
    assert page.tags.count("svg") == 4
    assert Page(save_page(report, (), tmp_path / "report.html")).tags.count("svg") == 3


@pytest.mark.usefixtures("matplotlib")
def test_the_page_loads_nothing(report, curves, tmp_path):
    text = save_page(report, curves, tmp_path / "report.html")
    assert "http" not in text.replace("http-equiv", "")
    assert "@import" not in text
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "image", "foreignobject"} & set(page.tags)
    for name, value in page.attributes:
        assert name != "src"
        assert not name.startswith("on")
        assert name not in ("href", "xlink:href") or value.startswith("#"), (name, value)
    assert ("http-equiv", "Content-Security-Policy") in page.attributes
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


@pytest.mark.usefixtures("matplotlib")
def test_page_ids_are_unique(report, curves, tmp_path):
    page = Page(save_page(report, curves, tmp_path / "report.html"))
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 0
    referred = [value[1:] for name, value in page.attributes if name in ("href", "xlink:href")]
    referred += [
        found for _, value in page.attributes for found in re.findall(r"url\(#([^)]+)\)", value or "")
    ]
    assert referred
    assert set(referred) <= set(ids)


@pytest.mark.usefixtures("matplotlib")
def test_page_escapes_names_and_tokens(hostile_report, tmp_path):
    text = save_page(*hostile_report, tmp_path / "evil.html")
    assert HOSTILE_NAME not in text
    page = Page(text)
    assert "script" not in page.tags
    assert HOSTILE_NAME in page.texts  # as the text of a token
    assert any(f'"{HOSTILE_NAME}' in heading for heading in page.texts)
    assert any("{{ 7 * 6 }}" in heading for heading in page.texts)
    assert f"$\\frac$ {HOSTILE_NAME}" in page.texts  # in a plot
    assert not set(text) & set("\x1b\x00\u202e")


def test_one_report_gives_the_same_bytes_and_changes_no_settings(report, curves, tmp_path, matplotlib):
    with matplotlib.rc_context({"lines.linewidth": 20, "font.size": 30}):
        before = dict(matplotlib.rcParams)
        first = save_page(report, curves, tmp_path / "1.html")
        assert dict(matplotlib.rcParams) == before
    assert save_page(report, curves, tmp_path / "2.html") == first


@pytest.mark.usefixtures("matplotlib")
def test_no_page_needs_the_state_of_pyplot(tmp_path):
    code = (
        "import sys, tokjax; t = tokjax.byte_level_bpe({bytes([i]): i for i in range(256)}); "
        "tokjax.reports.save_report_html(tokjax.reports.vocabulary_report(t, ['low'], progress=False), 'report.html'); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


@pytest.mark.usefixtures("matplotlib")
def test_many_kinds_and_tokenizers(tmp_path):
    texts = {f"kind {i}": ["low"] for i in range(7)}
    against = {f"number {i}": BYTES for i in range(9)}
    options = {"against": against, "progress": False}
    report = tokjax.reports.vocabulary_report(BYTES, texts, **options)
    page = Page(
        save_page(report, tokjax.reports.size_curves(BYTES, texts, **options), tmp_path / "many.html")
    )
    assert page.texts.count("kind 6") == 4  # in the texts' table, the numbers, and two plots


@pytest.mark.usefixtures("matplotlib")
def test_page_is_written_atomically(report, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no such directory"):
        tokjax.reports.save_report_html(report, tmp_path / "no" / "report.html")
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        tokjax.reports.save_report_html(report, tmp_path / "report.html")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.usefixtures("matplotlib")
def test_without_the_extra(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        tokjax.errors.MissingExtraError, match=r"the page of a report needs jinja2, which is not"
    ) as got:
        tokjax.reports.save_report_html(report, tmp_path / "report.html")
    assert "pip install 'tokjax[report]'" in str(got.value)
    assert isinstance(got.value, ImportError)
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


def test_the_docs_define_every_number():
    page = (Path(__file__).parents[2] / "docs" / "vocabulary-report.md").read_text("utf-8")
    for numbers, prefix in ((TEXT_METRICS, "text."), (VOCABULARY_METRICS, ""), (USE_METRICS, "")):
        for number in numbers:
            assert f"| {number.label} | `{prefix}{number.name}` |" in page


def test_bins_of_lengths():
    lengths = [1, 2, 16, 17, 24, 25, 32, 33, 64, 65, 128, 129, 400]
    ordinary = {bytes([i % 256]) * n: i for i, n in enumerate(lengths)}
    use = tokjax.reports.TokenUse(
        tokjax.make_vocabulary(ordinary), tokjax.reports.TextSize(), np.arange(len(lengths))
    )
    bins = compute_length_bins(use)
    assert [each.label for each in bins if each.of_vocabulary] == [
        *("1", "2", "16", "17–24", "25–32", "33–64", "65–128", "129+")
    ]
    assert bins[-5:] == [
        LengthBin(17, 24, 2, 3 + 4),
        LengthBin(25, 32, 2, 5 + 6),
        LengthBin(33, 64, 2, 7 + 8),
        LengthBin(65, 128, 2, 9 + 10),
        LengthBin(129, None, 2, 11 + 12),
    ]
    short = tokjax.reports.TokenUse(
        tokjax.make_vocabulary({b"abc": 0}), tokjax.reports.TextSize(), np.ones(1, np.int64)
    )
    assert [each.label for each in compute_length_bins(short)] == ["1", "2", "3"]
