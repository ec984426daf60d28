"""Options that all encoding functions share: names, types and defaults.

`encode_batch_result` has all of them in its signature and documents each. Other functions accept a
`TypedDict` of them and pass them on:

    @accept_options(EncodeOptions)
    def encode_to_array(tokenizer, texts, **options: Unpack[EncodeOptions]) -> Ragged: ...
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar

from tokjax.core.option_errors import check_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.core.protocol import Special
    from tokjax.core.truncation import Truncation

Params = ParamSpec("Params")
Result = TypeVar("Result")


class SpecialOptions(TypedDict, total=False):
    """Options for special tokens in texts, of all encoding functions.

    Attributes:
        allowed_special: special tokens that are recognized in the text: names, or `"all"`.
        disallowed_special: special tokens that raise an error if the text contains them: names, or `"all"`
            for all that are not allowed. A special token that is neither is encoded as ordinary text.
    """

    allowed_special: Special
    disallowed_special: Special


class TextOptions(SpecialOptions, total=False):
    """Options of functions that encode many texts.

    Attributes:
        add_special_tokens: insert the special tokens of the tokenizer's template, such as BOS and EOS.
        threads: number of cores to use; `None` for all that the process may use. Small inputs are shared
            between threads, large ones with worker processes, which start automatically.
    """

    add_special_tokens: bool
    threads: int | None


class TruncationOptions(TextOptions, total=False):
    """Options of functions that also truncate texts.

    Attributes:
        max_length: maximum number of tokens of a row, including inserted special tokens; `None` for no limit.
        truncation_side: side of a text that is truncated.
    """

    max_length: int | None
    truncation_side: Literal["left", "right"]


class EncodeOptions(TruncationOptions, total=False):
    """All options on which the ids of a text depend.

    Attributes:
        truncation: which text of a pair is truncated, as in `encode_batch_result`.
        is_pretokenized: each text is a sequence of words.
        assume_normalized: the texts are normalized already (see `tokenization_view`); offsets refer to the
            texts as passed.
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
    """Decorates a function whose `**options` are the keys of a `TypedDict`.

    An unknown option raises `TypeError`. `inspect.signature` and `help` show the options with their defaults
    instead of `**options`.

    Args:
        options: the `TypedDict`.
        **defaults: defaults of the function that `DEFAULTS` does not have, for the signature only.
    """
    documented_defaults = {**DEFAULTS, **defaults}
    names = [name for name in documented_defaults if name in options.__annotations__]

    def decorate(function: Callable[Params, Result]) -> Callable[Params, Result]:
        signature = inspect.signature(function)
        parameters = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        positional = {each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}
        accepted = {each.name for each in parameters} | set(names)

        @wraps(function)
        def check_and_call(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            if kwargs and not accepted.issuperset(kwargs):
                unknown = next(name for name in kwargs if name not in accepted)
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {unknown!r}")
            try:
                return function(*args, **kwargs)
            except (TypeError, ValueError):
                check_options({name: value for name, value in kwargs.items() if name not in positional})
                raise

        option_parameters = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=documented_defaults[name],
                annotation=options.__annotations__[name].__forward_arg__,
            )
            for name in names
        ]
        check_and_call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*parameters, *option_parameters]
        )
        return check_and_call

    return decorate
