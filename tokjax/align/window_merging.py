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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, get_namespace, is_jax, is_traced
from tokjax._util.checks import check_int
from tokjax.align.flat_tokens import make_flat_tokens
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.records import MergedWindows as MergedWindows, Windows  # noqa: PLC0414 (a name of the namespace)
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.align.flat_tokens import FlatTokens

_NO_WINDOW_END = np.iinfo(np.int64).max


def merge_windows(windows: Windows, values: Array, *, sequence_id: int = 0) -> MergedWindows:
    """Returns one value per token of the texts, from the window with the most context around the token.

    The context of a token is its distance to the nearer end of its window, in tokens of the text; an end that
    is also an end of the text does not count. Of windows with equal context, the earlier one is used.
    Inserted special tokens are left out.

    Args:
        windows: the result of `encode_windows`, with offsets; or all windows of some of the texts.
        values: labels, scores or other values of each token of each window, `(n, ...)`; for an array of shape
            `(windows, length, ...)` pass `array[attention_mask == 1]`. Columns of the tokens can be merged
            too, such as `windows.batch.word_ids`.
        sequence_id: index of the text, in its pair, whose tokens are returned, 0 or 1; 0 without pairs.

    Returns:
        The tokens of all texts that have windows, concatenated. Values are a NumPy or JAX array like the
        input.

    Raises:
        InvalidArgumentError: the windows have no offsets, or a window in the middle of a text is absent; or
            the number of values is not the number of tokens.

    >>> from tokjax import encode_windows, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "to", "be", "or"])
    >>> windows = encode_windows(bert, ["to be or to be"], max_length=5, stride=1)
    >>> merge_windows(windows, np.arange(10)).values  # values 0 to 4 belong to window 0
    array([1, 2, 3, 7, 8])
    """
    if is_traced(values):
        raise InvalidArgumentError("merge_windows runs on the host; call it outside of jax.jit")
    if not isinstance(windows, Windows):
        raise InvalidArgumentError(
            f"windows must be the result of encode_windows, not {type(windows).__name__}; one row per text "
            "needs no merging"
        )
    tokens = make_flat_tokens(windows)
    values = values if is_jax(values) else np.asarray(values)
    if values.shape[:1] != tokens.offsets.shape[:1]:
        raise InvalidArgumentError(
            f"values has shape {values.shape}, and the windows have {len(tokens.offsets)} tokens; pass one "
            "value per token, including inserted special tokens but no padding: array[attention_mask == 1]"
        )
    placed = locate_tokens(tokens, sequence_id)
    # The first entry of each position in this order is the one with the greatest context; the sort is stable.
    order = np.lexsort((-placed.context, placed.positions))
    is_new = np.diff(placed.positions[order], prepend=-1) > 0
    best = placed.indices[order[is_new]]
    if len(best) != placed.row_splits[-1]:
        raise InvalidArgumentError(
            f"the windows have {len(best)} of the {placed.row_splits[-1]} tokens of their texts; pass all "
            "windows of each text"
        )
    merged = MergedWindows(
        get_namespace(values).take(values, best, axis=0),
        tokens.offsets[best].astype(np.int64),
        placed.row_splits,
    )
    return merged._replace(offsets_reference="tokenizer_normalized_text") if tokens.is_normalized else merged


class PlacedTokens(NamedTuple):
    """The tokens of windows that belong to their texts, and their positions there.

    Attributes:
        indices: index of each of them in the flat tokens, `int64`, shape `(m,)`.
        positions: position of each of them among the tokens of all texts, `int64`, shape `(m,)`.
        context: distance of each of them to the nearer end of its window, `int64`, shape `(m,)`.
        row_splits: bounds of the tokens of each text that has windows, `int64`, shape `(texts + 1,)`.
    """

    indices: NDArray[np.int64]
    positions: NDArray[np.int64]
    context: NDArray[np.int64]
    row_splits: NDArray[np.int64]


def locate_tokens(tokens: FlatTokens, sequence_id: int) -> PlacedTokens:
    """Returns the positions of tokens in their texts, of which windows share tokens.

    Args:
        tokens: the tokens of windows.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.
    """
    assert tokens.starts is not None
    assert tokens.text_ids is not None
    starts = tokens.starts[:, check_int("sequence_id", sequence_id, minimum=0, maximum=1)]
    sequence_ids = np.zeros(len(tokens.offsets)) if tokens.sequence_ids is None else tokens.sequence_ids
    indices = np.flatnonzero(sequence_ids == sequence_id)
    counts = np.diff(np.searchsorted(indices, tokens.row_splits))
    _, texts = np.unique(tokens.text_ids, return_inverse=True)
    lengths = np.zeros(texts.max(initial=-1) + 1, np.int64)
    np.maximum.at(lengths, texts, starts + counts)
    splits = make_row_splits(lengths)
    within = concatenate_ranges(0, counts)
    before = np.where(np.repeat(starts == 0, counts), _NO_WINDOW_END, within)
    at_end = np.repeat(starts + counts == lengths[texts], counts)
    after = np.where(at_end, _NO_WINDOW_END, np.repeat(counts, counts) - 1 - within)
    positions = concatenate_ranges(splits[texts] + starts, counts)
    return PlacedTokens(indices, positions, np.minimum(before, after), splits)
