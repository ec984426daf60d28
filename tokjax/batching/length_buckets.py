"""Ladders of lengths: few shapes, and little padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from tokjax._util.arrays import as_integers, is_traced
from tokjax._util.checks import check_float, check_int
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax._util.arrays import Array


@dataclass(frozen=True, repr=False)
class LengthBuckets(Sequence[int]):
    """A ladder of lengths: a row is padded to the lowest rung that holds it.

    A step that is jitted compiles once for each rung, however long rows are. A ladder is a sequence of
    integers, and goes wherever lengths to choose from are wanted: `collate_padded_batch(buckets=...)`,
    `BucketedLoader(bucket_boundaries=...)`, `BucketedTokenField(bucket_boundaries=...)`, `limit_traces`.

    Attributes:
        boundaries: the lengths, rising. (They are sorted, and each is kept once.)

    >>> buckets = LengthBuckets([64, 128, 256])
    >>> buckets.get_padded_lengths([3, 64, 65])
    array([ 64,  64, 128])
    """

    boundaries: Sequence[int]

    def __post_init__(self) -> None:
        """Check the rungs, and sort them."""
        if not isinstance(self.boundaries, Iterable):
            raise InvalidArgumentError(
                f"a ladder is made of its lengths, not of {self.boundaries!r}; give LengthBuckets([64, 128])"
            )
        values = {check_int("a bucket", boundary, minimum=1) for boundary in self.boundaries}
        if not values:
            raise InvalidArgumentError("a ladder with no bucket holds nothing; give LengthBuckets([64, 128])")
        object.__setattr__(self, "boundaries", tuple(sorted(values)))

    @classmethod
    def geometric(
        cls,
        shortest: int,
        longest: int,
        *,
        factor: float | None = None,
        num_buckets: int | None = None,
        multiple_of: int = 1,
    ) -> LengthBuckets:
        """Rungs that grow by a factor, so that padding is bounded whatever the lengths are.

        Above the lowest rung, less than `1 - 1 / factor` of a row is padding, but for what `multiple_of`
        adds.

        Args:
            shortest: the lowest rung.
            longest: what the highest rung holds.
            factor: how many times the rung below each rung is, above 1; 2 by default. The last may be less.
            num_buckets: how many there are, instead of a factor; fewer where rounding makes two of them one.
            multiple_of: round all rungs up to multiples of this.

        >>> LengthBuckets.geometric(64, 1000)
        LengthBuckets([64, 128, 256, 512, 1000])
        >>> LengthBuckets.geometric(10, 1000, num_buckets=3, multiple_of=8)
        LengthBuckets([16, 104, 1000])
        """
        low, step = (
            check_int("shortest", shortest, minimum=1),
            check_int("multiple_of", multiple_of, minimum=1),
        )
        high = check_int("longest", longest, minimum=low)
        if factor is not None and num_buckets is not None:
            raise InvalidArgumentError(f"give factor={factor} or num_buckets={num_buckets}, not both")
        if num_buckets is None:
            return cls(_compute_geometric(low, high, 2.0 if factor is None else factor, step))
        count = check_int("num_buckets", num_buckets, minimum=1)
        spaced = low * (high / low) ** (np.arange(1, count) / max(count - 1, 1))
        # Rounded first: 8 * 2 ** (1 / 3) ** 3 is a little above 16, and would go up a whole step.
        inner = np.ceil(np.round(spaced[:-1], 6)).astype(np.int64).tolist()
        return cls([-(-boundary // step) * step for boundary in [low, *inner, high][-count:]])

    @classmethod
    def fit(cls, lengths: Sequence[int] | Array, num_buckets: int, *, multiple_of: int = 1) -> LengthBuckets:
        """The ladder that pads these lengths least: no other of so many rungs pads less.

        It takes well under a second for a million lengths of ten thousand sorts.

        Args:
            lengths: tokens of each row, integers from 0, of any shape; a sample of a dataset will do.
            num_buckets: how many rungs at most; fewer where there are not so many lengths.
            multiple_of: rungs are multiples of this.

        Raises:
            InvalidArgumentError: there are no lengths, or they are no `int32`s from 0.

        >>> lengths = [3, 3, 4, 9, 10, 30]
        >>> LengthBuckets.fit(lengths, 3)
        LengthBuckets([4, 10, 30])
        """
        max_buckets, step = (
            check_int("num_buckets", num_buckets, minimum=1),
            check_int("multiple_of", multiple_of, minimum=1),
        )
        counted = _count_lengths(lengths, step)
        if max_buckets >= len(counted.boundaries):
            return cls(counted.boundaries.tolist())
        return cls(counted.boundaries[_minimize_padding(counted, max_buckets)].tolist())

    def get_padded_lengths(self, lengths: Sequence[int] | Array | int) -> NDArray[np.int64]:
        """To which length rows are padded. Runs on the host.

        Args:
            lengths: tokens of each row, integers from 0, of any shape.

        Returns:
            `int64`, of that shape.

        Raises:
            InvalidArgumentError: a row is longer than the highest rung.
        """
        counts = _check_lengths(lengths)
        if counts.max(initial=0) > self[-1]:
            raise InvalidArgumentError(
                f"a length is {counts.max()}, and no bucket of {list(self)} holds it; cut rows to "
                f"{self[-1]}, or add a bucket"
            )
        all_boundaries = np.array(self.boundaries, np.int64)
        padded: NDArray[np.int64] = all_boundaries[np.searchsorted(all_boundaries, counts)]
        return padded

    def padding(self, lengths: Sequence[int] | Array) -> float:
        """The share of places that hold padding, where each row is padded to its own rung; 0 without rows.

        Args:
            lengths: tokens of each row, integers, shape `(rows,)`.

        >>> LengthBuckets([4, 8]).padding([4, 3, 5])
        0.25
        """
        counts = _check_lengths(lengths)
        positions = int(self.get_padded_lengths(counts).sum())
        return (positions - int(counts.sum())) / positions if positions else 0.0

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        """A rung, or some of them."""
        return self.boundaries[index]

    def __len__(self) -> int:
        """How many rungs there are: how often a step compiles at most."""
        return len(self.boundaries)

    def __repr__(self) -> str:
        """The call that makes it."""
        return f"LengthBuckets({list(self.boundaries)})"


class _LengthCounts(NamedTuple):
    """Lengths, rounded up.

    Attributes:
        boundaries: the distinct ones, rising, `int64`, shape `(n,)`.
        up_to: how many rows are shorter than each, and how many there are in all, `int64`, shape `(n + 1,)`.
    """

    boundaries: NDArray[np.int64]
    up_to: NDArray[np.int64]


def _count_lengths(lengths: Sequence[int] | Array, step: int) -> _LengthCounts:
    counts = _check_lengths(lengths)
    if not counts.size:
        raise InvalidArgumentError("there are no lengths to fit rungs to; give those of some rows")
    rounded, rows = np.unique(np.maximum(-(-counts // step), 1) * step, return_counts=True)
    return _LengthCounts(rounded, make_row_splits(rows))


def _check_lengths(lengths: Sequence[int] | Array | int) -> NDArray[np.int64]:
    if is_traced(lengths):
        raise InvalidArgumentError(
            "a ladder looks at lengths, which are not known under jax.jit; choose the rung on the host"
        )
    counts: NDArray[np.int64] = as_integers("lengths", lengths, np.int32).astype(np.int64)
    if counts.min(initial=0) < 0:
        raise InvalidArgumentError(f"lengths must be at least 0, and one is {counts.min()}")
    return counts


def _compute_geometric(low: int, high: int, factor: float, step: int) -> list[int]:
    """Each rung a factor above the one below, rounded up, and the last one `high`."""
    # As the decimal that it is written as: 10 * 1.1 would be a little above 11, and so 12.
    ratio = Fraction(str(check_float("factor", factor, minimum=1.0)))
    if ratio == 1:
        raise InvalidArgumentError("factor must be above 1, or rungs would not rise")
    top, boundary = -(-high // step) * step, -(-low // step) * step
    buckets = []
    while boundary < top:
        buckets.append(boundary)
        boundary = -(-boundary * ratio // step) * step
    return [*buckets, top]


def _minimize_padding(counted: _LengthCounts, max_buckets: int) -> list[int]:
    """Which of the distinct lengths are the rungs: by dynamic programming, one rung a round.

    What a ladder costs is the places that rows take. `cost[i]` is the least that those of the first `i`
    lengths take with so many rungs; one rung more, at length `j`, takes `boundaries[j]` for each row from `i` on.
    """
    boundaries, up_to = counted
    cost = np.concatenate([[0], boundaries * up_to[1:]])
    choices = []
    for _ in range(max_buckets - 1):
        before = _find_first_minima(cost, up_to, boundaries)
        choices.append(before)
        cost = np.concatenate([[0], cost[before] + boundaries * (up_to[1:] - up_to[before])])
    chosen = [len(boundaries) - 1]
    for before in reversed(choices):
        chosen.append(int(before[chosen[-1]]) - 1)
    return chosen


def _find_first_minima(
    cost: NDArray[np.int64], up_to: NDArray[np.int64], boundaries: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each `j` the first `i` where `cost[i] - boundaries[j] * up_to[i]` is least.

    It is at most `j`, and never falls as `j` rises (the values are a Monge array). So a `j` halfway between
    two that are known need look only between theirs: each level looks about once at each `i`.
    """
    size = len(boundaries)
    found = np.zeros(size + 1, np.int64)
    found[size] = size  # (a bound, not a place)
    for level in reversed(range((size - 1).bit_length())):
        gap = 1 << level
        wanted = np.arange(gap, size, 2 * gap)
        low, high = found[wanted - gap], np.minimum(found[np.minimum(wanted + gap, size)], wanted)
        width = high - low + 1
        positions = concatenate_ranges(low, width)
        values = cost[positions] - np.repeat(boundaries[wanted], width) * up_to[positions]
        starts = make_row_splits(width)[:-1]
        minimum = np.flatnonzero(values == np.repeat(np.minimum.reduceat(values, starts), width))
        found[wanted] = positions[minimum[np.searchsorted(minimum, starts)]]
    return found[:size]
