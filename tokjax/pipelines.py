"""Functions one after the other: named steps from a text to a batch, over one value or a stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from tokjax._util.arrays import is_jax
from tokjax._util.checks import check_int
from tokjax._util.display import get_function_name
from tokjax._util.executors import map_in_workers, pickle_bytes
from tokjax._util.imports import import_optional
from tokjax._util.threads import check_executor, map_in_threads
from tokjax.core.records import TokenizationBatch
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor

__all__ = [
    "Pipeline",
    "batched",
    "compose",
    "grain_map",
    "pipeline",
]

Item = TypeVar("Item")


class Step(NamedTuple):
    """One function of a pipeline.

    Attributes:
        name: what errors and descriptions call it.
        function: takes one value, and gives one.
    """

    name: str
    function: Callable[[Any], Any]


@dataclass(frozen=True, repr=False)
class Pipeline:
    """Named functions in the order in which they are written, the first first; itself a function.

    A step takes what the one before it gave, be that a text, a list of texts, a record or a batch, and knows
    nothing of streams: `map` applies all steps to each item of one. A pipeline may be a step of another, and
    goes wherever a function goes: `map(pipe, items)`, `grain.MapDataset.source(items).map(pipe)`.

    It pickles if its steps do, as functions of modules do, and `functools.partial`s that give them options.

    Attributes:
        steps: the functions with their names.
    """

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        """Check the steps."""
        object.__setattr__(self, "steps", tuple(map(_check_step, self.steps)))

    def __call__(self, value: Any) -> Any:
        """What the last step gives.

        An error in a step is raised with a note that names the step; a `StopIteration`, which a stream would
        take for its end, becomes the cause of a `RuntimeError`.
        """
        for step in self.steps:
            value = _apply_step(step, value)
        return value

    def then(self, name: str, function: Callable[[Any], Any]) -> Pipeline:
        """The pipeline with one step more, behind the others."""
        return Pipeline((*self.steps, Step(name, function)))

    def map(
        self, items: Iterable[Any], *, workers: int = 1, executor: Executor | None = None
    ) -> Iterator[Any]:
        """What becomes of each item of a stream, in its order, made as it is asked for.

        An error in a step is raised with notes that name the step and the item, counted from 0. It comes
        behind what became of all items before it, as does an error in the stream.

        Args:
            items: a stream, which may have no end; it is read in this thread, `2 * workers` items ahead where
                others do the work.
            workers: how many items are worked on at a time; with one, in this thread.
            executor: where; `None` for threads of this process. Each worker unpickles the pipeline once; each
                item is sent to it on its own, and the result back.

        Raises:
            InvalidArgumentError: the executor is none, or there is one and a step does not pickle.
            RuntimeError: in a worker, a step raised an error that does not unpickle; its text is in this one.

        >>> list(compose(str.strip, len).map([" a", "bcd "]))
        [1, 3]
        """
        concurrency = check_int("workers", workers, minimum=1)
        check_executor(executor)
        numbered = enumerate(items)
        if executor is None:
            return map_in_threads(self._run, numbered, concurrency)
        return map_in_workers(Pipeline._run, self._pickle(), numbered, concurrency, executor)

    def describe(self, example: Any) -> str:
        """A table of what each step gives for an example: kinds, shapes and dtypes. The steps are run.

        >>> from functools import partial
        >>> from tokjax.batching.collate import collate_padded_batch
        >>> from tokjax.core.ragged import ragged_from_rows
        >>> pad = partial(collate_padded_batch, pad_id=0, columns=())
        >>> print(pipeline(("rows", ragged_from_rows), ("padded", pad)).describe([[5, 6, 7], [8]]))
        (example)           list of 2
          [0]               list of 3
            [0]             int
        rows                Ragged
          ids               int32 (4,)
          row_splits        int64 (3,)
        padded              PaddedBatch
          ids               int32 (2, 3)
          attention_mask    int32 (2, 3)
        """
        named = [("(example)", example)]
        for step in self.steps:
            named.append((step.name, _apply_step(step, named[-1][1])))
        lines = [line for name, value in named for line in iter_shapes(name, value)]
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:{width}}    {form}" for name, form in lines)

    def __repr__(self) -> str:
        """The names of the steps."""
        return f"Pipeline({' -> '.join(step.name for step in self.steps)})"

    def _run(self, numbered: tuple[int, Any]) -> Any:
        """The pipeline on an item of a stream."""
        number, item = numbered
        try:
            return self(item)
        except Exception as error:
            error.add_note(f"item {number} of the stream, counted from 0")
            raise

    def _pickle(self) -> bytes:
        try:
            return pickle_bytes(self)
        except Exception:
            for step in self.steps:
                _check_picklable(step)
            raise


def pipeline(*steps: tuple[str, Callable[[Any], Any]]) -> Pipeline:
    """Named functions, one after the other.

    Args:
        *steps: names and functions; the first is applied first.

    Raises:
        InvalidArgumentError: something else is among them.

    >>> shout = pipeline(("stripped", str.strip), ("loud", str.upper))
    >>> shout, shout(" low ")
    (Pipeline(stripped -> loud), 'LOW')
    """
    return Pipeline(tuple(map(_check_step, steps)))


def compose(*functions: Callable[[Any], Any]) -> Pipeline:
    """Functions one after the other, under the names that they have.

    Args:
        *functions: the first is applied first, as in a pipe, so `compose(f, g)(x)` is `g(f(x))`. (In
            mathematics, and in Julia, the last is.)

    >>> compose(str.strip, len)(" low ")
    3
    """
    return Pipeline(tuple(Step(get_function_name(function), function) for function in functions))


def batched(items: Iterable[Item], size: int, *, drop_last: bool = False) -> Iterator[list[Item]]:
    """The items of a stream in lists of one size.

    Args:
        items: a stream, which may have no end; no more of it is read than is asked for.
        size: items a list.
        drop_last: leave out a last list of fewer items, which would have a shape of its own.

    >>> list(batched("abcde", 2)), list(batched("abcde", 2, drop_last=True))
    ([['a', 'b'], ['c', 'd'], ['e']], [['a', 'b'], ['c', 'd']])
    """
    count, iterator = check_int("size", size, minimum=1), iter(items)
    lists = iter(lambda: list(itertools.islice(iterator, count)), [])
    return (some for some in lists if len(some) == count or not drop_last)


def grain_map(function: Callable[[Any], Any]) -> Any:
    """A function as a `grain.transforms.Map`, for `grain.DataLoader(operations=[...])`.

    A `grain.MapDataset` takes functions, and pipelines, as they are.

    Args:
        function: takes one element, and gives one.
    """
    transforms: Any = import_optional("grain.transforms", extra="grain", purpose="grain_map")

    class FunctionMap(transforms.Map):  # type: ignore[misc]
        def map(self, element: Any) -> Any:
            return function(element)

        def __reduce__(self) -> tuple[Any, ...]:
            return grain_map, (function,)

    return FunctionMap()


def _check_step(step: Any) -> Step:
    if isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], str) and callable(step[1]):
        return Step(*step)
    raise InvalidArgumentError(
        f"a step is a name and a function, such as ('tokens', encode), not {step!r:.100}; compose(f, g) "
        "takes functions alone"
    )


def _check_picklable(step: Step) -> None:
    try:
        pickle_bytes(step.function)
    except Exception as error:
        raise InvalidArgumentError(
            f"step {step.name!r} does not pickle ({error}), so no other process can run it; make it a "
            "function of a module, or a functools.partial of one, or leave out executor= for threads"
        ) from error


def _apply_step(step: Step, value: Any) -> Any:
    try:
        return step.function(value)
    except StopIteration as error:
        raise RuntimeError(
            f"step {step.name!r} of a pipeline raised StopIteration, as next() does where nothing is left; "
            "a stream would end there: give next() a default, or raise another error"
        ) from error
    except Exception as error:
        error.add_note(f"in step {step.name!r} of a pipeline")
        raise


def iter_shapes(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The name and the form of a value, then those of what is in it, indented."""
    yield name, _describe_value(value)
    for inner, part in _get_parts(value):
        for line, form in iter_shapes(inner, part):
            yield f"  {line}", form


def _get_parts(value: Any) -> list[tuple[str, Any]]:
    """What is in a value, and worth a line of its own."""
    if isinstance(value, TokenizationBatch):
        return _get_parts(value.ragged)
    if _is_namedtuple(value):
        named = value._asdict().items()
    elif isinstance(value, Mapping):
        named = value.items()
    elif is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}.items()
        return [(name, part) for name, part in named if _is_array(part)]
    elif isinstance(value, (list, tuple)):
        return [("[0]", value[0])] if value else []
    else:
        return []
    return [(str(name), part) for name, part in named if part is not None]


def _describe_value(value: Any) -> str:
    kind = type(value).__name__
    if _is_array(value):
        return f"{'jax ' if is_jax(value) else ''}{value.dtype} {value.shape}"
    if isinstance(value, str):
        return f"str of {len(value)} characters"
    return f"{kind} of {len(value)}" if isinstance(value, Sequence) and not _is_namedtuple(value) else kind


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) or is_jax(value)


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")
