"""Reference implementations of alignment as loops over tokens, spans and characters."""

import itertools

ROLES_BY_POSITION = {  # inside, first, last, only token
    "BIO": "IBIB",
    "BILOU": "IBLU",
    "IOBES": "IBES",
    "IO": "IIII",
    "IOE2": "IIEE",
}


def tag_tokens(offsets, spans, scheme="BIO", on_partial="include", words=None):
    """Returns the tag of each token, and the number of tokens of each span.

    The tag is `None` for a token without bytes, and with `words` for all but the first token of a word. Spans
    may overlap: tokens are assigned to spans in the order of their starts.
    """
    labelled, previous_word = [], None
    for token, (start, stop) in enumerate(offsets):
        if start < stop:
            if words is None or words[token] != previous_word:
                labelled.append(token)
            previous_word = None if words is None else words[token]
    owner = {}
    for index in sorted(range(len(spans)), key=lambda index: spans[index][0]):
        start, stop, _ = spans[index]
        for token in labelled:
            token_bytes = set(range(*offsets[token]))
            span_bytes = set(range(start, stop))
            is_in_span = token_bytes & span_bytes if on_partial == "include" else token_bytes <= span_bytes
            if is_in_span and token not in owner:
                owner[token] = index
    tags = [None] * len(offsets)
    for token in labelled:
        tags[token] = "O"
    for index, (_, _, label) in enumerate(spans):
        tokens = [token for token in labelled if owner.get(token) == index]
        for token in tokens:
            position = (token == tokens[0]) + 2 * (token == tokens[-1])
            tags[token] = f"{ROLES_BY_POSITION[scheme][position]}-{label}"
    return tags, [sum(owner.get(token) == index for token in labelled) for index in range(len(spans))]


def find_whitespace_bytes(data):
    """Returns the 1-based positions of the bytes of whitespace characters."""
    positions, start = set(), 1
    for character in data.decode("utf-8", "surrogateescape"):
        width = len(character.encode("utf-8", "surrogateescape"))
        if character.isspace():
            positions |= set(range(start, start + width))
        start += width
    return positions


def trim_token(token, whitespace):
    """Returns the span of a token without the whitespace at its edges."""
    others = [position for position in range(*token) if position not in whitespace]
    if others:
        return others[0], others[-1] + 1
    return token if token[0] == token[1] else (token[1], token[1])


def find_first_partial(offsets, spans):
    """Returns the first span that contains only a part of a token, and the index of that token, or `None`."""
    for start, stop, label in sorted(spans):
        for token, position in enumerate(offsets):
            shared = set(range(*position)) & set(range(start, stop))
            if shared and len(shared) < position[1] - position[0]:
                return (start, stop, label), token
    return None


def parse_lenient_chunks(tags):
    """Returns chunks `(first, last, label)` like seqeval's `get_entities`; `L` is its `E`, `U` its `S`."""
    chunks, begin = [], 0
    previous, previous_label = "O", ""
    for position, tag in enumerate([*tags, "O"]):
        role, _, label = tag.partition("-")
        role = {"L": "E", "U": "S"}.get(role, role)
        ends = (
            previous in ("E", "S")
            or (previous in ("B", "I") and role in ("B", "S", "O"))
            or (previous != "O" and previous_label != label)
        )
        if ends and previous != "O":
            chunks.append((begin, position - 1, previous_label))
        begins = (
            role in ("B", "S")
            or (previous in ("E", "S", "O") and role in ("E", "I"))
            or (role != "O" and previous_label != label)
        )
        if begins:
            begin = position
        previous, previous_label = role, label
    return chunks


def parse_strict_chunks(tags, scheme):
    """Returns the complete chunks: the longest runs of tokens whose tags are exactly those of one span."""
    chunks = []
    for first, last in itertools.combinations_with_replacement(range(len(tags)), 2):
        length = last - first + 1
        label = tags[first].partition("-")[2]
        expected = [
            f"{ROLES_BY_POSITION[scheme][(i == 0) + 2 * (i == length - 1)]}-{label}" for i in range(length)
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
    """Returns the word that contains a token, or shares the most bytes with it; -1 without common bytes."""
    token_bytes = set(range(*token))
    for index, word in enumerate(words):
        if token_bytes and token_bytes <= set(range(*word)):
            return index
    shared = [len(token_bytes & set(range(*word))) for word in words]
    return shared.index(max(shared)) if max(shared, default=0) else -1


def merge_windows(windows, num_tokens):
    """Returns each token's value from the window with the most context around it.

    Args:
        windows: `(index of the first token in the text, values)` of each window.
        num_tokens: number of tokens of the text.
    """
    best = {}
    for start, values in windows:
        for i, value in enumerate(values):
            before = i if start else num_tokens
            after = len(values) - 1 - i if start + len(values) < num_tokens else num_tokens
            context = min(before, after)
            if start + i not in best or context > best[start + i][0]:
                best[start + i] = (context, value)
    return [best[i][1] for i in range(num_tokens)]
