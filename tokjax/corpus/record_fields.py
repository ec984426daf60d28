"""Fields of records: lookup by name, and texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tokjax.errors import Hint, SourceError

if TYPE_CHECKING:
    from tokjax.core.utf8 import Text

NAME_THE_FIELD = Hint("pass text_files(PATH, field=NAME)", "pass --text-column NAME")


def drop_bad_records(items: Iterable[Text | SourceError], bad: list[SourceError] | None) -> Iterator[Text]:
    """Yields texts without the errors of bad records, which readers return in place of texts.

    Args:
        items: texts and errors.
        bad: the list to which the errors are appended; `None` to raise the first one.

    Raises:
        SourceError: a record is bad, and `bad` is `None`.
    """
    for item in items:
        if not isinstance(item, SourceError):
            yield item
        elif bad is None:
            raise item
        else:
            bad.append(item)


def find_field(record: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], str]:
    """Returns the mapping that has a field, and the key of the field in this mapping.

    If there is no such field, the mapping does not have the key. A field of null is null, as in tables.

    >>> find_field({"meta": {"text": "a"}}, "meta.text")
    ({'text': 'a'}, 'text')
    >>> find_field({"meta": None}, "meta.text")
    ({'text': None}, 'text')
    """
    while name not in record:
        first, _, rest = name.partition(".")
        inner = record.get(first)
        if rest and inner is None and first in record:
            return {rest: None}, rest
        if not rest or not isinstance(inner, Mapping):
            break
        record, name = inner, rest
    return record, name


def parse_json_record(line: bytes, location: str, hint: Hint) -> dict[str, Any] | SourceError:
    """Parses a JSON object. Returns an error if the text is not JSON, or not an object.

    Args:
        line: the JSON text.
        location: the location of the record, for errors.
        hint: the advice if the text is not JSON.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return SourceError(f"{location}: not JSON: {error}", hint=hint)
    if not isinstance(record, dict):
        return SourceError(
            f"{location}: a JSON object is expected, not a {type(record).__name__}; write one object per line"
        )
    return record


def find_text(
    record: Mapping[str, Any] | SourceError,
    field: str,
    location: str,
    types: tuple[type, ...] = (str,),
    hint: Hint = NAME_THE_FIELD,
) -> Any:
    """Returns the text of a record, or `None` if it is null; for a bad record an error.

    A record is bad if it is an error itself, has no such field, or if its value is not a text.

    Args:
        record: the record.
        field: the name of the text field.
        location: the location of the record, for errors.
        types: the types of texts.
        hint: the advice if there is no such field.
    """
    if isinstance(record, SourceError):
        return record
    holder, key = find_field(record, field)
    if key not in holder:
        return SourceError(
            f"{location}: the record has no field {field!r}, it has {list(record)[:20]}", hint=hint
        )
    text = holder[key]
    if text is not None and not isinstance(text, types):
        return SourceError(f"{location}: the field {field!r} is a {type(text).__name__}, not a string")
    return text
