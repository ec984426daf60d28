"""Texts whose spans are labelled, from JSON of spaCy's kind."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, Literal

from tokjax._util.checks import check_int
from tokjax.core.utf8 import count_bytes
from tokjax.errors import InvalidArgumentError, OffsetsContractError, SourceError
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence


_TAG = re.compile(r"O|[BIELSU]-\S(.*\S)?")
_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class AnnotatedText:
    """A text, and what is labelled in it.

    Attributes:
        text: the text.
        spans: `(start, stop, label)`, 1-based half-open bytes, in the order of the file.
        words: its words, where the file has words; `text` is these with blanks between them.
        tags: their tags, `O`, `B-LABEL` or `I-LABEL`, one for each word.
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
    r"""Read words and tags from columns, as in CoNLL-2003: a word a line, blank lines between sentences.

    Columns are split at tabs where a line has one, else at blanks; all rows have as many. Lines end with
    `\n`, `\r\n` or `\r`. Tags may be of any of the usual schemes (IOB1, IOB2, IOE2, IO, BILOU, BIOES) and
    come out as BIO: a span begins where `B`, `S` or `U` says so, where the label changes, and after a span
    that ended with `E`, `L`, `S` or `U`.

    A line that begins with `#` is a comment, unless it is like the first row that begins with something else:
    it has a tag in its column, as many columns, and tabs if that row has them. So among rows of two columns
    `# O` is a row, and `# this is O` is a comment.

    Args:
        path: a file of UTF-8.
        word_column: where the word is; negative numbers count from the end.
        tag_column: where its tag is.
        unit: whether a text is a sentence, or all that is between two `-DOCSTART-`s (in the first column, or
            where the word is).

    Raises:
        InvalidArgumentError: a column is no integer, or there is no such unit.
        SourceError: a line is no UTF-8, lacks a column, has fewer or more than the first row, or its tag is
            none; the error names the line.
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
        elif rows and (word == _DOCUMENT or unit == "sentence"):
            texts.append(_build_tagged_text(rows))
            rows = []
    if rows:
        texts.append(_build_tagged_text(rows))
    return texts


def read_lines(path: Path) -> list[str]:
    r"""The lines of a file of UTF-8, which end with `\n`, `\r\n` or `\r` and nothing else."""
    lines = []
    for number, line in enumerate(path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"{path}, line {number}: not UTF-8: {error}") from error
    return lines


def _iter_rows(path: Path, word_column: int, tag_column: int) -> Iterator[tuple[str, str]]:
    """Words and their tags; `-DOCSTART-` without a tag, and nothing at all for a blank line."""
    lines = [(number, line, _split_columns(line)) for number, line in enumerate(read_lines(path), 1)]
    plain = (
        line
        for line in lines
        if not line[1].startswith("#") and _find_sentence_end(line[2], word_column) is None
    )
    first = next(plain, None)
    for number, line, columns in lines:
        mark = _find_sentence_end(columns, word_column)
        if mark is not None:
            yield mark, ""
            continue
        word, tag = _get_column(columns, word_column), _get_column(columns, tag_column)
        is_row = word and _TAG.fullmatch(tag) and (first is None or len(columns) == len(first[2]))
        has_tabs = first is None or "\t" in line or "\t" not in first[1]
        if line.startswith("#") and not (is_row and has_tabs):
            continue
        if not is_row:
            of = f" of {len(first[2])}, as in line {first[0]}" if first and first[0] != number else ""
            raise SourceError(
                f"{path}, line {number}: expected a word in column {word_column} and a tag ('O', 'B-LABEL' "
                f"and the like) in column {tag_column}{of}, not {columns}; pass word_column= and tag_column="
            )
        first = first or (number, line, columns)
        yield word, tag


def _find_sentence_end(columns: Sequence[str], word_column: int) -> str | None:
    """What a line ends a sentence with, `-DOCSTART-` or nothing at all; `None` where it does not."""
    if _DOCUMENT in (_get_column(columns, 0), _get_column(columns, word_column)):
        return _DOCUMENT
    return None if any(columns) else ""


def _split_columns(line: str) -> list[str]:
    if "\t" in line:
        return [part.strip(" ") for part in line.split("\t")]
    return [part for part in line.split(" ") if part]  # and not at other white space, which words may hold


def _get_column(columns: Sequence[str], number: int) -> str:
    return columns[number] if -len(columns) <= number < len(columns) else ""


def _build_tagged_text(rows: Sequence[tuple[str, str]]) -> AnnotatedText:
    """Words and their tags, of any scheme, as a text with spans and BIO tags."""
    tags: list[str] = []
    spans: list[tuple[int, int, str]] = []
    position, can_continue, last = 1, False, ""
    for word, tag in rows:
        role, _, label = tag.partition("-")
        stop = position + count_bytes(word)
        if role == "O":
            tags.append("O")
        elif role in "BSU" or not can_continue or label != last:
            tags.append(f"B-{label}")
            spans.append((position, stop, label))
        else:
            tags.append(f"I-{label}")
            spans[-1] = (spans[-1][0], stop, label)
        position, can_continue, last = stop + 1, role in "BI", label
    words = tuple(word for word, _ in rows)
    return AnnotatedText(" ".join(words), tuple(spans), words, tuple(tags))


_SPAN_KEYS = ("entities", "ents", "spans")


def read_spacy(path: str | os.PathLike[str]) -> list[AnnotatedText]:
    """Read texts with labelled characters from JSON, as spaCy and its annotators have them.

    The file is JSON lines, a list, one record, or `{"annotations": [...]}` with a list in it. Records are

    - `[text, {"entities": [[start, end, label], ...]}]`;
    - `{"text": ..., "spans": [{"start": ..., "end": ..., "label": ...}, ...]}`, as Prodigy has them;
    - `{"text": ..., "ents": [...], ...}`, as `Doc.to_json()` gives them.

    Either name and either kind of span may be in any of them, and a span may have an identifier after its
    label, which is not read; nor are spans in named groups, `{"spans": {name: [...]}}`, beside entities. Left
    out are records with an `"answer"` other than `"accept"`, and each `null` in a list.

    Args:
        path: a file of UTF-8. Places in it are 0-based characters.

    Returns:
        A text a record, its spans in bytes.

    Raises:
        SourceError: a record is something else, or a span is no place in its text; the error names it.
    """
    return [
        _parse_annotated_text(record, where)
        for where, record in _iter_records(Path(path))
        if not (isinstance(record, dict) and record.get("answer", "accept") != "accept")
    ]


def _iter_records(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of a file, and what to call each in an error."""
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
    """What lines say together, of which the first has this number."""
    try:
        return json.loads("\n".join(lines))
    except json.JSONDecodeError as error:
        position = f"line {number + error.lineno - 1}"
        raise SourceError(f"{path}, {position}: not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; lists in lists in lists
        raise SourceError(f"{path}, line {number}: JSON that can't be read: {error}") from error


def _iter_document_records(document: Any, path: Path, number: int) -> Iterator[tuple[str, Any]]:
    """The records of one JSON value, which begins in the line of that number."""
    if isinstance(document, dict) and "annotations" in document and "text" not in document:
        document = document["annotations"]
    if isinstance(document, list) and not (document and isinstance(document[0], str)):
        for position, record in enumerate(document):
            if record is not None:
                yield f"{path}, record {position}", record
    else:
        yield f"{path}, line {number}", document


def _parse_annotated_text(record: Any, where: str) -> AnnotatedText:
    text, spans = _parse_text_and_spans(record, where)
    try:
        byte_spans = char_to_byte_spans(text, [span[:2] for span in spans]).tolist()
    except (OffsetsContractError, InvalidArgumentError) as error:
        raise SourceError(f"{where}: {error}") from error
    labelled = [(start, stop, span[2]) for (start, stop), span in zip(byte_spans, spans, strict=True)]
    return AnnotatedText(text, tuple(labelled))


def _parse_text_and_spans(record: Any, where: str) -> tuple[str, list[tuple[int, int, str]]]:
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict):
        record = {**record[1], "text": record[0]}
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise SourceError(
            f"{where}: a record is [text, {{'entities': [...]}}] or {{'text': ..., 'spans': [...]}}, not "
            f"{shortened(record)}"
        )
    span_lists = {name: record[name] for name in _SPAN_KEYS if name in record}
    if len(span_lists) > 1 and isinstance(span_lists.get("spans"), dict):
        del span_lists["spans"]
    if not span_lists or not all(isinstance(spans, list) for spans in span_lists.values()):
        raise SourceError(
            f"{where}: the record has no list of 'entities', 'ents' or 'spans' (and named groups of spans "
            f"are not read), only {[*record]}"
        )
    labelled = {
        name: [_parse_span(span, where) for span in spans] for name, spans in span_lists.items() if spans
    }
    if len({tuple(sorted(spans)) for spans in labelled.values()}) > 1:
        names = " and ".join(map(repr, labelled))
        raise SourceError(f"{where}: the record has {names}, which differ; keep those that are meant")
    return record["text"], next(iter(labelled.values()), [])


def _parse_span(span: Any, where: str) -> tuple[int, int, str]:
    if isinstance(span, dict):
        span = [span.get(key) for key in ("start", "end", "label")]
    match span:
        case [int(start), int(stop), str(label)] | [int(start), int(stop), str(label), _] if (
            label and start >= 0
        ):
            return start, stop, label
    raise SourceError(f"{where}: a span has a start, an end and a label, and not {shortened(span)}")
