"""Mixtures of corpora with given shares of the text, as integer counts.

A share is reached by repetition: each source is repeated a whole number of times, so that no count is rounded
and no rare pre-token is lost. The numbers of repetitions are the smallest that give the wanted proportions to
within 0.1 %. An example with equal shares::

    source     bytes     share   wanted repetitions        repetitions
    en         3,000     1/2     1 / 3,000  =  1 x 1/3,000     1
    de         1,500     1/2     1 / 1,500  =  2 x 1/3,000     2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.checks import check_float
from tokjax.errors import InvalidArgumentError
from tokjax.trainer.pretoken_counts import PretokenCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOLERANCE = 1e-3
"""Maximum relative error of a proportion. Half of its reciprocal is the largest number of repetitions that
has to be tried."""


def mix_counts(sources: Mapping[str, PretokenCounts], weights: Mapping[str, float]) -> PretokenCounts:
    """Combines the pre-token counts of several corpora so that each has a given share of the bytes.

    Each corpus is repeated a whole number of times: the result is exactly the sum of `n * counts` over the
    sources. The numbers `n` are the smallest whose proportions equal the requested ones to within 0.1 %, and
    at least one of them is at most 500. So no count is rounded. `min_frequency` of a trainer refers to the
    repeated text.

    Args:
        sources: name to the pre-token counts of a corpus. All were counted with the same pattern and the same
            special tokens.
        weights: name of each source to its share of the bytes of the mixture, on any scale: equal shares are
            `dict.fromkeys(sources, 1)`, and `{name: counts.nbytes ** 0.3 for name, counts in
            sources.items()}` raises the share of small corpora.

    Returns:
        The counts of the mixture, for any trainer.

    Raises:
        InvalidArgumentError: a weight is missing, unknown, or not positive; a source has no text; the counts
            have different patterns or special tokens; or the mixture has more than 2**53 bytes of text.

    >>> from tokjax.trainer import count_pretokens
    >>> sources = {
    ...     "en": count_pretokens(["low lower"], progress=False),
    ...     "de": count_pretokens(["leer"], progress=False),
    ... }
    >>> list(mix_counts(sources, {"en": 9, "de": 8}).items())
    [(b'low', 1), (b'leer', 2), (b' lower', 1)]
    """
    check_counts_by_source(sources)
    shares = check_weights(list(sources), weights)
    repetitions = _find_repetitions([counts.nbytes for counts in sources.values()], shares)
    first, *others = (times * counts for times, counts in zip(repetitions, sources.values(), strict=True))
    return sum(others, start=first)


def check_counts_by_source(sources: Mapping[str, PretokenCounts]) -> None:
    """Raises `InvalidArgumentError` unless each source has a name, pre-token counts, and text."""
    if not isinstance(sources, Mapping) or not sources:
        raise InvalidArgumentError(f"sources must map names to pre-token counts, not be {sources!r:.80}")
    for name, counts in sources.items():
        if not isinstance(counts, PretokenCounts):
            raise InvalidArgumentError(
                f"source {name!r} must be pre-token counts, not a {type(counts).__name__}; pass "
                "count_pretokens(source)"
            )
        if not counts.nbytes:
            raise InvalidArgumentError(f"source {name!r} has no text; leave it out")


def check_weights(names: list[str], weights: Mapping[str, float]) -> list[float]:
    """Returns the weights in the order of the sources.

    Raises:
        InvalidArgumentError: a weight is missing, unknown, or not positive.
    """
    if not isinstance(weights, Mapping) or set(weights) != set(names):
        raise InvalidArgumentError(
            f"weights must map each of the sources {names} to a number, not {weights!r}"
        )
    checked = [check_float(f"the weight of {name!r}", weights[name], minimum=0) for name in names]
    if 0 in checked:
        raise InvalidArgumentError(
            f"the weight of {names[checked.index(0)]!r} is 0; leave the source out, or pass a positive weight"
        )
    return checked


def _find_repetitions(sizes: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Returns how often each source is repeated to have its share of the bytes.

    Args:
        sizes: number of bytes of each source.
        shares: share of each source, on any scale.
    """
    wanted = np.array(shares, np.float64) / np.array(sizes, np.float64)
    # Rounding changes a number n by at most 1/2, so 500 repetitions of the rarest source are always enough.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scaled = wanted / wanted.min() * np.arange(1, round(0.5 / _TOLERANCE) + 1)[:, np.newaxis]
    if not np.isfinite(scaled).all():
        raise InvalidArgumentError(f"the weights {shares} are too far apart; pass weights of similar size")
    repetitions = np.rint(scaled)
    errors = np.abs(repetitions / scaled - 1).max(axis=1)
    first = int(np.argmax(errors <= _TOLERANCE))
    return [int(times) for times in repetitions[first]]
