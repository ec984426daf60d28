"""Checks of single arguments, with errors that name them."""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Iterable, Mapping, Set
from numbers import Real
from typing import Any, SupportsIndex

from tokjax._util.arrays import is_traced
from tokjax.errors import InvalidArgumentError

MANY_TEXTS_ADVICE = (
    "; a list of texts is passed to encode_batch_result, or to encode_to_array for ids alone, and the words "
    "of a text with is_pretokenized=True"
)
"""What to do where one text is expected and a list is given: the end of an error."""
READ_FILE_ADVICE = "pass its text, path.read_text(); encode_files encodes the texts of files"
"""What to do where a text is expected and a path is given: the end of an error."""
LIST_PATHS_ADVICE = "several paths are passed as a list: list(paths)"
"""The same where paths are fine as a list, but come from another iterable."""


def check_int(name: str, value: SupportsIndex, *, minimum: int | None = None) -> int:
    """`value` as an `int`; an error that names it if it is no integer or below `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}") from None
    if isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be an integer, not {value!r}")
    if minimum is not None and number < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, not {number}")
    return number


def check_float(name: str, value: object, *, minimum: float, maximum: float = math.inf) -> float:
    """`value` as a `float`; an error that names it if it is no finite number, or out of bounds."""
    number = float(value) if isinstance(value, Real) else math.nan
    if math.isfinite(number) and minimum <= number <= maximum:
        return number
    bounds = f"at least {minimum}" if math.isinf(maximum) else f"from {minimum} to {maximum}"
    raise InvalidArgumentError(f"{name} must be a number, {bounds}, not {value!r}")


def reject_one_text(texts: object, advice: str = "") -> None:
    """Raises if a single text is passed where a sequence of texts is expected.

    Args:
        texts: the argument.
        advice: the end of the error.

    Raises:
        InvalidArgumentError: `texts` is `str` or `bytes`.
    """
    if isinstance(texts, (str, bytes, bytearray, memoryview)):
        raise InvalidArgumentError(f"texts is one text; pass [text]{advice}")


def check_id(name: str, value: object) -> None:
    """Refuse what is no `int32`: `None` most of all, which a tokenizer without that token gives."""
    if is_traced(value):
        return
    if value is None:
        raise InvalidArgumentError(
            f"{name} is None: the tokenizer declares no such token? Declare one, or give the id itself"
        )
    number = check_int(name, value)  # type: ignore[arg-type]
    if not -(2**31) <= number < 2**31:
        raise InvalidArgumentError(f"{name} is {number}, which does not fit int32")


def check_text(
    text: object, what: str, advice: str = "", paths_advice: str = READ_FILE_ADVICE
) -> str | bytes:
    """`text` itself, or an error that names `what` if it is neither `str` nor `bytes`.

    Args:
        text: what is checked.
        what: what to call it in the error.
        advice: the end of the error where a list is given.
        paths_advice: the end of the error where a path is given.
    """
    if isinstance(text, (str, bytes)):
        return text
    reject_path(text, what, paths_advice)
    hint = advice if isinstance(text, (list, tuple)) else ""
    if isinstance(text, Mapping):
        texts = f"[record[{_guess_text_name(text)!r}] for record in records]"
        hint = f" with the keys {_list_names(text)}; pass the texts alone, such as {texts}"
    elif text is None or (isinstance(text, float) and math.isnan(text)):
        hint = ", a missing value; leave it out, or put '' in its place"
    elif hasattr(text, "as_py"):
        hint = "; pass the array's values: array.to_pylist()"
    raise InvalidArgumentError(f"{what} must be str or bytes, not {type(text).__name__}{hint}")


def reject_path(text: object, name: str, advice: str = READ_FILE_ADVICE) -> None:
    """Raises for a path where a text is expected.

    Raises:
        InvalidArgumentError: it is an `os.PathLike`.
    """
    if isinstance(text, os.PathLike):
        raise InvalidArgumentError(f"{name} is a path; {advice}")


def reject_tables(texts: object, name: str, *, takes_records: bool = False) -> None:
    """Raises for dicts and tables: iterating over them gives names of keys or columns, or rows.

    Args:
        texts: what was passed as texts.
        name: the name of the argument.
        takes_records: whether a `datasets.Dataset` is fine, which gives records.

    Raises:
        InvalidArgumentError: it is a mapping, or a table of pandas, polars, pyarrow or `datasets`.
    """
    kind = type(texts).__name__
    if isinstance(texts, Mapping):
        key = _guess_text_name(texts)
        value = f"[{name}[{key!r}]]" if isinstance(texts.get(key), (str, bytes)) else f"{name}[{key!r}]"
        raise InvalidArgumentError(
            f"{name} is a {kind} with the keys {_list_names(texts)}; pass one of its values, such as {value}"
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
        f"{name} is a {kind} with the columns {_list_names(columns)}; pass the column that holds the texts, such "
        f"as {column}"
    )


def _list_names(names: Iterable[object]) -> list[object]:
    return list(itertools.islice(names, 20))


def _guess_text_name(names: Iterable[object]) -> object:
    """The name that probably has the texts."""
    names = _list_names(names)
    return next((name for name in ("text", "train", *names) if name in names), "text")


def check_texts(texts: Any) -> None:
    """An error if `texts` is no sequence of `str` and `bytes`."""
    reject_tables(texts, "texts")
    reject_one_text(texts, ", or use encode or encode_result for it")
    reject_path(texts, "texts")
    if isinstance(texts, Set) or not (hasattr(texts, "__len__") and hasattr(texts, "__getitem__")):
        raise InvalidArgumentError(
            f"texts must be a sequence, in which every text has its place, not a {type(texts).__name__}; "
            "pass list(texts)"
        )
    if not {str, bytes}.issuperset(map(type, texts)):
        for i, text in enumerate(texts):
            check_text(text, f"text {i}", MANY_TEXTS_ADVICE)
