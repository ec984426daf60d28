"""Tests of the trie of pieces, against a dictionary of prefixes."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tokjax.unigram import piece_trie
from tokjax.unigram.piece_trie import NO_PIECE, build_piece_trie

texts = st.text(st.sampled_from("abcdeé日🙂"), max_size=6)


def walk(trie, text):
    """Returns the piece at the end of a text, `None` if no piece begins with the text."""
    base, piece = np.array([trie.root]), NO_PIECE
    for character in text:
        found, slots, base = trie.step(base, trie.classes[[ord(character)]].astype(np.int64))
        if not len(found):
            return None
        piece = int(trie.pieces[slots[0]])
    return piece


@given(st.lists(texts, unique=True), st.lists(texts), st.sampled_from([1, 4]))
def test_walks_equal_prefixes(pieces, others, slots_per_child):
    with pytest.MonkeyPatch.context() as patch:  # with few slots, not all nodes find a base at first
        patch.setattr(piece_trie, "_SLOTS_PER_CHILD", slots_per_child)
        trie = build_piece_trie(pieces)
    ids = {piece: id_ for id_, piece in enumerate(pieces) if piece}
    prefixes = {piece[:stop] for piece in pieces for stop in range(len(piece) + 1)} | {""}
    for text in [*prefixes, *others, "x", "a\U0010ffff"]:
        assert walk(trie, text) == (ids.get(text, NO_PIECE) if text in prefixes else None)


def test_nodes_with_many_children():
    """All pairs of 100 characters are pieces, so each of 101 nodes has 100 children."""
    characters = [chr(0x4E00 + i) for i in range(100)]
    pieces = [a + b for a in characters for b in characters]
    trie = build_piece_trie(pieces)
    assert [walk(trie, piece) for piece in pieces[::37]] == list(range(0, len(pieces), 37))
    assert len(trie.links) < 64 * len(pieces)
