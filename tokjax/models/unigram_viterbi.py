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

The pieces are in a trie. Node 0 is the root, and node 1 stands for the characters that begin no piece:

    pieces    a, ab, b, ba
    nodes     2: a, 3: b, 4: ab, 5: ba
    edges     from 2 by "b" to 4, from 3 by "a" to 5

The edges are in a hash table, but those of the root in an array, by code point. A step of a walk looks up the
edges of all positions together.

See docs/performance.md, section "Unigram models".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.bpe.hash_tables import ABSENT, HashTable
from tokjax.core.ragged import concatenate_ranges, make_row_splits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NUM_CODE_POINTS = 0x110000
_CODE_BITS = 21
_END = _NUM_CODE_POINTS
"""Code after the end of a word, which leads to no node."""
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
        edges: node and code point, packed, to the child.
        firsts: child of the root by code point, or `_UNKNOWN_NODE`, `int64`, shape `(0x110000,)`.
        scores: score of the piece that ends in each node, or of an unknown character, or `-inf`, `float64`,
            shape `(nodes,)`.
        ids: id of that piece, `int32`, shape `(nodes,)`.
        lengths: number of its characters, `int64`, shape `(nodes,)`.
    """

    edges: HashTable
    firsts: NDArray[np.int64]
    scores: NDArray[np.float64]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]

    def step(
        self, nodes: NDArray[np.int64], codes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Goes from nodes to their children.

        Args:
            nodes: nodes other than the root, `int64`, shape `(nodes,)`.
            codes: code point that leads to the child of each, `int64`, shape `(nodes,)`.

        Returns:
            The indices of the nodes that have this child, and the children, both `int64`.
        """
        children = self.edges.find(_pack_edges(nodes, codes))
        found = np.flatnonzero(children != ABSENT)
        return found, children.take(found)


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
        """Scores of the pieces, and that of an unknown character."""
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
        parts = []
        for first in range(0, len(order), _WORDS_PER_BATCH):
            batch = order[first : first + _WORDS_PER_BATCH]
            parts.append(self._segment_batch(codes, starts.take(batch), lengths.take(batch)))
        looped = np.flatnonzero(in_loop)
        for start, length in zip(starts[looped].tolist(), lengths[looped].tolist(), strict=True):
            parts.append(self._segment_one(to_text(codes[start : start + length])))
        return self._join(np.append(order, looped), parts)

    def _segment_one(self, word: str) -> Segmentation:
        """Segments one word."""
        get_id, scores = self.ids.get, self._score_list
        unknown_score = scores[-1]
        best, starts = [0.0] + [-np.inf] * len(word), [0] * (len(word) + 1)
        ids = [self.unknown_id] * (len(word) + 1)
        for start in range(len(word)):
            before, is_piece = best[start], False
            for stop in range(start + 1, len(word) + 1):
                id_ = get_id(word[start:stop])
                if id_ is None:
                    break
                if id_ != _NO_PIECE:
                    is_piece |= stop == start + 1
                    if before + scores[id_] > best[stop]:
                        best[stop], starts[stop], ids[stop] = before + scores[id_], start, id_
            if not is_piece and before + unknown_score > best[start + 1]:
                best[start + 1], starts[start + 1] = before + unknown_score, start
                ids[start + 1] = self.unknown_id
        stop, found, lengths = len(word), list[int](), list[int]()
        while stop:
            found.append(ids[stop])
            lengths.append(stop - starts[stop])
            stop = starts[stop]
        return Segmentation(
            np.array(found[::-1], np.int32), np.array(lengths[::-1], np.int64), np.array([len(found)])
        )

    def _segment_batch(
        self, codes: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Segmentation:
        """Segments words that are sorted by length, the longest first."""
        positions = np.arange(lengths[0] + 1)
        rows = make_row_splits(np.searchsorted(-lengths, -positions, "right"))
        characters = np.full(rows[-1], _END)
        for position, first in enumerate(rows[:-2].tolist()):
            count = int(rows[position + 2] - rows[position + 1])
            characters[first : first + count] = codes.take(starts[:count] + position)
        nodes, counts = self._trace_back(self._find_best(characters, rows.tolist()), rows, lengths)
        return Segmentation(self._tables.ids.take(nodes), self._tables.lengths.take(nodes), counts)

    def _find_best(self, characters: NDArray[np.int64], rows: list[int]) -> NDArray[np.int64]:
        """Returns the node of the best last piece for each position in each word.

        Args:
            characters: code points at position 0 of all words, then those at position 1, and so on, `_END`
                after each word, `int64`, shape `(characters + words,)`.
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


def _pack_edges(nodes: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns the keys of edges for the hash table."""
    return (nodes << _CODE_BITS | codes).view(np.uint64)[:, np.newaxis]


def _build_tables(pieces: Sequence[str], piece_scores: NDArray[np.float64], unknown_id: int) -> _Tables:
    """Builds the trie of pieces, which are different and not empty, one depth after the other."""
    piece_lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    codes = np.frombuffer("".join(pieces).encode("utf-32-le"), "<u4").astype(np.int64)
    starts = np.cumsum(piece_lengths) - piece_lengths
    piece_nodes = np.zeros(len(pieces), np.int64)
    remaining, num_nodes = np.arange(len(pieces)), _FIRST_NODE
    levels: list[NDArray[np.uint64]] = []
    while len(remaining):
        next_codes = codes.take(starts[remaining] + len(levels))
        edges, numbers = np.unique(_pack_edges(piece_nodes[remaining], next_codes), return_inverse=True)
        piece_nodes[remaining] = num_nodes + numbers.reshape(-1)
        num_nodes += len(edges)
        levels.append(edges)
        remaining = remaining[piece_lengths[remaining] > len(levels)]
    others = np.concatenate([np.zeros(0, np.uint64), *levels[1:]])
    table = HashTable(1, len(others) + 1)
    table.add(others[:, np.newaxis], np.arange(num_nodes - len(others), num_nodes))
    firsts = np.full(_NUM_CODE_POINTS, _UNKNOWN_NODE)
    firsts[levels[0].view(np.int64)] = np.arange(_FIRST_NODE, _FIRST_NODE + len(levels[0]))
    scores = np.full(num_nodes, -np.inf)
    scores[: _FIRST_NODE + len(levels[0])] = piece_scores.min() - _UNKNOWN_PENALTY
    scores[piece_nodes] = piece_scores
    ids, lengths = np.full(num_nodes, unknown_id, np.int32), np.ones(num_nodes, np.int64)
    ids[piece_nodes], lengths[piece_nodes] = np.arange(len(pieces)), piece_lengths
    return _Tables(table, firsts, scores, ids, lengths)
