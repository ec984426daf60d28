"""From the ids of segments to the columns of a batch: special tokens, offsets, masks, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.ragged import Ragged

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
        inserted: the places of tokens that have no source text, `int64`, shape `(inserted,)`.
        special: the places of all special tokens, found or inserted, rising, `int64`, shape `(special,)`.
    """

    ids: NDArray[np.int32]
    row_splits: NDArray[np.int64]
    inserted: NDArray[np.int64]
    special: NDArray[np.int64]


def assemble(encoded: EncodedSegments, rows: Rows) -> Assembled:
    """Put special tokens, found and inserted, between the segments' ids.

    Every segment gets a slot before it: for the tokens inserted before a row, or for the special token
    that was found between two segments.
    """
    nowhere = np.zeros(0, np.int64)
    if not (len(rows.special_ids) or rows.before or rows.after):
        return Assembled(encoded.ids, encoded.splits, nowhere, nowhere)
    last_segment = np.cumsum(rows.special_per_row + 1) - 1
    first_segment = last_segment - rows.special_per_row
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
    for places, values in ((found, rows.special_ids), (before, rows.before), (after, rows.after)):
        ids[places] = values
        ordinary[places] = False
    ids[ordinary] = encoded.ids
    row_splits = np.concatenate([np.zeros(1, np.int64), stops[last_segment]])
    inserted = np.concatenate([before.reshape(-1), after.reshape(-1)])
    return Assembled(ids, row_splits, inserted, np.flatnonzero(~ordinary))


def columns_of(
    assembled: Assembled,
    tokens_per_word: NDArray[np.int64],
    vocabulary: Vocabulary,
    *,
    offsets: bool,
    masks: bool,
) -> Ragged:
    """The `Ragged` of a batch, with the columns that were asked for."""
    columns: dict[str, NDArray[np.int32] | NDArray[np.int64]] = {}
    if offsets:
        columns["offsets"] = _offsets(assembled, vocabulary)
        columns["word_ids"] = _word_ids(assembled, tokens_per_word)
        columns["sequence_ids"] = np.zeros(len(assembled.ids), np.int32)
        columns["sequence_ids"][assembled.inserted] = -1
    if masks:
        columns["special_tokens_mask"] = np.zeros(len(assembled.ids), np.int32)
        columns["special_tokens_mask"][assembled.special] = 1
        columns["token_type_ids"] = np.zeros(len(assembled.ids), np.int32)
    return Ragged(assembled.ids, assembled.row_splits, **columns)


def _offsets(assembled: Assembled, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Byte tokens lie end to end, so offsets are the running sum of their lengths, row by row."""
    lengths = vocabulary.byte_lengths.take(assembled.ids)
    lengths[assembled.inserted] = 0
    offsets = np.empty((len(lengths), 2), np.int64)
    _sum_by_row(lengths, assembled.row_splits, first=1, out=offsets[:, 1])
    np.subtract(offsets[:, 1], lengths, out=offsets[:, 0])
    offsets[assembled.inserted] = 0
    return offsets


def _word_ids(assembled: Assembled, tokens_per_word: NDArray[np.int64]) -> NDArray[np.int32]:
    """The running count of words in each row; a special token is a word, but for those inserted."""
    of_words = np.zeros(len(assembled.ids) - len(assembled.special), np.int32)
    of_words[np.cumsum(tokens_per_word) - tokens_per_word] = 1
    starts_word = of_words
    if len(assembled.special):
        starts_word = np.ones(len(assembled.ids), np.int32)
        starts_word[assembled.inserted] = 0
        starts_word[np.delete(np.arange(len(assembled.ids)), assembled.special)] = of_words
    words = np.empty(len(assembled.ids), np.int32)
    _sum_by_row(starts_word, assembled.row_splits, first=-1, out=words)
    words[assembled.inserted] = -1
    return words


def _sum_by_row(
    values: NDArray[Any], row_splits: NDArray[np.int64], *, first: int, out: NDArray[Any]
) -> None:
    """Running sums that begin at `first` in each row: what a row adds is taken off where the next begins."""
    if not len(values):
        return
    starts = row_splits[:-1][np.diff(row_splits) > 0]
    steps = values.astype(out.dtype)
    steps[starts[1:]] -= np.add.reduceat(steps, starts)[:-1]
    steps[0] += first
    np.cumsum(steps, out=out)
