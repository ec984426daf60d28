"""Naive segmentation by a unigram model: one word, one start after the other, substrings in a dictionary."""


def segment_naively(word, pieces, scores, unknown_id):
    """Returns the id and the characters of each token of a word, as the `tokenizers` library does.

    Args:
        word: word to segment.
        pieces: pieces, whose ids are their indices.
        scores: score of each piece.
        unknown_id: id of the unknown piece.
    """
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    unknown_score = min(scores) - 10
    best = {0: (0.0, None, None)}  # end to the sum of scores, the start of the last piece, and its id
    for start in range(len(word)):
        edges = [(stop, ids.get(word[start:stop])) for stop in range(start + 1, len(word) + 1)]
        candidates = [(stop, id_, scores[id_]) for stop, id_ in edges if id_ is not None]
        if word[start] not in ids:
            candidates.append((start + 1, unknown_id, unknown_score))
        for stop, id_, score in candidates:
            total = best[start][0] + score
            if stop not in best or total > best[stop][0]:
                best[stop] = (total, start, id_)
    tokens, stop = [], len(word)
    while stop:
        _, start, id_ = best[stop]
        if tokens and id_ == tokens[0][0] == unknown_id:
            tokens[0] = (unknown_id, word[start:stop] + tokens[0][1])
        else:
            tokens.insert(0, (id_, word[start:stop]))
        stop = start
    return [(ids.get(text, unknown_id), text) for _, text in tokens]
