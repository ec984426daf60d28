"""Reference implementation of length buckets: tries all boundaries."""

from itertools import combinations


def count_padded_tokens(buckets, lengths):
    return sum(min(boundary for boundary in buckets if boundary >= length) for length in lengths)


def compute_minimum_tokens(lengths, num_buckets, multiple_of):
    candidates = range(multiple_of, max(lengths) + multiple_of + 1, multiple_of)
    boundary_sets = [
        buckets for count in range(1, num_buckets + 1) for buckets in combinations(candidates, count)
    ]
    return min(
        count_padded_tokens(buckets, lengths) for buckets in boundary_sets if buckets[-1] >= max(lengths)
    )
