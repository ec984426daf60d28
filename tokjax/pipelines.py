"""Pipelines: compositions of named functions, applied to one value or to each item of a stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from tokjax._util.arrays import is_jax
from tokjax._util.checks import check_int, check_iterable
from tokjax._util.display import get_function_name
from tokjax._util.executors import check_executor, map_in_workers, pickle_bytes
from tokjax._util.imports import import_optional, mark_namespace
from tokjax._util.threads import MAX_THREADS, map_in_threads
from tokjax.core.encode_options import accept_options
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
mark_namespace(__name__)

Item = TypeVar("Item")


class Step(NamedTuple):
    """One function of a pipeline.

    Attributes:
        name: the name of the step in errors and descriptions.
        function: a function of one argument.
    """

    name: str
    function: Callable[[Any], Any]


@dataclass(frozen=True, repr=False)
class Pipeline:
    """A composition of named functions, which is itself a function. The first step is applied first.

    The argument of each step is the result of the previous one: a text, a list of texts, a record, a batch or
    any other value. Steps process single values; `map` applies all steps to each item of a stream. A pipeline
    can be used wherever a function can: as a step of another pipeline, in `map(pipe, items)`, or in
    `grain.MapDataset.source(items).map(pipe)`.

    A pipeline can be pickled if its steps can. Functions of modules can, and so can `functools.partial`s of
    them.

    Attributes:
        steps: the functions with their names.
    """

    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        """Checks the steps."""
        object.__setattr__(self, "steps", tuple(map(_check_step, check_iterable("steps", self.steps))))

    def __call__(self, value: Any) -> Any:
        """Applies all steps to a value, and returns the result of the last step.

        An error in a step is raised with a note that names the step. A `StopIteration` is
        converted to a `RuntimeError`, since it would silently end a stream.
        """
        for step in self.steps:
            value = _apply_step(step, value)
        return value

    def then(self, name: str, function: Callable[[Any], Any]) -> Pipeline:
        """Returns a new pipeline with one more step at the end."""
        return Pipeline((*self.steps, Step(name, function)))

    def map(
        self, items: Iterable[Any], *, workers: int = 1, executor: Executor | None = None
    ) -> Iterator[Any]:
        """Applies the pipeline lazily to each item of a stream, and yields the results in the same order.

        An error in a step is raised with notes that name the step and the 0-based number of the item. It is
        raised after the results of all earlier items, and so is an error of the stream itself.

        Args:
            items: the items, a possibly infinite stream. It is read in the calling thread, up to
                `2 * workers` items ahead if there is more than one worker.
            workers: the number of items that are processed concurrently. A single worker without an executor
                runs in the calling thread.
            executor: the executor that runs the steps; `None` for threads of this process. Each worker
                unpickles the pipeline once. Items and results are sent one by one.

        Raises:
            InvalidArgumentError: the executor is not a `concurrent.futures.Executor`, or there is an executor
                and a step can't be pickled.
            RuntimeError: a step raised an error in a worker that can't be unpickled; the message contains its
                text.

        >>> list(compose(str.strip, len).map([" a", "bcd "]))
        [1, 3]
        """
        concurrency = check_int("workers", workers, minimum=1, maximum=MAX_THREADS)
        check_executor(executor)
        numbered = enumerate(check_iterable("items", items))
        if executor is None:
            return map_in_threads(self._run, numbered, concurrency)
        return map_in_workers(Pipeline._run, self._pickle(), numbered, concurrency, executor)

    def describe(self, example: Any) -> str:
        """Returns a table of the results of all steps for an example: types, shapes and dtypes.

        Runs the steps.

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
        lines = [line for name, value in named for line in _iter_descriptions(name, value)]
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:{width}}    {description}" for name, description in lines)

    def __repr__(self) -> str:
        """Shows the names of the steps."""
        return f"Pipeline({' -> '.join(step.name for step in self.steps)})"

    def _run(self, numbered: tuple[int, Any]) -> Any:
        """Applies the pipeline to a numbered item of a stream."""
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
    """Composes named functions. Use `compose` for functions without names.

    Args:
        *steps: pairs of a name and a function of one argument; the first function is applied first.

    Raises:
        InvalidArgumentError: a step is not a pair of a name and a function.

    >>> shout = pipeline(("stripped", str.strip), ("loud", str.upper))
    >>> shout, shout(" low ")
    (Pipeline(stripped -> loud), 'LOW')
    """
    return Pipeline(steps)  # type: ignore[arg-type]


def compose(*functions: Callable[[Any], Any]) -> Pipeline:
    """Composes functions under their own names. Use `pipeline` to choose the names.

    Args:
        *functions: functions of one argument. The first is applied first, as in a shell pipe:
            `compose(f, g)(x)` is `g(f(x))`. (In mathematics, and in Julia, the last is applied first.)

    >>> compose(str.strip, len)(" low ")
    3
    """
    return Pipeline(tuple(Step(get_function_name(function), function) for function in functions))


@accept_options()
def batched(items: Iterable[Item], size: int, *, drop_last: bool = False) -> Iterator[list[Item]]:
    """Yields the items of a stream in lists of the same size.

    Args:
        items: a possibly infinite stream, which is read lazily.
        size: the number of items per list.
        drop_last: whether to drop the last list if it has fewer items. A jitted function is compiled
            again for the other shape of such a batch.

    >>> list(batched("abcde", 2)), list(batched("abcde", 2, drop_last=True))
    ([['a', 'b'], ['c', 'd'], ['e']], [['a', 'b'], ['c', 'd']])
    """
    count, iterator = check_int("size", size, minimum=1), check_iterable("items", items)
    lists = iter(lambda: list(itertools.islice(iterator, count)), [])
    return (batch for batch in lists if len(batch) == count) if drop_last else lists


def grain_map(function: Callable[[Any], Any]) -> Any:
    """Wraps a function as a `grain.transforms.Map`, for `grain.DataLoader(operations=[...])`.

    `grain.MapDataset.map` accepts functions and pipelines directly.

    Args:
        function: a function of one element.
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
        "takes functions without names"
    )


def _check_picklable(step: Step) -> None:
    try:
        pickle_bytes(step.function)
    except Exception as error:
        raise InvalidArgumentError(
            f"step {step.name!r} can't be pickled ({error}), so no other process can run it; make it a "
            "function of a module or a functools.partial of one, or leave out executor= to use threads"
        ) from error


def _apply_step(step: Step, value: Any) -> Any:
    try:
        return step.function(value)
    except StopIteration as error:
        raise RuntimeError(
            f"step {step.name!r} of a pipeline raised StopIteration, as next() does for an exhausted "
            "iterator; a stream would end there: pass a default to next(), or raise another error"
        ) from error
    except Exception as error:
        error.add_note(f"in step {step.name!r} of a pipeline")
        raise


def _iter_descriptions(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yields `(name, description)` of a value and, with indented names, of its parts."""
    yield name, _describe_value(value)
    for part_name, part in _get_parts(value):
        for indented_name, description in _iter_descriptions(part_name, part):
            yield f"  {indented_name}", description


def _get_parts(value: Any) -> list[tuple[str, Any]]:
    """Returns the named parts of a value that are described on separate lines."""
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
