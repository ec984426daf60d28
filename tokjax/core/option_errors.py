"""Errors for options that `encode` does not have."""

from __future__ import annotations

from functools import wraps
from typing import Any, TypeVar

Generic = TypeVar("Generic")

_BOTH = "encode_result and encode_to_array accept it"
_UNSUPPORTED_BY_ENCODE = {
    "max_length": _BOTH,
    "truncation": _BOTH,
    "truncation_side": _BOTH,
    "is_pretokenized": _BOTH,
    "assume_normalized": _BOTH,
    "threads": "encode_to_array accepts it",
    "return_offsets": "encode_result accepts it",
    "return_masks": "encode_result accepts it",
}
"""Options that `encode` does not have, with the functions that accept them."""


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
        except TypeError as error:
            message = str(error)
            unknown = next((key for key in kwargs if f"unexpected keyword argument {key!r}" in message), None)
            if unknown is None:
                raise
            advice = f"; {_UNSUPPORTED_BY_ENCODE[unknown]}" if unknown in _UNSUPPORTED_BY_ENCODE else ""
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{advice}") from None

    return dispatch_and_call  # type: ignore[return-value]
