"""WordPiece training one merge at a time, recounting everything each time."""

from collections import Counter
from fractions import Fraction


def train_naively(pretokens, num_tokens, *, prefix="##", min_frequency=1):
    """The tokens that merging makes, in order, of words with their counts.

    The pair of the highest score is merged, `count(ab) / (count(a) * count(b))`; of equal scores the more
    frequent pair, then the one whose two tokens come first.
    """
    split = {
        pretoken: [pretoken[0], *(prefix + character for character in pretoken[1:])] for pretoken in pretokens
    }
    vocabulary = {token for tokens in split.values() for token in tokens}
    made = []
    while len(made) < num_tokens:
        singles, pairs = Counter(), Counter()
        for pretoken, tokens in split.items():
            for token in tokens:
                singles[token] += pretokens[pretoken]
            for pair in zip(tokens, tokens[1:], strict=False):
                pairs[pair] += pretokens[pretoken]
        frequent = [pair for pair in pairs if pairs[pair] >= min_frequency]
        if not frequent:
            break
        best = min(
            frequent,
            key=lambda pair: (
                -Fraction(pairs[pair], singles[pair[0]] * singles[pair[1]]),
                -pairs[pair],
                pair,
            ),
        )
        merged = best[0] + best[1].removeprefix(prefix)
        if merged not in vocabulary:
            vocabulary.add(merged)
            made.append(merged)
        for tokens in split.values():
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == best:
                    tokens[i : i + 2] = [merged]
                i += 1
    return made
