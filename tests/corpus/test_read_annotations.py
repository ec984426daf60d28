"""Tests of `read_annotations`: texts with labelled character spans in JSON."""

import json

import pytest

import tokjax

SPACY = [["Zoë lives in 東京 🗼", {"entities": [[0, 3, "PER"], [13, 15, "LOC"]]}], ["none", {"entities": []}]]
EXPECTED = [
    tokjax.corpus.AnnotatedText("Zoë lives in 東京 🗼", ((1, 5, "PER"), (15, 21, "LOC"))),
    tokjax.corpus.AnnotatedText("none", ()),
]


def to_prodigy(name):
    return [
        {
            "tokens": [{"id": 0, "start": 0, "end": 1}],
            "text": text,
            name: [dict(zip(("start", "end", "label"), s, strict=True)) for s in rest["entities"]],
        }
        for text, rest in SPACY
    ]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(SPACY),
        json.dumps(SPACY, ensure_ascii=False, indent=2),
        "\n".join(map(json.dumps, SPACY)),
        json.dumps(SPACY[0]) + "\n\n" + json.dumps(SPACY[1]) + "\n",
        json.dumps(to_prodigy("spans")),
        json.dumps(to_prodigy("ents"), indent=1),
        "\r\n".join(map(json.dumps, to_prodigy("ents"))),
        "\r".join(map(json.dumps, to_prodigy("ents"))),
        json.dumps([{**record, "spans": {"sc": [{"start": 0, "end": 1}]}} for record in to_prodigy("ents")]),
        json.dumps([{**record, "spans": []} for record in to_prodigy("entities")]),
        json.dumps([{**record, "spans": record["ents"]} for record in to_prodigy("ents")]),
        json.dumps([[text, {"entities": [[*s, "Q42"] for s in rest["entities"]]}] for text, rest in SPACY]),
        json.dumps({"classes": ["PER", "LOC"], "annotations": SPACY}),
        json.dumps({"classes": ["PER", "LOC"], "annotations": [None, *SPACY]}, indent=2),
        "\n".join(map(json.dumps, to_prodigy("entities"))),
        "\n".join(map(json.dumps, [*to_prodigy("spans"), {"text": "no", "spans": [], "answer": "reject"}])),
    ],
)
def test_each_format_of_records_is_read(tmp_path, content):
    path = tmp_path / "train.json"
    path.write_text(content, encoding="utf-8")
    assert tokjax.corpus.read_annotations(path) == EXPECTED


EMOJI = "💩Zoë 👩‍👩‍👧 Kim"
LABEL_STUDIO = [
    {
        "value": {"start": start, "end": stop, "text": "", "labels": labels},
        "from_name": "ner",
        "type": "labels",
    }
    for start, stop, labels in ((2, 5, ["PER"]), (15, 18, ["PER", "ORG"]))
]
RELATION, CHOICE = {"type": "relation", "from_id": "a"}, {"type": "choices", "value": {"choices": ["x"]}}
IN_BYTES = ((5, 9, "PER"), (29, 32, "PER"), (29, 32, "ORG"))


@pytest.mark.parametrize(
    ("records", "options", "expected"),
    [
        ([{"id": 1, "text": EMOJI, "label": [[1, 4, "PER"]], "Comments": []}], {}, IN_BYTES[:1]),
        (
            [
                {
                    "text": EMOJI,
                    "entities": [{"id": 0, "label": "PER", "start_offset": 1, "end_offset": 4}],
                    "relations": [],
                }
            ],
            {},
            IN_BYTES[:1],
        ),
        ([{"text": EMOJI, "labels": [[7, 10, "PER"]]}], {"unit": "grapheme"}, IN_BYTES[1:2]),
        (
            [
                {
                    "data": {"body": EMOJI, "text": "x"},
                    "annotations": [
                        {"result": [*LABEL_STUDIO, RELATION, CHOICE]},
                        {"result": [], "was_cancelled": True},
                    ],
                    "predictions": [{"result": LABEL_STUDIO[:1]}],
                },
                {"data": {"body": "skipped"}, "annotations": []},
            ],
            {"text_key": "body"},
            IN_BYTES,
        ),
        (
            [
                {
                    "text": EMOJI,
                    "first": [LABEL_STUDIO[0]["value"]],
                    "second": [LABEL_STUDIO[1]["value"]],
                    "annotation_id": 1,
                }
            ],
            {},
            IN_BYTES,
        ),
        ([{"text": EMOJI, "annotation_id": 1, "sentiment": "good"}], {}, ()),
        (
            [{"text": EMOJI, "spans": [{"start": 1, "end": 4, "label": "PER"}], "label": "A"}],
            {},
            IN_BYTES[:1],
        ),
    ],
)
def test_each_tool_has_its_unit(tmp_path, records, options, expected):
    """Code points in doccano, Prodigy and spaCy, and UTF-16 in Label Studio."""
    path = tmp_path / "export.json"
    for content in (json.dumps(records), "\n".join(map(json.dumps, records))):
        path.write_text(content)
        assert tokjax.corpus.read_annotations(path, **options) == [
            tokjax.corpus.AnnotatedText(EMOJI, expected)
        ]


def test_file_with_a_single_record(tmp_path):
    path = tmp_path / "train.jsonl"
    for record in (SPACY[0], to_prodigy("spans")[0], to_prodigy("ents")[0]):
        path.write_text(json.dumps(record))
        assert tokjax.corpus.read_annotations(path) == EXPECTED[:1]
        path.write_text("\n" + json.dumps(record, indent=2) + "\n")
        assert tokjax.corpus.read_annotations(path) == EXPECTED[:1]
    path.write_text("")
    assert tokjax.corpus.read_annotations(path) == []
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="unit must be"):
        tokjax.corpus.read_annotations(path, unit="utf8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a", "spans": []}\n{"text":', "line 2: not JSON"),
        ('[["a", {"entities": [[0, 2, "X"]]}]]', r"record 0: span 0 is \(0, 2\); it must keep"),
        ('[["a", {"entities": [[-1, -1, "X"]]}]]', "record 0: a span has a start, an end and a label"),
        ('{"text": "a", "spans": [{"start": 0, "end": 1}]}', "line 1: a span has .* None"),
        ('{"text": "a", "spans": [[0, 1, ""]]}', "line 1: a span has"),
        (
            '{"text": "ab cd", "spans": [[[0, 1], [1, 2], [3, 4], "X"]]}',
            r"line 1: .* discontinuous; .* \(0, 1, 'X'\), \(1, 2, 'X'\), \(3, 4, 'X'\)",
        ),
        ('{"text": "a"}', "line 1: the record has no list of 'entities', 'ents' or 'spans' .*, only"),
        ('{"text": "a", "spans": {"sc": []}}', "line 1: .* named groups of spans are not read"),
        ('{"text": "a", "spans": [], "ents": 3}', "line 1: the record has no list"),
        (
            '{"text": "ab", "spans": [[0, 1, "X"]], "ents": [[1, 2, "X"]]}',
            "line 1: the record has 'ents' and 'spans', which differ",
        ),
        ('[["a", {"entities": [[0, 1, "X", "Q1", 2]]}]]', "record 0: a span has"),
        ('{"annotations": [["a", {"entities": [[0, 2, "X"]]}]]}', "record 0: span 0 is"),
        ('{"annotations": 3}', "line 1: a record is"),
        ('{\n "text": "a",\n "spans": []\n]', "line 4: not JSON: .* at column 1"),
        ('[\r["a", {"entities": []}],\r["b",]\r]', "line 3: not JSON"),
        ('{"text": "a", spans: []}\n{"text": "a", "spans": []}', "line 1: not JSON"),
        ('\n{"text": "a", "spans": []}\n\n3}', "line 4: not JSON: Extra data at column 2"),
        ('{"spans": []}', "line 1: a record is"),
        ('["a", "b"]', "line 1: a record is"),
        ("[1]", "record 0: a record is"),
        ("3", "line 1: a record is"),
        ("null", "line 1: a record is"),
        (
            '{"data": {"body": "a"}, "annotations": []}',
            "line 1: a record is .* has another name, pass text_key=",
        ),
        ('{"data": {"text": "a"}, "annotations": [3]}', "line 1: a task of Label Studio has 'annotations'"),
        (
            (
                '{"data": {"text": "a"}, "annotations": [{"result": []}, '
                '{"result": [{"value": {"start": 0, "end": 1, "labels": ["X"]}}]}]}'
            ),
            "line 1: the record has 'annotation 0' and 'annotation 1', which differ",
        ),
        (
            '{"text": "💩a", "label": [{"start": 1, "end": 2, "labels": ["X"]}]}',
            "line 1: span 0 is .* inside a surrogate pair; .* unit='codepoint'",
        ),
        (
            '{"text": "a", "label": [{"start": 0, "end": 1, "labels": []}]}',
            r"line 1: a span has .* \[0, 1, \[\]\]",
        ),
    ],
)
def test_invalid_files_are_rejected(tmp_path, content, message):
    path = tmp_path / "train.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(tokjax.errors.SourceError, match=f"train.json, {message}"):
        tokjax.corpus.read_annotations(path)


def test_deeply_nested_and_huge_json_is_rejected(tmp_path):
    """Deeply nested lists, and a number of thousands of digits."""
    path, valid = tmp_path / "train.json", '{"text": "a", "spans": []}\n'
    nested = "[" * 300 + "]" * 300
    for content, message in [
        ("[" * 100_000, "line 1: JSON that can't be read: .*(recursion|Stack overflow)"),
        (valid + "[" * 100_000, "line 2: JSON that can't be read: .*(recursion|Stack overflow)"),
        (valid + "1" * 5000, "line 2: JSON that can't be read: .*digits"),
        (nested, r"record 0: a record is .*, not \[{7}\.\.\.\]{7}"),
        (f'["a", {{"entities": [{nested}]}}]', r"line 1: a span has .*, not \[{7}\.\.\.\]{7}"),
    ]:
        path.write_text(content)
        with pytest.raises(tokjax.errors.SourceError, match=f"train.json, {message}"):
            tokjax.corpus.read_annotations(path)


def test_spans_with_another_text(tmp_path):
    """Of another field of a task, or in another unit. A tool may trim whitespace."""
    value = {"start": 0, "end": 4, "text": "Kim", "labels": ["PER"]}
    result = [{"type": "labels", "to_name": "title", "value": value}]
    task = {"data": {"text": "Hello\nworld", "title": "Kim flew"}, "annotations": [{"result": result}]}
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([task]))
    assert tokjax.corpus.read_annotations(path, text_key="title")[0].spans == ((1, 5, "PER"),)
    assert tokjax.corpus.read_annotations(path)[0].spans == ()
    result[0] |= {"to_name": "text"}
    path.write_text(json.dumps([task]))
    with pytest.raises(
        tokjax.errors.SourceError,
        match="from 0 to 4 is 'Hell' in the text, and 'Kim' in the record; .*text_key",
    ):
        tokjax.corpus.read_annotations(path)
    value |= {"end": 11, "text": r"Hello\nworld"}  # as Label Studio writes line breaks
    path.write_text(json.dumps([task]))
    assert tokjax.corpus.read_annotations(path)[0].spans == ((1, 12, "PER"),)


def test_accepted_records_without_spans(tmp_path):
    """Prodigy leaves out an empty list."""
    path = tmp_path / "records.jsonl"
    path.write_text('{"text": "a", "answer": "accept"}\n{"text": "b", "answer": "reject"}')
    assert [text.spans for text in tokjax.corpus.read_annotations(path)] == [()]
