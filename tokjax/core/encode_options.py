"""Options that all encoding functions share: names, types and defaults, and errors for wrong ones.

`encode_batch_result` has all of them in its signature and documents each. Other functions accept a
`TypedDict` of them and pass them on:

    @accept_options(EncodeOptions)
    def encode_to_array(tokenizer, texts, **options: Unpack[EncodeOptions]) -> Ragged: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack

from tokjax._util.checks import check_names
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokjax.core.template import Truncation

Generic = TypeVar("Generic")
Params = ParamSpec("Params")
Special: TypeAlias = Literal["all"] | Collection[str]
"""Names of special tokens, or `"all"` for all of them."""
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


class ColumnOptions(TextOptions, total=False):
    """Options of functions that compute columns.

    Attributes:
        return_offsets: compute `offsets`, `word_ids` and `sequence_ids`.
        return_masks: compute `attention_mask`, `special_tokens_mask` and `token_type_ids`.
        assume_normalized: the texts are normalized already (see `tokenization_view`); offsets refer to the
            texts as passed.
    """

    return_offsets: bool
    return_masks: bool
    assume_normalized: bool


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


class ResultOptions(EncodeOptions, ColumnOptions, total=False):
    """All options of functions that return results with columns."""


class RoleOptions(TypedDict, total=False):
    """Names of the special tokens in each role, of functions that make tokenizers. `None` for no such token.

    Attributes:
        bos_token: token to insert at the start of a text.
        eos_token: token to insert at the end of a text.
        pad_token: token that pads a batch.
        unk_token: token for unknown text; tokenizers with all bytes never produce it.
        cls_token: token whose output represents the text.
        sep_token: token that ends each text of a pair.
        mask_token: token that replaces masked tokens.
    """

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    cls_token: str | None
    sep_token: str | None
    mask_token: str | None


def get_roles(options: RoleOptions, **defaults: Unpack[RoleOptions]) -> dict[Any, str | None]:
    """Returns the token of each role that has an option, or a default such as `pad_token="[PAD]"`."""
    names: dict[str, Any] = {**defaults, **options}
    return {name.removesuffix("_token"): value for name, value in names.items()}


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


_COLUMN_DEFAULTS: ColumnOptions = {"return_offsets": True, "return_masks": True}


def check_options(options: Mapping[str, Any]) -> None:
    """Raises `InvalidArgumentError` for an array, and for special tokens that are no names."""
    for option, value in options.items():
        if getattr(value, "shape", ()):
            raise InvalidArgumentError(f"{option} must be one value, not the array {value!r:.100}")
        if option in ("allowed_special", "disallowed_special") and not isinstance(value, str):
            check_names(f"{option}, if it is not 'all',", value)


def accept_options(
    options: type | None = None, **defaults: Any
) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Decorates a function with options, which may be `**options` of the keys of a `TypedDict`.

    An unknown option raises `TypeError`. Other errors of Python or NumPy become errors that name the option:
    options are only checked after an error, so calls are hardly slower. `inspect.signature` and `help` show
    the options with their defaults instead of `**options`.

    Args:
        options: the `TypedDict`; `None` if the function has no `**options`.
        **defaults: defaults of the function that differ from `DEFAULTS`, for the signature only.
    """
    documented_defaults: dict[str, Any] = {**DEFAULTS, **_COLUMN_DEFAULTS, **defaults}
    names = list(getattr(options, "__annotations__", ()))

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
                default=documented_defaults.get(name),
                annotation=options.__annotations__[name].__forward_arg__,
            )
            for name in names
        ]
        check_and_call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*parameters, *option_parameters]
        )
        return check_and_call

    return decorate


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
            others = (
                "encode_result and encode_to_array accept" if unknown in DEFAULTS else "encode_result accepts"
            )
            advice = f"; {others} it" if unknown in {*DEFAULTS, *ColumnOptions.__annotations__} else ""
            raise TypeError(f"{name}() got an unexpected keyword argument {unknown!r}{advice}") from None

    return dispatch_and_call  # type: ignore[return-value]
