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
    stops = splits_from_lengths(lengths)
    row_bases = np.repeat(stops[assembled.row_splits[:-1]], np.diff(assembled.row_splits))
    offsets = np.stack([stops[:-1], stops[1:]], axis=1) - row_bases[:, None] + 1
    offsets[assembled.inserted] = 0
    return offsets


def _word_ids(assembled: Assembled, tokens_per_word: NDArray[np.int64]) -> NDArray[np.int32]:
    """The running count of words in each row; a special token is a word, but for those inserted."""
    size = len(assembled.ids)
    new_word = np.zeros(size, np.int32)
    ordinary = np.delete(np.arange(size), assembled.special) if len(assembled.special) else slice(None)
    of_words = np.zeros(size - len(assembled.special), np.int32)
    of_words[np.cumsum(tokens_per_word) - tokens_per_word] = 1
    new_word[ordinary] = of_words
    new_word[assembled.special] = 1
    new_word[assembled.inserted] = 0
    words = np.cumsum(new_word, dtype=np.int32)
    before_row = np.concatenate([np.zeros(1, np.int32), words])[assembled.row_splits[:-1]]
    words -= np.repeat(before_row + 1, np.diff(assembled.row_splits))
    words[assembled.inserted] = -1
    return words
