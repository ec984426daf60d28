"""Texts whose spans are labelled, from JSON of spaCy's kind."""

from __future__ import annotations

import json
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any

from tokjax.corpus.conll import AnnotatedText, read_lines
from tokjax.errors import InvalidArgumentError, OffsetsContractError, SourceError
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

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
