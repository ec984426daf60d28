"""Viterbi search for the pieces of many words at once, with the result of the `tokenizers` library.

The best pieces of a word are those with the highest sum of scores. A character that is not a piece can be
unknown, for a score of 10 less than the lowest score. `best[i]` is the highest sum for the first `i`
characters. Each start in a word, from the left, improves the sums at the ends of the pieces there. An example
with the pieces `a` (-1), `ab` (-3) and `b` (-2), and the unknown character `?` (-13):

    word    start 0                         start 1                        start 2
    ab?     a: best[1] = -1                 b: -1 - 2 = -3, not above      ?: best[3] = -3 - 13 = -16
            ab: best[2] = -3
    ba      b: best[1] = -2                 a: best[2] = -2 - 1 = -3

A sum has to be above the sum so far to replace it, so of equal sums the longest last piece remains. Sums are
added in `float64` from the start of the word, as the library does: then even the rounding is the same.

All words take the same start at the same time. The words are sorted by length, the longest first, so that the
characters at one position of all words are contiguous:

    words                  abc   ba   c
    characters, in order   a b c | b a | c          positions 0, 1 and 2 of all words that have them

The pieces are in a trie, a double array. Node 0 is the root, and node 1 stands for the characters that begin
no piece. Each other node has a *base*, and its child by a character is in the slot at the base plus the class
of the character. A slot names the node that it belongs to, since the children of several nodes interleave:

    pieces       a, ab, b, ba
    classes      a: 1, b: 2
    nodes        2: a, 3: b, 4: ab, 5: ba
    bases        2: 1, 3: 1
    slot         2      3
    belongs to   3      2
    child        5      4

A step of a walk is an addition, two gathers and a comparison for each position. The children of the root are
in an array by class. Class 0 is that of the characters that are in no piece, and of the end of a word. No
child has it.

See docs/performance.md, section "Unigram models".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NUM_CODE_POINTS = 0x110000
_NODE_BITS = 32
_CLASS_BITS = 21
_FREE = -1
_SLOTS_PER_CHILD = 2
_NO_PIECE = -1
"""Index of the piece of a string that is only the start of pieces."""
_UNKNOWN_PENALTY = 10.0
_UNKNOWN_NODE, _FIRST_NODE = 1, 2
_WORDS_PER_BATCH = 1 << 13
_CHARACTERS_PER_PIECE = 1
"""The loop segments this many characters per piece before the tables are built, which takes about as long."""
FEW_WORDS = 24
"""For fewer words, a loop is faster: a step of the search costs about as much as one character of each."""


class _Tables(NamedTuple):
    """A model as a trie, with one row per node in the arrays.

    Attributes:
        classes: class of each code point, 0 for those in no piece, `int32`, shape `(0x110000,)`.
        firsts: child of the root by class, or `_UNKNOWN_NODE`, `int64`, shape `(classes,)`.
        bases: base of each node, `int64`, shape `(nodes,)`.
        links: for each slot, the node that it belongs to, -1 if free, in the upper 32 bits, and its child in
            the lower, `int64`, shape `(slots,)`.
        scores: score of the piece that ends in each node, or of an unknown character, or `-inf`, `float64`,
            shape `(nodes,)`.
        ids: id of that piece, `int32`, shape `(nodes,)`.
        lengths: number of its characters, `int64`, shape `(nodes,)`.
    """

    classes: NDArray[np.int32]
    firsts: NDArray[np.int64]
    bases: NDArray[np.int64]
    links: NDArray[np.int64]
    scores: NDArray[np.float64]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]

    def step(
        self, nodes: NDArray[np.int64], classes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Goes from nodes to their children.

        Args:
            nodes: nodes other than the root, `int64`, shape `(nodes,)`.
            classes: class of the character that leads to the child of each, `int64`, shape `(nodes,)`.

        Returns:
            The indices of the nodes that have this child, and the children, both `int64`.
        """
        links = self.links.take(self.bases.take(nodes) + classes)
        found = np.flatnonzero(links >> _NODE_BITS == nodes)
        return found, links.take(found) & ((1 << _NODE_BITS) - 1)


class Segmentation(NamedTuple):
    """Pieces of several words, concatenated.

    Attributes:
        ids: index of each piece, `int32`, shape `(num_tokens,)`. Adjacent unknown characters are one token,
            once all words are joined.
        lengths: number of characters of each token, `int64`, shape `(num_tokens,)`.
        counts: number of tokens of each word, `int64`, shape `(words,)`.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]


_NO_PIECES = Segmentation(np.zeros(0, np.int32), *np.zeros((2, 0), np.int64))


class UnigramModel:
    """Unigram model that segments many words at once.

    Args:
        pieces: different pieces, whose ids are their indices.
        scores: score of each piece.
        unknown_id: id of the unknown piece.

    Attributes:
        pieces: the pieces.
        unknown_id: id of the unknown piece.
    """

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], unknown_id: int) -> None:
        self._piece_scores = np.array(scores, np.float64)
        self.pieces, self.unknown_id = pieces, unknown_id
        self._num_by_loop = 0

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id of each piece, and `_NO_PIECE` for the other starts of pieces."""
        ids = {piece: id_ for id_, piece in enumerate(self.pieces)}
        for piece in self.pieces:
            for stop in range(len(piece) - 1, 0, -1):
                if piece[:stop] in ids:
                    break  # the shorter ones are there, too, or a piece adds them
                ids[piece[:stop]] = _NO_PIECE
        return ids

    @cached_property
    def _score_list(self) -> list[float]:
        """Scores of the pieces, and that of an unknown character, at the index `_NO_PIECE`."""
        scores: list[float] = self._piece_scores.tolist()
        return [*scores, min(scores) - _UNKNOWN_PENALTY]

    @cached_property
    def _tables(self) -> _Tables:
        return _build_tables(self.pieces, self._piece_scores, self.unknown_id)

    def segment(self, codes: NDArray[Any], lengths: NDArray[np.int64]) -> Segmentation:
        """Segments words.

        Few words, and the longest of many, are segmented by a loop: a step of the search costs as much for
        one word as for several.

        Args:
            codes: code points of all words, concatenated, shape `(characters,)`.
            lengths: number of characters of each word, at least 1, `int64`, shape `(words,)`.
        """
        in_loop = np.ones(len(lengths), bool)
        self._num_by_loop += len(codes) if "_tables" not in vars(self) else 0
        if len(lengths) >= FEW_WORDS and self._num_by_loop > _CHARACTERS_PER_PIECE * len(self.pieces):
            in_loop = lengths > np.partition(lengths, -FEW_WORDS)[-FEW_WORDS]
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")[np.count_nonzero(in_loop) :]
        classes = self._tables.classes.take(codes) if len(order) else codes
        parts = []
        for first in range(0, len(order), _WORDS_PER_BATCH):
            batch = order[first : first + _WORDS_PER_BATCH]
            parts.append(self._segment_batch(classes, starts.take(batch), lengths.take(batch)))
        looped = np.flatnonzero(in_loop)
        for start, length in zip(starts[looped].tolist(), lengths[looped].tolist(), strict=True):
            parts.append(self._segment_one(to_text(codes[start : start + length])))
        return self._join(np.append(order, looped), parts)

    def _segment_one(self, word: str) -> Segmentation:
        """Segments one word."""
        get_id, scores, end = self.ids.get, self._score_list, len(word) + 1
        best, starts, ids = [0.0] + [-np.inf] * len(word), [0] * end, [_NO_PIECE] * end
        for start in range(len(word)):
            before, id_ = best[start], get_id(word[start])
            total = before + scores[_NO_PIECE if id_ is None else id_]
            if total > best[start + 1]:
                best[start + 1], starts[start + 1] = total, start
                ids[start + 1] = _NO_PIECE if id_ is None else id_
            for stop in range(start + 2, end if id_ is not None else 0):
                id_ = get_id(word[start:stop])
                if id_ is None:
                    break
                if id_ != _NO_PIECE and before + scores[id_] > best[stop]:
                    best[stop], starts[stop], ids[stop] = before + scores[id_], start, id_
        stop, found, lengths = len(word), list[int](), list[int]()
        while stop:
            found.append(self.unknown_id if ids[stop] == _NO_PIECE else ids[stop])
            lengths.append(stop - starts[stop])
            stop = starts[stop]
        return Segmentation(
            np.array(found[::-1], np.int32), np.array(lengths[::-1], np.int64), np.array([len(found)])
        )

    def _segment_batch(
        self, classes: NDArray[np.int32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Segmentation:
        """Segments words that are sorted by length, the longest first."""
        positions = np.arange(lengths[0] + 1)
        rows = make_row_splits(np.searchsorted(-lengths, -positions, "right"))
        characters = np.zeros(rows[-1], np.int64)  # 0 after the end of each word
        for position, first in enumerate(rows[:-2].tolist()):
            count = int(rows[position + 2] - rows[position + 1])
            characters[first : first + count] = classes.take(starts[:count] + position)
        nodes, counts = self._trace_back(self._find_best(characters, rows.tolist()), rows, lengths)
        return Segmentation(self._tables.ids.take(nodes), self._tables.lengths.take(nodes), counts)

    def _find_best(self, characters: NDArray[np.int64], rows: list[int]) -> NDArray[np.int64]:
        """Returns the node of the best last piece for each position in each word.

        Args:
            characters: classes of the characters at position 0 of all words, then those at position 1, and so
                on, 0 for the end of a word, `int64`, shape `(characters + words,)`.
            rows: start of each position in `characters`, and their number.
        """
        tables = self._tables
        best = np.full(len(characters), -np.inf)
        best[: rows[1]] = 0
        last_nodes = np.zeros(len(characters), np.int64)
        for position, first in enumerate(rows[:-2]):
            count = rows[position + 2] - rows[position + 1]  # of words with a character at this position
            before = best[first : first + count]
            words, nodes = np.arange(count), tables.firsts.take(characters[first : first + count])
            for end in rows[position + 1 :]:
                if not len(words):
                    break
                ends = words + end
                sums = tables.scores.take(nodes) + before.take(words)
                better = np.flatnonzero(sums > best.take(ends))
                better_ends = ends.take(better)
                best[better_ends] = sums.take(better)
                last_nodes[better_ends] = nodes.take(better)
                found, nodes = tables.step(nodes, characters.take(ends))
                words = words.take(found)
        return last_nodes

    def _trace_back(
        self, last_nodes: NDArray[np.int64], rows: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Follows the last pieces of all words to their starts.

        Returns:
            The nodes of the pieces of all words, and the number of pieces of each word.
        """
        words, positions, steps = np.arange(len(lengths)), lengths, []
        while len(words):
            nodes = last_nodes.take(rows.take(positions) + words)
            steps.append((words, nodes))
            positions = positions - self._tables.lengths.take(nodes)
            remaining = np.flatnonzero(positions)
            words, positions = words.take(remaining), positions.take(remaining)
        counts = np.bincount(np.concatenate([words for words, _ in steps]), minlength=len(lengths))
        lasts = np.cumsum(counts) - 1
        all_nodes = np.empty(int(counts.sum()), np.int64)
        for step, (words, nodes) in enumerate(steps):
            all_nodes[lasts.take(words) - step] = nodes
        return all_nodes, counts

    def _join(self, order: NDArray[np.int64], parts: list[Segmentation]) -> Segmentation:
        """Joins batches, and adjacent unknown characters.

        Args:
            order: the words in the order of the batches, `int64`, shape `(words,)`.
            parts: the pieces of each batch.
        """
        all_ids, all_lengths, batch_counts = map(np.concatenate, zip(_NO_PIECES, *parts, strict=True))
        counts, firsts = np.empty((2, len(order)), np.int64)
        counts[order], firsts[order] = batch_counts, np.cumsum(batch_counts) - batch_counts
        index = concatenate_ranges(firsts, counts)
        ids, lengths = all_ids.take(index), all_lengths.take(index)
        is_unknown = ids == self.unknown_id
        continues = np.append(False, is_unknown[1:] & is_unknown[:-1])[: len(ids)]
        continues[np.cumsum(counts) - counts] = False
        if not continues.any():
            return Segmentation(ids, lengths, counts)
        kept = np.flatnonzero(~continues)
        splits = np.searchsorted(kept, make_row_splits(counts))
        return Segmentation(ids.take(kept), np.add.reduceat(lengths, kept), np.diff(splits))


def to_text(codes: NDArray[Any]) -> str:
    """Returns the text of code points that are not surrogates."""
    return codes.astype("<u4").tobytes().decode("utf-32-le")


def _build_tables(pieces: Sequence[str], piece_scores: NDArray[np.float64], unknown_id: int) -> _Tables:
    """Builds the trie of pieces, which are different and not empty, one depth after the other."""
    piece_lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    codes = np.frombuffer("".join(pieces).encode("utf-32-le"), "<u4")
    alphabet, piece_classes = np.unique(codes, return_inverse=True)
    classes = np.zeros(_NUM_CODE_POINTS, np.int32)
    classes[alphabet] = np.arange(1, len(alphabet) + 1)
    starts = np.cumsum(piece_lengths) - piece_lengths
    piece_nodes = np.zeros(len(pieces), np.int64)
    remaining, num_nodes = np.arange(len(pieces)), _FIRST_NODE
    levels: list[NDArray[np.int64]] = []
    while len(remaining):
        next_classes = piece_classes.take(starts[remaining] + len(levels)) + 1
        edges, numbers = np.unique(piece_nodes[remaining] << _CLASS_BITS | next_classes, return_inverse=True)
        piece_nodes[remaining] = num_nodes + numbers
        num_nodes += len(edges)
        levels.append(edges)
        remaining = remaining[piece_lengths[remaining] > len(levels)]
    stop = _FIRST_NODE + len(levels[0])  # of the children of the root
    firsts = np.full(len(alphabet) + 1, _UNKNOWN_NODE)
    firsts[levels[0]] = np.arange(_FIRST_NODE, stop)
    bases, links = _place_children(np.concatenate([levels[0][:0], *levels[1:]]), num_nodes, len(firsts))
    scores = np.full(num_nodes, -np.inf)
    scores[:stop] = piece_scores.min() - _UNKNOWN_PENALTY
    scores[piece_nodes] = piece_scores
    ids, lengths = np.full(num_nodes, unknown_id, np.int32), np.ones(num_nodes, np.int64)
    ids[piece_nodes], lengths[piece_nodes] = np.arange(len(pieces)), piece_lengths
    return _Tables(classes, firsts, bases, links, scores, ids, lengths)


def _place_children(
    edges: NDArray[np.int64], num_nodes: int, num_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Finds a base for each node, so that no slot has two children.

    All nodes with about as many children try a random base at the same time, those with many children
    first. Each time, slots are added.

    Args:
        edges: node and class of the edges, packed, ascending, `int64`, shape `(edges,)`. The last nodes are
            their children, in this order.
        num_nodes: number of nodes.
        num_classes: number of classes.

    Returns:
        `bases` and `links`, as in `_Tables`.
    """
    random, bases = np.random.default_rng(0), np.zeros(num_nodes, np.int64)
    links = np.full(num_classes, _FREE << _NODE_BITS)
    all_new = (edges >> _CLASS_BITS) << _NODE_BITS | np.arange(num_nodes - len(edges), num_nodes)
    counts = np.bincount(edges >> _CLASS_BITS, minlength=num_nodes)
    firsts, sizes = np.cumsum(counts) - counts, np.frexp(counts)[1]
    for size in range(sizes.max(), 0, -1):
        nodes = np.flatnonzero(sizes == size)
        while len(nodes):
            lengths = counts.take(nodes)
            index = concatenate_ranges(firsts.take(nodes), lengths)
            links = np.append(links, np.full(_SLOTS_PER_CHILD * len(index), _FREE << _NODE_BITS))
            tried = random.integers(0, len(links) - num_classes, len(nodes))
            slots = np.repeat(tried, lengths) + (edges.take(index) & ((1 << _CLASS_BITS) - 1))
            new = all_new.take(index)
            is_free = links[slots] < 0
            links[slots[is_free]] = new[is_free]  # of several nodes that want a slot, one gets it
            is_owner = links[slots] == new
            is_placed = np.logical_and.reduceat(is_owner, np.cumsum(lengths) - lengths)
            links[slots[is_owner & ~np.repeat(is_placed, lengths)]] = _FREE << _NODE_BITS
            bases[nodes[is_placed]] = tried[is_placed]
            nodes = nodes[~is_placed]
    return bases, links
