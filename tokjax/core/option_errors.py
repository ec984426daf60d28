"""Errors for options of encoding functions: those that `encode` does not have, and values of another type."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tokjax._util.checks import check_names
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Generic = TypeVar("Generic")
Params = ParamSpec("Params")
Result = TypeVar("Result")

_BOTH = "encode_result and encode_to_array accept it"
_UNSUPPORTED_BY_ENCODE = {
    "max_length": _BOTH,
    "truncation": _BOTH,
    "truncation_side": _BOTH,
    "is_pretokenized": _BOTH,
    "assume_normalized": _BOTH,
    "threads": _BOTH,
    "return_offsets": "encode_result accepts it",
    "return_masks": "encode_result accepts it",
}
"""Options that `encode` does not have, with the functions that accept them."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raises `InvalidArgumentError` for an array, and for special tokens that are no names."""
    for option, value in options.items():
        if getattr(value, "shape", ()):
            raise InvalidArgumentError(f"{option} must be one value, not the array {value!r:.100}")
        if option in ("allowed_special", "disallowed_special") and not isinstance(value, str):
            check_names(option, value)


def explain_options(function: Callable[Params, Result]) -> Callable[Params, Result]:
    """Decorates a function, so that errors of Python or NumPy for its options name the option.

    The options, which are the keywords, are only checked after an error, so calls are hardly slower.
    """
    parameters = inspect.signature(function).parameters.values()
    positional = {each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}

    @wraps(function)
    def call(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError):
            check_options({name: value for name, value in kwargs.items() if name not in positional})
            raise

    return call


def explain_unknown_options(generic: Generic) -> Generic:
    """Decorates the generic function `encode`, so that errors for unknown options name it and advise another.

    Without this, the error would name the implementation for the type of the tokenizer. The function that is
    returned replaces the dispatcher of `singledispatch`, so calls are not slower than before.
    """
    function: Any = generic
    name, dispatch, registry = function.__name__, function.dispatch, function.registry

    @wraps(function)
    def dispatch_and_call(*args: Any, **kwargs: Any) -> Any:
        if not args:
            return function(**kwargs)  # raises
        try:
            kind = args[0].__class__
            implementation = registry.get(kind) or dispatch(kind)  # the first is faster than the second
            return implementation(*args, **kwargs)
        except (TypeError, ValueError) as error:
            check_options(kwargs)
            message = str(error)
            unknown = next((key for key in kwargs if f"unexpected keyword argument {key!r}" in message), None)
            if unknown is None:
                raise
            advice = f"; {_UNSUPPORTED_BY_ENCODE[unknown]}" if unknown in _UNSUPPORTED_BY_ENCODE else ""
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{advice}") from None

    return dispatch_and_call  # type: ignore[return-value]
