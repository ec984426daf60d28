"""Byte-pair training one merge at a time, recounting everything each time."""

import math
from collections import Counter

import regex

from tokjax.pretokenize.patterns import PATTERNS


def split_words(text, special_tokens, pattern):
    """Words of the ordinary text, as bytes."""
    pieces = [text]
    for token in sorted(special_tokens, key=len, reverse=True):
        pieces = [part for piece in pieces for part in piece.split(token)]
    return [
        word.encode("utf-8", "surrogateescape")
        for piece in pieces
        for word in regex.findall(PATTERNS.get(pattern, pattern), piece)
    ]


def train_naively(words, num_tokens, min_frequency=1, max_token_length=None):
    """The merges, ties going to the lexicographically greatest pair of byte strings."""
    longest = max_token_length or math.inf
    counts = Counter(words)
    split = {word: [bytes([byte]) for byte in word] for word in counts}
    known = {bytes([i]) for i in range(256)}
    merges = []
    wanted = len(known) + num_tokens
    while len(known) < wanted:
        pairs = Counter()
        for word, parts in split.items():
            for pair in zip(parts, parts[1:], strict=False):
                if len(pair[0] + pair[1]) <= longest:
                    pairs[pair] += counts[word]
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[best] < min_frequency:
            break
        merges.append(best)
        known.add(best[0] + best[1])
        for parts in split.values():
            i = 0
            while i < len(parts) - 1:
                if (parts[i], parts[i + 1]) == best:
                    parts[i : i + 2] = [parts[i] + parts[i + 1]]
                i += 1
    return merges
