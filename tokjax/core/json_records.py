r"""Records as JSON values, and back: tokenizers with the vocabularies, templates and normalizers in them.

A record is written as the arguments of the function that makes and checks it, without those that have their
default value. A tokenizer also has the name of its model:

    with_dropout(byte_level_bpe(...), dropout=0.1, seed=1)
    {"model": "byte_level_bpe", "vocabulary": {...}, "pattern": "gpt2", "dropout": [0.1, 1]}

A tuple is a list, also a named tuple, and a mapping is an object. Bytes are text in UTF-8. In it, each byte
that is not valid is a lone surrogate (`surrogateescape`), so all bytes are read back as they were. A mapping
of tokens to ids is written as lists of tokens with consecutive ids, by the first of these ids:

    {b"a": 0, b"b": 1, b"\xff": 7}
    {"0": ["a", "b"], "7": ["\udcff"]}

The annotations of the arguments say how JSON values are read. Since a vocabulary has 100,000 tokens, all
values of the same type are read together, such as the first tokens of all merges.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from inspect import formatannotation
from itertools import chain, islice, pairwise
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tokjax.errors import TokenizerFormatError

Maker = TypeVar("Maker", bound=Callable[..., Any])
_JSON_TYPES: Mapping[Any, type] = {bytes: str, Sequence: list, Mapping: dict}
_CHOICES: Mapping[Any, tuple[Any, ...]] = {bool: (True, False), NoneType: (None,)}
_SCALARS = (str, int, float, bool, NoneType, list, dict)
"""Types of Python that JSON values have."""


_forms: dict[type, tuple[Callable[..., Any], Callable[[Any], Mapping[str, Any]]]] = {}
"""Function that makes a record of arguments, and function that returns their values by name, by type."""


def register_record(
    kind: type | None = None, define: Callable[[Any], Mapping[str, Any]] = vars
) -> Callable[[Maker], Maker]:
    """Decorates the function that makes records of a type, or the type itself, so that they can be saved.

    Args:
        kind: type of the records; `None` for a class, which makes them itself.
        define: function that returns the arguments of which a record can be made again, by name. By default,
            these are the attributes of the record.
    """

    def register(make: Maker) -> Maker:
        _forms[kind or make] = make, define  # type: ignore[index]
        return make

    return register


def get_models() -> dict[str, type]:
    """Returns the names and types of the tokenizers that have been registered."""
    return {kind.model: kind for kind in _forms if hasattr(kind, "model")}


def is_record(value: object) -> bool:
    """Returns whether a value is a record of a registered type, or of a type derived from one."""
    return any(kind in _forms for kind in type(value).__mro__)


def to_json_values(value: Any) -> Any:
    """Converts a record, a mapping or bytes to values of JSON: the `default` of `json.dumps`."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, Mapping):
        return _group_tokens(value) if value and isinstance(next(iter(value)), bytes) else dict(value)
    make, define = _get_form(type(value))
    parameters = inspect.signature(make).parameters.values()
    arguments = define(value)
    changed = {each.name: arguments[each.name] for each in parameters if arguments[each.name] != each.default}
    return {"model": value.model} | changed if hasattr(value, "model") else changed


def read_record(kind: type, values: Mapping[str, Any]) -> Any:
    """Makes a record from the JSON values that it was written as.

    Raises:
        TokenizerFormatError: a field is missing or unknown, or has a value of the wrong type.
        InvalidArgumentError: a value is invalid.
    """
    _check_all(kind, [values])
    make, _ = _get_form(kind)
    parameters, hints = inspect.signature(make).parameters, get_hints(make)
    missing = [name for name, each in parameters.items() if name not in values and each.default is each.empty]
    if missing:
        raise TokenizerFormatError(f"the field {missing[0]!r} is missing")
    fields = {}
    for name, value in values.items():
        if name == "model" and hasattr(kind, "model"):
            continue
        if name not in parameters:
            raise TokenizerFormatError(f"unknown field {name!r}; the fields are {', '.join(parameters)}")
        try:
            [fields[name]] = _read_all(hints[name], [value])
        except TokenizerFormatError as error:
            raise TokenizerFormatError(f"{name}: {error}") from error
    return make(**fields)


def _get_form(kind: type) -> tuple[Callable[..., Any], Callable[[Any], Mapping[str, Any]]]:
    """Returns the form of a type, or of the type that it is derived from. A dataclass makes itself."""
    kind = next((each for each in kind.__mro__ if each in _forms or is_dataclass(each)), kind)
    return _forms.get(kind, (kind, vars))


def _group_tokens(ids: Mapping[bytes, int]) -> dict[str, list[bytes]]:
    """Returns lists of tokens with consecutive ids, by the first of these ids."""
    tokens = sorted(ids, key=ids.__getitem__)
    starts = [i for i, token in enumerate(tokens) if not i or ids[token] != ids[tokens[i - 1]] + 1]
    return {str(ids[tokens[start]]): tokens[start:stop] for start, stop in pairwise([*starts, len(tokens)])}


@lru_cache
def get_hints(make: Callable[..., Any]) -> dict[str, Any]:
    """Returns the types of the arguments of a function, or of the fields of a dataclass.

    A derived dataclass has the fields of its base types, with annotations in the names of their modules.
    """
    if not is_dataclass(make):
        return get_type_hints(make)
    names: dict[str, Any] = {}
    for kind in reversed(make.__mro__):
        names |= vars(sys.modules[kind.__module__])
    return get_type_hints(make.__init__, names)


def list_choices(hint: Any) -> tuple[Any, ...]:
    """Returns all values of a type that is made of names, `bool` and `None`; `()` for other types.

    >>> list_choices(Literal["nfc"] | None)
    ('nfc', None)
    """
    if get_origin(hint) in (Union, UnionType):
        parts = list(map(list_choices, get_args(hint)))
        return tuple(chain.from_iterable(parts)) if all(parts) else ()
    return get_args(hint) if get_origin(hint) is Literal else _CHOICES.get(hint, ())


def _read_all(hint: Any, values: Sequence[Any]) -> Sequence[Any]:
    """Reads values of one type."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return [_read_all(_choose(hint, value), [value])[0] for value in values]
    _check_all(hint, values)
    if kind is bytes:
        return [value.encode("utf-8", "surrogateescape") for value in values]
    if kind is Literal or kind in _SCALARS:
        return values
    if issubclass(kind, Sequence):
        return _read_lists(hint, values)
    return [_read_mapping(hint, value) if kind is Mapping else read_record(kind, value) for value in values]


def _read_mapping(hint: Any, mapping: Mapping[str, Any]) -> dict[Any, Any]:
    key_hint, value_hint = get_args(hint)
    if key_hint is bytes:
        return _read_tokens(mapping)
    keys = _read_all(key_hint, list(mapping))
    return dict(zip(keys, _read_all(value_hint, list(mapping.values())), strict=True))


def _read_tokens(groups: Mapping[str, Any]) -> dict[bytes, int]:
    tokens = _read_all(tuple[tuple[bytes, ...], ...], [list(groups.values())])[0]
    ids = {
        token: id_
        for first, group in zip(groups, tokens, strict=True)
        for id_, token in enumerate(group, int(first))
    }
    if len(ids) != sum(map(len, tokens)):
        raise TokenizerFormatError("duplicate token")
    return ids


def _read_lists(hint: Any, rows: Sequence[list[Any]]) -> Sequence[tuple[Any, ...]]:
    """Reads lists as tuples: of any number of values of one type, or of values with a type each."""
    if hasattr(hint, "_make"):
        return list(map(hint._make, _read_rows(tuple(get_hints(hint).values()), rows)))
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        return _read_rows(get_args(hint), rows)
    items = iter(_read_all(get_args(hint)[0], list(chain.from_iterable(rows))))
    return [tuple(islice(items, len(row))) for row in rows]


def _read_rows(hints: Sequence[Any], rows: Sequence[list[Any]]) -> list[tuple[Any, ...]]:
    """Reads lists of the same length, column by column."""
    for row in rows:
        if len(row) != len(hints):
            raise TokenizerFormatError(f"a list must have {len(hints)} values, not be {row!r:.100}")
    columns = [[row[i] for row in rows] for i in range(len(hints))]
    return list(zip(*map(_read_all, hints, columns), strict=True))


def _choose(union: Any, value: Any) -> Any:
    """Returns the type in a union that a value has."""
    hints = [hint for hint in get_args(union) if _is_valid(hint, value)]
    if not hints:
        raise TokenizerFormatError(f"must be {formatannotation(union)}, not {value!r:.100}")
    return hints[0]


def _check_all(hint: Any, values: Sequence[Any]) -> None:
    """Raises `TokenizerFormatError` if a value has another JSON type."""
    if get_origin(hint) is not Literal and set(map(type, values)) == {_get_json_type(hint)}:
        return
    invalid = [value for value in values if not _is_valid(hint, value)]
    if invalid:
        raise TokenizerFormatError(f"must be {formatannotation(hint)}, not {invalid[0]!r:.100}")


def _is_valid(hint: Any, value: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    model = getattr(hint, "model", None)
    is_of_type = type(value) is _get_json_type(hint) or (hint is float and type(value) is int)
    return is_of_type and (model is None or value.get("model") == model)


def _get_json_type(hint: Any) -> Any:
    kind = get_origin(hint) or hint
    return kind if kind in _SCALARS else _JSON_TYPES.get(kind, list if issubclass(kind, tuple) else dict)
