"""Flat view of a batch: for each position the token, its segment, its label and whether it is padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.datasets.loaders.packed import TokenChunks
from tokjax.reports.show_batch.columns import read_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class BatchPositions(NamedTuple):
    """Columns of a batch with its rows concatenated. A column that the batch does not have is `None`.

    Attributes:
        ids: token ids, `int32`, shape `(n,)`.
        splits: start of each row and end of the last one, shape `(num_rows + 1,)`.
        is_token: whether each position is a token, not padding, `bool`, shape `(n,)`.
        has_padding_info: whether the batch distinguishes padding from tokens; if not, `is_token` is true
            everywhere.
        segments: segment ids, shape `(n,)`.
        labels: labels, shape `(n,)`.
        has_label: whether each label is not ignored, `bool`, shape `(n,)`.
        in_loss: whether the loss mask is nonzero, `bool`, shape `(n,)`.
        omission_note: the reason why labels of the batch are not shown; `None` if none were omitted.
    """

    ids: NDArray[np.int32]
    splits: NDArray[Any]
    is_token: NDArray[np.bool_]
    has_padding_info: bool
    segments: NDArray[Any] | None
    labels: NDArray[Any] | None
    has_label: NDArray[np.bool_] | None
    in_loss: NDArray[np.bool_] | None
    omission_note: str | None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.splits) - 1

    def iter_statuses(self, start: int, stop: int) -> Iterator[TokenStatus]:
        """Yields the status of each position from `start` to `stop`; that of all padding is the same."""
        is_token = self.is_token[start:stop]
        columns = (
            is_token if column is None else is_token * column[start:stop]
            for column in (None, self.segments, self.has_label, self.in_loss)
        )
        return map(TokenStatus, *(column.tolist() for column in columns))


class TokenStatus(NamedTuple):
    """Status of one position, which the symbols around a token show.

    Without segments, labels or a loss mask, `segment`, `has_label` and `in_loss` equal `is_token`.

    Attributes:
        is_token: whether the position is a token, not padding.
        segment: segment id; 0 for padding.
        has_label: whether the label is not ignored.
        in_loss: whether the loss mask is nonzero.
    """

    is_token: bool
    segment: int
    has_label: bool
    in_loss: bool


def read_positions(batch: Any, labels: Any, loss_mask: Any, ignore_index: int) -> BatchPositions:
    """Reads the positions of a batch. The arguments are those of `show_batch`."""
    columns = read_columns(batch, labels, loss_mask)
    is_token, segments = columns.get_flags("attention_mask"), columns.get_integers("segment_ids")
    if is_token is None and segments is not None:
        # Levanter counts segments from 0, and marks padding with -1.
        is_token = segments != (-1 if (segments < 0).any() else 0)
    has_padding_info = columns.is_ragged or is_token is not None or isinstance(batch, TokenChunks)
    if is_token is None:
        is_token = np.ones(columns.ids.size, np.bool_)
    positions, targets = columns.get_integers("positions"), columns.get_integers("labels")
    if segments is None and positions is not None:
        segments = _find_segments(positions, columns.splits, is_token)
    label_mask = columns.get_flags("label_mask")
    return BatchPositions(
        ids=columns.ids.reshape(-1),
        splits=columns.splits,
        is_token=is_token,
        has_padding_info=has_padding_info,
        segments=segments,
        labels=targets,
        has_label=None if targets is None else (targets != ignore_index) & (label_mask is None or label_mask),
        in_loss=columns.get_flags("loss_mask"),
        omission_note=columns.omission_note,
    )


def _find_segments(
    positions: NDArray[Any], splits: NDArray[Any], is_token: NDArray[np.bool_]
) -> NDArray[Any]:
    """Derives segment ids from position ids, as models do that get no segment ids.

    A segment begins at each token whose position is not one more than that of the token before, and at the
    first token of each row:

        positions  0 1 2 0 1 5 6 (padding)
        segments   1 1 1 2 2 3 3 0

    Returns:
        Segment ids, counted from 1 in each row, 0 on padding, `int64`, shape `(n,)`.
    """
    rows = np.repeat(np.arange(len(splits) - 1), np.diff(splits))[is_token]
    begins_row = np.diff(rows, prepend=-1) > 0
    begins_segment = begins_row | (np.diff(positions[is_token], prepend=0) != 1)
    number = np.cumsum(begins_segment)  # Counted through all rows.
    segments = np.zeros(len(is_token), np.int64)
    segments[is_token] = number - np.maximum.accumulate(np.where(begins_row, number - 1, 0))
    return segments
