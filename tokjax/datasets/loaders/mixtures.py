"""Which dataset each place of a mixture is taken from: a periodic pattern, spread evenly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.checks import checked_float
from tokjax.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_PERIOD = 1 << 14


class Mixture(NamedTuple):
    """Shares of datasets in a stream. Make one with `mixture`.

    Attributes:
        pattern: the dataset of each place of a period, shape `(period,)`.
        before: how many of each dataset stand before each place of a period, shape `(period + 1, datasets)`.
    """

    pattern: NDArray[np.int64]
    before: NDArray[np.int64]

    def at(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The dataset of each place of the stream, and how many places before it are of the same."""
        periods, within = np.divmod(places, len(self.pattern))
        datasets = self.pattern.take(within)
        return datasets, periods * self.before[-1].take(datasets) + self.before[within, datasets]


def checked_weights(weights: Iterable[float] | None) -> list[float] | None:
    """Weights as plain numbers, at least 0 and finite; `None` stays."""
    if weights is None:
        return None
    if isinstance(weights, (str, bytes)) or not isinstance(weights, Iterable):
        raise InvalidArgumentError(f"weights must be numbers, one for each dataset, not {weights!r}")
    return [checked_float("weights", weight, least=0) for weight in weights]


def mixture(weights: Sequence[float], count: int) -> Mixture:
    """Shares of datasets, to within one in some ten thousand.

    The `k`-th of `n` places of a dataset stands about at `(k + 1/2) / n` of the period, so that every stretch
    of the stream holds all of them in about these shares.

    Args:
        weights: one for each dataset, above 0; they need not add up to 1.
        count: how many datasets there are.

    Raises:
        InvalidArgumentError: there are more weights or fewer, or one is too small beside the others.

    >>> mixture([3, 1], 2).at(np.arange(4))[0].tolist()
    [0, 0, 1, 0]
    """
    shares = np.array(weights, np.float64)
    if len(shares) != count:
        raise InvalidArgumentError(f"there are {count} datasets and {len(shares)} weights")
    if not shares.sum() > 0 or (shares / shares.sum() * _PERIOD).min() < 1:
        raise InvalidArgumentError(f"weights are above 0, and no less than 1/{_PERIOD} of all; got {weights}")
    counts = _whole_shares(shares / shares.sum() * _PERIOD)
    counts //= np.gcd.reduce(counts)
    datasets = np.repeat(np.arange(count), counts)
    rank = np.concatenate([(np.arange(n) + 0.5) / n for n in counts.tolist()])
    pattern = datasets[np.argsort(rank, kind="stable")]
    before = np.zeros((len(pattern) + 1, count), np.int64)
    np.cumsum(pattern[:, None] == np.arange(count), axis=0, out=before[1:])
    return Mixture(pattern, before)


def _whole_shares(shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers of the same sum, the largest remainders rounded up."""
    whole = np.floor(shares).astype(np.int64)
    missing = _PERIOD - int(whole.sum())
    whole[np.argsort(whole - shares, kind="stable")[:missing]] += 1
    return whole
