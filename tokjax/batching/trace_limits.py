"""Limit on the number of traces of a jitted function: each trace is a recompilation."""

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
"""Maximum number of arguments per trace in an error message."""


def limit_traces(
    function: Callable[Parameters, Result], max_traces: int | LengthBuckets, *, name: str | None = None
) -> TraceGuard[Parameters, Result]:
    """Wraps a function so that tracing it too often raises: `jax.jit(limit_traces(step, buckets))`.

    A batch of a new shape recompiles a jitted step silently, for seconds or minutes. The guard goes *inside*
    `jax.jit` (and inside `jax.grad` or `jax.vmap` there), which calls it only to trace the function, so that
    it costs nothing while the compiled step runs. It counts every trace, including traces of equal shapes
    with another static argument. Calls without traced arguments, such as calls under `jax.disable_jit`, are
    not counted. Recompilations of a trace for arguments on other devices are not detected.

    Args:
        function: the function, before `jax.jit`.
        max_traces: maximum number of traces; for a `LengthBuckets`, the number of buckets.
        name: name of the function in errors; by default its `__name__`.

    Returns:
        A function with the same arguments. Its `traces` attribute lists the traces so far.

    Raises:
        InvalidArgumentError: the function is not callable or is jitted already.
        TooManyTracesError: raised by the returned function when it is traced more than `max_traces` times;
            the message shows which shapes differ.

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
        raise InvalidArgumentError(f"function must be callable, not {function!r}")
    if _is_jitted(function):
        raise InvalidArgumentError(
            f"{name or get_function_name(function)} is jitted already, so its traces cannot be counted; "
            "put the limit inside: jax.jit(limit_traces(step, MAX_TRACES))"
        )
    limit = (
        len(max_traces)
        if isinstance(max_traces, LengthBuckets)
        else check_int("max_traces", max_traces, minimum=1)
    )
    return TraceGuard(function, limit, name or get_function_name(function))


class TraceGuard(Generic[Parameters, Result]):
    """Callable that counts the traces of a function; the result of `limit_traces`."""

    def __init__(self, function: Callable[Parameters, Result], max_traces: int, name: str) -> None:
        functools.update_wrapper(self, function)
        self._function, self._max_traces, self._name = function, max_traces, name
        self._signature = _get_signature(function, name)
        self._traces: list[dict[str, str]] = []

    @property
    def traces(self) -> tuple[Mapping[str, str], ...]:
        """Arguments of each trace, by name and path: `{"batch.ids": "int32[8,64]", ...}`."""
        return tuple(self._traces)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Calls the function, and counts the call if it is a trace."""
        leaves = _flatten_arguments(self._signature.bind(*args, **kwargs).arguments)
        if not any(map(is_traced, leaves.values())):
            return self._function(*args, **kwargs)
        trace = {path: describe_leaf(leaf) for path, leaf in leaves.items()}
        # Appended before the trace has succeeded, since other threads may be tracing at the same time. A
        # failed trace is removed again.
        self._traces.append(trace)
        try:
            if len(self._traces) > self._max_traces:
                raise TooManyTracesError(_format_error(self._name, self._traces))
            return self._function(*args, **kwargs)
        except BaseException:
            self._traces.remove(trace)
            raise


def _get_signature(function: Callable[..., object], name: str) -> inspect.Signature:
    """Returns the signature of a function; raises `InvalidArgumentError` if it has none."""
    try:
        return inspect.signature(function)
    except ValueError:
        raise InvalidArgumentError(
            f"{name} has no signature; wrap it in a Python function, and limit that function"
        ) from None


def _is_jitted(function: object) -> bool:
    """Returns whether a function, or the function of a `functools.partial`, is the result of `jax.jit`."""
    jax_module = sys.modules.get("jax")
    while isinstance(function, functools.partial):
        function = function.func
    return jax_module is not None and isinstance(function, jax_module.stages.Wrapped)


def _flatten_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Returns the leaves of all arguments by their paths, such as `batch.ids`; none without JAX."""
    if "jax" not in sys.modules:
        return {}
    from jax.tree_util import keystr, tree_flatten_with_path  # noqa: PLC0415 (loaded already)

    return {
        name + keystr(path): leaf
        for name, argument in arguments.items()
        for path, leaf in tree_flatten_with_path(argument)[0]
    }


def _format_error(name: str, traces: Sequence[Mapping[str, str]]) -> str:
    """Returns the error message: the arguments that differ between traces, and advice."""
    paths = dict.fromkeys(path for trace in traces for path in trace)
    differing = [path for path in paths if len({trace.get(path) for trace in traces}) > 1]
    head = (
        f"{name} was traced {len(traces)} times, and limit_traces allows {len(traces) - 1}: each trace "
        "recompiles it."
    )
    if not differing:
        return (
            f"{head} All traces have the same shapes and dtypes: create the jitted step once, outside of the "
            "loop, do not change static arguments or JAX's settings, and put arguments on the same devices "
            "in each step"
        )
    lines = [f"  {number}: {_format_trace(trace, differing)}" for number, trace in enumerate(traces, 1)]
    advice = (
        "Pad batches to a few lengths with collate_padded_batch(..., buckets=LengthBuckets(...)), and drop a "
        "smaller last batch; or allow more traces"
    )
    return "\n".join([f"{head} These arguments differ:", *lines, advice])


def _format_trace(trace: Mapping[str, str], paths: Sequence[str]) -> str:
    """Returns one line of the error message: the shapes of the arguments that differ."""
    shown = ", ".join(f"{path} {trace.get(path, 'absent')}" for path in paths[:_MAX_SHOWN_ARGUMENTS])
    num_hidden = len(paths) - _MAX_SHOWN_ARGUMENTS
    return f"{shown}, and {num_hidden} more" if num_hidden > 0 else shown
