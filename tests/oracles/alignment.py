"""Alignment by loops over tokens, spans and characters."""

import itertools

BILOU_POSITIONS = {  # inside, first, last, alone
    "BIO": "IBIB",
    "BILOU": "IBLU",
    "IOBES": "IBES",
    "IO": "IIII",
    "IOE2": "IIEE",
}


def tags_of(offsets, spans, scheme="BIO", on_partial="include", words=None):
    """A tag for each token, `None` where it has no bytes or is no first subword, and the tokens of each span.

    Spans may overlap; they are served in the order of their starts.
    """
    counted, seen = [], None
    for token, (start, stop) in enumerate(offsets):
        if start < stop:
            if words is None or words[token] != seen:
                counted.append(token)
            seen = None if words is None else words[token]
    owner = {}
    for number in sorted(range(len(spans)), key=lambda number: spans[number][0]):
        start, stop, _ = spans[number]
        for token in counted:
            token_bytes = set(range(*offsets[token]))
            span_bytes = set(range(start, stop))
            wanted = token_bytes & span_bytes if on_partial == "include" else token_bytes <= span_bytes
            if wanted and token not in owner:
                owner[token] = number
    tags = [None] * len(offsets)
    for token in counted:
        tags[token] = "O"
    for number, (_, _, label) in enumerate(spans):
        tokens = [token for token in counted if owner.get(token) == number]
        for token in tokens:
            position = (token == tokens[0]) + 2 * (token == tokens[-1])
            tags[token] = f"{BILOU_POSITIONS[scheme][position]}-{label}"
    return tags, [sum(owner.get(token) == number for token in counted) for number in range(len(spans))]


def find_whitespace_bytes(data):
    """The places, from 1, of the bytes of white space."""
    positions, at = set(), 1
    for character in data.decode("utf-8", "surrogateescape"):
        width = len(character.encode("utf-8", "surrogateescape"))
        if character.isspace():
            positions |= set(range(at, at + width))
        at += width
    return positions


def trimmed(token, white):
    """A token without the white space at its edges."""
    solid = [position for position in range(*token) if position not in white]
    if solid:
        return solid[0], solid[-1] + 1
    return token if token[0] == token[1] else (token[1], token[1])


def find_first_partial(offsets, spans):
    """The first span that has a part of a token, and that token; `None` if there is none."""
    for start, stop, label in sorted(spans):
        for token, position in enumerate(offsets):
            shared = set(range(*position)) & set(range(start, stop))
            if shared and len(shared) < position[1] - position[0]:
                return (start, stop, label), token
    return None


def parse_lenient_chunks(tags):
    """Chunks `(first, last, label)` as seqeval's `get_entities` finds them; `L` is its `E`, `U` its `S`."""
    chunks, begin = [], 0
    before, before_label = "O", ""
    for position, tag in enumerate([*tags, "O"]):
        role, _, label = tag.partition("-")
        role = {"L": "E", "U": "S"}.get(role, role)
        ends = (
            before in ("E", "S")
            or (before in ("B", "I") and role in ("B", "S", "O"))
            or (before != "O" and before_label != label)
        )
        if ends and before != "O":
            chunks.append((begin, position - 1, before_label))
        begins = (
            role in ("B", "S")
            or (before in ("E", "S", "O") and role in ("E", "I"))
            or (role != "O" and before_label != label)
        )
        if begins:
            begin = position
        before, before_label = role, label
    return chunks


def parse_strict_chunks(tags, scheme):
    """Chunks that are whole: all stretches of tokens whose tags are those of one span, and none longer."""
    chunks = []
    for first, last in itertools.combinations_with_replacement(range(len(tags)), 2):
        length = last - first + 1
        label = tags[first].partition("-")[2]
        expected = [
            f"{BILOU_POSITIONS[scheme][(i == 0) + 2 * (i == length - 1)]}-{label}" for i in range(length)
        ]
        if tags[first] != "O" and tags[first : last + 1] == expected:
            chunks.append((first, last, label))
    return [
        (first, last, label)
        for first, last, label in chunks
        if not any(
            (other_first, other_last) != (first, last) and other_first <= first and last <= other_last
            for other_first, other_last, _ in chunks
        )
    ]


def find_word(token, words):
    """The word that a token is of, by its bytes; -1 for none."""
    mine = set(range(*token))
    for number, word in enumerate(words):
        if mine and mine <= set(range(*word)):
            return number
    shared = [len(mine & set(range(*word))) for word in words]
    return shared.index(max(shared)) if max(shared, default=0) else -1


def merged(windows, context):
    """Of windows `[(first token in the text, values)]`, each token's value where most is seen around it.

    `context` is the number of tokens of the text.
    """
    best = {}
    for start, values in windows:
        for i, value in enumerate(values):
            before = i if start else context
            after = len(values) - 1 - i if start + len(values) < context else context
            seen = min(before, after)
            if start + i not in best or seen > best[start + i][0]:
                best[start + i] = (seen, value)
    return [best[i][1] for i in range(context)]
