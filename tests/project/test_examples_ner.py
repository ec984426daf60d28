"""Tests of the example of named-entity recognition, and of its modules."""

import json
import random
import re

import pytest
from hypothesis import given, strategies as st

from tests.support.example_runner import load_example, run_example


def make_conll(count, per_document=None):
    """Returns CoNLL text in which persons follow "Mr" and locations follow "in"; every name is unique."""
    names = [
        f"{a}{b}{c}{d}"
        for a in ("Ka", "Lo", "Mi", "Nu")
        for b in ("ré", "so", "ta", "vo")
        for c in "abcdefgh"
        for d in ("", "n")
    ]
    random.Random(0).shuffle(names)
    lines = []
    for i in range(count):
        if per_document and i % per_document == 0:
            lines += ["-DOCSTART- O", ""]
        person, location = names[2 * i], names[2 * i + 1]
        words = [("Mr", "O"), (person, "I-PER"), ("lives", "O"), ("in", "O"), (location, "I-LOC"), (".", "O")]
        lines += [f"{word} {tag}" for word, tag in words] + [""]
    return "\n".join(lines)


@pytest.mark.slow
def test_ner_on_conll(tmp_path):
    path = tmp_path / "people.conll"
    path.write_text(make_conll(60), encoding="utf-8")
    done = run_example("ner.py", "--data", path, "--steps", 100, "--vocab-size", 300)
    assert "54 texts, 108 spans; held out 6" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if "│ all " in line]
    assert float(row.split("│")[4]) > 0.9


@pytest.mark.slow
def test_ner_holds_out_complete_documents(tmp_path):
    """The documents are longer than a window."""
    path = tmp_path / "people.conll"
    path.write_text(make_conll(120, per_document=12), encoding="utf-8")
    done = run_example("ner.py", "--data", path, "--steps", 100, "--vocab-size", 300)
    assert "9 texts, 216 spans; held out 1" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if "│ all " in line]
    *_, recall, f1, spans, _ = row.split("│")
    assert (int(spans), float(recall) > 0.9, float(f1) > 0.9) == (24, True, True)


@pytest.fixture(scope="module")
def entities():
    with pytest.MonkeyPatch.context() as patch:
        return load_example("named_entities", patch)


@pytest.fixture(scope="module")
def corpus():
    with pytest.MonkeyPatch.context() as patch:
        return load_example("corpus", patch)


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        (["Zoë"], "Zoë flew", ["Zoë"]),
        (
            ["York", "New York", "New York City"],
            "New York City, New York; York",
            ["New York City", "New York", "York"],
        ),
        (
            ["Zoë", "東京", "C++", "@kim"],
            "Zoë's Zoën Zo 東京都 C++ and @kim l’Zoë",
            ["Zoë", "東京", "C++", "@kim", "Zoë"],
        ),
        (["राम"], "रामा राम", ["राम"]),
        (["New York C"], "New York City", []),
        ([], "Zoë flew", []),
    ],
)
def test_baseline_finds_names_from_training(entities, names, text, expected):
    spans = [[(1, len(name.encode()) + 1, "PER")] for name in names]
    [predicted] = entities.find_seen_names(names, spans, [text])
    assert [text.encode()[start - 1 : stop - 1].decode() for start, stop, _ in predicted] == expected
    assert {label for *_, label in predicted} <= {"PER"}


def test_baseline_uses_the_most_frequent_label(entities):
    texts = ["May flew", "May flew", "in May", "Kim", "Kim", "Kim May"]
    spans = [[(1, 4, "PER")], [], [], [(1, 4, "PER")], [(1, 4, "LOC")], [(1, 4, "PER")]]
    assert entities.find_seen_names(texts, spans, ["Kim flew in May"]) == [[(1, 4, "PER")]]
    assert entities.find_seen_names(texts[:1], spans[:1], ["Kim flew in May"]) == [[(13, 16, "PER")]]


NAMES = st.lists(st.sampled_from(["a", "é", "b"]), min_size=1, max_size=3).map(" ".join)


@given(st.sets(NAMES), st.lists(st.sampled_from(["a", "é", "b", "ab"]), max_size=12))
def test_baseline_prefers_longer_names(entities, names, words):
    expected, position = [], 0
    while position < len(words):
        sizes = [size for size in (3, 2, 1) if " ".join(words[position : position + size]) in names]
        name = " ".join(words[position : position + sizes[0]]) if sizes else None
        start = len(" ".join([*words[:position], ""]).encode()) + 1
        if name:
            expected.append((start, start + len(name.encode()), "X"))
        position += name.count(" ") + 1 if name else 1
    spans = [[(1, len(name.encode()) + 1, "X")] for name in names]
    assert entities.find_seen_names(list(names), spans, [" ".join(words)]) == [expected]


@given(st.lists(st.integers(1, 12)))
def test_split_does_not_divide_a_file(entities, sizes):
    sources = [file for file, size in enumerate(sizes) for _ in range(size)]
    start = entities.find_split(sources)
    assert not {*sources[:start]} & {*sources[start:]}
    assert len(sources) * 9 // 10 - 12 < start <= len(sources) * 9 // 10


def test_markup_is_removed(corpus):
    paragraph = (
        ":func:`~a.b.c()`, :class:`.Foo`\n:meth:`the words <A.b>` :py:attr:`!x.y ` :ref:`z` :mod:`~p:q.r`"
    )
    text, spans = corpus.remove_markup(paragraph)
    assert text == "c(), Foo\nthe words x.y :ref:`z` r"
    assert [text[start:stop] for start, stop, _ in spans] == ["c()", "Foo", "the words", "x.y", "r"]
    assert [label for *_, label in spans] == ["FUNCTION", "CLASS", "METHOD", "ATTRIBUTE", "MODULE"]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--steps", "--texts"])
def test_ner_rejects_zero(option):
    done = run_example("ner.py", option, 0, exit_code=2)
    assert f"Invalid value for '{option}'" in done.stderr


@pytest.mark.slow
def test_ner_on_docstrings():
    done = run_example("ner.py", "--texts", 100, "--steps", 2, "--vocab-size", 400, exit_code=1)
    assert "exact spans in held-out texts" in done.stdout
    assert "no better than the baseline" in done.stderr


@pytest.mark.slow
def test_ner_fails_below_the_baseline(tmp_path):
    """Every held-out name also occurs in training, so the baseline is perfect."""
    path = tmp_path / "people.json"
    path.write_text(json.dumps([["Zoë Kim flew", {"entities": [[0, 7, "PER"]]}]] * 20))
    done = run_example("ner.py", "--data", path, "--steps", 1, "--vocab-size", 270, exit_code=1)
    assert re.search(r"baseline: names from training +│ 1.000 +│ 1.000 +│ 1.000 +│ 2 ", done.stdout)
    assert "no better than the baseline" in done.stderr
