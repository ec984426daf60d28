"""Texts whose words or spans are labelled, from files of CoNLL's kind and of spaCy's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokjax.errors import InvalidArgumentError, OffsetsContractError, SourceError
from tokjax.offsets import char_to_byte_spans
from tokjax.utf8 import nbytes_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

_TAG = re.compile(r"O|[BIELSU]-\S+")
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
    """Read words and their tags from columns, as in CoNLL-2003: a word a line, blank lines between sentences.

    Columns are split by tabs where a line has one, else by blanks. Tags may be of any of the usual schemes
    (IOB1, IOB2, IOE2, IO, BILOU, BIOES) and come out as BIO: a span begins where `B`, `S` or `U` says so,
    where the label changes, and after a span that ended with `E`, `L`, `S` or `U`. A line that begins with
    `#` and has no tag in its column is a comment.

    Args:
        path: a file of UTF-8.
        word_column: where the word is; negative numbers count from the end.
        tag_column: where its tag is.
        unit: whether a text is a sentence, or all that is between two `-DOCSTART-`s.

    Raises:
        SourceError: a line is no UTF-8, lacks a column, has fewer or more than those before it, or its tag is
            none; the error names the line.
    """
    if unit not in ("sentence", "document"):
        raise InvalidArgumentError(f"unit must be 'sentence' or 'document', not {unit!r}")
    texts: list[AnnotatedText] = []
    rows: list[tuple[str, str]] = []
    width = None
    for where, line in _lines(Path(path)):
        columns = _columns(line)
        starts_document = _column(columns, 0) == _DOCUMENT
        if starts_document or not any(columns):
            if rows and (starts_document or unit == "sentence"):
                texts.append(_tagged_text(rows))
                rows = []
            continue
        word, tag = (_column(columns, number) for number in (word_column, tag_column))
        if line.startswith("#") and not _TAG.fullmatch(tag):
            continue
        if not word or not _TAG.fullmatch(tag) or width not in (None, len(columns)):
            expected = "" if width is None else f" of {width}"
            raise SourceError(
                f"{where}: expected a word in column {word_column} and a tag ('O', 'B-LABEL' and the like) "
                f"in column {tag_column}{expected}, not {columns}; pass word_column= and tag_column="
            )
        width = len(columns)
        rows.append((word, tag))
    if rows:
        texts.append(_tagged_text(rows))
    return texts


def read_spacy(path: str | os.PathLike[str]) -> list[AnnotatedText]:
    """Read texts with labelled characters from JSON, as spaCy and Prodigy have them.

    The file is a list, or JSON lines, of `[text, {"entities": [[start, end, label], ...]}]` or of
    `{"text": ..., "spans": [{"start": ..., "end": ..., "label": ...}, ...]}`, whose spans may be called
    `"entities"` and be lists, too. Records with an `"answer"` other than `"accept"` are left out.

    Args:
        path: a file of UTF-8. Places in it are 0-based characters.

    Returns:
        A text a record, its spans in bytes.

    Raises:
        SourceError: a record is something else, or a span is no place in its text; the error names it.
    """
    texts = []
    for where, record in _records(Path(path)):
        if isinstance(record, dict) and record.get("answer", "accept") != "accept":
            continue
        text, spans = _text_and_spans(record, where)
        try:
            places = char_to_byte_spans(text, [span[:2] for span in spans]).tolist()
        except (OffsetsContractError, InvalidArgumentError) as error:
            raise SourceError(f"{where}: {error}") from error
        labelled = [(start, stop, span[2]) for (start, stop), span in zip(places, spans, strict=True)]
        texts.append(AnnotatedText(text, tuple(labelled)))
    return texts


def _tagged_text(rows: Sequence[tuple[str, str]]) -> AnnotatedText:
    """Words and their tags, of any scheme, as a text with spans and BIO tags."""
    tags: list[str] = []
    spans: list[tuple[int, int, str]] = []
    place, can_go_on, last = 1, False, ""
    for word, tag in rows:
        role, _, label = tag.partition("-")
        stop = place + nbytes_of(word)
        if role == "O":
            tags.append("O")
        elif role in "BSU" or not can_go_on or label != last:
            tags.append(f"B-{label}")
            spans.append((place, stop, label))
        else:
            tags.append(f"I-{label}")
            spans[-1] = (spans[-1][0], stop, label)
        place, can_go_on, last = stop + 1, role in "BI", label
    words = tuple(word for word, _ in rows)
    return AnnotatedText(" ".join(words), tuple(spans), words, tuple(tags))


def _columns(line: str) -> list[str]:
    if "\t" in line:
        return [part.strip(" ") for part in line.split("\t")]
    return [part for part in line.split(" ") if part]  # and not at other white space, which words may hold


def _column(columns: Sequence[str], number: int) -> str:
    return columns[number] if -len(columns) <= number < len(columns) else ""


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file, and what to call each in an error."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number}"
            try:
                yield where, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise SourceError(f"{where}: not UTF-8: {error}") from error


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """The records of a JSON list or of JSON lines, and what to call each in an error."""
    lines = [(where, line) for where, line in _lines(path) if line.strip()]
    try:
        whole = json.loads("\n".join(line for _, line in lines)) if lines else []
    except ValueError:
        whole = None
    if isinstance(whole, list) and not (whole and isinstance(whole[0], str)):
        yield from ((f"{path}, record {number}", record) for number, record in enumerate(whole))
        return
    for where, line in lines:
        try:
            yield where, json.loads(line)
        except ValueError as error:
            raise SourceError(f"{where}: not JSON: {error}") from error


def _text_and_spans(record: Any, where: str) -> tuple[str, list[tuple[int, int, str]]]:
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict):
        record = {"text": record[0], **record[1]}
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise SourceError(
            f"{where}: a record is [text, {{'entities': [...]}}] or {{'text': ..., 'spans': [...]}}, not "
            f"{record!r:.80}"
        )
    given = record.get("spans", record.get("entities"))
    if not isinstance(given, list):
        raise SourceError(f"{where}: the record has no list of 'spans' or 'entities', only {[*record]}")
    return record["text"], [_span(span, where) for span in given]


def _span(span: Any, where: str) -> tuple[int, int, str]:
    if isinstance(span, dict):
        span = [span.get(key) for key in ("start", "end", "label")]
    match span:
        case [int(start), int(stop), str(label)] if label and start >= 0:
            return start, stop, label
    raise SourceError(f"{where}: a span has a start, an end and a label, and not {span!r:.80}")
