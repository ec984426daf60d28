"""Schedules: weights, batch size and row length as pure functions of the step, and the rows of each step.

A schedule is a value that never changes, a dict from the first step of each phase to its value, or a function
of the step. All schedules of a loader are merged into *phases* in which nothing changes:

    weights     {0: [3, 1], 200: [1, 1]}
    batch_size  {0: 8, 100: 16}                 phases    steps    weights  batch_size
                                                0         0-99     3 : 1    8
                                                1         100-199  3 : 1    16
                                                2         200-     1 : 1    16

Each source is an endless stream of rows. Phases with rows of equal length share one count of rows, which is
apportioned to the sources (`Apportionment`). The rows of a step are those that the sources receive between
the count before the step and the count after it.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.datasets.dataset import Dataset
    from tokjax.datasets.dataset_types import TokenDataset

Value = TypeVar("Value")
Scheduled: TypeAlias = "Value | Mapping[int, Value] | Callable[[int], Value]"
"""A value, a dict from first steps to values, or a function of the step."""
Sources: TypeAlias = "Dataset | Sequence[Dataset] | Mapping[str, Any]"
"""A dataset, several, or a dict from names to datasets or to further dicts of this kind."""
Weights: TypeAlias = "Sequence[float] | Mapping[str, float]"
Tree: TypeAlias = "int | list[Tree]"
"""A source, or a group of sources, nested to any depth."""
ONE = 1 << 64
"""Number that stands for one row."""
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


class Apportionment:
    """Number of rows of each source among the first `n` rows, for any `n`.

    Sources are the leaves of a binary tree. A node that has received `n` rows gives its left child the share
    of `n` rounded to an integer, and the right child the rest. Both counts never decrease as `n` grows, and
    each differs from its share by at most half a row at one node. Example with the shares 1/2, 3/10 and 1/5,
    in a tree of (1/2) and (3/10, 1/5):

        rows   0  1  2  3  4  5  6  7  8  9  10      shares of 10 rows
        left   0  1  1  2  2  3  3  4  4  5  5       5
        right  0  0  1  1  2  2  3  3  4  4  5       divided again, in shares 3/5 and 2/5:
          3/10 0  0  1  1  1  1  2  2  2  2  3       3
          1/5  0  0  0  0  1  1  1  1  2  2  2       2

    The counts of step 10**9 are computed as directly as those of step 1. Shares may change at given rows. A
    node then rounds the sum of its shares of all periods, so that errors do not add up.

    All numbers are integers: shares are multiples of `1 / ONE`, and sums are Python integers. So the counts
    are the same on every machine, and off by no rounding error after any number of rows that a run can reach.

    A count differs from the exact share by less than 1 with up to three sources, and by less than 2 with any
    number of them in one group. Where all shares are whole numbers of rows, the counts equal them.

    Args:
        tree: the sources, numbered from 0, in groups.
        first_rows: row at which each period starts, ascending from 0.
        shares: share of each source in each period; at least 0, with sum 1.

    >>> from fractions import Fraction
    >>> halves = Apportionment([0, 1], [0], [[Fraction(3, 4), Fraction(1, 4)]])
    >>> [halves.count(rows) for rows in range(5)]
    [[0, 0], [1, 0], [2, 0], [2, 1], [3, 1]]
    """

    def __init__(self, tree: Tree, first_rows: Sequence[int], shares: Sequence[Sequence[Fraction]]) -> None:
        periods = [_round_shares(each) for each in shares]
        self._num_sources = len(shares[0])
        self._first_rows = list(first_rows)
        self._root = _build_node(tree, self._first_rows, periods)

    def count(self, rows: int) -> list[int]:
        """Returns the number of rows of each source among the first `rows` rows."""
        counts = [0] * self._num_sources
        self._root.divide(rows, counts)
        return counts


class _Leaf:
    """One source.

    Attributes:
        slopes: share of each period, in multiples of `1 / ONE`.
    """

    def __init__(self, source: int, slopes: list[int]) -> None:
        self.slopes = slopes
        self._source = source

    def divide(self, rows: int, counts: list[int]) -> None:
        """Writes the number of rows of the source."""
        counts[self._source] = rows


class _Pair:
    """Two nodes that divide the rows of their parent.

    The exact share of the left child of the first `n` rows of the parent is piecewise linear in `n`. The ends
    of its pieces are stored, without the periods in which neither child has a share.

    Attributes:
        slopes: share of each period of both children together, in multiples of `1 / ONE`.
    """

    def __init__(self, left: _Node, right: _Node, first_rows: list[int]) -> None:
        self.slopes: list[int] = [a + b for a, b in zip(left.slopes, right.slopes, strict=True)]
        self._left: _Node = left
        self._right: _Node = right
        self._starts: list[int] = []  # exact shares of both children at the start of each period
        self._left_starts: list[int] = []
        self._ratios: list[tuple[int, int]] = []  # share of the left child, and of both
        both_sum = left_sum = 0
        for i, slope in enumerate(self.slopes):
            if slope:
                self._starts.append(both_sum)
                self._left_starts.append(left_sum)
                self._ratios.append((left.slopes[i], slope))
            if i + 1 < len(first_rows):
                length = first_rows[i + 1] - first_rows[i]
                both_sum += length * slope
                left_sum += length * left.slopes[i]

    def divide(self, rows: int, counts: list[int]) -> None:
        """Writes the number of rows of each source below this node, of `rows` rows in total."""
        left = self._compute_left(rows) if rows else 0
        self._left.divide(left, counts)
        self._right.divide(rows - left, counts)

    def _compute_left(self, rows: int) -> int:
        """Returns the share of the left child, rounded to an integer; halves are rounded up."""
        due = rows * ONE
        period = max(bisect_right(self._starts, due) - 1, 0)
        share, total = self._ratios[period]
        numerator = self._left_starts[period] * total + (due - self._starts[period]) * share
        return (2 * numerator + ONE * total) // (2 * ONE * total)


_Node: TypeAlias = "_Leaf | _Pair"


def _build_node(tree: Tree, first_rows: list[int], periods: list[list[int]]) -> _Node:
    """Builds the binary tree. In a group, the two nodes with the smallest shares are joined first.

    This is Huffman's algorithm. It keeps large shares near the root, where counts are most exact. Shares are
    summed over periods.
    """
    if isinstance(tree, int):
        return _Leaf(tree, [shares[tree] for shares in periods])
    nodes = [_build_node(child, first_rows, periods) for child in tree]
    heap = [(sum(node.slopes), i, node) for i, node in enumerate(nodes)]
    heapq.heapify(heap)
    while len(heap) > 1:
        right_share, _, right = heapq.heappop(heap)
        left_share, order, left = heapq.heappop(heap)
        heapq.heappush(heap, (left_share + right_share, order + len(nodes), _Pair(left, right, first_rows)))
    return heap[0][2]


def _round_shares(shares: Sequence[Fraction]) -> list[int]:
    """Returns shares as multiples of `1 / ONE` with the sum `ONE`. The largest share takes the remainder."""
    rounded = [share.numerator * ONE // share.denominator for share in shares]
    largest = max(range(len(rounded)), key=rounded.__getitem__)
    rounded[largest] += ONE - sum(rounded)
    return rounded


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
    def batch_sizes(self) -> list[int]:
        """The batch sizes of all phases, without repetition, ascending."""
        return sorted({phase.batch_size for phase in self.phases})

    def locate(self, step: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        """Returns the rows of a step. The rows of each source are spread evenly over the batch.

        Returns:
            Number of slots of each row; source of each row, `int64`, shape `(batch_size,)`; and number of
            earlier rows of that source with this length, `int64`, shape `(batch_size,)`.
        """
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
        return (phase.block_size, sources[order], (np.repeat(begins, counts) + within)[order])

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


def flatten_sources(sources: Sources) -> tuple[list[str], list[TokenDataset], Tree]:
    """Returns the names of all datasets, the datasets, and the groups of their numbers.

    >>> flatten_sources({"web": "a", "code": {"python": "b", "rust": "c"}})
    (['web', 'code/python', 'code/rust'], ['a', 'b', 'c'], [0, [1, 2]])
    """
    names: list[str] = []
    datasets: list[TokenDataset] = []

    def visit(name: str, value: Any) -> Tree:
        if not isinstance(value, Mapping):
            names.append(name)
            datasets.append(value)
            return len(names) - 1
        if not value:
            raise InvalidArgumentError(f"the group of datasets {name!r} is empty; leave it out")
        for key in value:
            if not isinstance(key, str) or "/" in key or not key:
                raise InvalidArgumentError(f"names of datasets must be texts without '/', not {key!r}")
        return [visit(f"{name}/{key}" if name else key, child) for key, child in value.items()]

    if isinstance(sources, Mapping):
        tree = visit("", sources)
    else:
        tree = [visit(str(i), each) for i, each in enumerate(list_datasets(sources))]
    return names, datasets, tree


def list_datasets(sources: Any) -> Sequence[Any]:
    """Returns one or several datasets as a sequence. A named tuple, as of `write_dataset`, is one of them."""
    is_sequence = isinstance(sources, (list, tuple)) and not hasattr(sources, "_fields")
    return sources if is_sequence else [sources]


def compute_shares(names: Sequence[str], weights: Weights) -> tuple[Fraction, ...]:
    """Returns the share of each dataset: the product of its share and those of the groups around it.

    >>> weights = {"web": 1, "code": 1, "code/python": 3, "code/rust": 1}
    >>> compute_shares(["web", "code/python", "code/rust"], weights)
    (Fraction(1, 2), Fraction(3, 8), Fraction(1, 8))
    """
    parts = [name.split("/") for name in names]
    groups: dict[str, dict[str, None]] = {}  # names in each group, in order
    for part in parts:
        for depth in range(len(part)):
            groups.setdefault("/".join(part[:depth]), {})["/".join(part[: depth + 1])] = None
    given = get_by_name("weights", weights, [name for group in groups.values() for name in group])
    shares: dict[str, Fraction] = {"": Fraction(1)}
    for group, members in groups.items():
        fractions = {name: as_fraction(f"the weight of {name!r}", given[name]) for name in members}
        total = sum(fractions.values())
        if not total:
            raise InvalidArgumentError(
                f"weights of {', '.join(members)} are all 0; at least one must be above 0"
            )
        shares |= {name: shares[group] * fraction / total for name, fraction in fractions.items()}
    return tuple(shares[name] for name in names)


def get_by_name(argument: str, values: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns values by name. A sequence has one value for each name."""
    if isinstance(values, Mapping):
        missing = [name for name in names if name not in values]
        unknown = [name for name in values if name not in names]
        if missing or unknown:
            wrong = f"has none for {missing[0]!r}" if missing else f"has an unknown name, {unknown[0]!r}"
            raise InvalidArgumentError(f"{argument} {wrong}; pass a number for each of {', '.join(names)}")
        return dict(values)
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) != len(names):
        raise InvalidArgumentError(
            f"{argument} must be {len(names)} numbers, for {', '.join(names)}, not {values!r:.100}"
        )
    return dict(zip(names, values, strict=True))
