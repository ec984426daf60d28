"""Merging of per-token values of overlapping windows into one value per token of each text.

An example of one text with five tokens, windows of three tokens and a stride of 1 (the shared tokens):

    text         t0  t1  t2  t3  t4
    window 0     t0  t1  t2                  context of t2: 0 tokens to the right
    window 1             t2  t3  t4          context of t2: 0 tokens to the left

The context of a token is its distance to the nearer end of the window that is not an end of the text. Each
token takes its value from the window with the greatest context, here for t2 from window 0, the earlier of two
equal ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.arrays import Array, as_integers, get_namespace, is_jax, is_traced
from tokjax._util.checks import check_int
from tokjax.align.flat_tokens import is_reference_normalized
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.records import MergedWindows as MergedWindows  # noqa: PLC0414 (a name of the namespace)
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.records import Windows

_NO_WINDOW_END = np.iinfo(np.int64).max


def merge_windows(windows: Windows, values: Array, *, stride: int, sequence_id: int = 0) -> MergedWindows:
    """Returns one value per token of the texts, from the window with the most context around the token.

    The context of a token is its distance to the nearer end of its window, in tokens of the text; an end that
    is also an end of the text does not count. Of windows with equal context, the earlier one is used.
    Inserted special tokens are left out.

    Args:
        windows: the result of `encode_windows`, with offsets; or all windows of some of the texts, in the
            same order.
        values: labels, scores or other values of each token of each window, `(n, ...)`; for an array of shape
            `(windows, length, ...)` pass `array[attention_mask == 1]`. Columns of the tokens can be merged
            too, such as `windows.batch.word_ids`.
        stride: the `stride` of `encode_windows`. Most other values are detected and rejected, but not all.
        sequence_id: index of the text, in its pair, that was split into windows, 0 or 1; 0 without pairs.

    Returns:
        The tokens of all texts that have windows, concatenated. Values are a NumPy or JAX array like the
        input.

    Raises:
        InvalidArgumentError: the windows have no offsets, or do not continue each other with this stride; or
            the number of values is not the number of tokens.

    >>> from tokjax import encode_windows, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be", "or"])
    >>> windows = encode_windows(bert, ["to be or to be"], max_length=5, stride=1)
    >>> merge_windows(windows, np.arange(10), stride=1).values  # values 0 to 4 belong to window 0
    array([1, 2, 3, 7, 8])
    """
    check_int("stride", stride, minimum=0)
    if is_traced(values):
        raise InvalidArgumentError("merge_windows runs on the host; call it outside of jax.jit")
    ragged, texts = _read_windows(windows)
    values = values if is_jax(values) else np.asarray(values)
    if values.shape[:1] != ragged.ids.shape:
        raise InvalidArgumentError(
            f"values has shape {values.shape}, and the windows have {len(ragged.ids)} tokens; pass one "
            "value per token, including inserted special tokens but no padding: array[attention_mask == 1]"
        )
    tokens = _find_tokens(ragged, sequence_id)
    window_splits = np.searchsorted(tokens, ragged.row_splits)
    positions, context, splits = _compute_positions(texts, np.diff(window_splits), stride)
    # The first entry of each position in this order is the one with the greatest context; the sort is stable.
    order = np.lexsort((-context, positions))
    is_new = np.diff(positions[order], prepend=-1) > 0
    best = tokens[order[is_new]]
    merged = MergedWindows(get_namespace(values).take(values, best, axis=0), ragged.offsets[best], splits)
    if is_reference_normalized(windows.batch):
        merged = merged._replace(offsets_reference="tokenizer_normalized_text")
    # Every position must have a token, and all windows must agree on its offsets. Another stride shifts the
    # windows against each other, which these checks detect in most cases.
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
            f"the windows do not continue each other with stride={stride} and sequence_id={sequence_id}; "
            "pass the stride and the text of the pair that encode_windows used"
        )
    return merged


def _read_windows(windows: Windows) -> tuple[Any, NDArray[np.int64]]:
    """Returns the tokens, one row per window, and the rank of each window's text, without gaps."""
    if not hasattr(windows, "batch") or not hasattr(windows, "text_ids"):
        raise InvalidArgumentError(
            f"windows must be the result of encode_windows, not {type(windows).__name__}; one row per text "
            "needs no merging"
        )
    ragged = as_ragged(windows.batch)
    if ragged.sequence_ids is None or ragged.offsets is None:
        raise InvalidArgumentError("the windows have no offsets; encode with return_offsets=True")
    text_ids = as_integers("text_ids", windows.text_ids, np.int64)
    if text_ids.shape != (ragged.num_rows,):
        raise InvalidArgumentError(
            f"text_ids has shape {text_ids.shape}, and there are {ragged.num_rows} windows; pass one "
            "id per window"
        )
    steps = np.diff(text_ids)
    if (steps < 0).any():
        window = int(np.argmax(steps < 0)) + 1
        raise InvalidArgumentError(
            f"window {window} belongs to text {text_ids[window]}, and the window before it to text "
            f"{text_ids[window - 1]}; windows must be in the order of encode_windows"
        )
    return ragged, np.cumsum(np.append(0, steps > 0))[: len(text_ids)]


def _find_tokens(ragged: Any, sequence_id: int) -> NDArray[np.int64]:
    """Returns the indices of the tokens of one text of each pair, `int64`."""
    tokens = np.flatnonzero(ragged.sequence_ids == sequence_id)
    if not len(tokens) and (ragged.sequence_ids >= 0).any():
        raise InvalidArgumentError(
            f"no token of the windows has sequence_id={sequence_id}; pass 0 without pairs, and 0 or 1 with "
            "pairs"
        )
    return tokens


def _is_unordered(merged: MergedWindows) -> bool:
    """Returns whether a token starts or stops earlier than the token before it in its text."""
    is_start = np.zeros(len(merged.offsets) + 1, bool)
    is_start[merged.row_splits] = True
    decreases = (merged.offsets[1:] < merged.offsets[:-1]).any(axis=1)
    return bool((decreases & ~is_start[1:-1]).any())


def _has_differing_pairs(ragged: Any, texts: NDArray[np.int64], sequence_id: int) -> bool:
    """Returns whether the windows of a pair differ in its other text, which each window repeats in full."""
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
    """Returns whether every window starts with the last token of the window before it.

    With a stride of 0 nothing else reveals that the windows in fact overlap.
    """
    counts = np.diff(window_splits)
    continues = (texts[1:] == texts[:-1]) & (counts[1:] > 0) & (counts[:-1] > 0)
    starts = window_splits[1:-1][continues]
    last, first = tokens[starts - 1], tokens[starts]
    is_same = (ragged.ids[last] == ragged.ids[first]) & (ragged.offsets[last] == ragged.offsets[first]).all(1)
    return bool(len(starts)) and bool(is_same.all())


def _compute_positions(
    texts: NDArray[np.int64], counts: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the position of each token of the windows among the tokens of all texts.

    Args:
        texts: rank of the text of each window: 0, then the same or the next, `int64`, shape `(windows,)`.
        counts: number of tokens of the text in each window, `int64`, shape `(windows,)`.
        stride: number of tokens that consecutive windows share.

    Returns:
        Position of each token, distance of each token to the nearer end of its window, and the row splits of
        the texts, all `int64`.
    """
    is_first = np.diff(texts, prepend=-1) > 0
    is_last = np.append(is_first[1:], True)[: len(texts)]
    first_window = np.flatnonzero(is_first)[texts]
    window_in_text = np.arange(len(texts)) - first_window
    starts = window_in_text * np.maximum(counts[first_window] - stride, 0)
    splits = make_row_splits((starts + counts)[is_last])
    within = concatenate_ranges(0, counts)
    before = np.where(np.repeat(is_first, counts), _NO_WINDOW_END, within)
    after = np.where(np.repeat(is_last, counts), _NO_WINDOW_END, np.repeat(counts, counts) - 1 - within)
    positions = concatenate_ranges(splits[texts] + starts, counts)
    return positions, np.minimum(before, after), splits
