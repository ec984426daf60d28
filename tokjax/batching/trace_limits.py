"""A limit on how often a jitted step is traced: each trace compiles it anew."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from tokjax._util.array_namespace import is_traced
from tokjax._util.checks import checked_int
from tokjax._util.display import describe_leaf, name_of
from tokjax.batching.length_buckets import LengthBuckets
from tokjax.core.errors import InvalidArgumentError, TooManyTracesError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Given = ParamSpec("Given")
Result = TypeVar("Result")

_MOST_ARGUMENTS = 6
"""How many arguments of a trace an error shows."""


def limit_traces(
    function: Callable[Given, Result], most: int | LengthBuckets, *, name: str | None = None
) -> TraceGuard[Given, Result]:
    """A step that refuses to be traced too often: `jax.jit(limit_traces(step, ladder))`.

    A batch of a new shape compiles a step anew, silently, for seconds or minutes. The guard goes *inside*
    `jax.jit` (and inside `jax.grad` or `jax.vmap` there), which calls it only to trace it: while the step
    runs, it costs nothing. It counts each trace, also where shapes are the same but a static argument is
    not. Calls with no traced argument, as under `jax.disable_jit`, do not count. (Nor does it see that JAX
    compiles a trace again for arguments that lie on other devices.)

    Args:
        function: the step, before `jax.jit`.
        most: how often it may be traced; of a ladder, once for each rung.
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
            f"{name or name_of(function)} is jitted already, and is not called again to be traced; put the "
            "limit inside: jax.jit(limit_traces(step, MOST))"
        )
    limit = len(most) if isinstance(most, LengthBuckets) else checked_int("most", most, least=1)
    return TraceGuard(function, limit, name or name_of(function))


class TraceGuard(Generic[Given, Result]):
    """What `limit_traces` gives: the function, and which traces there were."""

    def __init__(self, function: Callable[Given, Result], most: int, name: str) -> None:
        functools.update_wrapper(self, function)
        self._function, self._most, self._name = function, most, name
        self._signature = _signature_of(function, name)
        self._traces: list[dict[str, str]] = []

    @property
    def traces(self) -> tuple[Mapping[str, str], ...]:
        """For each trace the arguments, by name and place: `{"batch.ids": "int32[8,64]", ...}`."""
        return tuple(self._traces)

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        """Call the function; where that is a trace, count it."""
        leaves = _leaves(self._signature.bind(*args, **kwargs).arguments)
        if not any(map(is_traced, leaves.values())):
            return self._function(*args, **kwargs)
        trace = {place: describe_leaf(leaf) for place, leaf in leaves.items()}
        self._traces.append(trace)  # before it is known to be one: other threads may be tracing too
        try:
            if len(self._traces) > self._most:
                raise TooManyTracesError(_complaint(self._name, self._traces))
            return self._function(*args, **kwargs)
        except BaseException:
            self._traces.remove(trace)
            raise


def _signature_of(function: Callable[..., object], name: str) -> inspect.Signature:
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


def _leaves(arguments: Mapping[str, object]) -> dict[str, object]:
    """All that is in the arguments, by name and place there."""
    if "jax" not in sys.modules:
        return {}
    from jax.tree_util import keystr, tree_flatten_with_path  # noqa: PLC0415 (loaded already)

    return {
        name + keystr(path): leaf
        for name, argument in arguments.items()
        for path, leaf in tree_flatten_with_path(argument)[0]
    }


def _complaint(name: str, traces: Sequence[Mapping[str, str]]) -> str:
    places = dict.fromkeys(place for trace in traces for place in trace)
    differing = [place for place in places if len({trace.get(place) for trace in traces}) > 1]
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
    lines = [f"  {number}: {_shown(trace, differing)}" for number, trace in enumerate(traces, 1)]
    advice = (
        "Pad batches to few lengths, as collate_padded_batch(..., buckets=LengthBuckets(...)) does, and "
        "leave out a last one of fewer rows; or allow more traces"
    )
    return "\n".join([f"{head} What differs:", *lines, advice])


def _shown(trace: Mapping[str, str], places: Sequence[str]) -> str:
    shown = ", ".join(f"{place} {trace.get(place, 'absent')}" for place in places[:_MOST_ARGUMENTS])
    more = len(places) - _MOST_ARGUMENTS
    return f"{shown}, and {more} more" if more > 0 else shown
