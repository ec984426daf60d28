"""Options that encoders have in common: their names, types and defaults.

`encode_batch_result` has all of them in its signature and explains each. Other functions pass them on:

    @accept_options(EncodeOptions)
    def encode_to_array(tokenizer, texts, **options: Unpack[EncodeOptions]) -> Ragged: ...
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.core.protocol import Special
    from tokjax.core.template import Truncation

Params = ParamSpec("Params")
Result = TypeVar("Result")


class SpecialOptions(TypedDict, total=False):
    """Options for special tokens in texts, which every encoder has.

    Attributes:
        allowed_special: special tokens that are recognized in the text: names, or `"all"`.
        disallowed_special: special tokens that raise an error in the text: names, or `"all"` for every one
            that is not allowed. One that is neither is encoded as ordinary text.
    """

    allowed_special: Special
    disallowed_special: Special


class TextOptions(SpecialOptions, total=False):
    """Options of functions that encode many texts.

    Attributes:
        add_special_tokens: insert the special tokens of the tokenizer's template, such as BOS and EOS.
        threads: number of threads that share the work; `None` for as many as the process has cores.
    """

    add_special_tokens: bool
    threads: int | None


class CutOptions(TextOptions, total=False):
    """Options of functions that also truncate texts.

    Attributes:
        max_length: maximum number of tokens of a row, inserted ones included; `None` for no limit.
        truncation_side: the end at which a text is cut.
    """

    max_length: int | None
    truncation_side: Literal["left", "right"]


class EncodeOptions(CutOptions, total=False):
    """All options that decide which ids texts become.

    Attributes:
        truncation: the text of a pair that is cut, as in `encode_batch_result`.
        is_pretokenized: each text is a sequence of words.
        assume_normalized: the texts are `tokenization_view`s already; offsets refer to them as given.
    """

    truncation: Truncation
    is_pretokenized: bool
    assume_normalized: bool


DEFAULTS: EncodeOptions = {
    "add_special_tokens": True,
    "max_length": None,
    "truncation": "longest_first",
    "truncation_side": "right",
    "is_pretokenized": False,
    "assume_normalized": False,
    "allowed_special": (),
    "disallowed_special": "all",
    "threads": None,
}


def accept_options(
    options: type, **defaults: Any
) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Decorates a function whose `**options` are those of a `TypedDict`.

    An option that the function does not have raises `TypeError`, and `inspect.signature` and `help` show the
    options with their defaults in place of `**options`.

    Args:
        options: the `TypedDict`.
        **defaults: defaults that differ from `DEFAULTS`. They are only shown.
    """
    shown = {**DEFAULTS, **defaults}
    names = [name for name in DEFAULTS if name in options.__annotations__]

    def decorate(function: Callable[Params, Result]) -> Callable[Params, Result]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        accepted = {each.name for each in own} | set(names)

        @wraps(function)
        def checked(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            if not accepted.issuperset(kwargs):
                unknown = next(name for name in kwargs if name not in accepted)
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {unknown!r}")
            return function(*args, **kwargs)

        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=shown[name],
                annotation=options.__annotations__[name].__forward_arg__,
            )
            for name in names
        ]
        checked.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return checked

    return decorate
