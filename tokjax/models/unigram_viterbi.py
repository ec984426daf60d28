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

The pieces are in a trie, a double array. Each node has a *base*, and its child by a character is in the slot
at the base plus the class of the character. A slot names the base that it belongs to, since the children of
several nodes interleave:

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

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

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
_UNKNOWN_PENALTY = 10.0
MAX_SCORE = 1e100
"""Maximum absolute score. Sums of larger ones could be infinite."""
_UNKNOWN_SLOT = 0
_NEW_PREFIX = -2
_WORDS_PER_BATCH = 1 << 13
_CHARACTERS_PER_PIECE = 1
"""The loop segments this many characters per piece before the tables are built, which takes about as long."""
FEW_WORDS = 24
"""For fewer words, a loop is faster: a step of the search costs about as much as one character of each."""


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


class _Tables(NamedTuple):
    """A model as arrays.

    Attributes:
        trie: trie of the pieces.
        first_slots: slot of the child of the root, by class. Characters that are not pieces have the slot of
            the unknown one.
        first_bases: base of the same node, by class.
        scores: score of the piece that ends in each slot, `float64`, shape `(slots,)`.
        ids: id of that piece, `int32`, shape `(slots,)`.
        lengths: number of its characters, `int64`, shape `(slots,)`.
    """

    trie: PieceTrie
    first_slots: NDArray[np.int64]
    first_bases: NDArray[np.int64]
    scores: NDArray[np.float64]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]


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

    Raises:
        ValueError: a score is too large.
    """

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], unknown_id: int) -> None:
        self._piece_scores = np.array(scores, np.float64)
        if not (np.abs(self._piece_scores) <= MAX_SCORE).all():
            raise ValueError("a score of the model is too large")
        self.pieces, self.unknown_id = pieces, unknown_id
        self._num_by_loop = 0

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Id of each piece, and `NO_PIECE` for the other prefixes of pieces."""
        ids = {piece: id_ for id_, piece in enumerate(self.pieces)}
        for piece in self.pieces:
            for stop in range(len(piece) - 1, 0, -1):
                id_ = ids.setdefault(piece[:stop], _NEW_PREFIX)
                if id_ == NO_PIECE:
                    break  # the shorter ones are there, too
                if id_ == _NEW_PREFIX:
                    ids[piece[:stop]] = NO_PIECE
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
        order = np.argsort(-lengths, kind="stable")
        order = order[np.count_nonzero(in_loop) :]
        classes = self._tables.trie.classes.take(codes) if len(order) else codes
        parts = []
        for first in range(0, len(order), _WORDS_PER_BATCH):
            batch = order[first : first + _WORDS_PER_BATCH]
            parts.append(self._segment_batch(classes, starts.take(batch), lengths.take(batch)))
        looped = np.flatnonzero(in_loop)
        for start, length in zip(starts[looped].tolist(), lengths[looped].tolist(), strict=True):
            parts.append(self._segment_one(to_text(codes[start : start + length])))
        return self._join(codes, np.append(order, looped), parts)

    def _segment_one(self, word: str) -> Segmentation:
        """Segments one word."""
        get_id, scores = self._ids.get, self._score_list
        unknown_score = scores[-1]
        best, starts = [0.0] + [-np.inf] * len(word), [0] * (len(word) + 1)
        ids = [self.unknown_id] * (len(word) + 1)
        for start in range(len(word)):
            before, is_piece = best[start], False
            for stop in range(start + 1, len(word) + 1):
                id_ = get_id(word[start:stop])
                if id_ is None:
                    break
                if id_ != NO_PIECE:
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
        self, classes: NDArray[np.int32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Segmentation:
        """Segments words that are sorted by length, the longest first."""
        positions = np.arange(lengths[0] + 1)
        rows = make_row_splits(np.searchsorted(-lengths, -positions, "right"))
        characters = np.zeros(rows[-1], np.int64)  # 0 after the end of each word
        for position, first in enumerate(rows[:-2].tolist()):
            count = int(rows[position + 2] - rows[position + 1])
            characters[first : first + count] = classes.take(starts[:count] + position)
        slots, counts = self._trace_back(self._find_best(characters, rows.tolist()), rows, lengths)
        return Segmentation(self._tables.ids.take(slots), self._tables.lengths.take(slots), counts)

    def _find_best(self, characters: NDArray[np.int64], rows: list[int]) -> NDArray[np.int64]:
        """Returns the slot of the best last piece for each position in each word.

        Args:
            characters: classes of the characters at position 0 of all words, then those at position 1, and
                so on, 0 for the end of a word, `int64`, shape `(characters + words,)`.
            rows: start of each position in `characters`, and their number.
        """
        tables = self._tables
        best = np.full(len(characters), -np.inf)
        best[: rows[1]] = 0
        last_slots = np.zeros(len(characters), np.int64)
        for position, first in enumerate(rows[:-2]):
            second, stop = rows[position + 1 : position + 3]
            # One character, a piece or unknown, for all words.
            row, before = (array[first : first + stop - second] for array in (characters, best))
            slots = tables.first_slots.take(row)
            sums = tables.scores.take(slots) + before
            improves = sums > best[second:stop]
            np.copyto(best[second:stop], sums, where=improves)
            np.copyto(last_slots[second:stop], slots, where=improves)
            # Longer pieces, for the words in which a piece continues.
            words, slots, bases = tables.trie.step(tables.first_bases.take(row), characters[second:stop])
            for end in rows[position + 2 :]:
                if not len(words):
                    break
                ends = words + end
                sums = tables.scores.take(slots) + before.take(words)
                better = np.flatnonzero(sums > best.take(ends))
                better_ends = ends.take(better)
                best[better_ends] = sums.take(better)
                last_slots[better_ends] = slots.take(better)
                found, slots, bases = tables.trie.step(bases, characters.take(ends))
                words = words.take(found)
        return last_slots

    def _trace_back(
        self, last_slots: NDArray[np.int64], rows: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Follows the last pieces of all words to their starts.

        Returns:
            The slots of the pieces of all words, and the number of pieces of each word.
        """
        words, positions, steps = np.arange(len(lengths)), lengths, []
        while len(words):
            slots = last_slots.take(rows.take(positions) + words)
            steps.append((words, slots))
            positions = positions - self._tables.lengths.take(slots)
            remaining = np.flatnonzero(positions)
            words, positions = words.take(remaining), positions.take(remaining)
        counts = np.bincount(np.concatenate([words for words, _ in steps]), minlength=len(lengths))
        lasts = np.cumsum(counts) - 1
        all_slots = np.empty(int(counts.sum()), np.int64)
        for step, (words, slots) in enumerate(steps):
            all_slots[lasts.take(words) - step] = slots
        return all_slots, counts

    def _join(self, codes: NDArray[Any], order: NDArray[np.int64], parts: list[Segmentation]) -> Segmentation:
        """Joins batches, and adjacent unknown characters.

        Args:
            codes: code points of all words.
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
        joined_lengths = np.add.reduceat(lengths, kept)
        joined_counts = counts - np.bincount(
            np.repeat(np.arange(len(counts)), counts)[continues], minlength=len(counts)
        )
        ids = ids.take(kept)
        token_starts = np.cumsum(joined_lengths) - joined_lengths
        self._look_up_joined(codes, ids, token_starts, joined_lengths)
        return Segmentation(ids, joined_lengths, joined_counts)

    def _look_up_joined(
        self,
        codes: NDArray[Any],
        ids: NDArray[np.int32],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        """Gives joined unknown characters the id of the piece that they are, if any, in place.

        That happens if all scores are so high that two unknown characters score more than a piece of two.
        """
        for token in np.flatnonzero((ids == self.unknown_id) & (lengths > 1)).tolist():
            start = int(starts[token])
            characters = to_text(codes[start : start + int(lengths[token])])
            ids[token] = self._ids.get(characters, NO_PIECE)
            if ids[token] == NO_PIECE:
                ids[token] = self.unknown_id


def to_text(codes: NDArray[Any]) -> str:
    """Returns the text of code points that are not surrogates."""
    return codes.astype("<u4").tobytes().decode("utf-32-le")


def _build_tables(pieces: Sequence[str], piece_scores: NDArray[np.float64], unknown_id: int) -> _Tables:
    trie = build_piece_trie(pieces)
    first_slots, first_bases = np.zeros((2, int(trie.classes.max()) + 1), np.int64)
    classes = np.arange(1, len(first_slots))
    found, slots, bases = trie.step(np.full(len(classes), trie.root), classes)
    is_piece = trie.pieces.take(slots) != NO_PIECE
    first_slots[classes[found[is_piece]]] = slots[is_piece]
    first_bases[classes[found]] = bases
    is_piece = trie.pieces != NO_PIECE
    indices = trie.pieces[is_piece]
    scores = np.full(len(trie.links), -np.inf)
    scores[is_piece] = piece_scores[indices]
    scores[_UNKNOWN_SLOT] = piece_scores.min() - _UNKNOWN_PENALTY
    ids = np.full(len(trie.links), unknown_id, np.int32)
    ids[is_piece] = indices
    lengths = np.ones(len(trie.links), np.int64)
    lengths[is_piece] = np.fromiter(map(len, pieces), np.int64)[indices]
    return _Tables(trie, first_slots, first_bases, scores, ids, lengths)


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
