"""Order of the items of datasets as a function of seed and step.

An item is the unit that a loader draws: a document, a chunk of a packed dataset, or a batch of a bucket. A
step takes `per_step` consecutive positions of an endless stream of positions. Which item is at a position is
computed from the position alone. So no permutation is stored, any step costs the same, and resuming needs
only the step. See docs/performance.md, section "Shuffling".

Without weights, all datasets are concatenated and each epoch is a permutation of their items. Example: two
datasets of 5 and 3 items, `per_step=3`, `seed=0`, `drop_last=False`. An epoch has `ceil(8 / 3) = 3` steps.

    step                   0           1           2         3   (epoch 1)
    position in epoch   0   1   2   3   4   5   6   7   8    0   1   2
    permuted index      2   6   0   4   7   5   1   3   -    0   4   1    permute(position, 8, seed, epoch)
    dataset             0   1   0   0   1   1   0   0   -    0   0   0    0 for indices 0-4, 1 for 5-7
    item                2   1   0   4   2   0   1   3   -    0   4   1    index - first index of the dataset

Position 8 has no item (`NO_ITEM`); with `drop_last=True`, an epoch has 2 steps and omits positions 6 and 7.

With weights, a periodic pattern says which dataset each position belongs to, and each dataset has its own
epochs. The mixture has no end. Example: datasets of 2 and 3 items, `weights=[3, 1]`, not shuffled. The
pattern is `0 0 1 0`.

    position            0   1   2   3   4   5   6   7   8   9  10  11
    dataset             0   0   1   0   0   0   1   0   0   0   1   0
    count before        0   1   0   2   3   4   1   5   6   7   2   8     of positions of the same dataset
    epoch               0   0   0   1   1   2   0   2   3   3   0   4     count // size of the dataset
    item                0   1   0   0   1   0   1   1   0   1   2   0     count % size of the dataset

With shuffling, the last row is permuted separately for each dataset and epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.checks import check_float, is_iterable
from tokjax._util.permutation import permute
from tokjax.core.ragged import make_row_splits
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


NO_ITEM = -1
"""Item of a position without an item, after the last one of an epoch."""
_ITEMS_PER_BLOCK = 1 << 12
"""Number of items that are computed together, to amortize the overhead of NumPy calls over many steps."""
_MAX_POSITION = 1 << 62
_PERIOD = 1 << 14
"""Maximum period of a mixture. Shares are rounded to multiples of `1 / _PERIOD`."""


class ItemSlots(NamedTuple):
    """Items at some positions of the stream.

    Attributes:
        datasets: index of the dataset of each item, `int64`, shape `(num_positions,)`.
        items: index of each item in its dataset, or `NO_ITEM`, `int64`, shape `(num_positions,)`.
        epochs: number of completed epochs of that dataset, `int64`, shape `(num_positions,)`.
    """

    datasets: NDArray[np.int64]
    items: NDArray[np.int64]
    epochs: NDArray[np.int64]

    def select(self, rows: slice) -> ItemSlots:
        """Returns a slice of the positions."""
        return ItemSlots(self.datasets[rows], self.items[rows], self.epochs[rows])

    def group_by_dataset(self) -> list[tuple[int, NDArray[np.int64]]]:
        """Returns pairs of a dataset and the rows of its items. Rows with `NO_ITEM` are omitted."""
        has_item = self.items != NO_ITEM
        first = int(self.datasets[0]) if len(self.datasets) else 0
        is_single = np.count_nonzero(has_item) == np.count_nonzero(self.datasets == first) == len(has_item)
        if (
            is_single
        ):  # the usual case; sorting would be noticeable, as a packed batch takes only about 100 us
            return [(first, np.arange(len(has_item)))]
        datasets = np.unique(self.datasets[has_item]).tolist()
        return [(index, np.flatnonzero(has_item & (self.datasets == index))) for index in datasets]


class ItemOrder:
    """Order of the items of one or several datasets.

    Attributes:
        steps_per_epoch: number of steps of an epoch; `None` for a mixture, which has no end.

    Args:
        sizes: number of items of each dataset.
        per_step: number of positions of a step.
        seed: seed of the order.
        shuffle: whether items are permuted, differently in each epoch.
        drop_last: whether to omit the items of an epoch that do not fill a step; if not, its last step has
            positions without an item. Ignored with weights.
        weights: relative frequency of each dataset; `None` to go through all of them together, each item once
            per epoch.

    Raises:
        InvalidArgumentError: the items do not fill one step, or, with weights, a dataset is empty.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        per_step: int,
        *,
        seed: int,
        shuffle: bool,
        drop_last: bool = True,
        weights: Sequence[float] | None = None,
    ) -> None:
        self._sizes = np.array(sizes, np.int64)
        self._starts = make_row_splits(self._sizes)
        self._per_step = per_step
        self._seed, self._shuffle = seed, shuffle
        self._steps_per_block = max(_ITEMS_PER_BLOCK // per_step, 1)
        self._cached_block = (-1, -1), ItemSlots(*np.zeros((3, 0), np.int64))
        self._mixture: Mixture | None = None if weights is None else build_mixture(weights, len(sizes))
        total = int(self._starts[-1])
        self.steps_per_epoch: int | None = None
        if self._mixture is None:
            self.steps_per_epoch = total // per_step if drop_last else -(-total // per_step)
        if not (self._sizes.all() if self._mixture is not None else self.steps_per_epoch):
            empty = " of one of the datasets" if self._mixture is not None else ""
            raise InvalidArgumentError(
                f"there are {total} items{empty}, fewer than one batch of {per_step}; use a smaller "
                "batch_size, shorter chunks, or drop_last=False"
            )

    def compute_items(self, step: int) -> ItemSlots:
        """Returns the items of a step, counted from 0 through all epochs.

        Steps are computed in blocks, and the most recent block is cached.

        Raises:
            InvalidArgumentError: the step is too large for positions in `int64`.
        """
        if step >= _MAX_POSITION // self._per_step:
            raise InvalidArgumentError(f"step is {step}; steps are below {_MAX_POSITION // self._per_step}")
        epoch, within = (0, step) if self.steps_per_epoch is None else divmod(step, self.steps_per_epoch)
        block, first = divmod(within, self._steps_per_block)
        key, slots = self._cached_block
        if key != (epoch, block):
            slots = self._compute_block(epoch, block)
            # Key and block are one attribute, so that other threads read either the old or the new pair.
            self._cached_block = (epoch, block), slots
        return slots.select(slice(first * self._per_step, (first + 1) * self._per_step))

    def _compute_block(self, epoch: int, block: int) -> ItemSlots:
        """Computes the items of a block of steps of an epoch; a mixture has only epoch 0."""
        count = self._steps_per_block * self._per_step
        positions = np.arange(block * count, (block + 1) * count)
        if self._mixture is not None:
            return self._compute_mixed(positions, self._mixture)
        total = int(self._starts[-1])
        is_valid = positions < total
        indices = np.minimum(positions, total - 1)  # any valid index for positions without an item
        indices = permute(indices, total, self._seed, epoch) if self._shuffle else indices
        datasets = np.searchsorted(self._starts, indices, "right") - 1
        items = np.where(is_valid, indices - self._starts.take(datasets), NO_ITEM)
        return ItemSlots(datasets, items, np.full(len(items), epoch))

    def _compute_mixed(self, positions: NDArray[np.int64], mixture: Mixture) -> ItemSlots:
        """Computes the items at positions of a mixture."""
        datasets, counts = mixture.locate(positions)
        epochs, items = np.divmod(counts, self._sizes.take(datasets))
        if self._shuffle:
            for dataset, size in enumerate(self._sizes.tolist()):
                rows = np.flatnonzero(datasets == dataset)
                # One call for all epochs: a tiny dataset can have thousands of them in a block.
                items[rows] = permute(items.take(rows), size, self._seed, epochs.take(rows), dataset)
        return ItemSlots(datasets, items, epochs)


class Mixture(NamedTuple):
    """Periodic pattern of datasets. Make one with `build_mixture`.

    Attributes:
        pattern: the dataset of each position of a period, `int64`, shape `(period,)`.
        counts_before: number of positions of each dataset before each position of a period, `int64`, shape
            `(period + 1, num_datasets)`. The last row has the numbers of a whole period.
    """

    pattern: NDArray[np.int64]
    counts_before: NDArray[np.int64]

    def locate(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the dataset of each position of the stream, and the number of its earlier positions."""
        periods, within = np.divmod(positions, len(self.pattern))
        datasets = self.pattern.take(within)
        per_period = self.counts_before[-1].take(datasets)
        return datasets, periods * per_period + self.counts_before[within, datasets]


def check_weights(weights: Iterable[float] | None) -> list[float] | None:
    """Returns weights as a list of floats that are finite and at least 0, or `None` if they are `None`."""
    if weights is None:
        return None
    if isinstance(weights, (str, bytes)) or not is_iterable(weights):
        raise InvalidArgumentError(f"weights must be numbers, one for each dataset, not {weights!r}")
    return [check_float("weights", weight, minimum=0) for weight in weights]


def build_mixture(weights: Sequence[float], count: int) -> Mixture:
    """Builds the pattern of a mixture. Its shares differ from the weights by less than `1 / 16384`.

    The `k`-th of the `n` positions of a dataset is at about `(k + 1/2) / n` of the period, so that each
    section of the stream has all datasets in about these shares. For the weights `[3, 1]`, the positions of
    dataset 0 are at 1/6, 3/6 and 5/6, and that of dataset 1 is at 1/2.

    Args:
        weights: relative frequency of each dataset, above 0; any sum.
        count: number of datasets.

    Raises:
        InvalidArgumentError: the number of weights is not `count`, or a weight is too small in relation to
            the others.

    >>> build_mixture([3, 1], 2).locate(np.arange(4))[0].tolist()
    [0, 0, 1, 0]
    """
    shares = np.array(weights, np.float64)
    if len(shares) != count:
        raise InvalidArgumentError(f"there are {count} datasets and {len(shares)} weights")
    if not shares.sum() > 0 or (shares / shares.sum() * _PERIOD).min() < 1:
        raise InvalidArgumentError(
            f"weights must be above 0, and at least 1/{_PERIOD} of their sum; got {weights}"
        )
    counts = _round_shares(shares / shares.sum() * _PERIOD)
    counts //= np.gcd.reduce(counts)
    datasets = np.repeat(np.arange(count), counts)
    rank = np.concatenate([(np.arange(n) + 0.5) / n for n in counts.tolist()])
    pattern = datasets[np.argsort(rank, kind="stable")]
    counts_before = np.zeros((len(pattern) + 1, count), np.int64)
    np.cumsum(pattern[:, None] == np.arange(count), axis=0, out=counts_before[1:])
    return Mixture(pattern, counts_before)


def _round_shares(shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rounds shares to integers with the sum `_PERIOD`. The largest remainders are rounded up."""
    rounded = np.floor(shares).astype(np.int64)
    missing = _PERIOD - int(rounded.sum())
    rounded[np.argsort(rounded - shares, kind="stable")[:missing]] += 1
    return rounded
