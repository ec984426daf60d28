"""Tests of `read_conll`: words and tags in columns."""

import pytest
from hypothesis import given, strategies as st

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


def test_sentences_and_documents_of_conll_2003(tmp_path):
    """The tags are IOB1, as in the files of the shared task."""
    path = tmp_path / "eng.train"
    path.write_text(CONLL_2003, encoding="utf-8")
    first, second, third = tokjax.corpus.read_conll(path)
    assert first.text == "EU rejects German Zoë Kim"
    assert first.words == ("EU", "rejects", "German", "Zoë", "Kim")
    assert first.tags == ("B-ORG", "O", "B-MISC", "B-PER", "B-PER")
    assert first.spans == ((1, 3, "ORG"), (12, 18, "MISC"), (19, 23, "PER"), (24, 27, "PER"))
    for start, stop, _ in first.spans:
        assert tokjax.try_span_substring(first.text, (start, stop)) in first.words
    assert second == tokjax.corpus.AnnotatedText("Naïve", (), ("Naïve",), ("O",))
    assert third.spans == ((1, 11, "LOC"),)
    assert tokjax.try_span_substring(third.text, third.spans[0][:2]) == "日本 語"
    documents = tokjax.corpus.read_conll(path, unit="document")
    assert [document.text for document in documents] == ["EU rejects German Zoë Kim Naïve", "日本 語"]
    chunks = tokjax.corpus.read_conll(path, tag_column=2)[0]
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
def test_tag_schemes_are_converted_to_bio(tmp_path, tags, expected):
    path = tmp_path / "words.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"New York\t{tag}\r\n" for tag in tags.split()).encode())
    [text] = tokjax.corpus.read_conll(path)
    assert " ".join(text.tags) == expected
    assert text.words == ("New York",) * 5


def test_rows_and_comments_that_start_with_a_hash(tmp_path):
    path = tmp_path / "wnut.conll"
    path.write_text("# id = 5\nNo B-A\n# O\n#\tO\n#1 B-A\n\u2028x O\n\n# the end")
    [text] = tokjax.corpus.read_conll(path)
    assert text.words == ("No", "#", "#", "#1", "\u2028x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a O\nb\n",
            r"words.conll, line 2: expected a word in column 0 and a tag .* of 2, as in line 1, not \['b'\]",
        ),
        (b"a O\nb x O\n", r"line 2: .* of 2, as in line 1, not \['b', 'x', 'O'\]"),
        (b"# a b O\n\nb x\n#c O\n", r"line 3: .* in column -1, not \['b', 'x'\]"),
        (b"a O\r\rb\r", r"line 3: .* not \['b'\]"),
        (b"a\tB-\t", "line 1: "),
        (b"a O\nb B\n", "line 2: the tag 'B' in column -1 has no label; a tag is 'O', or .* 'B-LABEL'"),
        (b"\na PER\n", "line 2: .*pass word_column= and tag_column="),
        (b"\tO\n", "line 1: "),
        (b"a O\n\xff O\n", "line 2: not UTF-8"),
        (b"a O\r\xff O\r", "line 2: not UTF-8"),
    ],
)
def test_invalid_files_are_rejected(tmp_path, content, message):
    path = tmp_path / "words.conll"
    path.write_bytes(content)
    with pytest.raises(tokjax.errors.SourceError, match=message):
        tokjax.corpus.read_conll(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_all_line_endings_are_read(tmp_path, end):
    path = tmp_path / "words.conll"
    path.write_bytes(end.join(["Zoe B-PER", "flew O", "", "to O", "Kim\x0bX\x85 B-PER", ""]).encode())
    first, second = tokjax.corpus.read_conll(path)
    assert (first.words, first.tags) == (("Zoe", "flew"), ("B-PER", "O"))
    assert first.spans == ((1, 4, "PER"),)
    assert second.words == ("to", "Kim\x0bX\x85")


@given(st.text("aO \t\r\n#", max_size=30))
def test_line_endings_give_equal_results(tmp_path_factory, content):
    """The result, or the error, does not depend on the line endings."""
    path = tmp_path_factory.getbasetemp() / "ends.conll"
    results = []
    for data in (content, content.replace("\r\n", "\n").replace("\r", "\n")):
        path.write_bytes(data.encode())
        try:
            results.append(tokjax.corpus.read_conll(path))
        except tokjax.errors.SourceError as error:
            results.append(str(error))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("# this is O\nZoe B-PER\n# O\n#4 B-X", "Zoe # #4"),
        ("# this is O\n\n# a row: O\na b O\n# as O", "a #"),
        ("# is O\n#\tis\tO\na\tb\tO\n# is O", "# a"),
        ("# is O\n-DOCSTART- -X- -X- O\n\nEU NNP O\n# is O", "# EU #"),
        ("#a O\n#b O\n# c d O", "#a #b"),
        ("#begin document (x); part 000\na b O\n#end document", "a"),
    ],
)
def test_comments_are_distinguished_by_a_later_row(tmp_path, content, words):
    """The first row that does not start with `#` decides, also for earlier lines."""
    path = tmp_path / "words.conll"
    path.write_text(content)
    texts = tokjax.corpus.read_conll(path)
    assert " ".join(word for text in texts for word in text.words) == words


def test_word_column_and_documents(tmp_path):
    path = tmp_path / "words.conll"
    path.write_text("1 -DOCSTART- O\n1 Zoe B-PER\n\n1 flew O\n1 -DOCSTART- O\n1 Kim B-PER\n")
    documents = tokjax.corpus.read_conll(path, word_column=1, unit="document")
    assert [document.text for document in documents] == ["Zoe flew", "Kim"]


def test_ranges_and_empty_nodes_of_conllu_are_left_out(tmp_path):
    path = tmp_path / "words.conllu"
    rows = ["# text = vámonos al mar", "1-2\tvámonos\t_", "1\tvamos\tO", "2\tnos\tB-PER", "2.1\te\tO"]
    path.write_text("\n".join([*rows, "3-4\tal\tO", "3\ta\tO", "4\tel\tI-X", ""]), encoding="utf-8")
    [text] = tokjax.corpus.read_conll(path, word_column=1)
    assert text.words == ("vamos", "nos", "a", "el")
    path.write_text("1-2 O\n1 O\n3.5 O\n")  # scores and numbers are words
    assert tokjax.corpus.read_conll(path)[0].words == ("1-2", "1", "3.5")
    path.write_text("2011-12 a O\n2011-12 b O\n")  # documents and not words have these ids
    assert tokjax.corpus.read_conll(path, word_column=1)[0].words == ("a", "b")


def test_labels_contain_spaces(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("-DOCSTART- O\n\nNew\tB-New York\nYork\tI-New York \nin\tO\n")
    [text] = tokjax.corpus.read_conll(path)
    assert text.tags == ("B-New York", "I-New York", "O")
    assert text.spans == ((1, 9, "New York"),)


def test_empty_files_and_invalid_options(tmp_path):
    path = tmp_path / "words.conll"
    path.write_text("")
    assert tokjax.corpus.read_conll(path) == []
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="unit must be"):
        tokjax.corpus.read_conll(path, unit="chapter")
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="word_column must be an integer, not 1.0"):
        tokjax.corpus.read_conll(path, word_column=1.0)
    with pytest.raises(tokjax.errors.InvalidArgumentError, match="tag_column must be an integer, not None"):
        tokjax.corpus.read_conll(path, tag_column=None)
    with pytest.raises(FileNotFoundError):
        tokjax.corpus.read_conll(tmp_path / "missing")


def test_spans_of_a_file_round_trip_through_labels(tmp_path, tokenizer):
    path = tmp_path / "words.conll"
    path.write_text(CONLL_2003, encoding="utf-8")
    texts = tokjax.corpus.read_conll(path)
    labels = sorted({label for text in texts for *_, label in text.spans})
    batch = tokjax.encode_batch_result(tokenizer, [text.text for text in texts])
    plain, spans = [text.text for text in texts], [text.spans for text in texts]
    aligned = tokjax.align.align_spans(batch, spans, labels=labels, texts=plain)
    decoded = tokjax.align.spans_from_labels(batch, aligned.labels, tokjax.align.TagSet(labels), texts=plain)
    assert decoded == [list(row) for row in spans]
