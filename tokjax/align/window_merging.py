"""What was said of windows of long texts, as one answer a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import Array, as_integers, get_namespace, is_jax, is_traced
from tokjax._util.checks import check_int
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.records import MergedWindows
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.records import Windows

_NO_WINDOW_END = np.iinfo(np.int64).max


def merge_windows(windows: Windows, values: Array, *, stride: int, sequence_id: int = 0) -> MergedWindows:
    """One value for each token of texts that are in windows, from the window that sees most around it.

    That is the window in which the token is farthest from the nearer end, counted in tokens of the text; an
    end that is the text's own does not count. Of equals it is the earlier window. Inserted tokens are left
    out.

    Args:
        windows: of `encode_windows`, with offsets; or some of them, those of each text side by side.
        values: labels, scores or whatever there is for each token of each window, `(n, ...)`: of an array of
            shape `(windows, length, ...)` it is `array[attention_mask == 1]`. What the tokens have may be
            merged too, such as `windows.batch.word_ids`.
        stride: what `encode_windows` was given; that it is another is noticed in most cases, not in all.
        sequence_id: which text of a pair was cut into windows.

    Returns:
        The tokens of all texts of which there are windows, end to end; values are of the kind that was given.

    Raises:
        InvalidArgumentError: the windows have no offsets, or don't follow on each other with this stride; or
            there are not as many values as tokens.

    >>> from tokjax import encode_windows, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be", "or"])
    >>> windows = encode_windows(bert, ["to be or to be"], max_length=5, stride=1)
    >>> merge_windows(windows, np.arange(10), stride=1).values  # 0 to 4 are of the first
    array([1, 2, 3, 7, 8])
    """
    check_int("stride", stride, minimum=0)
    if is_traced(values):
        raise InvalidArgumentError("merge_windows plans on the host; call it outside of jax.jit")
    ragged, texts = _read_windows(windows)
    values = values if is_jax(values) else np.asarray(values)
    if values.shape[:1] != ragged.ids.shape:
        raise InvalidArgumentError(
            f"values has shape {values.shape}, and the windows have {len(ragged.ids)} tokens; pass one for "
            "each, those of inserted tokens too, and none for padding: array[attention_mask == 1]"
        )
    tokens = _find_tokens(ragged, sequence_id)
    window_splits = np.searchsorted(tokens, ragged.row_splits)
    positions, context, splits = _compute_positions(texts, np.diff(window_splits), stride)
    order = np.lexsort((-context, positions))
    is_new = np.diff(positions[order], prepend=-1) > 0
    best = tokens[order[is_new]]
    merged = MergedWindows(get_namespace(values).take(values, best, axis=0), ragged.offsets[best], splits)
    is_complete = len(best) == splits[-1] and np.array_equal(
        merged.offsets[positions], ragged.offsets[tokens]
    )
    if (
        not is_complete
        or _is_unordered(merged)
        or _has_differing_pairs(ragged, texts, sequence_id)
        or (stride == 0 and _has_repeated_tokens(ragged, texts, tokens, window_splits))
    ):
        raise InvalidArgumentError(
            f"the windows don't follow on each other with stride={stride} and sequence_id={sequence_id}; "
            "pass what encode_windows was given"
        )
    return merged


def _read_windows(windows: Windows) -> tuple[Any, NDArray[np.int64]]:
    """The tokens of windows, a row each, and which text each is of: the first, the second, ..."""
    if not hasattr(windows, "batch") or not hasattr(windows, "text_ids"):
        raise InvalidArgumentError(
            f"windows must be what encode_windows gives, not {type(windows).__name__}; one row a text needs "
            "no merging"
        )
    ragged = as_ragged(windows.batch)
    if ragged.sequence_ids is None or ragged.offsets is None:
        raise InvalidArgumentError("the windows have no offsets; encode with return_offsets=True")
    text_ids = as_integers("text_ids", windows.text_ids, np.int64)
    if text_ids.shape != (ragged.num_rows,):
        raise InvalidArgumentError(
            f"text_ids has shape {text_ids.shape}, and there are {ragged.num_rows} windows; pass one for each"
        )
    steps = np.diff(text_ids)
    if (steps < 0).any():
        window = int(np.argmax(steps < 0)) + 1
        raise InvalidArgumentError(
            f"window {window} is of text {text_ids[window]}, and the one before it of text "
            f"{text_ids[window - 1]}; windows must be in the order that encode_windows gives"
        )
    return ragged, np.cumsum(np.append(0, steps > 0))[: len(text_ids)]


def _find_tokens(ragged: Any, sequence_id: int) -> NDArray[np.int64]:
    """Those tokens of windows that are of one of the texts of each pair."""
    tokens = np.flatnonzero(ragged.sequence_ids == sequence_id)
    if not len(tokens) and (ragged.sequence_ids >= 0).any():
        raise InvalidArgumentError(
            f"no token of the windows is of sequence_id={sequence_id}; without pairs it is 0, and of a pair "
            "it is 0 or 1"
        )
    return tokens


def _is_unordered(merged: MergedWindows) -> bool:
    """Whether a token begins or ends earlier than the one before it in its text."""
    is_start = np.zeros(len(merged.offsets) + 1, bool)
    is_start[merged.row_splits] = True
    falls = (merged.offsets[1:] < merged.offsets[:-1]).any(axis=1)
    return bool((falls & ~is_start[1:-1]).any())


def _has_differing_pairs(ragged: Any, texts: NDArray[np.int64], sequence_id: int) -> bool:
    """Whether windows differ in that text of a pair which is not cut, and stands in each of them whole."""
    others = np.flatnonzero((ragged.sequence_ids >= 0) & (ragged.sequence_ids != sequence_id))
    splits = np.searchsorted(others, ragged.row_splits)
    counts, first_window = np.diff(splits), np.searchsorted(texts, texts)
    if (counts != counts[first_window]).any():
        return True
    in_first = others[concatenate_ranges(splits[first_window], counts)]
    return not np.array_equal(ragged.offsets[others], ragged.offsets[in_first])


def _has_repeated_tokens(
    ragged: Any, texts: NDArray[np.int64], tokens: NDArray[np.int64], window_splits: NDArray[np.int64]
) -> bool:
    """Whether each window begins with the last token of the one before it."""
    counts = np.diff(window_splits)
    continues = (texts[1:] == texts[:-1]) & (counts[1:] > 0) & (counts[:-1] > 0)
    starts = window_splits[1:-1][continues]
    last, first = tokens[starts - 1], tokens[starts]
    is_same = (ragged.ids[last] == ragged.ids[first]) & (ragged.offsets[last] == ragged.offsets[first]).all(1)
    return bool(len(starts)) and bool(is_same.all())


def _compute_positions(
    texts: NDArray[np.int64], counts: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where the tokens of windows stand among those of all texts.

    Args:
        texts: which text each window is of: 0, and then the same or the next, shape `(windows,)`.
        counts: how many tokens of it each has, shape `(windows,)`.
        stride: how many of them two windows share.

    Returns:
        The place of each token, how far it is from the nearer end of its window, and the row splits of texts.
    """
    is_first = np.diff(texts, prepend=-1) > 0
    is_last = np.append(is_first[1:], True)[: len(texts)]
    first_window = np.flatnonzero(is_first)[texts]
    number = np.arange(len(texts)) - first_window
    starts = number * np.maximum(counts[first_window] - stride, 0)
    splits = make_row_splits((starts + counts)[is_last])
    within = concatenate_ranges(0, counts)
    before = np.where(np.repeat(is_first, counts), _NO_WINDOW_END, within)
    after = np.where(np.repeat(is_last, counts), _NO_WINDOW_END, np.repeat(counts, counts) - 1 - within)
    positions = concatenate_ranges(splits[texts] + starts, counts)
    return positions, np.minimum(before, after), splits
