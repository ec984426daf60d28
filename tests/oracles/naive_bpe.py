"""BPE training one merge at a time, with a full recount for each merge. The simplest oracle."""

from collections import Counter

import regex

from tests.support.pinned_unicode import replace_new_characters
from tests.support.split_patterns import SINGLE_EXPRESSIONS


def split_pretokens(text, special_tokens, pattern):
    """Returns the pre-tokens of a text without its special tokens, as bytes."""
    pieces = [text]
    for token in sorted(special_tokens, key=len, reverse=True):
        pieces = [part for piece in pieces for part in piece.split(token)]
    expression = regex.compile(SINGLE_EXPRESSIONS.get(pattern, pattern))
    return [
        piece[match.start() : match.end()].encode("utf-8", "surrogateescape")
        for piece in pieces
        for match in expression.finditer(replace_new_characters(piece))
    ]


def train_naively(pretokens, num_tokens, min_frequency=1, initial=None):
    """Returns the merges. Of equally frequent pairs, the greatest pair of byte strings is merged first.

    With a tokenizer as `initial`, training starts from the tokens of the pre-tokens, not from bytes.
    """
    counts = Counter(pretokens)
    split = split_into_bytes(counts)
    if initial:
        split = {pretoken: encode_naively(pretoken, initial) for pretoken in counts}
    vocabulary = set(initial.vocabulary.ordinary) if initial else {bytes([i]) for i in range(256)}
    merges = []
    vocab_size = len(vocabulary) + num_tokens
    while len(vocabulary) < vocab_size:
        pairs = count_pairs(split, counts)
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < min_frequency:
            break
        merges.append(best)
        vocabulary.add(best[0] + best[1])
        merge_pair(split, best)
    return merges


def encode_naively(pretoken, tokenizer):
    """Returns the tokens of a pre-token of a `ByteLevelBPE`, as bytes: merges the lowest rank, leftmost."""
    ids, merges = tokenizer.vocabulary.ordinary, tokenizer.merges
    if pretoken in ids and tokenizer.ignore_merges:
        return [pretoken]
    ranks = None if merges is None else {pair: rank for rank, pair in enumerate(merges)}
    parts = [bytes([byte]) for byte in pretoken]
    while True:
        pairs = list(zip(parts, parts[1:], strict=False))
        found = [ids.get(a + b) if ranks is None else ranks.get((a, b)) for a, b in pairs]
        if all(rank is None for rank in found):
            return parts
        i = min((rank, i) for i, rank in enumerate(found) if rank is not None)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def split_into_bytes(pretokens):
    """Returns the bytes of each pre-token as a list of tokens."""
    return {pretoken: [bytes([byte]) for byte in pretoken] for pretoken in pretokens}


def count_pairs(split, counts):
    """Returns the count of each pair of adjacent tokens."""
    pairs = Counter()
    for pretoken, parts in split.items():
        for pair in zip(parts, parts[1:], strict=False):
            pairs[pair] += counts[pretoken]
    return pairs


def merge_pair(split, pair):
    """Merges a pair in all pre-tokens, in place."""
    for parts in split.values():
        i = 0
        while i < len(parts) - 1:
            if (parts[i], parts[i + 1]) == pair:
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            i += 1


def iter_pair_counts(sources, merges):
    """Yields for each merge the counts of all pairs in each source before it, and at last those after all.

    Args:
        sources: for each source, a mapping of pre-tokens to their counts.
        merges: pairs of byte strings.
    """
    splits = [split_into_bytes(source) for source in sources]
    for merge in [*merges, None]:
        yield [count_pairs(split, source) for split, source in zip(splits, sources, strict=True)]
        for split in splits:
            merge_pair(split, merge)
