"""Files of labelled words and of labelled characters."""

import json

import pytest

import tokjax

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
German JJ B-NP I-MISC
Zoë NNP I-NP I-PER
Kim NNP I-NP B-PER

\t
Naïve JJ B-NP O
-DOCSTART- -X- -X- O

日本 NNP B-NP I-LOC
語 NNP I-NP I-LOC
"""


def test_conll(tmp_path):
    """IOB1, as the files of the shared task were."""
    path = tmp_path / "eng.train"
    path.write_text(CONLL_2003, encoding="utf-8")
    first, second, third = tokjax.read_conll(path)
    assert first.text == "EU rejects German Zoë Kim"
    assert first.words == ("EU", "rejects", "German", "Zoë", "Kim")
    assert first.tags == ("B-ORG", "O", "B-MISC", "B-PER", "B-PER")
    assert first.spans == ((1, 3, "ORG"), (12, 18, "MISC"), (19, 23, "PER"), (24, 27, "PER"))
    for start, stop, _ in first.spans:
        assert tokjax.try_span_substring(first.text, (start, stop)) in first.words
    assert second == tokjax.AnnotatedText("Naïve", (), ("Naïve",), ("O",))
    assert third.spans == ((1, 11, "LOC"),)
    assert tokjax.try_span_substring(third.text, third.spans[0][:2]) == "日本 語"
    documents = tokjax.read_conll(path, unit="document")
    assert [document.text for document in documents] == ["EU rejects German Zoë Kim Naïve", "日本 語"]
    chunks = tokjax.read_conll(path, tag_column=2)[0]
    assert chunks.tags == ("B-NP", "B-VP", "B-NP", "I-NP", "I-NP")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A B-A O I-B", "B-A I-A B-A O B-B"),  # IOB1
        ("B-A I-A B-A O B-B", "B-A I-A B-A O B-B"),  # IOB2
        ("B-A L-A U-A O U-B", "B-A I-A B-A O B-B"),  # BILOU
        ("B-A E-A S-A O S-B", "B-A I-A B-A O B-B"),  # BIOES
        ("I-A E-A E-A O E-B", "B-A I-A B-A O B-B"),  # IOE2
        ("I-A I-B I-B O I-B", "B-A B-B I-B O B-B"),
        ("I-A-B I-A O I-A_B B-A-B", "B-A-B B-A O B-A_B B-A-B"),
    ],
)
def test_schemes_of_conll(tmp_path, tags, expected):
    path = tmp_path / "words.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"New York\t{tag}\r\n" for tag in tags.split()).encode())
    [text] = tokjax.read_conll(path)
    assert " ".join(text.tags) == expected
    assert text.words == ("New York",) * 5


def test_comments_and_hashes(tmp_path):
    path = tmp_path / "wnut.conll"
    path.write_text("# id = 5\nNo B-A\n# O\n#\tO\n#1 B-A\n\u2028x O\n\n# the end")
    [text] = tokjax.read_conll(path)
    assert text.words == ("No", "#", "#", "#1", "\u2028x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a O\nb\n", r"words.conll, line 2: expected a word in column 0 and a tag .* of 2, not \['b'\]"),
        (b"a O\nb x O\n", r"line 2: .* of 2, not \['b', 'x', 'O'\]"),
        (b"\na PER\n", "line 2: .*pass word_column= and tag_column="),
        (b"\tO\n", "line 1: "),
        (b"a O\n\xff O\n", "line 2: not UTF-8"),
    ],
)
def test_conll_that_is_damaged(tmp_path, content, message):
    path = tmp_path / "words.conll"
    path.write_bytes(content)
    with pytest.raises(tokjax.SourceError, match=message):
        tokjax.read_conll(path)


def test_conll_options(tmp_path):
    path = tmp_path / "words.conll"
    path.write_text("")
    assert tokjax.read_conll(path) == []
    with pytest.raises(tokjax.InvalidArgumentError, match="unit must be"):
        tokjax.read_conll(path, unit="chapter")
    with pytest.raises(FileNotFoundError):
        tokjax.read_conll(tmp_path / "missing")


SPACY = [["Zoë lives in 東京 🗼", {"entities": [[0, 3, "PER"], [13, 15, "LOC"]]}], ["none", {"entities": []}]]
EXPECTED = [
    tokjax.AnnotatedText("Zoë lives in 東京 🗼", ((1, 5, "PER"), (15, 21, "LOC"))),
    tokjax.AnnotatedText("none", ()),
]


def as_prodigy(name):
    return [
        {"text": text, name: [dict(zip(("start", "end", "label"), s, strict=True)) for s in rest["entities"]]}
        for text, rest in SPACY
    ]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(SPACY),
        json.dumps(SPACY, ensure_ascii=False, indent=2),
        "\n".join(map(json.dumps, SPACY)),
        json.dumps(SPACY[0]) + "\n\n" + json.dumps(SPACY[1]) + "\n",
        json.dumps(as_prodigy("spans")),
        "\n".join(map(json.dumps, as_prodigy("entities"))),
        "\n".join(map(json.dumps, [*as_prodigy("spans"), {"text": "no", "spans": [], "answer": "reject"}])),
    ],
)
def test_spacy(tmp_path, content):
    path = tmp_path / "train.json"
    path.write_text(content, encoding="utf-8")
    assert tokjax.read_spacy(path) == EXPECTED


def test_one_record_of_spacy(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps(SPACY[0]))
    assert tokjax.read_spacy(path) == EXPECTED[:1]
    path.write_text("")
    assert tokjax.read_spacy(path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a", "spans": []}\n{"text":', "line 2: not JSON"),
        ('[["a", {"entities": [[0, 2, "X"]]}]]', r"record 0: span 0 is \(0, 2\); it must keep"),
        ('[["a", {"entities": [[-1, -1, "X"]]}]]', "record 0: a span has a start, an end and a label"),
        ('{"text": "a", "spans": [{"start": 0, "end": 1}]}', "line 1: a span has .* None"),
        ('{"text": "a", "spans": [[0, 1, ""]]}', "line 1: a span has"),
        ('{"text": "a"}', "line 1: the record has no list of 'spans' or 'entities'"),
        ('{"spans": []}', "line 1: a record is"),
        ('["a", "b"]', "line 1: a record is"),
        ("[1]", "record 0: a record is"),
        ("3", "line 1: a record is"),
    ],
)
def test_spacy_that_is_damaged(tmp_path, content, message):
    path = tmp_path / "train.json"
    path.write_text(content)
    with pytest.raises(tokjax.SourceError, match=f"train.json, {message}"):
        tokjax.read_spacy(path)


def test_from_file_to_labels_and_back(tmp_path, tokenizer):
    path = tmp_path / "words.conll"
    path.write_text(CONLL_2003, encoding="utf-8")
    texts = tokjax.read_conll(path)
    labels = sorted({label for text in texts for *_, label in text.spans})
    batch = tokjax.encode_batch_result(tokenizer, [text.text for text in texts])
    plain, spans = [text.text for text in texts], [text.spans for text in texts]
    aligned = tokjax.align_spans(batch, spans, labels=labels, texts=plain)
    read = tokjax.spans_from_labels(batch, aligned.labels, tokjax.TagSet(labels), texts=plain)
    assert read == [list(row) for row in spans]
