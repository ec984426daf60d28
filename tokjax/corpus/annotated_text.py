"""Annotated text for token classification: readers for CoNLL columns and for spaCy JSON."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shorten
from typing import TYPE_CHECKING, Any, Literal

from tokjax._util.checks import check_int
from tokjax._util.display import short_repr
from tokjax.core.utf8 import count_bytes
from tokjax.errors import InvalidArgumentError, OffsetsContractError, SourceError
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence


_TAG = re.compile(r"O|[BIELSU]-\S(.*\S)?")
_DOCUMENT_START = "-DOCSTART-"


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
    if unit not in ("sentence", "document"):
        raise InvalidArgumentError(f"unit must be 'sentence' or 'document', not {unit!r}")
    word_column = check_int("word_column", word_column)
    tag_column = check_int("tag_column", tag_column)
    texts: list[AnnotatedText] = []
    rows: list[tuple[str, str]] = []
    for word, tag in _iter_rows(Path(path), word_column, tag_column):
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
    for number, line in enumerate(path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines(), 1):
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
        if not is_row:
            width = f" of {len(first[2])}, as in line {first[0]}" if first and first[0] != number else ""
            raise SourceError(
                f"{path}, line {number}: expected a word in column {word_column} and a tag (such as 'O' or "
                f"'B-LABEL') in column {tag_column}{width}, not {columns}; pass word_column= and tag_column="
            )
        first = first or (number, line, columns)
        yield word, tag


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


_SPAN_KEYS = ("entities", "ents", "spans")


def read_spacy(path: str | os.PathLike[str]) -> list[AnnotatedText]:
    """Reads texts with labelled character spans from JSON, as written by spaCy and its annotation tools.

    The file is JSON lines, a list of records, a single record, or `{"annotations": [...]}` with a list of
    records. A record has one of these formats:

    - `[text, {"entities": [[start, end, label], ...]}]`, spaCy's training format;
    - `{"text": ..., "spans": [{"start": ..., "end": ..., "label": ...}, ...]}`, Prodigy's format;
    - `{"text": ..., "ents": [...], ...}`, the format of `Doc.to_json()`.

    Each format may use any of the three keys and either type of span. These parts are ignored: an identifier
    after the label of a span, named groups of spans, `{"spans": {name: [...]}}`, beside entities, records
    with an `"answer"` other than `"accept"`, and `null` in a list of records.

    Args:
        path: the path of a UTF-8 file. Its spans are 0-based half-open character positions.

    Returns:
        One `AnnotatedText` per record, its spans converted to 1-based byte positions.

    Raises:
        SourceError: a record has another format, or a span lies outside of its text; the error names the
            record.
    """
    return [
        _parse_annotated_text(record, location)
        for location, record in _iter_records(Path(path))
        if not (isinstance(record, dict) and record.get("answer", "accept") != "accept")
    ]


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
    if isinstance(document, dict) and "annotations" in document and "text" not in document:
        document = document["annotations"]
    if isinstance(document, list) and not (document and isinstance(document[0], str)):
        for index, record in enumerate(document):
            if record is not None:
                yield f"{path}, record {index}", record
    else:
        yield f"{path}, line {number}", document


def _parse_annotated_text(record: Any, location: str) -> AnnotatedText:
    text, spans = _parse_text_and_spans(record, location)
    try:
        byte_spans = char_to_byte_spans(text, [span[:2] for span in spans]).tolist()
    except (OffsetsContractError, InvalidArgumentError) as error:
        raise SourceError(f"{location}: {error}") from error
    labelled = [(start, stop, span[2]) for (start, stop), span in zip(byte_spans, spans, strict=True)]
    return AnnotatedText(text, tuple(labelled))


def _parse_text_and_spans(record: Any, location: str) -> tuple[str, list[tuple[int, int, str]]]:
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict):
        record = {**record[1], "text": record[0]}
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise SourceError(
            f"{location}: a record is [text, {{'entities': [...]}}] or {{'text': ..., 'spans': [...]}}, not "
            f"{shorten(record)}"
        )
    span_lists = {name: record[name] for name in _SPAN_KEYS if name in record}
    if len(span_lists) > 1 and isinstance(span_lists.get("spans"), dict):
        del span_lists["spans"]
    if not span_lists or not all(isinstance(spans, list) for spans in span_lists.values()):
        raise SourceError(
            f"{location}: the record has no list of 'entities', 'ents' or 'spans' (and named groups of spans "
            f"are not read), only {[*record]}"
        )
    labelled = {
        name: [_parse_span(span, location) for span in spans] for name, spans in span_lists.items() if spans
    }
    if len({tuple(sorted(spans)) for spans in labelled.values()}) > 1:
        names = " and ".join(map(repr, labelled))
        raise SourceError(f"{location}: the record has {names}, which differ; keep only one of them")
    return record["text"], next(iter(labelled.values()), [])


def _parse_span(span: Any, location: str) -> tuple[int, int, str]:
    if isinstance(span, dict):
        span = [span.get(key) for key in ("start", "end", "label")]
    match span:
        case [int(start), int(stop), str(label)] | [int(start), int(stop), str(label), _] if (
            label and start >= 0
        ):
            return start, stop, label
    raise SourceError(f"{location}: a span has a start, an end and a label, not {shorten(span)}")
