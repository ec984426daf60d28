"""In which order the items of datasets come: shuffled anew each epoch, or mixed without end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.checks import check_float
from tokjax._util.permutation import permute
from tokjax.core.ragged import make_row_splits
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_PERIOD = 1 << 14


class Mixture(NamedTuple):
    """Shares of datasets in a stream. Make one with `build_mixture`.

    Attributes:
        pattern: the dataset of each place of a period, shape `(period,)`.
        before: how many of each dataset stand before each place of a period, shape `(period + 1, datasets)`.
    """

    pattern: NDArray[np.int64]
    before: NDArray[np.int64]

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The dataset of each place of the stream, and how many places before it are of the same."""
        periods, within = np.divmod(positions, len(self.pattern))
        datasets = self.pattern.take(within)
        return datasets, periods * self.before[-1].take(datasets) + self.before[within, datasets]


def check_weights(weights: Iterable[float] | None) -> list[float] | None:
    """Weights as plain numbers, at least 0 and finite; `None` stays."""
    if weights is None:
        return None
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise InvalidArgumentError(f"weights must be numbers, one for each dataset, not {weights!r}")
    return [check_float("weights", weight, minimum=0) for weight in weights]


def build_mixture(weights: Sequence[float], count: int) -> Mixture:
    """Shares of datasets, to within one in some ten thousand.

    The `k`-th of `n` places of a dataset stands about at `(k + 1/2) / n` of the period, so that every stretch
    of the stream holds all of them in about these shares.

    Args:
        weights: one for each dataset, above 0; they need not add up to 1.
        count: how many datasets there are.

    Raises:
        InvalidArgumentError: there are more weights or fewer, or one is too small beside the others.

    >>> build_mixture([3, 1], 2).at(np.arange(4))[0].tolist()
    [0, 0, 1, 0]
    """
    shares = np.array(weights, np.float64)
    if len(shares) != count:
        raise InvalidArgumentError(f"there are {count} datasets and {len(shares)} weights")
    if not shares.sum() > 0 or (shares / shares.sum() * _PERIOD).min() < 1:
        raise InvalidArgumentError(f"weights are above 0, and no less than 1/{_PERIOD} of all; got {weights}")
    counts = _round_shares(shares / shares.sum() * _PERIOD)
    counts //= np.gcd.reduce(counts)
    datasets = np.repeat(np.arange(count), counts)
    rank = np.concatenate([(np.arange(n) + 0.5) / n for n in counts.tolist()])
    pattern = datasets[np.argsort(rank, kind="stable")]
    before = np.zeros((len(pattern) + 1, count), np.int64)
    np.cumsum(pattern[:, None] == np.arange(count), axis=0, out=before[1:])
    return Mixture(pattern, before)


def _round_shares(shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers of the same sum, the largest remainders rounded up."""
    rounded = np.floor(shares).astype(np.int64)
    missing = _PERIOD - int(rounded.sum())
    rounded[np.argsort(rounded - shares, kind="stable")[:missing]] += 1
    return rounded


_ITEMS_PER_BLOCK = 1 << 12
_MAX_POSITION = 1 << 62
NO_ITEM = -1
"""Stands for the item of a place that is left empty."""


class ItemSlots(NamedTuple):
    """What stands at some places.

    Attributes:
        datasets: which dataset each is of, `int64`, shape `(n,)`.
        items: which item of it, `NO_ITEM` where there is none.
        epochs: how often that dataset was gone through before.
    """

    datasets: NDArray[np.int64]
    items: NDArray[np.int64]
    epochs: NDArray[np.int64]

    def part(self, rows: slice) -> ItemSlots:
        """Some of the places."""
        return ItemSlots(self.datasets[rows], self.items[rows], self.epochs[rows])

    def group_by_dataset(self) -> list[tuple[int, NDArray[np.int64]]]:
        """The rows that hold items of each dataset."""
        has_item = self.items != NO_ITEM
        first = int(self.datasets[0]) if len(self.datasets) else 0
        is_plain = np.count_nonzero(has_item) == np.count_nonzero(self.datasets == first) == len(has_item)
        if is_plain:  # (nearly always; a batch of packed chunks is made in some hundred microseconds)
            return [(first, np.arange(len(has_item)))]
        datasets = np.unique(self.datasets[has_item]).tolist()
        return [(index, np.flatnonzero(has_item & (self.datasets == index))) for index in datasets]


class ItemOrder:
    """The order of items, some of which are taken at a step.

    Args:
        sizes: how many items each dataset has.
        per_step: how many are taken at a step.
        seed: names the order.
        shuffle: whether items come in another order each epoch.
        drop_last: whether items that fill no step are left out of an epoch; if not, places are left empty.
        weights: how often each dataset is drawn from; `None` to go through all of them together, each item
            once an epoch.

    Raises:
        InvalidArgumentError: there is nothing to take.
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
        self._steps_at_once = max(_ITEMS_PER_BLOCK // per_step, 1)
        self._block: tuple[tuple[int, int], ItemSlots] = (-1, -1), ItemSlots(*np.zeros((3, 0), np.int64))
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

    def at(self, step: int) -> ItemSlots:
        """What a step takes. Some steps are worked out together, and those of the last time are kept."""
        if step >= _MAX_POSITION // self._per_step:
            raise InvalidArgumentError(f"step is {step}; steps are below {_MAX_POSITION // self._per_step}")
        epoch, within = (0, step) if self.steps_per_epoch is None else divmod(step, self.steps_per_epoch)
        block, first = divmod(within, self._steps_at_once)
        key, positions = self._block
        if key != (epoch, block):
            positions = self._compute_block(epoch, block)
            self._block = (epoch, block), positions  # (at once: other threads see the old or the new one)
        return positions.part(slice(first * self._per_step, (first + 1) * self._per_step))

    def _compute_block(self, epoch: int, block: int) -> ItemSlots:
        count = self._steps_at_once * self._per_step
        positions = np.arange(block * count, (block + 1) * count)
        if self._mixture is not None:
            return self._compute_mixed(positions, self._mixture)
        total = int(self._starts[-1])
        is_valid = positions < total
        chosen = np.minimum(positions, total - 1)
        items = permute(chosen, total, self._seed, epoch) if self._shuffle else chosen
        datasets = np.searchsorted(self._starts, items, "right") - 1
        items = np.where(is_valid, items - self._starts.take(datasets), NO_ITEM)
        return ItemSlots(datasets, items, np.full(len(items), epoch))

    def _compute_mixed(self, positions: NDArray[np.int64], mixed: Mixture) -> ItemSlots:
        datasets, counts = mixed.at(positions)
        epochs, items = np.divmod(counts, self._sizes.take(datasets))
        if self._shuffle:
            for dataset, size in enumerate(self._sizes.tolist()):
                here = np.flatnonzero(datasets == dataset)
                items[here] = permute(items.take(here), size, self._seed, epochs.take(here), dataset)
        return ItemSlots(datasets, items, epochs)
