"""Checks of arguments, with errors that name the argument and its value."""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from numbers import Real
from typing import Any, SupportsIndex, TypeGuard

from tokjax._util.arrays import is_traced
from tokjax.errors import InvalidArgumentError

MAX_INT32, MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
MANY_TEXTS_ADVICE = (
    "; a list of texts is passed to encode_batch_result, or to encode_to_array for ids alone, and the words "
    "of a text with is_pretokenized=True"
)
"""End of the error for a list where one text is expected."""
READ_FILE_ADVICE = "pass its text, path.read_text(); encode_files encodes the texts of files"
"""End of the error for a path where a text is expected."""
LIST_PATHS_ADVICE = "several paths are passed as a list: list(paths)"
"""End of the error for paths in an iterable that is not a list."""


def check_int(
    name: str, value: SupportsIndex, *, minimum: int | None = None, maximum: int = MAX_INT64
) -> int:
    """Returns `value` as an `int`.

    Args:
        name: name of the argument, for error messages.
        value: the argument.
        minimum: smallest valid value, or `None` for no bound.
        maximum: largest valid value.

    Raises:
        InvalidArgumentError: the value is not an integer (a `bool` is not one), or out of bounds.
    """
    try:
        number = operator.index(value)
    except TypeError:
        if is_traced(value):
            raise InvalidArgumentError(
                f"the value of {name} is unknown under jax.jit; pass a Python integer, for instance by "
                "static_argnames, or call the function outside of it"
            ) from None
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}") from None
    if isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}")
    if minimum is not None and number < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, not {number}")
    if number > maximum:
        raise InvalidArgumentError(f"{name} must be at most {maximum}, not {number}")
    return number


def check_float(name: str, value: object, *, minimum: float, maximum: float = math.inf) -> float:
    """Returns `value` as a `float`.

    Args:
        name: name of the argument, for error messages.
        value: the argument.
        minimum: smallest valid value.
        maximum: largest valid value.

    Raises:
        InvalidArgumentError: the value is not a finite number, or out of bounds.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan  # type: ignore[arg-type]
    if math.isfinite(number) and minimum <= number <= maximum:
        return number
    bounds = f"at least {minimum}" if math.isinf(maximum) else f"from {minimum} to {maximum}"
    raise InvalidArgumentError(f"{name} must be a number, {bounds}, not {value!r}")


def is_iterable(value: object) -> TypeGuard[Iterable[Any]]:
    """Returns whether `iter(value)` works. Arrays of shape `()` have the method, which raises."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) != 0


def check_iterable(name: str, value: object) -> Iterator[Any]:
    """Returns `iter(value)`; raises `InvalidArgumentError` if the argument `name` is not an iterable."""
    try:
        return iter(value)  # type: ignore[call-overload, no-any-return]
    except TypeError:
        raise InvalidArgumentError(f"{name} must be an iterable, not {value!r:.80}; pass a list") from None


def check_choice(name: str, value: object, choices: Collection[object], advice: str = "") -> None:
    """Raises unless `value` is one of a few names, numbers or `None`.

    Args:
        name: name of the argument, for error messages.
        value: the argument, of any type: an array or a list is an error, too.
        choices: the valid values.
        advice: end of the error message.

    Raises:
        InvalidArgumentError: the value is none of them.

    >>> check_choice("pad_side", "middle", ("left", "right"))
    Traceback (most recent call last):
    tokjax.errors.InvalidArgumentError: pad_side must be 'left' or 'right', not 'middle'
    """
    for choice in choices:
        if value is choice or (isinstance(value, type(choice)) and value == choice):
            return
    *others, last = map(repr, choices)
    listed = f"{', '.join(others)} or {last}" if others else last
    raise InvalidArgumentError(f"{name} must be {listed}, not {value!r:.100}{advice}")


def check_names(name: str, value: Any) -> list[str]:
    """Returns names as a list; raises `InvalidArgumentError` unless `value` is an iterable of `str`."""
    if isinstance(value, (str, bytes)) or not is_iterable(value):
        advice = f"; pass [{value!r}]" if isinstance(value, (str, bytes)) else ""
        raise InvalidArgumentError(f"{name} must be a list of names, not {value!r:.100}{advice}")
    names = list(value)
    for one in names:
        if not isinstance(one, str):
            raise InvalidArgumentError(f"{name} must be a list of names, and one of them is {one!r:.100}")
    return names


def check_bool(name: str, value: object) -> None:
    """Raises `InvalidArgumentError` unless `value` is `True` or `False`."""
    check_choice(name, value, (True, False))


def reject_one_text(texts: object, advice: str = "", *, name: str = "texts") -> None:
    """Raises for a single text where a sequence of texts is expected.

    Args:
        texts: the argument.
        advice: end of the error message.
        name: name of the argument, for error messages.

    Raises:
        InvalidArgumentError: `texts` is `str` or `bytes`.
    """
    if isinstance(texts, (str, bytes, bytearray, memoryview)):
        raise InvalidArgumentError(f"{name} is one text; pass [text]{advice}")


def check_id(name: str, value: object) -> None:
    """Raises unless `value` is an integer that fits `int32`. A tracer passes without a check.

    The usual mistake is `None`, which `pad_id(tokenizer)` returns if the tokenizer has no padding token.

    Args:
        name: name of the argument, for error messages.
        value: the argument, a token id.

    Raises:
        InvalidArgumentError: the value is `None`, not an integer, or does not fit `int32`.
    """
    if is_traced(value):
        return
    if value is None:
        raise InvalidArgumentError(
            f"{name} is None: the tokenizer declares no such token? Declare one, for instance with "
            "tokjax.with_roles(tokenizer, mask_token=NAME), or give the id itself"
        )
    number = check_int(name, value)  # type: ignore[arg-type]
    if not -(2**31) <= number < 2**31:
        raise InvalidArgumentError(f"{name} is {number}, which does not fit int32")


def check_text(
    text: object, name: str, advice: str = "", paths_advice: str = READ_FILE_ADVICE
) -> str | bytes:
    """Returns `text` if it is `str` or `bytes`, and raises otherwise.

    Args:
        text: the argument.
        name: name of the argument, for error messages.
        advice: end of the error message for a list.
        paths_advice: end of the error message for a path.

    Raises:
        InvalidArgumentError: the argument is neither `str` nor `bytes`. The message suggests a fix for lists,
            paths, mappings, missing values and Arrow scalars.
    """
    if isinstance(text, (str, bytes)):
        return text
    reject_path(text, name, paths_advice)
    hint = advice if isinstance(text, (list, tuple)) else ""
    if isinstance(text, Mapping):
        texts = f"[record[{_guess_text_name(text)!r}] for record in records]"
        hint = f" with the keys {_list_names(text)}; pass the texts alone, such as {texts}"
    elif text is None or (isinstance(text, float) and math.isnan(text)):
        hint = ", a missing value; leave it out, or pass '' instead"
    elif hasattr(text, "as_py"):
        hint = "; pass the array's values: array.to_pylist()"
    raise InvalidArgumentError(f"{name} must be str or bytes, not {type(text).__name__}{hint}")


def reject_path(text: object, name: str, advice: str = READ_FILE_ADVICE) -> None:
    """Raises for a path where a text is expected.

    Args:
        text: the argument.
        name: name of the argument, for error messages.
        advice: end of the error message.

    Raises:
        InvalidArgumentError: the argument is an `os.PathLike`.
    """
    if isinstance(text, os.PathLike):
        raise InvalidArgumentError(f"{name} is a path; {advice}")


def reject_tables(texts: object, name: str, *, takes_records: bool = False) -> None:
    """Raises for dicts and tables where texts are expected: iterating over them yields keys, columns or rows.

    Args:
        texts: the argument.
        name: name of the argument, for error messages.
        takes_records: accept a `datasets.Dataset`, for callers that take records.

    Raises:
        InvalidArgumentError: the argument is a mapping, or a table of pandas, polars, pyarrow or `datasets`.
    """
    kind = type(texts).__name__
    if isinstance(texts, Mapping):
        key = _guess_text_name(texts)
        value = f"[{name}[{key!r}]]" if isinstance(texts.get(key), (str, bytes)) else f"{name}[{key!r}]"
        raise InvalidArgumentError(
            f"{name} is a {kind} with the keys {_list_names(texts)}; pass one of its values, such as {value}"
        )
    if hasattr(texts, "iter_rows") and hasattr(texts, "iter_batches"):
        raise InvalidArgumentError(
            f"{name} is a {kind} of Ray; pass its texts: (row['text'] for row in {name}.iter_rows())"
        )
    columns = getattr(texts, "column_names", getattr(texts, "columns", None))
    if columns is None or not hasattr(texts, "__getitem__"):
        return
    if takes_records and hasattr(texts, "select_columns"):
        return
    column = f"{name}[{_guess_text_name(columns)!r}]"
    if hasattr(texts, "to_pylist"):
        column += ".to_pylist()"
    raise InvalidArgumentError(
        f"{name} is a {kind} with the columns {_list_names(columns)}; pass the column that holds the texts, "
        f"such as {column}"
    )


def _list_names(names: Iterable[object]) -> list[object]:
    return list(itertools.islice(names, 20))


def _guess_text_name(names: Iterable[object]) -> object:
    """Returns the name of the key or column that probably holds the texts."""
    names = _list_names(names)
    return next((name for name in ("text", "train", *names) if name in names), "text")


def check_sequence(name: str, texts: Any, advice: str = "") -> None:
    """Raises `InvalidArgumentError` unless the argument `name` is a sequence of texts, or of their words.

    Args:
        name: name of the argument.
        texts: the argument.
        advice: end of the error message for a single text.
    """
    if isinstance(texts, (list, tuple)):  # the most frequent case
        return
    reject_tables(texts, name)
    reject_one_text(texts, advice, name=name)
    reject_path(texts, name)
    has_items = hasattr(texts, "__len__") and hasattr(texts, "__getitem__")
    if isinstance(texts, Set) or not has_items or getattr(texts, "shape", None) == ():
        raise InvalidArgumentError(
            f"{name} must be a sequence, in which every text has an index, not a {type(texts).__name__}; "
            f"pass list({name})"
        )


def check_texts(texts: Any) -> None:
    """Raises `InvalidArgumentError` unless `texts` is a sequence of `str` and `bytes`."""
    check_sequence("texts", texts, ", or use encode or encode_result for it")
    if not {str, bytes}.issuperset(map(type, texts)):
        for i, text in enumerate(texts):
            check_text(text, f"text {i}", MANY_TEXTS_ADVICE)
