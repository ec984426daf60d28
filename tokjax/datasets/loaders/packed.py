"""Batches of consecutive tokens from packed datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import describe_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.datasets.dataset_types import PackedDataset
from tokjax.datasets.loaders.base import Loader
from tokjax.datasets.loaders.item_order import ItemOrder, check_weights
from tokjax.datasets.loaders.sequences import resolve_pad_id
from tokjax.packing.blocks import PackedBlocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax._util.arrays import Array


_FILLS = (0, 0, 0, 0, -1)
"""What `ids` (the id of padding), the mask, segments, positions and documents hold on padding."""


class TokenChunks(NamedTuple):
    """Chunks of consecutive tokens and nothing else: a pytree of one array.

    Attributes:
        ids: `int32`, shape `(batch, chunk_tokens)`, or one more with `extra_token`.
    """

    ids: Array

    def __repr__(self) -> str:
        """The dtype and shape of each array."""
        return describe_batch(self)

    @property
    @jit_eager
    def inputs(self) -> Array:
        """All ids but the last of each chunk, shape `(batch, length - 1)`."""
        return self.ids[..., :-1]

    @property
    @jit_eager
    def targets(self) -> Array:
        """For each of the inputs the id that follows it, of the same shape."""
        return self.ids[..., 1:]


class PackedTokenLoader(Loader[PackedDataset, "PackedBlocks | TokenChunks"]):
    """Batches of chunks of packed datasets, in an order that depends on the seed and the step alone.

    Chunks do not overlap (but for the extra token); a tail of a stream that fills no chunk is left out. With
    `drop_last`, so are chunks that fill no batch; with shuffling, other ones each epoch.

    Of several datasets without weights, each chunk comes once an epoch. With weights they are mixed without
    end: each dataset is gone through in an order of its own, and again in another when it is done.

    Attributes:
        batch_size: chunks a batch, of all processes together.
        chunk_tokens: ids a chunk, the extra one not counted.
    """

    _dataset_type = PackedDataset

    def __init__(
        self,
        dataset: PackedDataset | Sequence[PackedDataset],
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        chunk_tokens: int | None = None,
        extra_token: bool = False,
        documents: bool = True,
        drop_last: bool = True,
        pad_id: int | None = None,
        weights: Iterable[float] | None = None,
    ) -> None:
        """Plan the chunks; nothing is read yet.

        Args:
            dataset: an open dataset, or several.
            batch_size: chunks a batch.
            seed: names the order.
            shuffle: whether chunks come in another order each epoch.
            chunk_tokens: ids a chunk; `None` for the first dataset's own number.
            extra_token: give `chunk_tokens + 1` ids, so that `ids[:, :-1]` are inputs and `ids[:, 1:]`
                their targets.
            documents: tell which document each token is of, in `PackedBlocks`; if not, batches are
                `TokenChunks`, which are several times quicker to load.
            drop_last: leave out chunks that fill no batch; if not, the last batch of an epoch is padded.
            pad_id: the id on padding, if there can be any; `None` for the tokenizer's PAD token.
            weights: how often each dataset is drawn from; `None` to go through all of them together.
        """
        super().__init__(dataset, seed)
        self.batch_size = check_int("batch_size", batch_size, minimum=1)
        chunk = self.datasets[0].chunk_tokens if chunk_tokens is None else chunk_tokens
        self.chunk_tokens = check_int("chunk_tokens", chunk, minimum=1)
        self._shuffle, self._extra, self._documents = bool(shuffle), int(bool(extra_token)), bool(documents)
        self._drop_last, self._weights = bool(drop_last), check_weights(weights)
        self._pad_id = 0 if self._drop_last else resolve_pad_id(pad_id, lambda: self.datasets[0].tokenizer)
        sizes = [max(each.num_tokens - self._extra, 0) // self.chunk_tokens for each in self.datasets]
        self._order = ItemOrder(
            sizes,
            self.batch_size,
            seed=self.seed,
            shuffle=self._shuffle,
            drop_last=self._drop_last,
            weights=self._weights,
        )
        self._first_documents = make_row_splits(each.num_documents for each in self.datasets)

    @property
    def batch_rows(self) -> int:
        """Of how many rows the processes take equal parts."""
        return self.batch_size

    def batch_at(self, step: int) -> PackedBlocks | TokenChunks:
        """The batch of a step, counted from 0 through all epochs; a pure function of seed and step.

        Returns:
            NumPy arrays, `int32`, of shape `(batch_size, chunk_tokens)`, one more with `extra_token`.
            `segment_ids` count the documents of each chunk from 1, `positions` count from 0 in each, and
            `document_ids` are rows of `dataset.documents`, of several datasets one after the other. On
            padding they are 0, 0 and -1.
        """
        slots = self._order.at(check_int("step", step, minimum=0)).part(self._select_rows(self.batch_size))
        length, starts = self.chunk_tokens + self._extra, slots.items * self.chunk_tokens
        # (One array for all columns: the allocator keeps a large one for the next batch, where it would give
        # back several smaller ones to the system and fault their pages in again, which took twice the time.)
        columns = np.empty((len(_FILLS) if self._documents else 1, len(starts), length), np.int32)
        groups = slots.group_by_dataset()
        if len(groups) == 1 and len(groups[0][1]) == len(starts):
            self._fill(columns, groups[0][0], starts)
        else:
            fills = np.array((self._pad_id, *_FILLS[1:]), np.int32)[: len(columns)]
            columns[:] = fills[:, None, None]
            for index, rows in groups:
                dataset_columns = np.empty((len(columns), len(rows), length), np.int32)
                self._fill(dataset_columns, index, starts[rows])
                columns[:, rows] = dataset_columns
        if not self._documents:
            return TokenChunks(columns[0])
        return PackedBlocks(*columns)

    def _fill(self, columns: NDArray[np.int32], index: int, starts: NDArray[np.int64]) -> None:
        """Write all columns of windows of one dataset."""
        dataset = self.datasets[index]
        dataset.gather_into(starts, columns[0])
        if self._documents:
            _write_documents(columns[1:], dataset.document_splits, starts, int(self._first_documents[index]))

    def _get_options(self) -> dict[str, Any]:
        return {
            "shuffle": self._shuffle,
            "batch_size": self.batch_size,
            "chunk_tokens": self.chunk_tokens,
            "extra_token": bool(self._extra),
            "drop_last": self._drop_last,
            "weights": self._weights,
        }


def _write_documents(
    columns: NDArray[np.int32],
    document_splits: NDArray[np.int64],
    starts: NDArray[np.int64],
    first_document: int,
) -> None:
    """Which document each token of windows is of, and its place there: a few runs a window.

    Args:
        columns: takes attention mask, segment ids, positions and document ids: shape `(4, windows, length)`.
        document_splits: where each document of the dataset starts, and the last one ends.
        starts: where each window starts, shape `(windows,)`.
        first_document: how many documents datasets before this one have.
    """
    mask, segments, positions, documents = columns
    count, length = mask.shape
    # Of documents of no tokens that start at one place, the last is the one whose tokens stand there.
    first = np.searchsorted(document_splits, starts, "right") - 1
    counts = np.searchsorted(document_splits, starts + length, "left") - first
    windows = np.repeat(np.arange(count), counts)
    run_documents = concatenate_ranges(first, counts)
    begins = np.maximum(document_splits.take(run_documents) - starts.take(windows), 0)
    slots = begins + windows * length
    nonempty = np.flatnonzero(np.diff(slots, append=count * length))
    windows, run_documents, begins, slots = (
        column.take(nonempty) for column in (windows, run_documents, begins, slots)
    )
    runs = np.diff(slots, append=count * length)

    def spread(values: NDArray[np.int64]) -> NDArray[np.int32]:
        return np.repeat(values.astype(np.int32), runs).reshape(count, length)

    mask[:] = 1
    segments[:] = spread(
        np.arange(1, len(runs) + 1) - np.searchsorted(windows, np.arange(count)).take(windows)
    )
    np.subtract(np.arange(length, dtype=np.int32), spread(begins), out=positions)
    documents[:] = spread(run_documents + first_document)
