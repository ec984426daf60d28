"""BPE dropout: merging in which each possible merge is dropped with a probability.

This is algorithm 1 of Provilkov et al., "BPE-Dropout" (2020). In each step, every pair of a pre-token that
can merge is dropped with probability `p`, independently. Of the others, the pair of lowest rank merges, and
of equal ranks the leftmost. The next step decides about all pairs again. Merging ends with the first step
that drops all pairs. An example, with the tokens es (rank 256), ow (258), est (259), low (260)::

    step 0     l·o·w·e·s·t      o·w 258 kept      e·s 256 dropped            o·w merges
    step 1     l·ow·e·s·t       l·ow 260 kept     e·s 256 kept               e·s merges
    step 2     l·ow·es·t        l·ow 260 dropped  es·t 259 dropped           end

The decision about a pair is a pure function of the seed, the text, the position of the pair in the text, and
the step. Its 64 random bits come from two counters of splitmix64::

    key of the segment       blake2b of its text so far, keyed by the seed
    state of byte i          mix(key + (i + 1) * INCREMENT)
    bits of pair i, step s   mix(state of byte i + (s + 1) * INCREMENT)     i: first byte of the pair
    dropped                  (bits >> 11) < p * 2**53

So chunks of text, batches, threads and processes do not change the result. Pre-tokens are not cached, since
each occurrence is merged differently. Instead, a round performs one step of all pre-tokens of a chunk with
array operations. Pre-tokens that are very long, and the last few that still merge, are merged one at a time.

See docs/tokenizers.md, section "BPE dropout".
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.permutation import INCREMENT, MASK64, mix_bits, mix_int
from tokjax.bpe.merge_bounds import NEVER_RANK, unpack_ranks
from tokjax.bpe.sequential_merging import merge_by_heap
from tokjax.core.ragged import concatenate_ranges
from tokjax.core.utf8 import encode_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.batched_merging import BatchMerger, PretokenIds
    from tokjax.bpe.chunks import Chunk, Pieces, Segments
    from tokjax.bpe.hash_tables import Pretokens

    Ints = NDArray[np.int32]
    Positions = NDArray[np.int64]
    Bits = NDArray[np.uint64]

_BITS = 53
"""Number of random bits per decision: as many as a probability has, so 0 and 1 are exact."""
_LONG_PRETOKEN = 256
"""Pre-tokens of more bytes are merged one at a time, since a round would examine all of their pairs."""
_FEW_PRETOKENS = 48
"""With at most this many pre-tokens left, rounds end and pre-tokens are merged one at a time."""
_NUM_BYTES, _INDEX_BITS = 256, 32
_SEPARATOR = b"\xff\xff"
"""Bytes between the segments of a text in its hash. They occur in no UTF-8 text."""


class Dropout(NamedTuple):
    """Options of BPE dropout.

    Attributes:
        probability: probability that a merge is dropped in a step, from 0 to 1.
        seed: seed of the random decisions, from 0 to 2**64 - 1.
    """

    probability: float
    seed: int


def iter_piece_keys(segments: Segments, chunks: Iterable[Pieces], seed: int) -> Iterator[Bits]:
    """Iterates over chunks, and yields the key of each piece: the counter at its first byte.

    A piece that continues a segment continues its counter, so the keys of pre-tokens do not depend on where
    the segment is split.

    Args:
        segments: the segments.
        chunks: the pieces of each chunk, which together are the segments.
        seed: seed of the random decisions.
    """
    segment_keys = _iter_segment_keys(segments, seed)
    key, num_bytes = next(segment_keys, 0), 0
    for pieces in chunks:
        keys = []
        for text, ends_segment in zip(pieces.texts, pieces.ends_segment, strict=True):
            keys.append((key + num_bytes * INCREMENT) & MASK64)
            if ends_segment:
                key, num_bytes = next(segment_keys, 0), 0
            else:
                num_bytes += len(encode_segment(text, pieces.hold_bytes))
        yield np.array(keys, np.uint64)


def compute_pretoken_keys(chunk: Chunk, piece_keys: Bits) -> Bits:
    """Computes the key of each pre-token of a chunk, the counter at its first byte, `uint64`.

    Args:
        chunk: the pre-tokens of the chunk.
        piece_keys: key of each piece, shape `(pieces,)`.
    """
    offsets = chunk.compute_starts().astype(np.uint64)
    return np.repeat(piece_keys, np.diff(chunk.stops, prepend=0)) + offsets * np.uint64(INCREMENT)


def merge_with_dropout(
    merger: BatchMerger, pretokens: Pretokens, keys: Bits, probability: float
) -> PretokenIds:
    """Returns the ids of pre-tokens, merged with dropout.

    Args:
        merger: merger of the vocabulary.
        pretokens: the pre-tokens.
        keys: key of each pre-token, `uint64`, shape `(pretokens,)`.
        probability: probability that a merge is dropped in a step.
    """
    text = pretokens.data.take(concatenate_ranges(pretokens.starts, pretokens.lengths))
    index = concatenate_ranges(1, pretokens.lengths).astype(np.uint64)
    states = mix_bits(np.repeat(keys, pretokens.lengths) + index * np.uint64(INCREMENT))
    batch = _DropoutBatch(merger, text, pretokens.lengths, states, int(probability * (1 << _BITS)))
    batch.merge_characters()
    batch.merge_long_pretokens()
    while batch.merge_step() > _FEW_PRETOKENS:
        pass
    batch.merge_sequentially(batch.symbols.positions[1:-1])
    return merger.collect_ids(batch.finished_ids, text, np.cumsum(pretokens.lengths))


class _DropoutBatch:
    """Pre-tokens that are merged together.

    Args:
        merger: merger of the vocabulary.
        text: the bytes of all pre-tokens, concatenated, `uint8`.
        lengths: number of bytes of each pre-token, `int64`, shape `(pretokens,)`.
        states: state of each byte, `uint64`, shape `(bytes,)`.
        threshold: decisions with lower random bits are drops.

    Attributes:
        finished_ids: the symbol that starts at each byte, or -1, `int32`, shape `(bytes,)`.
        symbols: the symbols of the pre-tokens that still merge, as for batched merging.
    """

    def __init__(
        self, merger: BatchMerger, text: NDArray[np.uint8], lengths: Positions, states: Bits, threshold: int
    ) -> None:
        self._merger = merger
        self._text, self._states, self._threshold = text, states, threshold
        self._stops = np.cumsum(lengths)
        self._step = 0
        self.finished_ids = merger.tables.byte_symbols.take(text)
        self.symbols = merger.build_symbols(text, self._stops)
        # The pre-token of each byte. The sentinels before and after all bytes belong to another one.
        self._rows = np.append(np.repeat(np.arange(len(lengths)), lengths), [len(lengths)] * 2)

    def merge_characters(self) -> None:
        """Builds the characters of the vocabulary from their bytes. These merges are never dropped.

        No two of them overlap: the right half is a continuation byte, with which no left half begins.
        """
        count = self._merger.rules.num_character_merges
        while count and len(at := np.flatnonzero(unpack_ranks(self.symbols.bounds) < _NUM_BYTES + count)):
            self._merge_pairs(at, np.ones(len(self.symbols.ids), bool))

    def merge_long_pretokens(self) -> None:
        """Merges very long pre-tokens, one at a time."""
        is_long = np.append(np.diff(self._stops, prepend=0) > _LONG_PRETOKEN, False)
        if is_long.any():
            of_long = is_long.take(self._rows.take(self.symbols.positions))
            self.merge_sequentially(self.symbols.positions[of_long])
            self.symbols = self.symbols.take(np.flatnonzero(~of_long))

    def merge_step(self) -> int:
        """Performs one step of each remaining pre-token. Returns the number of pre-tokens that remain."""
        ranks, positions = unpack_ranks(self.symbols.bounds), self.symbols.positions
        rows = self._rows.take(positions)
        candidates = np.flatnonzero(ranks < NEVER_RANK)
        counters = self._states.take(positions.take(candidates))
        counters += np.uint64((self._step + 1) * INCREMENT & MASK64)
        is_kept = mix_bits(counters) >> np.uint64(64 - _BITS) >= np.uint64(self._threshold)
        kept = candidates[is_kept]
        kept_rows = rows.take(kept)
        first = np.flatnonzero(np.diff(kept_rows, prepend=-1))
        self._step += 1
        if not len(first):
            self.symbols = self.symbols.take(np.array([0, -1]))
            return 0
        # The lowest rank and, of equal ranks, the leftmost pair of each pre-token.
        priorities = ranks.take(kept).astype(np.int64) << _INDEX_BITS | kept
        best = np.minimum.reduceat(priorities, first) & ((1 << _INDEX_BITS) - 1)
        merges = np.zeros(len(self._stops) + 1, bool)
        merges[kept_rows.take(first)] = merges[-1] = True
        self._merge_pairs(best, merges.take(rows))
        return len(first)

    def _merge_pairs(self, at: Positions, remains: NDArray[np.bool_]) -> None:
        """Merges pairs that do not overlap.

        Args:
            at: indices of the left symbols of the pairs, ascending.
            remains: mask of the symbols to keep. Those of finished pre-tokens are not. Changed in place.
        """
        symbols = self.symbols
        self.symbols = self._merger.merge_pairs(symbols, at, remains)
        self.finished_ids[symbols.positions.take(at)] = symbols.ids.take(at)
        self.finished_ids[symbols.positions.take(at + 1)] = -1

    def merge_sequentially(self, positions: Positions) -> None:
        """Merges pre-tokens one at a time, from the positions of their current symbols on."""
        rules = self._merger.rules
        first = np.flatnonzero(np.diff(self._rows.take(positions), prepend=-1))
        for part in np.split(positions, first[1:]) if len(first) else ():
            start = int(part[0])
            stop = int(self._stops[np.searchsorted(self._stops, start, "right")])
            text = self._text[start:stop].tobytes()
            first_starts, is_dropped = (part - start).tolist(), self._make_decision(start, stop)
            starts = merge_by_heap(text, first_starts, rules.get_rank, is_dropped, self._step)
            tokens = [text[i:j] for i, j in zip(starts, [*starts[1:], len(text)], strict=True)]
            self.finished_ids[start:stop] = -1
            self.finished_ids[start + np.array(starts)] = list(map(rules.symbols.__getitem__, tokens))

    def _make_decision(self, start: int, stop: int) -> Callable[[int, int], bool]:
        """Returns a function of a position in a pre-token and a step: whether a pair is dropped."""
        states, threshold = self._states[start:stop].tolist(), self._threshold

        def is_dropped(position: int, step: int) -> bool:
            counter = (states[position] + (step + 1) * INCREMENT) & MASK64
            return mix_int(counter) >> (64 - _BITS) < threshold

        return is_dropped


def _iter_segment_keys(segments: Segments, seed: int) -> Iterator[int]:
    """Yields the key of each segment: a hash of its text and the segments before it in the same text.

    So equal segments of one text, such as two equal turns of a conversation, have different keys.
    """
    begins_text = [True] * len(segments.texts)
    if segments.begins_text is not None:
        begins_text = segments.begins_text.tolist()
    seed_bytes = seed.to_bytes(8, "little")
    for text, begins in zip(segments.texts, begins_text, strict=True):
        if begins:
            digest = hashlib.blake2b(digest_size=8, key=seed_bytes)
        digest.update(encode_segment(text, segments.hold_bytes) + _SEPARATOR)
        yield int.from_bytes(digest.digest(), "little")
