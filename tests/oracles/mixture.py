"""Linear program of mixture estimation with all inequalities. Pairs are counted anew for each merge."""

from collections import Counter

import numpy as np
from scipy.optimize import linprog


def iter_pair_counts(sources, merges):
    """Yields for each merge the counts of all pairs in each source before it, and at last those after all.

    Args:
        sources: for each source, a mapping of pre-tokens to their counts.
        merges: pairs of byte strings.
    """
    split = [{pretoken: [bytes([byte]) for byte in pretoken] for pretoken in source} for source in sources]
    for merge in [*merges, None]:
        counts = [Counter() for _ in sources]
        for pairs, source, parts_by_pretoken in zip(counts, sources, split, strict=True):
            for pretoken, parts in parts_by_pretoken.items():
                for pair in zip(parts, parts[1:], strict=False):
                    pairs[pair] += source[pretoken]
        yield counts
        for parts_by_pretoken in split:
            for parts in parts_by_pretoken.values():
                i = 0
                while i < len(parts) - 1:
                    if (parts[i], parts[i + 1]) == merge:
                        parts[i : i + 2] = [parts[i] + parts[i + 1]]
                    i += 1


def compute_shortfall(sources, nbytes, merges):
    """Returns the smallest possible sum of the shortfalls of all merges, for each million bytes."""
    rows, steps = [], []
    for step, (counts, merge) in enumerate(zip(iter_pair_counts(sources, merges), merges, strict=False)):
        if not any(pairs[merge] for pairs in counts):
            continue
        for other in set().union(*counts):
            difference = [
                (pairs[merge] - pairs[other]) * 1e6 / size for pairs, size in zip(counts, nbytes, strict=True)
            ]
            rows.append(difference)
            steps.append(step)
    if not rows:
        return 0.0
    shortfalls = np.zeros((len(rows), len(merges)))
    shortfalls[np.arange(len(rows)), steps] = 1
    is_share = np.arange(len(sources) + len(merges)) < len(sources)
    matrix = -np.hstack([np.array(rows), shortfalls])
    return linprog(
        ~is_share * 1.0, matrix, np.zeros(len(rows)), A_eq=is_share[np.newaxis] * 1.0, b_eq=[1]
    ).fun
