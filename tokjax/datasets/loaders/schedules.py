"""Schedules: weights, batch size and row length as pure functions of the step, and the rows of each step.

A schedule is a value that never changes, a dict from the first step of each phase to its value, or a function
of the step. All schedules of a loader are merged into *phases* in which nothing changes:

    weights     {0: [3, 1], 200: [1, 1]}
    batch_size  {0: 8, 100: 16}                 phases    steps    weights  batch_size
                                                0         0-99     3 : 1    8
                                                1         100-199  3 : 1    16
                                                2         200-     1 : 1    16

Each source is an endless stream of rows. Phases with rows of equal length share one count of rows, which is
apportioned to the sources (`apportionment.py`). The rows of a step are those that the sources receive between
the count before the step and the count after it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax.datasets.loaders.apportionment import Apportionment
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokjax.datasets.loaders.apportionment import Tree

Value = TypeVar("Value")
Scheduled: TypeAlias = "Value | Mapping[int, Value] | Callable[[int], Value]"
"""A value, a dict from first steps to values, or a function of the step."""
MAX_ROWS = 1 << 62


class Phase(NamedTuple):
    """Steps in which no schedule changes.

    Attributes:
        first_step: the first step.
        batch_size: number of rows of each step.
        block_size: number of slots of each row.
        shares: share of each source, with sum 1.
    """

    first_step: int
    batch_size: int
    block_size: int
    shares: tuple[Fraction, ...]


class StepRows(NamedTuple):
    """The rows of a step.

    Attributes:
        block_size: number of slots of each row.
        sources: source of each row, `int64`, shape `(batch_size,)`.
        positions: number of earlier rows of that source with this length, `int64`, shape `(batch_size,)`.
    """

    block_size: int
    sources: NDArray[np.int64]
    positions: NDArray[np.int64]


class RowSchedule:
    """The rows of every step, computed from the step alone.

    Args:
        phases: phases, the first of which starts at step 0.
        tree: the sources, numbered from 0, in groups.
    """

    def __init__(self, phases: list[Phase], tree: Tree) -> None:
        self.phases = phases
        self._first_steps = [phase.first_step for phase in phases]
        # Row at which each phase starts, counted within the phases of its block size.
        self._first_rows: list[int] = []
        self._groups: dict[int, list[int]] = {}  # phases of each block size
        next_rows: dict[int, int] = {}
        for i, phase in enumerate(phases):
            self._groups.setdefault(phase.block_size, []).append(i)
            first = next_rows.setdefault(phase.block_size, 0)
            self._first_rows.append(first)
            if i + 1 < len(phases):
                num_steps = phases[i + 1].first_step - phase.first_step
                next_rows[phase.block_size] = first + num_steps * phase.batch_size
        self._apportionments = {
            block_size: Apportionment(
                tree, [self._first_rows[i] for i in members], [phases[i].shares for i in members]
            )
            for block_size, members in self._groups.items()
        }

    @property
    def block_sizes(self) -> list[int]:
        """The block sizes of all phases, without repetition, ascending."""
        return sorted(self._apportionments)

    @property
    def batch_sizes(self) -> list[int]:
        """The batch sizes of all phases, without repetition, ascending."""
        return sorted({phase.batch_size for phase in self.phases})

    def locate(self, step: int) -> StepRows:
        """Returns the rows of a step. The rows of each source are spread evenly over the batch."""
        index = bisect_right(self._first_steps, step) - 1
        phase = self.phases[index]
        first = self._first_rows[index] + (step - phase.first_step) * phase.batch_size
        if first >= MAX_ROWS:
            raise InvalidArgumentError(
                f"step is {step}, and rows are counted up to 2**62; use a smaller step"
            )
        counter = self._apportionments[phase.block_size]
        begins, ends = counter.count(first), counter.count(first + phase.batch_size)
        counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
        sources = np.repeat(np.arange(len(counts)), counts)
        within = np.concatenate([np.arange(count) for count in counts])
        due = (within + 0.5) / np.repeat(counts, counts)
        order = np.argsort(due, kind="stable")
        return StepRows(phase.block_size, sources[order], (np.repeat(begins, counts) + within)[order])

    def count_rows(self, step: int) -> dict[int, list[int]]:
        """Returns the number of rows of each source before a step, for each block size."""
        rows = dict.fromkeys(self._groups, 0)
        for block_size, members in self._groups.items():
            last = bisect_right(members, step, key=self._first_steps.__getitem__) - 1
            if last >= 0:
                index = members[last]
                phase, next_steps = self.phases[index], self._first_steps[index + 1 : index + 2]
                num_steps = min([step, *next_steps]) - phase.first_step
                rows[block_size] = self._first_rows[index] + num_steps * phase.batch_size
        return {size: self._apportionments[size].count(count) for size, count in rows.items()}

    def count_total_rows(self, step: int) -> int:
        """Returns the number of rows of all sources before a step."""
        return sum(sum(counts) for counts in self.count_rows(step).values())

    def find_first_step(self, is_reached: Callable[[int], bool]) -> int | None:
        """Returns the first step at which a condition holds, for conditions that hold from then on.

        Returns:
            The step; `None` if the condition never holds.
        """
        stop = self.phases[-1].first_step + 1
        limit = self.phases[-1].first_step + MAX_ROWS // self.phases[-1].batch_size
        while not is_reached(stop):
            if stop >= limit:
                return None
            stop = min(2 * stop, limit)
        start = -1  # the condition holds at `stop`, and not at `start`
        while stop - start > 1:
            middle = (start + stop) // 2
            start, stop = (start, middle) if is_reached(middle) else (middle, stop)
        return stop


def merge_schedules(
    batch_sizes: dict[int, int], block_sizes: dict[int, int], shares: dict[int, tuple[Fraction, ...]]
) -> list[Phase]:
    """Merges the schedules of a loader, as `parse_schedule` returns them, into phases."""
    phases = []
    current: list[Any] = [None, None, None]
    for step in sorted({*batch_sizes, *block_sizes, *shares}):
        schedules: list[dict[int, Any]] = [batch_sizes, block_sizes, shares]
        current = [schedule.get(step, value) for schedule, value in zip(schedules, current, strict=True)]
        phases.append(Phase(step, *current))
    return phases


def parse_schedule(
    name: str, schedule: Scheduled[Any], convert: Callable[[Any], Value], num_steps: int | None
) -> dict[int, Value]:
    """Returns a schedule as a dict from the first step of each phase to its value.

    Args:
        name: name of the argument, for errors.
        schedule: the schedule.
        convert: function that checks a value and converts it.
        num_steps: number of steps of the run. A function is called for each of them.

    Raises:
        InvalidArgumentError: a dict has no step 0 or keys that are not steps; a function comes without
            `num_steps`.
    """
    if callable(schedule):
        if num_steps is None:
            raise InvalidArgumentError(
                f"{name} is a function of the step, so the length of the run must be known; pass "
                "num_steps=NUM_STEPS, or a dict from the first step of each phase to its value"
            )
        return _compress((step, convert(schedule(step))) for step in range(num_steps))
    if is_phases(schedule):
        if 0 not in schedule:
            raise InvalidArgumentError(
                f"{name} starts at step {min(schedule)}, and the first step is 0; add a value for step 0"
            )
        checked = {check_int(f"a step of {name}", step, minimum=0): schedule[step] for step in schedule}
        return _compress((step, convert(checked[step])) for step in sorted(checked))
    return {0: convert(schedule)}


def is_phases(schedule: object) -> bool:
    """Returns whether a value is a dict from steps to values. Weights can also be a dict from names."""
    return (
        isinstance(schedule, Mapping)
        and len(schedule) > 0
        and all(isinstance(step, (int, np.integer)) for step in schedule)
    )


def _compress(values: Iterable[tuple[int, Value]]) -> dict[int, Value]:
    """Returns pairs of step and value as a dict, without those that repeat the value before."""
    compressed: dict[int, Value] = {}
    last: Any = None
    for step, value in values:
        if not compressed or value != last:
            compressed[step] = last = value
    return compressed


def as_fraction(name: str, weight: object) -> Fraction:
    """Returns a weight as the fraction that it is written as: `0.1` is 1/10.

    Raises:
        InvalidArgumentError: the weight is not a finite number of at least 0.
    """
    if isinstance(weight, Fraction) and weight >= 0:
        return weight
    if isinstance(weight, (int, np.integer)) and not isinstance(weight, bool) and weight >= 0:
        return Fraction(int(weight))
    if not isinstance(weight, (str, bytes, bool)):
        try:
            number = float(weight)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if 0 <= number < math.inf:
            return Fraction(repr(number))
    raise InvalidArgumentError(f"{name} must be a number of at least 0, not {weight!r}")
