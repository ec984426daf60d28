"""Naive BPE dropout: one decision per pair and step, and the exact distribution of its results."""

import hashlib
from collections import Counter
from functools import cache

MASK = 2**64 - 1
INCREMENT = 0x9E3779B97F4A7C15


def mix(value):
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def compute_keys(segments, seed):
    """Returns the keys of the segments of one text, which are `bytes`."""
    digests = (
        hashlib.blake2b(
            b"".join(each + b"\xff\xff" for each in segments[:stop]),
            digest_size=8,
            key=seed.to_bytes(8, "little"),
        )
        for stop in range(1, len(segments) + 1)
    )
    return [int.from_bytes(digest.digest(), "little") for digest in digests]


def draw(key, position, step):
    """Returns a number in `[0, 1)` for the pair that starts at a byte of a segment."""
    state = mix(key + (position + 1) * INCREMENT & MASK)
    return (mix(state + (step + 1) * INCREMENT & MASK) >> 11) / 2**53


def merge_naively(parts, get_rank, dropout, key, start=0):
    """Returns the parts of one pre-token after merging.

    Args:
        parts: the initial parts, `bytes`.
        get_rank: function of two parts that returns the rank of the pair, or `None`.
        dropout: probability that a merge is dropped in a step.
        key: key of the segment.
        start: position of the pre-token in the segment, in bytes.
    """
    parts, step = list(parts), 0
    while True:
        kept, position = [], start
        for i, part in enumerate(parts[:-1]):
            rank = get_rank(part, parts[i + 1])
            if rank is not None and draw(key, position, step) >= dropout:
                kept.append((rank, i))
            position += len(part)
        if not kept:
            return parts
        _, i = min(kept)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        step += 1


def merge_all_naively(pretokens, get_initial_parts, get_rank, dropout, key):
    """Returns the parts of the consecutive pre-tokens of a segment."""
    parts, start = [], 0
    for pretoken in pretokens:
        parts += merge_naively(get_initial_parts(pretoken), get_rank, dropout, key, start)
        start += len(pretoken)
    return parts


def compute_distribution(parts, get_rank, dropout):
    """Returns the probability of each result of merging one pre-token, as a `Counter` of tuples."""

    @cache
    def compute(parts):
        ranks = [(get_rank(a, b), i) for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False))]
        distribution, dropped = Counter(), 1.0
        for _, i in sorted(pair for pair in ranks if pair[0] is not None):
            merged = (*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :])
            for result, probability in compute(merged).items():
                distribution[result] += dropped * (1 - dropout) * probability
            dropped *= dropout
        distribution[parts] += dropped
        return distribution

    return compute(tuple(parts))
