"""From the ids of segments to those of rows: special tokens, offsets, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.threads import map_in_threads
from tokjax.core.ragged import make_row_splits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokjax.bpe.encoded_segments import EncodedSegments


_TOKENS_AT_ONCE = 1 << 17


class RowLayout(NamedTuple):
    """Which segments and tokens that part them make up each row, in order.

    A row in whose text `k` tokens were found has `k + 1` segments, before, between and after them.

    Attributes:
        found_ids: the ids of the tokens found, row by row, `int64` of shape `(found,)`.
        found_nbytes: how many bytes of its text each of them has, `int64` of shape `(found,)`.
        found_per_row: how many of them each row has, `int64` of shape `(rows,)`.
        before: ids to insert before each row.
        after: ids to insert after each row.
    """

    found_ids: NDArray[np.int64]
    found_nbytes: NDArray[np.int64]
    found_per_row: NDArray[np.int64]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class AssembledRows(NamedTuple):
    """All ids of a batch, and what each of them is.

    Attributes:
        ids: `int32`, shape `(n,)`.
        row_splits: `int64`, shape `(rows + 1,)`.
        inserted: the places of tokens that have no source text, `int64`, shape `(inserted,)`.
        found: the places of tokens that were found in a text, rising, `int64`, shape `(found,)`.
        special_positions: the places of both, rising, `int64`, shape `(inserted + found,)`.
    """

    ids: NDArray[np.int32]
    row_splits: NDArray[np.int64]
    inserted: NDArray[np.int64]
    found: NDArray[np.int64]
    special_positions: NDArray[np.int64]


def assemble(encoded: EncodedSegments, rows: RowLayout) -> AssembledRows:
    """Put tokens that were found, or are inserted, between the segments' ids.

    Every segment gets a slot before it: for the tokens inserted before a row, or for the one that was found
    between two segments.
    """
    nowhere = np.zeros(0, np.int64)
    if not (len(rows.found_ids) or rows.before or rows.after):
        return AssembledRows(encoded.ids, encoded.splits, nowhere, nowhere, nowhere)
    last_segment = np.cumsum(rows.found_per_row + 1) - 1
    first_segment = last_segment - rows.found_per_row
    num_segments = len(encoded.splits) - 1
    slot, tail = np.ones(num_segments, np.int64), np.zeros(num_segments, np.int64)
    slot[first_segment] = len(rows.before)
    tail[last_segment] = len(rows.after)
    lengths = np.diff(encoded.splits)
    stops = np.cumsum(slot + lengths + tail)
    slot_starts = stops - tail - lengths - slot

    is_found = np.ones(num_segments, bool)
    is_found[first_segment] = False
    found = slot_starts[is_found]
    before = slot_starts[first_segment][:, None] + np.arange(len(rows.before))
    after = (stops - tail)[last_segment][:, None] + np.arange(len(rows.after))
    ids = np.empty(int(stops[-1]) if num_segments else 0, np.int32)
    ordinary = np.ones(len(ids), bool)
    for positions, values in ((found, rows.found_ids), (before, rows.before), (after, rows.after)):
        ids[positions] = values
        ordinary[positions] = False
    ids[ordinary] = encoded.ids
    row_splits = np.concatenate([np.zeros(1, np.int64), stops[last_segment]])
    inserted = np.concatenate([before.reshape(-1), after.reshape(-1)])
    return AssembledRows(ids, row_splits, inserted, found, np.flatnonzero(~ordinary))


def compute_concatenated_sources(
    assembled: AssembledRows,
    encoded: EncodedSegments,
    rows: RowLayout,
    byte_lengths: NDArray[np.int64],
    threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and word ids, where the bytes of a row's tokens are the row's text.

    So offsets are the running sum of their lengths, row by row; word ids are the running count of words. A
    token that was found is a word.

    Args:
        assembled: the ids.
        encoded: those of the segments, with the beginnings of words.
        rows: what makes up each row.
        byte_lengths: how many bytes of text each id of the vocabulary is.
        threads: how many share the work.
    """
    offsets = np.empty((len(assembled.ids), 2), np.int64)
    word_ids = np.empty(len(assembled.ids), np.int32)
    all_inserted = np.sort(assembled.inserted)
    assert encoded.begins_word is not None
    begins = _flag_all_word_beginnings(assembled, encoded.begins_word)
    corrections = encoded.corrections
    all_corrected = _map_to_all_ids(assembled, corrections.positions)

    def fill(group: slice) -> None:
        splits = assembled.row_splits[group]
        part = slice(int(splits[0]), int(splits[-1]))
        inserted = all_inserted[slice(*np.searchsorted(all_inserted, (part.start, part.stop)))] - part.start
        found = slice(*np.searchsorted(assembled.found, (part.start, part.stop)))
        of_part = slice(*np.searchsorted(all_corrected, (part.start, part.stop)))
        corrected = all_corrected[of_part] - part.start
        lengths = byte_lengths.take(assembled.ids[part])
        lengths[corrected] = corrections.lengths[of_part]
        lengths[inserted] = 0
        lengths[assembled.found[found] - part.start] = rows.found_nbytes[found]
        stops = _compute_row_sums(lengths, splits - part.start, first=1)
        offsets[part, 1] = stops
        np.subtract(stops, lengths, out=offsets[part, 0])
        offsets[part][inserted] = 0
        word_ids[part] = _compute_row_sums(begins[part].astype(np.int64), splits - part.start, first=-1)
        word_ids[part][inserted] = -1

    for _ in map_in_threads(fill, _iter_row_groups(assembled.row_splits), threads):
        pass
    return offsets, word_ids


def compute_sources_from_spans(
    assembled: AssembledRows,
    encoded: EncodedSegments,
    rows: RowLayout,
    nbytes: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and word ids, where the model says of which bytes each id is.

    Args:
        assembled: the ids.
        encoded: those of the segments, with their spans and the beginnings of words.
        rows: what makes up each row.
        nbytes: how many bytes each segment has.
    """
    assert encoded.spans is not None
    assert encoded.begins_word is not None
    row_of_segment = np.repeat(np.arange(len(rows.found_per_row)), rows.found_per_row + 1)
    row_of_found = np.repeat(np.arange(len(rows.found_per_row)), rows.found_per_row)
    up_to_found = make_row_splits(rows.found_nbytes)
    starts = np.cumsum(nbytes) - nbytes + up_to_found[np.arange(len(nbytes)) - row_of_segment]
    first_segment = np.cumsum(rows.found_per_row + 1) - rows.found_per_row - 1
    starts -= starts[first_segment][row_of_segment]
    offsets = np.zeros((len(assembled.ids), 2), np.int64)
    ordinary = np.ones(len(assembled.ids), bool)
    ordinary[assembled.special_positions] = False
    shift = np.repeat(starts + 1, np.diff(encoded.splits))
    for side in (0, 1):  # (a column at a time, which is quicker)
        offsets[:, side][ordinary] = encoded.spans[:, side] + shift
    before = np.arange(len(row_of_found)) + row_of_found  # the segment before each
    found_starts = 1 + starts[before] + nbytes[before]
    offsets[assembled.found] = np.stack([found_starts, found_starts + rows.found_nbytes], axis=1)
    begins = _flag_all_word_beginnings(assembled, encoded.begins_word)
    word_ids = _compute_row_sums(begins.astype(np.int64), assembled.row_splits, first=-1).astype(np.int32)
    word_ids[assembled.inserted] = -1
    return offsets, word_ids


def _map_to_all_ids(assembled: AssembledRows, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where ids of the segments stand among all ids."""
    ordinary_before = assembled.special_positions - np.arange(len(assembled.special_positions))
    return positions + np.searchsorted(ordinary_before, positions, "right")


def _flag_all_word_beginnings(assembled: AssembledRows, begins_word: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which ids begin a word: those found in a text do."""
    if not len(assembled.special_positions):
        return begins_word
    begins = np.ones(len(assembled.ids), bool)
    begins[assembled.special_positions] = False
    begins[begins] = begins_word
    begins[assembled.found] = True
    return begins


def _iter_row_groups(row_splits: NDArray[np.int64]) -> Iterator[slice]:
    """Rows in groups of about one size, as slices of `row_splits`: small enough for a processor's cache."""
    last = len(row_splits) - 1
    first = 0
    while first < last:
        stop = int(np.searchsorted(row_splits, row_splits[first] + _TOKENS_AT_ONCE, "right")) - 1
        stop = min(max(stop, first + 1), last)
        yield slice(first, stop + 1)
        first = stop


def _compute_row_sums(
    values: NDArray[np.int64], row_splits: NDArray[np.int64], *, first: int
) -> NDArray[np.int64]:
    """Running sums that begin at `first` in each row: what a row adds is taken off where the next begins."""
    if not len(values):
        return values
    starts = row_splits[:-1][np.diff(row_splits) > 0]
    steps = values.copy()
    steps[starts[1:]] -= np.add.reduceat(steps, starts)[:-1]
    steps[0] += first
    return np.cumsum(steps, out=steps)
