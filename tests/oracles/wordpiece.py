"""Naive WordPiece trainer: merges one pair at a time, and counts all pairs again after each merge."""

from collections import Counter


def train_naively(words, initial_tokens, num_tokens, *, prefix="##", min_frequency=1):
    """Returns the tokens that merging adds, in order.

    The most frequent pair is merged; of equally frequent pairs, the one whose two ids are the lowest. Ids are
    positions in `initial_tokens`, then those of the merges.

    Args:
        words: word to count.
        initial_tokens: special tokens, then the alphabet.
        num_tokens: maximum number of merged tokens.
        prefix: prefix of tokens inside a word.
        min_frequency: minimum count of a pair that is merged.
    """
    tokens_by_word = {word: [word[0], *(prefix + character for character in word[1:])] for word in words}
    ids = {token: id_ for id_, token in enumerate(initial_tokens)}
    vocab_size = len(ids) + num_tokens
    while len(ids) < vocab_size:
        pairs = Counter()
        for word, tokens in tokens_by_word.items():
            for pair in zip(tokens, tokens[1:], strict=False):
                pairs[pair] += words[word]
        frequent = [pair for pair in pairs if pairs[pair] >= min_frequency]
        if not frequent:
            break
        best = min(frequent, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merged = best[0] + best[1].removeprefix(prefix)
        ids.setdefault(merged, len(ids))
        for tokens in tokens_by_word.values():
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == best:
                    tokens[i : i + 2] = [merged]
                i += 1
    return list(ids)[len(initial_tokens) :]
