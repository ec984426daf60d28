"""What was said of windows of long texts, as one answer a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._checks import checked_int
from tokjax._namespace import Array, is_traced, namespace
from tokjax.errors import InvalidArgumentError
from tokjax.ragged import ranges, splits_from_lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.encoding import Windows

_WHOLE_TEXT = np.iinfo(np.int64).max


class MergedWindows(NamedTuple):
    """Texts again, each of their tokens once.

    Attributes:
        values: what was said of each token, shape `(n, ...)`.
        offsets: 1-based byte spans, `int64`, shape `(n, 2)`.
        row_splits: where the tokens of each text begin, `int64`, shape `(texts + 1,)`.
    """

    values: Array
    offsets: NDArray[np.int64]
    row_splits: NDArray[np.int64]


def merge_windows(windows: Windows, values: Array, *, stride: int, sequence_id: int = 0) -> MergedWindows:
    """One value for each token of texts that are in windows, from the window that sees most around it.

    That is the window in which the token is farthest from the nearer end, counted in tokens of the text; an
    end that is the text's own does not count. Of equals it is the earlier window. Inserted tokens are left
    out.

    Args:
        windows: of `encode_windows`, with offsets.
        values: labels, scores or whatever there is for each token of each window, `(n, ...)`: of an array of
            shape `(windows, length, ...)` it is `array[attention_mask == 1]`.
        stride: what `encode_windows` was given; that it is another is noticed in most cases, not in all.
        sequence_id: which text of a pair was cut into windows.

    Returns:
        The tokens of all texts end to end; values are of the kind that was given.

    Raises:
        InvalidArgumentError: the windows have no offsets, or don't follow on each other with this stride; or
            there are not as many values as tokens.

    >>> from tokjax import encode_windows, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be", "or"])
    >>> windows = encode_windows(bert, ["to be or to be"], max_length=5, stride=1)
    >>> merge_windows(windows, np.arange(10), stride=1).values  # 0 to 4 are of the first
    array([1, 2, 3, 7, 8])
    """
    checked_int("stride", stride, least=0)
    batch = windows.batch
    if batch.sequence_ids is None or batch.offsets is None:
        raise InvalidArgumentError("the windows have no offsets; encode with return_offsets=True")
    if is_traced(values):
        raise InvalidArgumentError("merge_windows plans on the host; call it outside of jax.jit")
    if values.shape[0] != len(batch.ids):
        raise InvalidArgumentError(
            f"values has {values.shape[0]} rows, and the windows have {len(batch.ids)} tokens; pass one for "
            "each, those of inserted tokens too, and none for padding: array[attention_mask == 1]"
        )
    tokens = np.flatnonzero(batch.sequence_ids == sequence_id)
    counts = np.diff(np.searchsorted(tokens, batch.row_splits))
    places, context, splits = _places_in_texts(windows.text_ids, counts, stride)
    order = np.lexsort((-context, places))
    is_new = np.diff(places[order], prepend=-1) > 0
    best = tokens[order[is_new]]
    offsets = batch.offsets[best]
    is_start = np.zeros(len(best) + 1, bool)
    is_start[splits] = True
    goes_back = (offsets[1:] < offsets[:-1]).any(axis=1) & ~is_start[1:-1]
    is_whole = len(best) == splits[-1] and np.array_equal(offsets[places], batch.offsets[tokens])
    if not is_whole or goes_back.any():
        raise InvalidArgumentError(
            f"the windows don't follow on each other with stride={stride} and sequence_id={sequence_id}; "
            "pass what encode_windows was given"
        )
    return MergedWindows(namespace(values).take(values, best, axis=0), offsets, splits)


def _places_in_texts(
    text_ids: NDArray[np.int64], counts: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where the tokens of windows stand among those of all texts.

    Args:
        text_ids: which text each window is of, never falling, shape `(windows,)`.
        counts: how many tokens of it each has, shape `(windows,)`.
        stride: how many of them two windows share.

    Returns:
        The place of each token, how far it is from the nearer end of its window, and the row splits of texts.
    """
    is_first = np.diff(text_ids, prepend=-1) > 0
    is_last = np.append(is_first[1:], True)[: len(text_ids)]
    firsts = np.flatnonzero(is_first)
    number = np.arange(len(text_ids)) - firsts[text_ids]
    starts = number * np.maximum(counts[firsts][text_ids] - stride, 0)
    splits = splits_from_lengths((starts + counts)[is_last])
    within = ranges(0, counts)
    before = np.where(np.repeat(is_first, counts), _WHOLE_TEXT, within)
    after = np.where(np.repeat(is_last, counts), _WHOLE_TEXT, np.repeat(counts, counts) - 1 - within)
    places = ranges(splits[text_ids] + starts, counts)
    return places, np.minimum(before, after), splits
