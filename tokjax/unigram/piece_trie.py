"""Trie of the pieces of a unigram model, walked from many positions at once.

The trie is a double array. Each node has a *base*, and its child by a character is in the slot at the base
plus the class of the character. A slot names the base that it belongs to, since the children of several nodes
interleave:

    pieces             a, ab, b, ba
    classes            a: 1, b: 2
    bases              root: 2, a: 3, b: 5
    slot               3    4    5    6
    belongs to base    2    2    3    5
    child              a    b    ab   ba

A step of a walk is one addition, one gather and one comparison for each position. Class 0 is that of the
characters that are in no piece, and of the end of a word. No child has it.

See docs/performance.md, section "Unigram models".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NUM_CODE_POINTS = 0x110000
_CLASS_BITS = 21
_SLOTS_PER_CHILD = 2
_BASE_BITS = 32
_BASE_MASK = (1 << _BASE_BITS) - 1
_FREE = -1
NO_PIECE = -1
"""Index of the piece of a node where no piece ends."""


class PieceTrie(NamedTuple):
    """Trie of pieces as arrays.

    Attributes:
        classes: class of each code point, 0 for those in no piece, `int32`, shape `(0x110000,)`.
        root: base of the root.
        links: for each slot, the base of the node that it belongs to, -1 if free, in the upper 32 bits, and
            the base of its child, 0 without children, in the lower, `int64`, shape `(slots,)`.
        pieces: index of the piece that ends in each slot, -1 if none, `int32`, shape `(slots,)`.
    """

    classes: NDArray[np.int32]
    root: int
    links: NDArray[np.int64]
    pieces: NDArray[np.int32]

    def step(
        self, bases: NDArray[np.int64], classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Goes from nodes to their children.

        Args:
            bases: base of each node, `int64`, shape `(nodes,)`.
            classes: class of the character that leads to the child, `int64`, shape `(nodes,)`.

        Returns:
            The indices of the nodes that have this child, and the slot and the base of each such child, all
            `int64`, shape `(children,)`.
        """
        slots = bases + classes
        links = self.links.take(slots)
        found = np.flatnonzero(links >> _BASE_BITS == bases)
        return found, slots.take(found), links.take(found) & _BASE_MASK


class _Children(NamedTuple):
    """All children of a trie, grouped by their parents.

    Attributes:
        classes: class of the character that leads to each child, `int64`, shape `(children,)`.
        splits: start of the children of each node in `classes`, `int64`, shape `(nodes + 1,)`. Node 0 is the
            root, and child `i` is node `i + 1`.
        piece_nodes: node of each piece, `int64`, shape `(pieces,)`.
    """

    classes: NDArray[np.int64]
    splits: NDArray[np.int64]
    piece_nodes: NDArray[np.int64]


def build_piece_trie(pieces: Sequence[str]) -> PieceTrie:
    """Builds the trie of pieces.

    Args:
        pieces: different strings without lone surrogates.
    """
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    codes = np.frombuffer("".join(pieces).encode("utf-32-le"), "<u4")
    alphabet = np.unique(codes)
    classes = np.zeros(_NUM_CODE_POINTS, np.int32)
    classes[alphabet] = np.arange(1, len(alphabet) + 1)
    children = _find_children(classes.take(codes).astype(np.int64), lengths)
    bases, num_slots = _place(children, len(alphabet) + 1)
    num_children = np.diff(children.splits)
    slots = np.repeat(bases, num_children) + children.classes
    links = np.full(num_slots, _FREE << _BASE_BITS)
    links[slots] = np.repeat(bases, num_children) << _BASE_BITS | bases[1:]
    piece_by_slot = np.full(num_slots, NO_PIECE, np.int32)
    nonempty = np.flatnonzero(lengths)
    piece_by_slot[slots[children.piece_nodes[nonempty] - 1]] = nonempty
    return PieceTrie(classes, int(bases[0]), links, piece_by_slot)


def _find_children(classes: NDArray[np.int64], lengths: NDArray[np.int64]) -> _Children:
    """Finds the nodes of a trie, one character of all pieces after the other."""
    firsts = np.cumsum(lengths) - lengths
    piece_nodes = np.zeros(len(lengths), np.int64)
    remaining, num_nodes = np.flatnonzero(lengths), 1
    parents, child_classes = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    depth = 0
    while len(remaining):
        keys = piece_nodes[remaining] << _CLASS_BITS | classes.take(firsts[remaining] + depth)
        edges, numbers = np.unique(keys, return_inverse=True)
        piece_nodes[remaining] = num_nodes + numbers
        parents.append(edges >> _CLASS_BITS)
        child_classes.append(edges & ((1 << _CLASS_BITS) - 1))
        num_nodes += len(edges)
        depth += 1
        remaining = remaining[lengths[remaining] > depth]
    counts = np.bincount(np.concatenate(parents), minlength=num_nodes)
    return _Children(np.concatenate(child_classes), make_row_splits(counts), piece_nodes)


def _place(children: _Children, num_classes: int) -> tuple[NDArray[np.int64], int]:
    """Places the children of all nodes.

    Returns:
        The base of each node, 0 without children, `int64`, shape `(nodes,)`, and the number of slots.
    """
    num_bases = _SLOTS_PER_CHILD * (len(children.classes) + 1)
    while True:
        bases = _try_to_place(children, num_bases, num_classes)
        if bases is not None:
            return bases, num_bases + num_classes
        num_bases *= 2


def _try_to_place(children: _Children, num_bases: int, num_classes: int) -> NDArray[np.int64] | None:
    """Tries random bases below `num_bases`, those of nodes with many children first.

    All nodes of about the same size try a base at the same time. Each base is tried once, so that no two
    nodes have the same.

    Returns:
        The bases, or `None` if all have been tried.
    """
    counts = np.diff(children.splits)
    untried = np.random.default_rng(0).permutation(np.arange(1, num_bases))
    owners = np.full(num_bases + num_classes, _FREE)
    bases = np.zeros(len(counts), np.int64)
    sizes = np.frexp(counts)[1]
    for size in range(sizes.max(), 0, -1):
        pending = np.flatnonzero(sizes == size)
        while len(pending):
            tried, untried = np.split(untried, [len(pending)])
            if len(tried) < len(pending):
                return None
            is_placed = _occupy(owners, children, pending, tried)
            bases[pending[is_placed]] = tried[is_placed]
            pending = pending[~is_placed]
    return bases


def _occupy(
    owners: NDArray[np.int64], children: _Children, nodes: NDArray[np.int64], bases: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Marks the slots of the children of nodes, for those nodes whose slots are all free.

    Args:
        owners: for each slot, a number that is not negative if it is occupied. Changed in place.
        children: the children of all nodes.
        nodes: nodes with children, `int64`, shape `(nodes,)`.
        bases: base to try for each node, `int64`, shape `(nodes,)`.

    Returns:
        Mask of the nodes whose slots are now occupied by their children, shape `(nodes,)`.
    """
    firsts = children.splits.take(nodes)
    counts = children.splits.take(nodes + 1) - firsts
    slots = np.repeat(bases, counts) + children.classes.take(concatenate_ranges(firsts, counts))
    numbers = np.repeat(np.arange(len(nodes)), counts)
    was_free = owners[slots] == _FREE
    owners[slots[was_free]] = numbers[was_free]  # of several nodes that want a slot, one gets it
    is_owner = was_free & (owners[slots] == numbers)
    is_placed: NDArray[np.bool_] = np.logical_and.reduceat(is_owner, np.cumsum(counts) - counts)
    owners[slots[is_owner & ~np.repeat(is_placed, counts)]] = _FREE
    return is_placed
