"""WordPiece training one merge at a time, recounting everything each time."""

from collections import Counter


def train_naively(pretokens, first, num_tokens, *, prefix="##", min_frequency=1):
    """The tokens that merging makes, in order, of words with their counts.

    The most frequent pair is merged; of equally frequent pairs, the one whose two ids come first. Ids are
    positions in `first`, the special tokens and the alphabet; then those of the merges.
    """
    split = {
        pretoken: [pretoken[0], *(prefix + character for character in pretoken[1:])] for pretoken in pretokens
    }
    ids = {token: id_ for id_, token in enumerate(first)}
    wanted = len(ids) + num_tokens
    while len(ids) < wanted:
        pairs = Counter()
        for pretoken, tokens in split.items():
            for pair in zip(tokens, tokens[1:], strict=False):
                pairs[pair] += pretokens[pretoken]
        frequent = [pair for pair in pairs if pairs[pair] >= min_frequency]
        if not frequent:
            break
        best = min(frequent, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merged = best[0] + best[1].removeprefix(prefix)
        ids.setdefault(merged, len(ids))
        for tokens in split.values():
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == best:
                    tokens[i : i + 2] = [merged]
                i += 1
    return list(ids)[len(first) :]
