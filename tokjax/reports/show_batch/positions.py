"""The places of a batch, one after the other: which are tokens, of which segment, and what counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.datasets.loaders.packed import TokenChunks
from tokjax.reports.show_batch.columns import read_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class BatchPositions(NamedTuple):
    """All places of a batch, its rows end to end: columns of shape `(n,)`, `None` where it has none.

    Attributes:
        ids: token ids.
        splits: where each row starts, and the last one ends, shape `(rows + 1,)`.
        present: whether it is a token, and no padding.
        has_padding_info: whether the batch tells padding from tokens; if not, all places are `present`.
        segments: its segment.
        labels: its label.
        counted: whether that is not ignored.
        in_loss: whether the loss mask lets it be a target.
        left_out: why the batch's labels are not here, if they are not.
    """

    ids: NDArray[np.int32]
    splits: NDArray[Any]
    present: NDArray[np.bool_]
    has_padding_info: bool
    segments: NDArray[Any] | None
    labels: NDArray[Any] | None
    counted: NDArray[np.bool_] | None
    in_loss: NDArray[np.bool_] | None
    left_out: str | None

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.splits) - 1

    def iter_statuses(self, start: int, stop: int) -> Iterator[TokenStatus]:
        """Of which kind each of some places is; all padding is of one."""
        present = self.present[start:stop]
        columns = (
            present if column is None else present * column[start:stop]
            for column in (None, self.segments, self.counted, self.in_loss)
        )
        return map(TokenStatus, *(column.tolist() for column in columns))


class TokenStatus(NamedTuple):
    """What the signs around a token tell.

    Attributes:
        present: whether it is a token.
        segment: its segment, if there are any.
        counted: whether its label counts.
        in_loss: whether it counts itself.
    """

    present: bool
    segment: int
    counted: bool
    in_loss: bool


def read_positions(batch: Any, labels: Any, loss_mask: Any, ignore_index: int) -> BatchPositions:
    """The places of a batch; the arguments are those of `show_batch`."""
    columns = read_columns(batch, labels, loss_mask)
    present, segments = columns.get_flags("attention_mask"), columns.get_integers("segment_ids")
    if present is None and segments is not None:
        # Levanter counts segments from 0, and has -1 on padding.
        present = segments != (-1 if (segments < 0).any() else 0)
    has_padding_info = columns.are_ragged or present is not None or isinstance(batch, TokenChunks)
    if present is None:
        present = np.ones(columns.ids.size, np.bool_)
    positions, targets = columns.get_integers("positions"), columns.get_integers("labels")
    if segments is None and positions is not None:
        segments = _find_segments(positions, columns.splits, present)
    label_mask = columns.get_flags("label_mask")
    return BatchPositions(
        ids=columns.ids.reshape(-1),
        splits=columns.splits,
        present=present,
        has_padding_info=has_padding_info,
        segments=segments,
        labels=targets,
        counted=None if targets is None else (targets != ignore_index) & (label_mask is None or label_mask),
        in_loss=columns.get_flags("loss_mask"),
        left_out=columns.left_out,
    )


def _find_segments(positions: NDArray[Any], splits: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    """Segments from 1 on in each row, as models find them that are told positions alone; 0 on padding.

    One begins wherever a token's position is not the next after that of the token before.
    """
    rows = np.repeat(np.arange(len(splits) - 1), np.diff(splits))[present]
    begins_row = np.diff(rows, prepend=-1) > 0
    begins = begins_row | (np.diff(positions[present], prepend=0) != 1)
    number = np.cumsum(begins)
    segments = np.zeros(len(present), np.int64)
    segments[present] = number - np.maximum.accumulate(np.where(begins_row, number - 1, 0))
    return segments
