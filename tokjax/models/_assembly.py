"""From the ids of segments to the columns of a batch: special tokens, offsets, masks, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax.ragged import Ragged, splits_from_lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.models._engine import EncodedSegments
    from tokjax.vocabulary import Vocabulary


class Rows(NamedTuple):
    """Which segments and special tokens make up each row, in order.

    A row of `k` special tokens found in its text has `k + 1` segments, before, between and after them.

    Attributes:
        special_ids: the ids of the special tokens found, row by row, `int64` of shape `(found,)`.
        special_per_row: how many of them each row has, `int64` of shape `(rows,)`.
        before: ids to insert before each row.
        after: ids to insert after each row.
    """

    special_ids: NDArray[np.int64]
    special_per_row: NDArray[np.int64]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Assembled(NamedTuple):
    """All ids of a batch, and what each of them is.

    Attributes:
        ids: `int32`, shape `(n,)`.
        row_splits: `int64`, shape `(rows + 1,)`.
        inserted: which tokens have no source text, `bool`, shape `(n,)`.
        word_starts: which tokens start a word, `bool`, shape `(n,)`.
    """

    ids: NDArray[np.int32]
    row_splits: NDArray[np.int64]
    inserted: NDArray[np.bool_]
    word_starts: NDArray[np.bool_]


def assemble(encoded: EncodedSegments, rows: Rows) -> Assembled:
    """Put special tokens, found and inserted, between the segments' ids.

    Every segment gets a slot before it: for the tokens inserted before a row, or for the special token
    that was found between two segments.
    """
    segments_per_row = rows.special_per_row + 1
    last_segment = np.cumsum(segments_per_row) - 1
    first_segment = last_segment - rows.special_per_row
    num_segments = len(encoded.splits) - 1
    slot = np.ones(num_segments, np.int64)
    slot[first_segment] = len(rows.before)
    tail = np.zeros(num_segments, np.int64)
    tail[last_segment] = len(rows.after)

    lengths = np.diff(encoded.splits)
    stops = np.cumsum(slot + lengths + tail)
    total = int(stops[-1]) if num_segments else 0
    ids = np.empty(total, np.int32)
    ordinary = np.ones(total, bool)
    inserted = np.zeros(total, bool)

    slot_starts = stops - tail - lengths - slot
    is_found = np.ones(num_segments, bool)
    is_found[first_segment] = False
    found = slot_starts[is_found]
    ids[found] = rows.special_ids
    ordinary[found] = False
    for values, starts in (
        (rows.before, slot_starts[first_segment]),
        (rows.after, (stops - tail)[last_segment]),
    ):
        for k, value in enumerate(values):
            ids[starts + k] = value
            inserted[starts + k] = True
            ordinary[starts + k] = False
    ids[ordinary] = encoded.ids

    word_starts = ~ordinary
    first_of_word = np.cumsum(encoded.tokens_per_word) - encoded.tokens_per_word
    word_starts[np.flatnonzero(ordinary)[first_of_word]] = True
    row_splits = np.concatenate([np.zeros(1, np.int64), stops[last_segment]])
    return Assembled(ids, row_splits, inserted, word_starts)


def columns_of(assembled: Assembled, vocabulary: Vocabulary, *, offsets: bool, masks: bool) -> Ragged:
    """The `Ragged` of a batch, with the columns that were asked for."""
    columns: dict[str, NDArray[np.int32] | NDArray[np.int64]] = {}
    if offsets:
        columns["offsets"] = _offsets(assembled, vocabulary)
        columns["word_ids"] = _word_ids(assembled)
        columns["sequence_ids"] = -assembled.inserted.astype(np.int32)
    if masks:
        columns["special_tokens_mask"] = vocabulary.is_special.take(assembled.ids).astype(np.int32)
        columns["token_type_ids"] = np.zeros(len(assembled.ids), np.int32)
    return Ragged(assembled.ids, assembled.row_splits, **columns)


def _offsets(assembled: Assembled, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Byte tokens lie end to end, so offsets are the running sum of their lengths, row by row."""
    lengths = vocabulary.byte_lengths.take(assembled.ids)
    lengths[assembled.inserted] = 0
    stops = splits_from_lengths(lengths)
    row_bases = np.repeat(stops[assembled.row_splits[:-1]], np.diff(assembled.row_splits))
    offsets = np.stack([stops[:-1], stops[1:]], axis=1) - row_bases[:, None] + 1
    offsets[assembled.inserted] = 0
    return offsets


def _word_ids(assembled: Assembled) -> NDArray[np.int32]:
    starts = assembled.word_starts & ~assembled.inserted
    running = splits_from_lengths(starts)
    row_bases = np.repeat(running[assembled.row_splits[:-1]], np.diff(assembled.row_splits))
    words = (running[1:] - row_bases - 1).astype(np.int32)
    words[assembled.inserted] = -1
    return words
