"""How many of the most frequent pairs can be merged at once, as if one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.trainer._linked_words import LinkedWords, Places
    from tokjax.trainer._pair_table import Best


def places_of(best: Best, ranking: NDArray[np.int64]) -> tuple[Places, NDArray[np.int64]]:
    """Where the ranked pairs stand, and the rank of the pair of each place."""
    rank_of = np.full(len(best.rows), len(ranking))
    rank_of[ranking] = np.arange(len(ranking))
    rank = rank_of[best.which]
    ranked = rank < len(ranking)
    return best.at[ranked], rank[ranked]


def before_clash(words: LinkedWords, at: Places, rank: NDArray[np.int64], pairs: int) -> int:
    """How many of the pairs, from the first, share no symbol with another of them."""
    touched = np.concatenate([at, words.after[at]])
    order = np.argsort(touched)
    touched, owner = touched[order], np.concatenate([rank, rank])[order]
    clash = np.flatnonzero((touched[1:] == touched[:-1]) & (owner[1:] != owner[:-1]))
    return int(np.maximum(owner[clash], owner[clash + 1]).min(initial=pairs))


def before_newcomer(
    words: LinkedWords, at: Places, rank: NDArray[np.int64], counts: NDArray[np.int64]
) -> int:
    """How many of the pairs, from the first, are certainly more frequent than all that they bring forth.

    A pair that comes up is as frequent at most as the merged pair with that neighbour.

    Args:
        words: the corpus.
        at: where the pairs stand.
        rank: the pair of each place.
        counts: how often each pair stands, falling.
    """
    most = np.zeros(len(counts), np.int64)
    for neighbour in (words.symbol[words.before[at]], words.symbol[words.after[words.after[at]]]):
        real = np.flatnonzero(neighbour >= 0)
        if len(real):
            keys = rank[real] << 32 | neighbour[real]
            order = np.argsort(keys)
            keys = keys[order]
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            together = np.add.reduceat(words.weight[at[real[order]]], first)
            np.maximum.at(most, keys[first] >> 32, together)
    late = np.flatnonzero(np.maximum.accumulate(most)[:-1] >= counts[1:])
    return int(late[0]) + 1 if len(late) else len(counts)


def without_overlaps(
    words: LinkedWords, at: Places, rank: NDArray[np.int64], is_double: NDArray[np.bool_]
) -> tuple[Places, NDArray[np.int64]]:
    """Of pairs of one symbol twice that overlap, as in `aaaa`, every other, from the left."""
    if not is_double[rank].any():
        return at, rank
    order = np.lexsort((at, rank))
    at, rank = at[order], rank[order]
    overlaps = np.zeros(len(at), bool)
    overlaps[1:] = (words.after[at[:-1]] == at[1:]) & (rank[1:] == rank[:-1])
    index = np.arange(len(at))
    since = index - np.maximum.accumulate(np.where(overlaps, 0, index))
    kept = since % 2 == 0
    return at[kept], rank[kept]
