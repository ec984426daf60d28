"""Assembly of rows: inserts special tokens between encoded segments, and computes offsets and word ids.

Example: two texts, the template `<s> $A </s>`, and the special token `<x>` matched in the first text.

    texts                ab<x>c                   d
    segments             ab         c             d
    encoded.ids          5  6       7             8
    encoded.splits       0          2             3            4
    matched_per_row      1                        0

A row with `k` matched tokens has `k + 1` segments. Each special token is inserted before one of the ids of
the segments:

    special tokens       <s>   <x>  </s>    <s>   </s>
    inserted before      0     2    3       3     4          a position among the ids of the segments
    + index              0     3    5       6     8          a position among all ids

    position             0     1    2    3    4    5      6    7    8
    ids                  <s>   5    6    <x>  7    </s>   <s>  8    </s>
    inserted_positions   0                         5      6         8
    matched_positions                    3
    row_splits           0                                6              9

The token bytes of a row, concatenated, are usually the text of the row. So offsets are running sums of
token lengths, which start at 1 in each row. Inserted tokens have length 0, and get the sentinel afterwards.

    lengths              0     1    1    3    1    0      0    1    0
    stops                1     2    3    6    7    7      1    2    2
    stops - lengths      1     1    2    3    6    7      1    1    2
    offsets              0,0   1,2  2,3  3,6  6,7  0,0    0,0  1,2  0,0
    word_ids             -1    0    0    1    2    -1     -1   0    -1

All rows are processed together by array operations, without a loop over rows or tokens.

See docs/performance.md, section "Ids and offsets".
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from tokjax._util.threads import map_in_threads
from tokjax.core.ragged import make_row_splits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.bpe.chunks import EncodedSegments


Integer = TypeVar("Integer", np.int32, np.int64)
_TOKENS_PER_GROUP = 1 << 17


class RowLayout(NamedTuple):
    """Special and added tokens between and around the segments of each row.

    A row in whose text `k` tokens were matched has `k + 1` segments: before, between and after these tokens.

    Attributes:
        matched_ids: ids of the matched tokens, row by row, `int64`, shape `(matched,)`.
        matched_nbytes: number of text bytes that each matched token spans, `int64`, shape `(matched,)`.
        matched_per_row: number of matched tokens in each row, `int64`, shape `(rows,)`.
        before: ids to insert before each row.
        after: ids to insert after each row.
    """

    matched_ids: NDArray[np.int64]
    matched_nbytes: NDArray[np.int64]
    matched_per_row: NDArray[np.int64]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class AssembledRows(NamedTuple):
    """Ids of all rows of a batch, and the positions of the special and added tokens among them.

    Attributes:
        ids: token ids, `int32`, shape `(n,)`.
        row_splits: start of each row in `ids`, `int64`, shape `(rows + 1,)`.
        inserted_positions: positions of the inserted tokens, which have no source text, ascending, `int64`,
            shape `(inserted,)`.
        matched_positions: positions of the tokens that were matched in a text, ascending, `int64`, shape
            `(matched,)`.
        special_positions: positions of both, ascending, `int64`, shape `(inserted + matched,)`.
    """

    ids: NDArray[np.int32]
    row_splits: NDArray[np.int64]
    inserted_positions: NDArray[np.int64]
    matched_positions: NDArray[np.int64]
    special_positions: NDArray[np.int64]


def assemble(encoded: EncodedSegments, rows: RowLayout) -> AssembledRows:
    """Returns the ids of all rows: segments with matched tokens between and inserted tokens around them.

    The module docstring has an example.

    Args:
        encoded: ids of the segments of all rows.
        rows: special and added tokens between and around the segments.
    """
    empty = np.zeros(0, np.int64)
    if not (len(rows.matched_ids) or rows.before or rows.after):
        return AssembledRows(encoded.ids, encoded.splits, empty, empty, empty)
    if len(encoded.splits) == 2:
        ids = insert_around(encoded.ids, rows)
        after = np.arange(len(ids) - len(rows.after), len(ids))
        inserted = np.append(np.arange(len(rows.before)), after)
        return AssembledRows(ids, np.array([0, len(ids)]), inserted, empty, inserted)
    # The special tokens of all rows, row by row, and the position among the ids of the segments before which
    # each of them is inserted.
    row_splits = make_row_splits(rows.matched_per_row + len(rows.before) + len(rows.after))
    segment_splits = make_row_splits(rows.matched_per_row + 1)
    is_matched, starts_row = np.ones(int(row_splits[-1]), bool), np.zeros(len(encoded.splits) - 1, bool)
    starts_row[segment_splits[:-1]] = True
    targets = np.empty(len(is_matched), np.int64)
    special = np.empty(len(is_matched), np.int32)
    bounds = encoded.splits.take(segment_splits)
    before = row_splits[:-1, None] + np.arange(len(rows.before))
    after = row_splits[1:, None] + np.arange(-len(rows.after), 0)
    for indices, target, values in ((before, bounds[:-1], rows.before), (after, bounds[1:], rows.after)):
        is_matched[indices], targets[indices], special[indices] = False, target[:, None], values
    targets[is_matched], special[is_matched] = encoded.splits[:-1][~starts_row], rows.matched_ids
    positions = targets + np.arange(len(targets))
    ids = np.empty(len(encoded.ids) + len(special), np.int32)
    ordinary = np.ones(len(ids), bool)
    ids[positions], ordinary[positions] = special, False
    ids[ordinary] = encoded.ids
    return AssembledRows(ids, bounds + row_splits, positions[~is_matched], positions[is_matched], positions)


def insert_around(ids: NDArray[np.int32], rows: RowLayout) -> NDArray[np.int32]:
    """Returns the ids of a row without matched tokens, with inserted tokens around them."""
    return np.concatenate([np.array(rows.before, np.int32), ids, np.array(rows.after, np.int32)])


def compute_concatenated_offsets(
    assembled: AssembledRows,
    lengths: NDArray[np.int64] | None,
    rows: RowLayout,
    byte_lengths: NDArray[np.int64],
    threads: int,
) -> NDArray[np.int64]:
    """Computes offsets where the token bytes of a row, concatenated, are the text of the row.

    Offsets are the running sum of token lengths in each row.

    Args:
        assembled: ids of all rows.
        lengths: number of text bytes of each id of the segments; `None` for those of `byte_lengths`.
        rows: special and added tokens between and around the segments.
        byte_lengths: number of text bytes per token id, `int64`, shape `(vocab_size,)`.
        threads: number of threads.

    Returns:
        1-based half-open byte offsets, `int64`, shape `(n, 2)`. Inserted tokens have the offsets `(0, 0)`.
    """
    # Threads write to disjoint slices of the array, one group of rows at a time.
    offsets = np.empty((len(assembled.ids), 2), np.int64)
    has_special = len(assembled.special_positions) > 0
    all_lengths = None if lengths is None else _spread(assembled, lengths)

    def fill_group(group: slice) -> None:
        splits = assembled.row_splits[group]
        part = slice(int(splits[0]), int(splits[-1]))
        lengths = byte_lengths.take(assembled.ids[part]) if all_lengths is None else all_lengths[part]
        if has_special:
            inserted = assembled.inserted_positions
            inserted = inserted[_find_range(inserted, part)] - part.start
            lengths[inserted] = 0
            matched = _find_range(assembled.matched_positions, part)
            lengths[assembled.matched_positions[matched] - part.start] = rows.matched_nbytes[matched]
        stops = _compute_row_sums(lengths, splits - part.start, first=1)
        offsets[part, 1] = stops
        np.subtract(stops, lengths, out=offsets[part, 0])
        if has_special:
            offsets[part][inserted] = 0  # the sentinel

    if len(offsets) <= _TOKENS_PER_GROUP:
        fill_group(slice(None))
        return offsets
    for _ in map_in_threads(fill_group, _list_row_groups(assembled.row_splits), threads):
        pass
    return offsets


def compute_offsets_from_spans(
    assembled: AssembledRows, encoded: EncodedSegments, rows: RowLayout, nbytes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Computes offsets where the model returned a byte span for each id.

    Args:
        assembled: ids of all rows.
        encoded: ids of the segments, with spans.
        rows: special and added tokens between and around the segments.
        nbytes: number of bytes of each segment, `int64`, shape `(segments,)`; any array without matched
            tokens.

    Returns:
        1-based half-open byte offsets, `int64`, shape `(n, 2)`. Inserted tokens have the offsets `(0, 0)`.
    """
    assert encoded.spans is not None
    offsets = np.zeros((len(assembled.ids), 2), np.int64)
    if len(encoded.splits) == 2:  # faster, for single texts
        offsets[len(rows.before) : len(rows.before) + len(encoded.spans)] = encoded.spans + 1
        return offsets
    starts = np.ones(len(encoded.splits) - 1, np.int64)  # position of the start of each segment in its row
    row_splits = make_row_splits(rows.matched_per_row + 1)
    follows_matched = np.ones(len(starts), bool)
    follows_matched[row_splits[:-1]] = False
    if len(rows.matched_ids):
        steps = nbytes.copy()
        steps[follows_matched] += rows.matched_nbytes
        starts = _compute_row_sums(steps, row_splits, first=1) - nbytes
    shift = np.repeat(starts, np.diff(encoded.splits))
    for side in (0, 1):  # one column at a time: faster than a broadcast over both
        offsets[:, side] = _spread(assembled, encoded.spans[:, side] + shift)
    stops = starts[follows_matched]
    offsets[assembled.matched_positions] = np.stack([stops - rows.matched_nbytes, stops], axis=1)
    return offsets


def compute_word_ids(
    assembled: AssembledRows, begins_word: NDArray[np.bool_ | np.int32]
) -> NDArray[np.int32]:
    """Computes word ids: the running count of word beginnings in each row. A matched token is a word.

    Args:
        assembled: ids of all rows.
        begins_word: mask of the ids of the segments that begin a word, or the differences of their word ids.

    Returns:
        Word ids, `int32`, shape `(n,)`. Inserted tokens have the word id -1.
    """
    steps = _spread(assembled, begins_word.astype(np.int32))
    steps[assembled.matched_positions] = 1
    word_ids = _compute_row_sums(steps, assembled.row_splits, first=-1)
    word_ids[assembled.inserted_positions] = -1
    return word_ids


def flag_word_beginnings(is_space: NDArray[np.bool_], splits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns a mask of the symbols that begin a word.

    These are the first symbol of each text, and spaces that do not follow a space.

    Args:
        is_space: whether each symbol of all texts, concatenated, is a space, `bool`, shape `(n,)`.
        splits: index of the first symbol of each text, then `n`, `int64`, shape `(texts + 1,)`.
    """
    begins = np.zeros(len(is_space), bool)
    begins[1:] = is_space[1:] & ~is_space[:-1]
    begins[splits[:-1][np.diff(splits) > 0]] = True
    return begins


def _spread(assembled: AssembledRows, values: NDArray[Any]) -> NDArray[Any]:
    """Returns values of the ids of segments as values of all ids, 0 for special tokens."""
    ordinary = np.ones(len(assembled.ids), bool)
    ordinary[assembled.special_positions] = False
    spread = np.zeros(len(assembled.ids), values.dtype)
    spread[ordinary] = values
    return spread


def _list_row_groups(row_splits: NDArray[np.int64]) -> list[slice]:
    """Returns slices of `row_splits`: groups of rows whose arrays fit into the cache of a processor core.

    A group has about `_TOKENS_PER_GROUP` tokens, or is a single row.
    """
    targets = np.arange(0, int(row_splits[-1]), _TOKENS_PER_GROUP)
    bounds = {*np.searchsorted(row_splits, targets).tolist(), len(row_splits) - 1}
    return [slice(first, last + 1) for first, last in pairwise(sorted(bounds))]


def _find_range(positions: NDArray[np.int64], part: slice) -> slice:
    """Returns the slice of ascending positions that are in a part."""
    return slice(*np.searchsorted(positions, (part.start, part.stop)))


def _compute_row_sums(
    values: NDArray[Integer], row_splits: NDArray[np.int64], *, first: int
) -> NDArray[Integer]:
    """Computes running sums that start again at `first` in each row.

    One cumulative sum over all rows is enough. At the start of each row, the sum of the row before is
    subtracted:

        values (two rows, first=1)   2  3 |  1  4
        steps                        3  3 | -4  4
        cumulative sum               3  6 |  2  6
    """
    if not len(values):
        return values
    steps = values.copy()
    steps[0] += first
    if len(row_splits) > 2:
        starts = row_splits[:-1][np.diff(row_splits) > 0]
        steps[starts[1:]] -= np.add.reduceat(values, starts)[:-1]
    return np.cumsum(steps, dtype=steps.dtype, out=steps)
