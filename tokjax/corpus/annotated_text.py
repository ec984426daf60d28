"""Annotated text for token classification: readers for CoNLL columns and for the JSON of annotation tools."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from reprlib import repr as shorten
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax._util.atomic_files import check_path
from tokjax._util.checks import check_choice, check_int
from tokjax._util.display import short_repr
from tokjax.align.character_spans import UNITS, unit_to_byte_spans
from tokjax.align.spans import describe_parts
from tokjax.core.utf8 import count_bytes
from tokjax.corpus.decompression import open_source
from tokjax.errors import OffsetsContractError, SourceError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokjax.align.character_spans import Unit


_TAG = re.compile(r"O|[BIELSU]-\S(.*\S)?")
_TAG_WITHOUT_LABEL = re.compile(r"[BIELSU]-?")
_DOCUMENT_START = "-DOCSTART-"
_RANGE_OR_EMPTY_NODE = re.compile(r"\d+[-.]\d+")
"""Ids of CoNLL-U for a range of words, and for a word that is not in the text."""


@short_repr
@dataclass(frozen=True)
class AnnotatedText:
    """A text with labelled spans.

    Attributes:
        text: the text.
        spans: labelled spans `(start, stop, label)`, 1-based half-open UTF-8 byte positions, in the order of
            the file.
        words: the words of the text if the file has words, else empty; `text` is the words joined by spaces.
        tags: one BIO tag per word: `O`, `B-LABEL` or `I-LABEL`.
    """

    text: str
    spans: tuple[tuple[int, int, str], ...]
    words: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def read_conll(
    path: str | os.PathLike[str],
    *,
    word_column: int = 0,
    tag_column: int = -1,
    unit: Literal["sentence", "document"] = "sentence",
) -> list[AnnotatedText]:
    r"""Reads words and tags from columns, as in CoNLL-2003: one word per line, empty lines between sentences.

    Columns are separated by tabs if the line contains a tab, else by spaces. All rows have the same number of
    columns. Lines end with `\n`, `\r\n` or `\r`.

    Tags may use any of the common schemes (IOB1, IOB2, IOE2, IO, BILOU, BIOES). They are converted to BIO: a
    span starts at `B`, `S` or `U`, where the label changes, and after a span that ended with `E`, `L`, `S` or
    `U`.

    A line that starts with `#` is a comment, unless it has the format of a row: a tag in the tag column, the
    same number of columns as the first row that does not start with `#`, and tabs if that row has tabs. For
    example, among rows of two columns `# O` is a row, and `# this is O` is a comment.

    In CoNLL-U, whose first column numbers the words, ranges such as `1-2` and empty nodes such as `8.1` are
    left out. They are recognized if neither the word nor the tag is in the first column, and a row has the
    number `1` there.

    Args:
        path: the path of a UTF-8 file.
        word_column: the 0-based index of the column with the word; negative indices count from the end.
        tag_column: the index of the column with the tag, in the same convention.
        unit: the unit that becomes one text: a sentence, or the document between two `-DOCSTART-` lines
            (with the marker in the first column or in the word column).

    Returns:
        One `AnnotatedText` per sentence or document, in the order of the file.

    Raises:
        InvalidArgumentError: a column is not an integer, or the unit is unknown.
        SourceError: a line is not valid UTF-8, has another number of columns than the first row, or has no
            word or no valid tag; the error names the line.
    """
    check_choice("unit", unit, ("sentence", "document"))
    word_column = check_int("word_column", word_column)
    tag_column = check_int("tag_column", tag_column)
    texts: list[AnnotatedText] = []
    rows: list[tuple[str, str]] = []
    for word, tag in _iter_rows(check_path(path), word_column, tag_column):
        if tag:
            rows.append((word, tag))
        elif rows and (word == _DOCUMENT_START or unit == "sentence"):
            texts.append(_build_tagged_text(rows))
            rows = []
    if rows:
        texts.append(_build_tagged_text(rows))
    return texts


def read_lines(path: Path) -> list[str]:
    r"""Returns the lines of a UTF-8 file without their ends.

    Only `\n`, `\r\n` and `\r` end a line: splitting a `str` would also split at characters such as U+2028.
    """
    lines = []
    with open_source(path) as file:
        data = file.read()
    for number, line in enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"{path}, line {number}: not UTF-8: {error}") from error
    return lines


def _iter_rows(path: Path, word_column: int, tag_column: int) -> Iterator[tuple[str, str]]:
    """Yields `(word, tag)` for each row; the tag is `""` at the end of a sentence or document.

    The word is then `-DOCSTART-` at the start of a document, and `""` for an empty line.
    """
    lines = [(number, line, _split_columns(line)) for number, line in enumerate(read_lines(path), 1)]
    if any(columns[:1] == ["1"] for *_, columns in lines):
        lines = [line for line in lines if not _is_range_or_empty_node(line[2], word_column, tag_column)]
    # The first row that can't be a comment decides how rows look, for all lines that start with "#".
    rows_without_hash = (
        line
        for line in lines
        if not line[1].startswith("#") and _find_separator(line[2], word_column) is None
    )
    first = next(rows_without_hash, None)
    for number, line, columns in lines:
        separator = _find_separator(columns, word_column)
        if separator is not None:
            yield separator, ""
            continue
        word, tag = _get_column(columns, word_column), _get_column(columns, tag_column)
        is_row = word and _TAG.fullmatch(tag) and (first is None or len(columns) == len(first[2]))
        has_tabs = first is None or "\t" in line or "\t" not in first[1]
        if line.startswith("#") and not (is_row and has_tabs):
            continue
        if _TAG_WITHOUT_LABEL.fullmatch(tag):
            raise SourceError(
                f"{path}, line {number}: the tag {tag!r} in column {tag_column} has no label; a tag is "
                "'O', or a prefix with a label, such as 'B-LABEL'"
            )
        if not is_row:
            width = f" of {len(first[2])}, as in line {first[0]}" if first and first[0] != number else ""
            raise SourceError(
                f"{path}, line {number}: expected a word in column {word_column} and a tag (such as 'O' or "
                f"'B-LABEL') in column {tag_column}{width}, not {columns}; pass word_column= and tag_column="
            )
        first = first or (number, line, columns)
        yield word, tag


def _is_range_or_empty_node(columns: Sequence[str], word_column: int, tag_column: int) -> bool:
    """Returns whether the first column is an id of CoNLL-U, and not one of a word."""
    is_id_column = columns and 0 not in (word_column % len(columns), tag_column % len(columns))
    return bool(is_id_column and _RANGE_OR_EMPTY_NODE.fullmatch(columns[0]))


def _find_separator(columns: Sequence[str], word_column: int) -> str | None:
    """Returns `-DOCSTART-` for the start of a document, `""` for an empty line, `None` for other lines."""
    if _DOCUMENT_START in (_get_column(columns, 0), _get_column(columns, word_column)):
        return _DOCUMENT_START
    return None if any(columns) else ""


def _split_columns(line: str) -> list[str]:
    if "\t" in line:
        return [part.strip(" ") for part in line.split("\t")]
    return [part for part in line.split(" ") if part]  # not at other whitespace, which words may contain


def _get_column(columns: Sequence[str], index: int) -> str:
    return columns[index] if -len(columns) <= index < len(columns) else ""


def _build_tagged_text(rows: Sequence[tuple[str, str]]) -> AnnotatedText:
    """Joins words to a text, and converts their tags of any scheme to spans and BIO tags.

    For example:

        words       EU      rejects   German   call
        tags        S-ORG   O         B-MISC   E-MISC
        BIO tags    B-ORG   O         B-MISC   I-MISC
        spans       (1, 3, "ORG")     (12, 23, "MISC")
    """
    tags: list[str] = []
    spans: list[tuple[int, int, str]] = []
    start, can_continue, previous_label = 1, False, ""
    for word, tag in rows:
        prefix, _, label = tag.partition("-")
        stop = start + count_bytes(word)
        if prefix == "O":
            tags.append("O")
        elif prefix in "BSU" or not can_continue or label != previous_label:
            tags.append(f"B-{label}")
            spans.append((start, stop, label))
        else:
            tags.append(f"I-{label}")
            spans[-1] = (spans[-1][0], stop, label)
        start, can_continue, previous_label = stop + 1, prefix in "BI", label
    words = tuple(word for word, _ in rows)
    return AnnotatedText(" ".join(words), tuple(spans), words, tuple(tags))


_SPAN_KEYS = ("entities", "ents", "spans", "label", "labels")


def read_annotations(
    path: str | os.PathLike[str], *, unit: Unit | None = None, text_key: str = "text"
) -> list[AnnotatedText]:
    """Reads texts with labelled spans from the JSON that annotation tools export.

    The file is JSON lines, a list of records, a single record, or `{"annotations": [...]}` with a list of
    records. A record has one of these formats, and its spans count characters in the unit of its tool:

    - spaCy and Prodigy (code points): `[text, {"entities": [[start, end, label], ...]}]`, or `"text"` with
      `"ents"` (`Doc.to_json()`) or `"spans"`, lists of `{"start": ..., "end": ..., "label": ...}`;
    - doccano (code points, or graphemes in projects that count them: pass `unit="grapheme"`): `"text"` with
      `"label"` or `"labels"`, a list of `[start, end, label]`, or with `"entities"`, a list of
      `{"start_offset": ..., "end_offset": ..., "label": ...}`;
    - Label Studio (UTF-16), JSON: `"data"` with the text, and `"annotations"`. Spans are the values of their
      results, `{"start": ..., "end": ..., "labels": [...]}`. If a task has several annotations, they must
      have the same spans. A task without annotations is skipped;
    - Label Studio (UTF-16), JSON_MIN: `"text"` and lists of such values.

    A span with several labels becomes several spans. These parts are ignored: an identifier after the label
    of a span, named groups of spans, `{"spans": {name: [...]}}`, beside entities, records with an `"answer"`
    other than `"accept"`, `null` in a list of records, and in tasks of Label Studio predictions, cancelled
    annotations, results that are not labels, and those whose `"to_name"` is another text of the task.

    Args:
        path: the path of a UTF-8 file.
        unit: the unit of the positions, as in `spans_from_characters`; `None` for that of the tool.
        text_key: the name of the text in a record, or in the `"data"` of a task of Label Studio.

    Returns:
        One `AnnotatedText` per record, its spans converted to 1-based byte positions.

    Raises:
        InvalidArgumentError: the unit is unknown.
        SourceError: a record has another format, has lists of spans or annotations that differ, or a span
            lies outside of its text, begins or ends inside a character, or has another text than the record
            states; the error names the record.
    """
    check_choice("unit", unit, (*UNITS, None))
    texts = []
    for location, record in _iter_records(check_path(path)):
        parsed = _parse_record(record, location, text_key)
        if parsed is not None:
            texts.append(_build_annotated_text(parsed, unit or parsed.unit, location))
    return texts


class _Record(NamedTuple):
    """A text, spans whose positions count characters in a unit, and texts that the record has for spans."""

    text: str
    spans: list[tuple[int, int, str]]
    unit: Unit
    quotes: list[tuple[int, int, str]]


def _iter_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields `(location, record)` for each record of a file; the location names the record in errors."""
    lines = read_lines(path)
    nonempty_lines = [number for number, line in enumerate(lines, 1) if line.strip()]
    if len(nonempty_lines) > 1 and _is_json(lines[nonempty_lines[0] - 1]):
        for number in nonempty_lines:
            yield f"{path}, line {number}", _parse_json(path, lines[number - 1 : number], number)
    elif nonempty_lines:
        yield from _iter_document_records(_parse_json(path, lines, 1), path, nonempty_lines[0])


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _parse_json(path: Path, lines: list[str], number: int) -> Any:
    """Parses lines as one JSON value; `number` is the 1-based number of the first line, for errors."""
    try:
        return json.loads("\n".join(lines))
    except json.JSONDecodeError as error:
        line = f"line {number + error.lineno - 1}"
        raise SourceError(f"{path}, {line}: not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; deeply nested lists
        raise SourceError(f"{path}, line {number}: JSON that can't be read: {error}") from error


def _iter_document_records(document: Any, path: Path, number: int) -> Iterator[tuple[str, Any]]:
    """Yields `(location, record)` for each record of a JSON value that starts in line `number`."""
    if isinstance(document, dict) and document.keys() & {"annotations", "text", "data"} == {"annotations"}:
        document = document["annotations"]
    if isinstance(document, list) and not (document and isinstance(document[0], str)):
        for index, record in enumerate(document):
            if record is not None:
                yield f"{path}, record {index}", record
    else:
        yield f"{path}, line {number}", document


def _build_annotated_text(record: _Record, unit: Unit, location: str) -> AnnotatedText:
    try:
        byte_spans = unit_to_byte_spans(record.text, [span[:2] for span in record.spans], unit).tolist()
        quoted_spans = unit_to_byte_spans(record.text, [quote[:2] for quote in record.quotes], unit).tolist()
    except (OffsetsContractError, OverflowError) as error:
        raise SourceError(f"{location}: {error}") from error
    for (start, stop), quote in zip(quoted_spans, record.quotes, strict=True):
        found = record.text.encode()[start - 1 : stop - 1].decode()
        if _get_words(found) != _get_words(quote[2]):
            raise SourceError(
                f"{location}: the span from {quote[0]} to {quote[1]} is {found!r:.80} in the text, and "
                f"{quote[2]!r:.80} in the record; it may be one of another text (pass text_key=), or count "
                "characters in another unit (pass unit=)"
            )
    spans = [(*pair, span[2]) for pair, span in zip(byte_spans, record.spans, strict=True)]
    return AnnotatedText(record.text, tuple(spans))


def _get_words(text: str) -> list[str]:
    r"""Returns the words of a span's text; tools trim it, and Label Studio writes line breaks as `\n`."""
    return text.replace("\\n", " ").split()


def _parse_record(record: Any, location: str, text_key: str) -> _Record | None:
    """Returns the text and the spans of a record, or `None` for a record without an accepted annotation."""
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict):
        record = {**record[1], text_key: record[0]}
    is_task = isinstance(record, dict) and isinstance(record.get("data"), dict)
    fields = record["data"] if is_task else record
    if isinstance(record, dict) and record.get("answer", "accept") != "accept":
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get(text_key), str):
        raise SourceError(
            f"{location}: a record is [text, {{'entities': [...]}}], {{{text_key!r}: ..., 'spans': [...]}} "
            f"or another format of read_annotations, not {shorten(record)}; if its text has another name, "
            "pass text_key="
        )
    unit: Unit = "utf16"
    if is_task:
        lists = _find_task_lists(record, location, text_key)
    else:
        lists = _find_label_studio_lists(record)
        if not lists:
            unit, lists = "codepoint", _find_span_lists(record, location)
    if not lists:
        return None
    parsed = {
        name: [each for span in spans for each in _parse_span(span, location)]
        for name, spans in lists.items()
        if spans or is_task
    }
    if len({tuple(sorted(spans)) for spans in parsed.values()}) > 1:
        names = " and ".join(map(repr, parsed))
        raise SourceError(f"{location}: the record has {names}, which differ; keep only one of them")
    with_text = [span for spans in lists.values() for span in spans if isinstance(span, dict)]
    quotes = [
        (*_parse_span(span, location)[0][:2], span["text"])
        for span in with_text
        if span.get("text") and isinstance(span["text"], str)
    ]
    return _Record(fields[text_key], next(iter(parsed.values()), []), unit, quotes)


def _find_task_lists(task: dict[str, Any], location: str, text_key: str) -> dict[str, list[Any]]:
    """Returns the spans of each annotation of a task of Label Studio, which are made by different people."""
    lists = {}
    other_texts = [key for key, value in task["data"].items() if key != text_key and isinstance(value, str)]
    try:
        for index, annotation in enumerate(task["annotations"]):
            if not annotation.get("was_cancelled"):
                results = [
                    item
                    for item in annotation["result"]
                    if item.get("type", "labels").endswith("labels")
                    and item.get("to_name") not in other_texts
                ]
                lists[f"annotation {index}"] = [item["value"] for item in results]
    except (AttributeError, KeyError, TypeError):
        raise SourceError(
            f"{location}: a task of Label Studio has 'annotations' with a 'result', a list of {{'type': "
            f"'labels', 'value': ...}}, not {shorten(task.get('annotations'))}; export it as JSON or JSON_MIN"
        ) from None
    return lists


def _find_label_studio_lists(record: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns the spans of a record of JSON_MIN, whose lists have the names of the tags that made them."""
    lists = [value for value in record.values() if isinstance(value, list)]
    spans = [span for spans in lists for span in spans if isinstance(span, dict) and "labels" in span]
    return {"labels": spans} if spans or "annotation_id" in record else {}


def _find_span_lists(record: dict[str, Any], location: str) -> dict[str, list[Any]]:
    """Returns the lists of spans of a record of spaCy, Prodigy or doccano; all must have the same spans."""
    lists = {name: record[name] for name in _SPAN_KEYS if name in record}
    for name in ("label", "labels"):  # also the class of a text, in some records beside its spans
        if len(lists) > 1 and not _is_list_of_lists(lists.get(name)):
            lists.pop(name, None)
    if len(lists) > 1 and isinstance(lists.get("spans"), dict):
        del lists["spans"]
    if not lists and "answer" in record:  # Prodigy leaves out an empty list
        lists = {"spans": []}
    if not lists or not all(isinstance(spans, list) for spans in lists.values()):
        raise SourceError(
            f"{location}: the record has no list of 'entities', 'ents' or 'spans' (or doccano's 'label'; "
            f"named groups of spans are not read), only {[*record]}"
        )
    return lists


def _is_list_of_lists(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, list) for each in value)


def _parse_span(span: Any, location: str) -> list[tuple[int, int, str]]:
    """Returns a span once for each of its labels."""
    values = span
    if isinstance(span, dict):
        keys = ("start_offset", "end_offset") if "start_offset" in span else ("start", "end")
        values = [*map(span.get, keys), span.get("labels", span.get("label"))]
    match values:
        case [int(start), int(stop), label] | [int(start), int(stop), label, _] if start >= 0:
            labels = label if isinstance(label, list) and isinstance(span, dict) else [label]
            if labels and all(isinstance(each, str) and each for each in labels):
                return [(start, stop, each) for each in labels]
    problem = describe_parts(span) if isinstance(span, list) else None
    problem = problem or f"a span has a start, an end and a label, not {shorten(values)}"
    raise SourceError(f"{location}: {problem}")
