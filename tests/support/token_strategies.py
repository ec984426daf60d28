"""Hypothesis strategies for the offsets of tokens, and for labelled spans of their texts."""

import numpy as np
from hypothesis import strategies as st

import tokjax

SCHEMES = ["BIO", "BILOU", "IOBES", "IO", "IOE2"]
LABELS = ("PER", "ORG", "A-B")
schemes = st.sampled_from(SCHEMES)


# Kinds of tokens: t follows the token before, g follows after a gap of one byte, d has the span of the token
# before, s is an inserted special token with the span (0, 0), e is trimmed to an empty span.
WITHOUT_EMPTY_SPANS, WITH_EMPTY_SPANS = "tttgd", "ttgsed"


@st.composite
def draw_token_rows(draw, max_size=8, kinds=WITH_EMPTY_SPANS):
    """Draws offsets in text order, with gaps, inserted and trimmed tokens, and tokens that share bytes."""
    offsets, position = [], 1
    edge = st.sampled_from(["", "s", "e"])
    middle = draw(st.lists(st.sampled_from(kinds), max_size=max_size - 2))
    for kind in [*draw(edge), *middle, *draw(edge)]:
        if kind == "s":
            offsets.append((0, 0))
        elif kind == "e":
            offsets.append((position, position))
        elif kind == "d" and offsets and offsets[-1][0]:
            offsets.append(offsets[-1])
        else:
            position += kind == "g"
            stop = position + draw(st.integers(1, 3))
            offsets.append((position, stop))
            position = stop
    return offsets


@st.composite
def draw_labelled_texts(draw):
    """Draws pairs of the offsets of a text and its labelled spans.

    Either no text has tokens with empty spans inside, or any may. The spans of a text do not overlap, and
    often start and stop where its tokens do.
    """
    texts = []
    for tokens in draw(
        st.lists(
            draw_token_rows(kinds=draw(st.sampled_from([WITHOUT_EMPTY_SPANS, WITH_EMPTY_SPANS]))), max_size=4
        )
    ):
        edges = sorted({1, *(position for token in tokens for position in token if position)})
        bound = st.integers(1, 20) if draw(st.booleans()) else st.sampled_from(edges)
        at_first_byte = [1] * draw(st.booleans())
        positions = sorted([*at_first_byte, *draw(st.lists(bound, max_size=7))])
        pairs = [(a, b) for a, b in zip(positions[::2], positions[1::2], strict=False) if a < b]
        spans = [(a, b, draw(st.sampled_from(LABELS))) for a, b in pairs]
        texts.append((tokens, draw(st.permutations(spans))))
    return texts


def array(offsets):
    return np.array(offsets, np.int64).reshape(-1, 2)


def get_word_ids(tokens):
    return np.arange(len(tokens)) // 2


def tags_to_ids(tagset, tags, ignore_index=-100):
    return [ignore_index if tag is None else tagset.get_id(tag) for tag in tags]


def make_ragged_rows(rows):
    return tokjax.make_ragged(
        np.zeros(sum(map(len, rows)), int),
        np.cumsum([0, *map(len, rows)]),
        offsets=array([span for row in rows for span in row]),
        word_ids=np.concatenate([np.zeros(0, int), *map(get_word_ids, rows)]),
    )


whitespace_texts = st.text(" \n\x1f\x85\xa0\u2003\u3000a\u4e2d\U0001f642", min_size=40, max_size=40)
"""Texts of whitespace and a few other characters, longer than the offsets of `draw_token_rows` reach."""
