"""Checks of single arguments, with errors that name them."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import SupportsIndex

from tokjax._namespace import is_traced
from tokjax.errors import InvalidArgumentError


def checked_int(name: str, value: SupportsIndex, *, least: int | None = None) -> int:
    """`value` as an `int`; an error that names it if it is no integer or below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}") from None
    if isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}")
    if least is not None and number < least:
        raise InvalidArgumentError(f"{name} must be at least {least}, not {number}")
    return number


def checked_float(name: str, value: object, *, least: float, most: float = math.inf) -> float:
    """`value` as a `float`; an error that names it if it is no finite number, or out of bounds."""
    number = float(value) if isinstance(value, Real) else math.nan
    if math.isfinite(number) and least <= number <= most:
        return number
    bounds = f"at least {least}" if math.isinf(most) else f"from {least} to {most}"
    raise InvalidArgumentError(f"{name} must be a number, {bounds}, not {value!r}")


def reject_one_text(texts: object) -> None:
    """Raises if a single text is passed where a sequence of texts is expected.

    Raises:
        InvalidArgumentError: `texts` is `str` or `bytes`.
    """
    if isinstance(texts, (str, bytes, bytearray, memoryview)):
        raise InvalidArgumentError("texts is one text; pass [text]")


def check_id(name: str, value: object) -> None:
    """Refuse what is no `int32`: `None` most of all, which a tokenizer without that token gives."""
    if is_traced(value):
        return
    if value is None:
        raise InvalidArgumentError(
            f"{name} is None: the tokenizer declares no such token? Declare one, or give the id itself"
        )
    number = checked_int(name, value)  # type: ignore[arg-type]
    if not -(2**31) <= number < 2**31:
        raise InvalidArgumentError(f"{name} is {number}, which does not fit int32")
