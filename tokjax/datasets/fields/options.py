"""Options that fields share: checks and stored forms. Fields call these functions when they are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tokjax._util.checks import check_int
from tokjax.datasets.columns import check_columns
from tokjax.datasets.fields.token_field import TokenField
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax.core.protocol import Special


def set_limit(field: Any, option: str) -> None:
    """Checks an option that is a positive integer or `None`, and stores it as an `int`."""
    value = getattr(field, option)
    if value is not None:
        object.__setattr__(field, option, check_int(option, value, minimum=1))


def check_template(template: object) -> None:
    """Raises `InvalidArgumentError` unless a chat template is a string."""
    if not isinstance(template, str):
        raise InvalidArgumentError(
            f"template must be a chat template, such as load_chat_template(PATH), not {template!r:.80}"
        )


def as_boundaries(boundaries: object) -> set[int]:
    """Returns bucket boundaries as a set of positive integers.

    Raises:
        InvalidArgumentError: `boundaries` is not an iterable of positive integers.
    """
    if isinstance(boundaries, (str, bytes)) or not isinstance(boundaries, Iterable):
        raise InvalidArgumentError(
            f"bucket_boundaries must be integers, for instance [64, 128], not {boundaries!r}"
        )
    return {check_int("bucket_boundaries", boundary, minimum=1) for boundary in boundaries}


def set_columns(field: Any, *, per_token: bool = True) -> None:
    """Checks the columns of a built-in field, and stores them as a tuple."""
    kind = type(field).__name__
    columns = check_columns(kind, field.columns, per_token=per_token)
    for column in columns:
        if column.source == "field" and not isinstance(field, TokenField):
            raise InvalidArgumentError(
                f"{kind} computes no column {column.name!r}; only ChatField and custom fields have columns "
                "with source='field'"
            )
    object.__setattr__(field, "columns", columns)


def set_special(field: Any) -> None:
    """Sorts the names of special tokens, so that fields with the same meaning are equal."""
    for option in ("allowed_special", "disallowed_special"):
        object.__setattr__(field, option, sort_special_names(getattr(field, option)))


def sort_special_names(names: Special) -> str | tuple[str, ...]:
    """Returns names of special tokens in a canonical form: `"all"`, or a sorted tuple."""
    return names if isinstance(names, str) else tuple(sorted(names))


def get_special_options(field: Any) -> dict[str, Any]:
    """Returns the names of special tokens as options for the manifest."""
    names = {option: getattr(field, option) for option in ("allowed_special", "disallowed_special")}
    return {option: value if isinstance(value, str) else list(value) for option, value in names.items()}
