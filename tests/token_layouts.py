"""Layouts of tokens and of labelled spans, of which any tokenizer might give one."""

import numpy as np
from hypothesis import strategies as st

import tokjax

SCHEMES = ["BIO", "BILOU", "IO", "IOE2"]
LABELS = ("PER", "ORG", "A-B")
schemes = st.sampled_from(SCHEMES)


@st.composite
def token_rows(draw, max_size=8):
    """Offsets in the order of a text: with gaps, inserted and trimmed tokens, and such as share bytes."""
    offsets, place = [], 1
    for kind in draw(st.lists(st.sampled_from("tttttgsed"), max_size=max_size)):
        if kind == "s":
            offsets.append((0, 0))
        elif kind == "e":
            offsets.append((place, place))
        elif kind == "d" and offsets and offsets[-1][0]:
            offsets.append(offsets[-1])
        else:
            place += kind == "g"
            stop = place + draw(st.integers(1, 3))
            offsets.append((place, stop))
            place = stop
    return offsets


@st.composite
def disjoint_spans(draw, last=20):
    edges = sorted(draw(st.lists(st.integers(1, last), max_size=8)))
    pairs = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False) if a < b]
    return draw(st.permutations([(a, b, draw(st.sampled_from(LABELS))) for a, b in pairs]))


def array(offsets):
    return np.array(offsets, np.int64).reshape(-1, 2)


def words_of(tokens):
    return np.arange(len(tokens)) // 2


def as_ids(tagset, tags, ignore_index=-100):
    return [ignore_index if tag is None else tagset.id_of(tag) for tag in tags]


def ragged_of(rows):
    return tokjax.make_ragged(
        np.zeros(sum(map(len, rows)), int),
        np.cumsum([0, *map(len, rows)]),
        offsets=array([span for row in rows for span in row]),
        word_ids=np.concatenate([np.zeros(0, int), *map(words_of, rows)]),
    )
