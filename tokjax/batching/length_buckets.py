"""Length buckets: a few lengths to pad rows to, chosen for few compiled shapes and little padding.

`LengthBuckets.fit` chooses the boundaries with the least padding by dynamic programming. An example with the
lengths 3 3 4 9 10 30 and two buckets:

    i                       0    1    2    3    4    5
    boundaries[i]           3    4    9   10   30             distinct lengths, rounded up to `multiple_of`
    up_to[i]                0    2    3    4    5    6        number of rows shorter than boundaries[i]

    one bucket     cost     0    6   12   36   50  180        cost[i] = boundaries[i - 1] * up_to[i]

    two buckets    cost[5] = min over i of cost[i] + 30 * (6 - up_to[i])
                           i = 2: 12 + 90 = 102    i = 3: 36 + 60 = 96    i = 4: 50 + 30 = 80

`cost[i]` is the number of positions of the first i lengths, tokens and padding. The minimum is at i = 4: the
first 4 lengths share the bucket 10, and the rest the bucket 30. Each further bucket is one more round. For
all lengths together, a round takes about `n log n` steps rather than `n ** 2`, since the best `i` never
decreases from one boundary to the next: see `_find_first_minima`. See docs/batching.md for how to use
buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from tokjax._util.arrays import as_integers
from tokjax._util.checks import check_float, check_int, is_iterable
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax._util.arrays import Array


@dataclass(frozen=True, repr=False)
class LengthBuckets(Sequence[int]):
    """Length buckets: a row is padded to the smallest boundary that is at least its length.

    A jitted step is compiled once per bucket, whatever the lengths of rows are. Length buckets are a sequence
    of integers, and are accepted by all functions that take bucket boundaries:
    `collate_padded_batch(buckets=...)`, `BucketedLoader(bucket_boundaries=...)`,
    `BucketedTokenField(bucket_boundaries=...)`.

    Attributes:
        boundaries: lengths of the buckets, at least 1, in increasing order. (The constructor sorts and
            deduplicates them.)

    Raises:
        InvalidArgumentError: `boundaries` is empty, or a boundary is not a positive integer.

    >>> buckets = LengthBuckets([64, 128, 256])
    >>> buckets.compute_padded_lengths([3, 64, 65])
    array([ 64,  64, 128])
    """

    boundaries: Sequence[int]

    def __post_init__(self) -> None:
        """Checks, sorts and deduplicates the boundaries."""
        if not is_iterable(self.boundaries):
            raise InvalidArgumentError(
                f"boundaries must be lengths, not {self.boundaries!r}; pass LengthBuckets([64, 128])"
            )
        values = {check_int("a bucket", boundary, minimum=1) for boundary in self.boundaries}
        if not values:
            raise InvalidArgumentError(
                "boundaries must contain at least one bucket; pass LengthBuckets([64, 128])"
            )
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
        """Returns buckets that grow by a constant factor, so that padding is bounded for any lengths.

        Of a row longer than the smallest boundary, less than `1 - 1 / factor` is padding, not counting the
        padding that `multiple_of` adds.

        Args:
            shortest: the smallest boundary.
            longest: length that the largest boundary must hold.
            factor: ratio of each boundary to the previous one, above 1; 2 by default. The last ratio may be
                smaller.
            num_buckets: number of buckets, instead of `factor`; fewer where rounding makes boundaries equal.
            multiple_of: boundaries are rounded up to multiples of this.

        Raises:
            InvalidArgumentError: both `factor` and `num_buckets` are set, or an argument is out of range.

        >>> LengthBuckets.geometric(64, 1000)
        LengthBuckets([64, 128, 256, 512, 1000])
        >>> LengthBuckets.geometric(10, 1000, num_buckets=3, multiple_of=8)
        LengthBuckets([16, 104, 1000])
        """
        low = check_int("shortest", shortest, minimum=1)
        step = check_int("multiple_of", multiple_of, minimum=1)
        high = check_int("longest", longest, minimum=low)
        if factor is not None and num_buckets is not None:
            raise InvalidArgumentError(f"pass factor={factor} or num_buckets={num_buckets}, not both")
        if num_buckets is None:
            return cls(_compute_geometric(low, high, 2.0 if factor is None else factor, step))
        count = check_int("num_buckets", num_buckets, minimum=1)
        spaced = low * (high / low) ** (np.arange(1, count) / max(count - 1, 1))
        # Floating-point errors are rounded away first: 8 * 2 ** (1 / 3) ** 3 is slightly more than 16, and
        # would be rounded up to the next multiple.
        inner = np.ceil(np.round(spaced[:-1], 6)).astype(np.int64).tolist()
        return cls([-(-boundary // step) * step for boundary in [low, *inner, high][-count:]])

    @classmethod
    def fit(cls, lengths: Sequence[int] | Array, num_buckets: int, *, multiple_of: int = 1) -> LengthBuckets:
        """Returns the buckets with the least padding for the given lengths.

        The result is optimal among all choices of at most `num_buckets` boundaries. It takes well under a
        second for a million rows with ten thousand distinct lengths.

        Args:
            lengths: number of tokens of each row, integers from 0, any shape; a sample of a dataset is
                enough.
            num_buckets: maximum number of buckets; the result has fewer if there are fewer distinct lengths.
            multiple_of: boundaries are rounded up to multiples of this.

        Raises:
            InvalidArgumentError: `lengths` is empty, or a length is negative or does not fit `int32`.

        >>> lengths = [3, 3, 4, 9, 10, 30]
        >>> LengthBuckets.fit(lengths, 3)
        LengthBuckets([4, 10, 30])
        """
        max_buckets = check_int("num_buckets", num_buckets, minimum=1)
        step = check_int("multiple_of", multiple_of, minimum=1)
        counted = _count_lengths(lengths, step)
        if max_buckets >= len(counted.boundaries):
            return cls(counted.boundaries.tolist())
        return cls(counted.boundaries[_minimize_padding(counted, max_buckets)].tolist())

    def compute_padded_lengths(self, lengths: Sequence[int] | Array | int) -> NDArray[np.int64]:
        """Returns the boundary that each row is padded to. Runs on the host.

        Args:
            lengths: number of tokens of each row, integers from 0, any shape.

        Returns:
            `int64`, of the same shape.

        Raises:
            InvalidArgumentError: a row is longer than the largest boundary.
        """
        counts = _check_lengths(lengths)
        if counts.max(initial=0) > self[-1]:
            raise InvalidArgumentError(
                f"length {counts.max()} does not fit any bucket of {list(self)}; truncate rows to "
                f"{self[-1]}, or add a bucket"
            )
        all_boundaries = np.array(self.boundaries, np.int64)
        padded: NDArray[np.int64] = all_boundaries[np.searchsorted(all_boundaries, counts)]
        return padded

    def padding(self, lengths: Sequence[int] | Array) -> float:
        """Returns the fraction of padding, if each row is padded to its bucket; 0 without rows.

        Args:
            lengths: number of tokens of each row, integers, shape `(rows,)`.

        >>> LengthBuckets([4, 8]).padding([4, 3, 5])
        0.25
        """
        counts = _check_lengths(lengths)
        positions = int(self.compute_padded_lengths(counts).sum())
        return (positions - int(counts.sum())) / positions if positions else 0.0

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        """Returns one boundary, or a slice of the boundaries."""
        return self.boundaries[index]

    def __len__(self) -> int:
        """Returns the number of buckets, which is the maximum number of compilations of a step."""
        return len(self.boundaries)

    def __repr__(self) -> str:
        """Returns the call that creates these buckets."""
        return f"LengthBuckets({list(self.boundaries)})"


class _LengthCounts(NamedTuple):
    """Number of rows by length, where lengths are rounded up to a multiple.

    Attributes:
        boundaries: distinct rounded lengths, increasing, `int64`, shape `(n,)`.
        up_to: number of rows shorter than each boundary, and the number of all rows, `int64`, shape
            `(n + 1,)`.
    """

    boundaries: NDArray[np.int64]
    up_to: NDArray[np.int64]


def _count_lengths(lengths: Sequence[int] | Array, step: int) -> _LengthCounts:
    """Counts the rows of each length after rounding up to a multiple of `step`."""
    counts = _check_lengths(lengths)
    if not counts.size:
        raise InvalidArgumentError("lengths is empty; pass the length of at least one row")
    rounded, rows = np.unique(np.maximum(-(-counts // step), 1) * step, return_counts=True)
    return _LengthCounts(rounded, make_row_splits(rows))


def _check_lengths(lengths: Sequence[int] | Array | int) -> NDArray[np.int64]:
    """Returns lengths as `int64`; raises `InvalidArgumentError` if one is not an `int32` from 0."""
    flat = as_integers("lengths", lengths, np.int32, under_jit="choose the bucket on the host")
    counts: NDArray[np.int64] = flat.astype(np.int64)
    if counts.min(initial=0) < 0:
        raise InvalidArgumentError(f"lengths must be at least 0, not {counts.min()}")
    return counts


def _compute_geometric(low: int, high: int, factor: float, step: int) -> list[int]:
    """Returns boundaries that grow by `factor` from `low` to `high`, rounded up to multiples of `step`."""
    # The factor is used as an exact decimal: in floating point, 10 * 1.1 is slightly more than 11, and would
    # be rounded up to 12.
    ratio = Fraction(str(check_float("factor", factor, minimum=1.0)))
    if ratio == 1:
        raise InvalidArgumentError("factor must be greater than 1, so that boundaries increase")
    top, boundary = -(-high // step) * step, -(-low // step) * step
    lengths = []
    while boundary < top:
        lengths.append(boundary)
        boundary = -(-boundary * ratio // step) * step
    return [*lengths, top]


def _minimize_padding(counted: _LengthCounts, max_buckets: int) -> list[int]:
    """Returns the indices of the boundaries with the least padding, in decreasing order.

    The cost of buckets is the number of positions that all rows take. After each round, which adds one
    bucket, `cost[i]` is the minimum cost of the first `i` distinct lengths. The last bucket, `boundaries[j]`,
    costs `boundaries[j]` for each row of the lengths `i` to `j`. See the example at the head of this module.
    """
    boundaries, up_to = counted
    cost = np.concatenate([[0], boundaries * up_to[1:]])
    choices = []
    for _ in range(max_buckets - 1):
        splits = _find_first_minima(cost, up_to, boundaries)
        choices.append(splits)
        cost = np.concatenate([[0], cost[splits] + boundaries * (up_to[1:] - up_to[splits])])
    # Walk back from the last boundary: a bucket of the lengths i to j leaves the first i lengths to the
    # bucket before.
    selected = [len(boundaries) - 1]
    for splits in reversed(choices):
        selected.append(int(splits[selected[-1]]) - 1)
    return selected


def _find_first_minima(
    cost: NDArray[np.int64], up_to: NDArray[np.int64], boundaries: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns for each `j` the first `i` that minimizes `cost[i] - boundaries[j] * up_to[i]`.

    The result is at most `j`, and does not decrease as `j` increases (the values are a Monge array): the
    greater the last boundary, the fewer rows should be padded to it. Divide and conquer therefore searches
    only between the results of the two nearest `j` of earlier levels, and each level reads each `i` about
    once. For 8 boundaries:

        level 2    j =             4               searches i = 0 .. 4
        level 1    j =     2               6       searches i = 0 .. result[4], and result[4] .. 6
        level 0    j =   1     3       5       7

    All `j` of a level are searched with one set of array operations.
    """
    size = len(boundaries)
    minima = np.zeros(size + 1, np.int64)
    minima[size] = size  # (an upper bound for the search, not a result)
    for level in reversed(range((size - 1).bit_length())):
        gap = 1 << level
        targets = np.arange(gap, size, 2 * gap)
        low, high = minima[targets - gap], np.minimum(minima[np.minimum(targets + gap, size)], targets)
        width = high - low + 1
        candidates = concatenate_ranges(low, width)
        values = cost[candidates] - np.repeat(boundaries[targets], width) * up_to[candidates]
        starts = make_row_splits(width)[:-1]
        minimum = np.flatnonzero(values == np.repeat(np.minimum.reduceat(values, starts), width))
        minima[targets] = candidates[minimum[np.searchsorted(minimum, starts)]]
    return minima[:size]
