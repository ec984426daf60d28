"""A limit on how often a jitted step is traced: each trace compiles it anew."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from tokjax._util.arrays import is_traced
from tokjax._util.checks import check_int
from tokjax._util.display import describe_leaf, get_function_name
from tokjax.batching.length_buckets import LengthBuckets
from tokjax.errors import InvalidArgumentError, TooManyTracesError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_MAX_SHOWN_ARGUMENTS = 6
"""How many arguments of a trace an error shows."""


def limit_traces(
    function: Callable[Parameters, Result], max_traces: int | LengthBuckets, *, name: str | None = None
) -> TraceGuard[Parameters, Result]:
    """A step that refuses to be traced too often: `jax.jit(limit_traces(step, buckets))`.

    A batch of a new shape compiles a step anew, silently, for seconds or minutes. The guard goes *inside*
    `jax.jit` (and inside `jax.grad` or `jax.vmap` there), which calls it only to trace it: while the step
    runs, it costs nothing. It counts each trace, also where shapes are the same but a static argument is
    not. Calls with no traced argument, as under `jax.disable_jit`, do not count. (Nor does it see that JAX
    compiles a trace again for arguments that lie on other devices.)

    Args:
        function: the step, before `jax.jit`.
        max_traces: how often it may be traced; of a ladder, once for each rung.
        name: what errors call it; by default its own name.

    Returns:
        A function of the same arguments. Its `traces` are those that there were.

    Raises:
        InvalidArgumentError: the function is jitted already.
        TooManyTracesError: when it is traced once more; the error shows which shapes differ.

    >>> import jax
    >>> import numpy as np
    >>> step = limit_traces(lambda ids: ids.sum(), LengthBuckets([4, 8]), name="step")
    >>> jitted = jax.jit(step)
    >>> for length in (4, 8, 4, 8):
    ...     total = jitted(np.ones((2, length), np.int32))
    >>> step.traces
    ({'ids': 'int32[2,4]'}, {'ids': 'int32[2,8]'})
    """
    if not callable(function):
        raise InvalidArgumentError(f"limit_traces takes a function, not {function!r}")
    if _is_jitted(function):
        raise InvalidArgumentError(
            f"{name or get_function_name(function)} is jitted already, and is not called again to be traced; put the "
            "limit inside: jax.jit(limit_traces(step, MAX_TRACES))"
        )
    limit = (
        len(max_traces)
        if isinstance(max_traces, LengthBuckets)
        else check_int("max_traces", max_traces, minimum=1)
    )
    return TraceGuard(function, limit, name or get_function_name(function))


class TraceGuard(Generic[Parameters, Result]):
    """What `limit_traces` gives: the function, and which traces there were."""

    def __init__(self, function: Callable[Parameters, Result], max_traces: int, name: str) -> None:
        functools.update_wrapper(self, function)
        self._function, self._max_traces, self._name = function, max_traces, name
        self._signature = _get_signature(function, name)
        self._traces: list[dict[str, str]] = []

    @property
    def traces(self) -> tuple[Mapping[str, str], ...]:
        """For each trace the arguments, by name and place: `{"batch.ids": "int32[8,64]", ...}`."""
        return tuple(self._traces)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Call the function; where that is a trace, count it."""
        leaves = _flatten_arguments(self._signature.bind(*args, **kwargs).arguments)
        if not any(map(is_traced, leaves.values())):
            return self._function(*args, **kwargs)
        trace = {path: describe_leaf(leaf) for path, leaf in leaves.items()}
        self._traces.append(trace)  # before it is known to be one: other threads may be tracing too
        try:
            if len(self._traces) > self._max_traces:
                raise TooManyTracesError(_format_error(self._name, self._traces))
            return self._function(*args, **kwargs)
        except BaseException:
            self._traces.remove(trace)
            raise


def _get_signature(function: Callable[..., object], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        raise InvalidArgumentError(
            f"{name} does not tell its arguments; call it in a function of your own, and limit that"
        ) from None


def _is_jitted(function: object) -> bool:
    jax_module = sys.modules.get("jax")
    while isinstance(function, functools.partial):
        function = function.func
    return jax_module is not None and isinstance(function, jax_module.stages.Wrapped)


def _flatten_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """All that is in the arguments, by name and place there."""
    if "jax" not in sys.modules:
        return {}
    from jax.tree_util import keystr, tree_flatten_with_path  # noqa: PLC0415 (loaded already)

    return {
        name + keystr(path): leaf
        for name, argument in arguments.items()
        for path, leaf in tree_flatten_with_path(argument)[0]
    }


def _format_error(name: str, traces: Sequence[Mapping[str, str]]) -> str:
    paths = dict.fromkeys(path for trace in traces for path in trace)
    differing = [path for path in paths if len({trace.get(path) for trace in traces}) > 1]
    head = (
        f"{name} was traced {len(traces)} times, and limit_traces allows {len(traces) - 1}: each trace "
        "compiles it anew."
    )
    if not differing:
        return (
            f"{head} All had arguments of the same shapes and dtypes: make the jitted step once, outside of "
            "the loop, keep static arguments and JAX's settings as they are, and put arguments on the same "
            "devices in each step"
        )
    lines = [f"  {number}: {_format_trace(trace, differing)}" for number, trace in enumerate(traces, 1)]
    advice = (
        "Pad batches to few lengths, as collate_padded_batch(..., buckets=LengthBuckets(...)) does, and "
        "leave out a last one of fewer rows; or allow more traces"
    )
    return "\n".join([f"{head} What differs:", *lines, advice])


def _format_trace(trace: Mapping[str, str], paths: Sequence[str]) -> str:
    shown = ", ".join(f"{path} {trace.get(path, 'absent')}" for path in paths[:_MAX_SHOWN_ARGUMENTS])
    more = len(paths) - _MAX_SHOWN_ARGUMENTS
    return f"{shown}, and {more} more" if more > 0 else shown
