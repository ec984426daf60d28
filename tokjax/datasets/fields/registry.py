"""Fields by `TYPE_ID`: the built-in ones, and custom ones that programs register.

A field has a `TYPE_ID` and `options`. A manifest records both, and `make_field` builds the field again from
them.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tokjax._util.checks import check_int
from tokjax.datasets.fields.base import StoredTokens, TokenField
from tokjax.datasets.fields.conversation import ChatField
from tokjax.datasets.fields.preference import PreferenceField
from tokjax.datasets.fields.text_fields import (
    BucketedTokenField,
    PackedTokenField,
    RawTextField,
    SentencePieceTextField,
    TokenizedTextField,
)
from tokjax.errors import DatasetMismatchError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.datasets.columns import Column


Field: TypeAlias = RawTextField | StoredTokens | TokenField
"""Any field: of texts, built-in fields of tokens, and custom ones."""
FIELDS: dict[int, type[Field]] = {
    field.TYPE_ID: field
    for field in (
        RawTextField,
        TokenizedTextField,
        SentencePieceTextField,
        PackedTokenField,
        BucketedTokenField,
        ChatField,
        PreferenceField,
    )
}
"""Built-in fields by `TYPE_ID`."""


CustomField = TypeVar("CustomField", bound=type[TokenField])
FIRST_CUSTOM_TYPE_ID = 1000
CUSTOM_FIELDS: dict[int, type[TokenField]] = {}
"""Registered custom fields by `TYPE_ID`."""


def register_field(field: CustomField) -> CustomField:
    """Registers a custom field, so that its datasets can be written and opened. Use it as a class decorator.

    A program that opens such a dataset must import the module of the class first.

    Args:
        field: subclass of `TokenField`.

    Returns:
        The class.

    Raises:
        InvalidArgumentError: `field` is not a frozen dataclass derived from `TokenField`, or another class
            has its `TYPE_ID`.
    """
    if not (isinstance(field, type) and issubclass(field, TokenField)):
        raise InvalidArgumentError(
            f"a custom field must be a subclass of tokjax.datasets.TokenField, not {field!r:.100}"
        )
    parameters = vars(field).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise InvalidArgumentError(
            f"{field.__name__} must be a frozen dataclass; decorate it with @dataclass(frozen=True)"
        )
    number = check_int(
        f"{field.__name__}.TYPE_ID", getattr(field, "TYPE_ID", 0), minimum=FIRST_CUSTOM_TYPE_ID
    )
    registered = CUSTOM_FIELDS.setdefault(number, field)
    if (registered.__module__, registered.__qualname__) != (field.__module__, field.__qualname__):
        raise InvalidArgumentError(
            f"{registered.__name__} already has TYPE_ID {number}; choose another one for {field.__name__}"
        )
    CUSTOM_FIELDS[number] = field  # (the same class may be defined again, for instance in a notebook cell)
    return field


def check_custom_field(field: TokenField) -> None:
    """Raises an error for a custom field that its options do not reproduce.

    Args:
        field: instance of a custom field.

    Raises:
        InvalidArgumentError: an option changes in a round trip through JSON, the options build another field,
            or a column has byte lengths.
    """
    kind = type(field)
    for column in field.columns:
        if column.source == "byte_lengths":
            raise InvalidArgumentError(
                f"column {column.name!r} has source='byte_lengths', and the documents of {kind.__name__} are "
                "not texts that are encoded as they are; store byte lengths with a built-in field of texts"
            )
    for name, value in field.options.items():
        described = f"{kind.__name__}'s option {name}={value!r:.80}"
        try:
            decoded = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{described} can't be written as JSON: {error}") from None
        if decoded != value:
            raise InvalidArgumentError(
                f"{described} becomes {decoded!r:.80} in JSON; convert it in __post_init__, or in options"
            )
    rebuilt = _make_custom(kind, field.tokenizer, json.loads(json.dumps(field.options)), field.columns)
    if rebuilt != field:
        raise InvalidArgumentError(
            f"its options build {rebuilt!r:.200}, which is not equal to {field!r:.200}"
        )


def check_registered(field: Field) -> None:
    """Raises an error for a field that could not be opened again, or would be opened as a different one.

    Args:
        field: field to check.

    Raises:
        InvalidArgumentError: the class is not registered under its `TYPE_ID`, or its options do not reproduce
            it.
    """
    kind = type(field)
    number = getattr(kind, "TYPE_ID", 0)
    if FIELDS.get(number) is not kind and CUSTOM_FIELDS.get(number) is not kind:
        raise InvalidArgumentError(
            f"{kind.__name__} is not registered under its TYPE_ID, {number}: derive it from "
            "tokjax.datasets.TokenField, choose a unique TYPE_ID, and decorate it with "
            "@tokjax.datasets.register_field"
        )
    if isinstance(field, TokenField):
        check_custom_field(field)


def make_field(
    type_id: int, options: Mapping[str, Any], tokenizer: Any, columns: Sequence[Column] = ()
) -> Field:
    """Builds the field of a dataset from its entries in the manifest.

    Args:
        type_id: `TYPE_ID` of the class.
        options: options of the field.
        tokenizer: tokenizer that produced the ids; `None` for raw text.
        columns: side columns.

    Returns:
        The field.

    Raises:
        DatasetMismatchError: no field has this `TYPE_ID`, or the options or columns are of another version of
            its class.
    """
    if type_id in CUSTOM_FIELDS:
        return _make_custom(CUSTOM_FIELDS[type_id], tokenizer, options, columns)
    if type_id not in FIELDS:
        available = ", ".join(f"{field.__name__} ({number})" for number, field in sorted(FIELDS.items()))
        hint = "; import the module that registers it first" if type_id >= FIRST_CUSTOM_TYPE_ID else ""
        raise DatasetMismatchError(f"no field has TYPE_ID {type_id}; this tokjax has {available}{hint}")
    made: Any = FIELDS[type_id]
    if made is RawTextField:
        return RawTextField(**options, columns=columns)
    field: Field = made(tokenizer, **options, columns=columns)
    return field


def _make_custom(
    kind: type[TokenField], tokenizer: Any, options: Mapping[str, Any], columns: Sequence[Column]
) -> TokenField:
    """Builds a custom field. Its columns are an option of the class, or determined by the other options."""
    names = {one.name for one in dataclasses.fields(kind)}
    try:
        inspect.signature(kind).bind(tokenizer, **options)
    except TypeError as error:  # another version of the class wrote the dataset
        raise DatasetMismatchError(f"{kind.__name__}: {error}; the dataset records {dict(options)}") from None
    field = kind(tokenizer, **options, **({"columns": tuple(columns)} if "columns" in names else {}))
    if tuple(field.columns) != tuple(columns):
        raise DatasetMismatchError(
            f"{kind.__name__} has the columns {tuple(field.columns)}; the dataset records {tuple(columns)}"
        )
    return field
