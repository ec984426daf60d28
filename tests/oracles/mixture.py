"""Linear program of mixture estimation with all inequalities. Pairs are counted again for each merge."""

import numpy as np

from tests.oracles.naive_bpe import iter_pair_counts


def compute_shortfall(sources, nbytes, merges):
    """Returns the smallest possible sum of the allowances of all merges and pairs, per million bytes."""
    from scipy.optimize import linprog  # its import takes longer than most tests

    rows, steps, pairs_of_rows, indices = [], [], [], {}
    for step, (counts, merge) in enumerate(zip(iter_pair_counts(sources, merges), merges, strict=False)):
        if not any(pairs[merge] for pairs in counts):
            continue
        for other in set().union(*counts):
            difference = [
                (pairs[merge] - pairs[other]) * 1e6 / size for pairs, size in zip(counts, nbytes, strict=True)
            ]
            rows.append(difference)
            steps.append(step)
            pairs_of_rows.append(indices.setdefault(other, len(indices)))
    if not rows:
        return 0.0
    allowances = np.zeros((len(rows), len(merges) + len(indices)))
    allowances[np.arange(len(rows)), steps] = 1
    allowances[np.arange(len(rows)), len(merges) + np.array(pairs_of_rows)] = 1
    is_share = np.arange(len(sources) + allowances.shape[1]) < len(sources)
    matrix = -np.hstack([np.array(rows), allowances])
    return linprog(
        ~is_share * 1.0, matrix, np.zeros(len(rows)), A_eq=is_share[np.newaxis] * 1.0, b_eq=[1]
    ).fun
