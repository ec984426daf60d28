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

See docs/performance.md, section "Unigram models".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.unigram.piece_trie import NO_PIECE, build_piece_trie

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_UNKNOWN_PENALTY = 10.0
_MAX_SCORE = 1e100
"""Maximum absolute score. Sums of larger ones could be infinite."""
_UNKNOWN_SLOT = 0
_WORDS_PER_BATCH = 1 << 13


class Segmentation(NamedTuple):
    """Pieces of several words, concatenated.

    Attributes:
        ids: index of each piece, `int32`, shape `(num_tokens,)`. Adjacent unknown characters are one token.
        lengths: number of characters of each token, `int64`, shape `(num_tokens,)`.
        counts: number of tokens of each word, `int64`, shape `(words,)`.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]


class UnigramModel:
    """Unigram model that segments many words at once.

    Args:
        pieces: different pieces, whose ids are their indices.
        scores: score of each piece.
        unknown_id: id of the unknown piece.

    Attributes:
        unknown_id: id of the unknown piece.

    Raises:
        ValueError: a score is too large.
    """

    def __init__(self, pieces: Sequence[str], scores: Sequence[float], unknown_id: int) -> None:
        piece_scores = np.array(scores, np.float64)
        if not (np.abs(piece_scores) <= _MAX_SCORE).all():
            raise ValueError("a score of the model is too large")
        self._ids: Mapping[str, int] = {piece: id_ for id_, piece in enumerate(pieces)}
        self.unknown_id = unknown_id
        trie = self._trie = build_piece_trie(pieces)
        # The children of the root, by class. Characters that are not pieces have the slot of the unknown one.
        self._first_slots = np.zeros(int(trie.classes.max()) + 1, np.int64)
        self._first_bases = np.zeros(len(self._first_slots), np.int64)
        classes = np.arange(1, len(self._first_slots))
        found, slots, bases = trie.step(np.full(len(classes), trie.root), classes)
        is_piece = trie.pieces.take(slots) != NO_PIECE
        self._first_slots[classes[found[is_piece]]] = slots[is_piece]
        self._first_bases[classes[found]] = bases
        self._scores = np.full(len(trie.links), -np.inf)
        self._slot_ids = np.full(len(trie.links), unknown_id, np.int32)
        is_piece = trie.pieces != NO_PIECE
        self._scores[is_piece] = piece_scores[trie.pieces[is_piece]]
        self._scores[_UNKNOWN_SLOT] = piece_scores.min() - _UNKNOWN_PENALTY
        self._slot_ids[is_piece] = trie.pieces[is_piece]
        self._slot_lengths = np.ones(len(trie.links), np.int64)
        self._slot_lengths[is_piece] = np.fromiter(map(len, pieces), np.int64)[trie.pieces[is_piece]]

    def segment(self, codes: NDArray[Any], lengths: NDArray[np.int64]) -> Segmentation:
        """Segments words.

        Args:
            codes: code points of all words, concatenated, shape `(characters,)`.
            lengths: number of characters of each word, at least 1, `int64`, shape `(words,)`.
        """
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")
        classes = self._trie.classes.take(codes)
        parts = []
        for first in range(0, len(order), _WORDS_PER_BATCH):
            batch = order[first : first + _WORDS_PER_BATCH]
            parts.append(self._segment_batch(classes, starts.take(batch), lengths.take(batch)))
        return self._join(codes, order, parts)

    def _segment_batch(
        self, classes: NDArray[np.int32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Segments words that are sorted by length, the longest first.

        Returns:
            The slots of the pieces of all words, and the number of pieces of each word.
        """
        positions = np.arange(lengths[0] + 1)
        rows = make_row_splits(np.searchsorted(-lengths, -positions, "right"))
        characters = np.zeros(rows[-1], np.int64)  # 0 after the end of each word
        for position, first in enumerate(rows[:-2].tolist()):
            count = int(rows[position + 2] - rows[position + 1])
            characters[first : first + count] = classes.take(starts[:count] + position)
        return self._trace_back(self._find_best(characters, rows.tolist()), rows, lengths)

    def _find_best(self, characters: NDArray[np.int64], rows: list[int]) -> NDArray[np.int64]:
        """Returns the slot of the best last piece for each position in each word.

        Args:
            characters: classes of the characters at position 0 of all words, then those at position 1, and
                so on, 0 for the end of a word, `int64`, shape `(characters + words,)`.
            rows: start of each position in `characters`, and their number.
        """
        best = np.full(len(characters), -np.inf)
        best[: rows[1]] = 0
        last_slots = np.zeros(len(characters), np.int64)
        for position, first in enumerate(rows[:-2]):
            second, stop = rows[position + 1 : position + 3]
            # One character, a piece or unknown, for all words.
            row, before = (array[first : first + stop - second] for array in (characters, best))
            slots = self._first_slots.take(row)
            sums = self._scores.take(slots) + before
            improves = sums > best[second:stop]
            np.copyto(best[second:stop], sums, where=improves)
            np.copyto(last_slots[second:stop], slots, where=improves)
            # Longer pieces, for the words in which a piece continues.
            words, slots, bases = self._trie.step(self._first_bases.take(row), characters[second:stop])
            for end in rows[position + 2 :]:
                if not len(words):
                    break
                ends = words + end
                sums = self._scores.take(slots) + before.take(words)
                better = np.flatnonzero(sums > best.take(ends))
                better_ends = ends.take(better)
                best[better_ends] = sums.take(better)
                last_slots[better_ends] = slots.take(better)
                found, slots, bases = self._trie.step(bases, characters.take(ends))
                words = words.take(found)
        return last_slots

    def _trace_back(
        self, last_slots: NDArray[np.int64], rows: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Follows the last pieces of all words to their starts. Returns the same as `_segment_batch`."""
        words, positions, steps = np.arange(len(lengths)), lengths, []
        while len(words):
            slots = last_slots.take(rows.take(positions) + words)
            steps.append((words, slots))
            positions = positions - self._slot_lengths.take(slots)
            remaining = np.flatnonzero(positions)
            words, positions = words.take(remaining), positions.take(remaining)
        counts = np.bincount(np.concatenate([words for words, _ in steps]), minlength=len(lengths))
        lasts = np.cumsum(counts) - 1
        all_slots = np.empty(int(counts.sum()), np.int64)
        for step, (words, slots) in enumerate(steps):
            all_slots[lasts.take(words) - step] = slots
        return all_slots, counts

    def _join(
        self,
        codes: NDArray[Any],
        order: NDArray[np.int64],
        parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    ) -> Segmentation:
        """Joins batches, and adjacent unknown characters.

        Args:
            codes: code points of all words.
            order: the words in the order of the batches, `int64`, shape `(words,)`.
            parts: slots and counts of each batch.
        """
        no_slots = np.zeros(0, np.int64)
        slots = np.concatenate([no_slots, *(part for part, _ in parts)])
        batch_counts = np.concatenate([no_slots, *(counts for _, counts in parts)])
        counts, firsts = np.empty((2, len(order)), np.int64)
        counts[order], firsts[order] = batch_counts, np.cumsum(batch_counts) - batch_counts
        slots = slots.take(concatenate_ranges(firsts, counts))
        ids, lengths = self._slot_ids.take(slots), self._slot_lengths.take(slots)
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
            characters = (
                codes[start : start + int(lengths[token])].astype("<u4").tobytes().decode("utf-32-le")
            )
            ids[token] = self._ids.get(characters, self.unknown_id)
