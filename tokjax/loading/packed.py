"""Batches of consecutive tokens from packed datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._checks import check_id, checked_int
from tokjax.batching.packing import PackedBlocks
from tokjax.loading.loader import Loader
from tokjax.loading.mixing import checked_weights
from tokjax.loading.order import NO_ITEM, Order
from tokjax.ragged import ranges, splits_from_lengths
from tokjax.store.kinds import PackedDataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax._namespace import Array


class TokenChunks(NamedTuple):
    """Chunks of consecutive tokens and nothing else: a pytree of one array.

    Attributes:
        ids: `int32`, shape `(batch, chunk_tokens)`, or one more with `extra_token`.
    """

    ids: Array

    @property
    def inputs(self) -> Array:
        """All ids but the last of each chunk."""
        return self.ids[:, :-1]

    @property
    def targets(self) -> Array:
        """For each of the inputs the id that follows it."""
        return self.ids[:, 1:]


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

    _takes = PackedDataset

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
            pad_id: the id on padding, if there can be any.
            weights: how often each dataset is drawn from; `None` to go through all of them together.
        """
        super().__init__(dataset, seed)
        self.batch_size = checked_int("batch_size", batch_size, least=1)
        chunk = self.datasets[0].chunk_tokens if chunk_tokens is None else chunk_tokens
        self.chunk_tokens = checked_int("chunk_tokens", chunk, least=1)
        self._shuffle, self._extra, self._documents = bool(shuffle), int(bool(extra_token)), bool(documents)
        self._drop_last, self._weights = bool(drop_last), checked_weights(weights)
        if not self._drop_last:
            check_id("pad_id", pad_id)
        self._pad_id = pad_id
        sizes = [max(each.num_tokens - self._extra, 0) // self.chunk_tokens for each in self.datasets]
        self._order = Order(
            sizes,
            self.batch_size,
            seed=self.seed,
            shuffle=self._shuffle,
            drop_last=self._drop_last,
            weights=self._weights,
        )
        self._first_documents = splits_from_lengths(each.num_documents for each in self.datasets)

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches an epoch; `None` for a mixture, which has no end."""
        return self._order.steps_per_epoch

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
            padding they are 0, 0 and -1. `total_tokens` is that of the rows of all processes.
        """
        whole = self._order.at(checked_int("step", step, least=0))
        places = whole.part(self._own(self.batch_size))
        length, starts = self.chunk_tokens + self._extra, places.items * self.chunk_tokens
        groups = places.by_dataset()
        found = [self.datasets[index].gather(starts[rows], length) for index, rows in groups]
        ids = self._in_rows(groups, found, (len(starts), length), self._pad_id or 0)
        if not self._documents:
            return TokenChunks(ids)
        columns = [
            _columns_of(
                self.datasets[index].document_splits, starts[rows], length, int(self._first_documents[index])
            )
            for index, rows in groups
        ]
        of_groups = list(zip(*columns, strict=True)) or [()] * len(_Columns._fields)
        mask, segments, positions, documents = (
            self._in_rows(groups, column, ids.shape, fill)
            for column, fill in zip(of_groups, (0, 0, 0, -1), strict=True)
        )
        total = length * int(np.count_nonzero(whole.items != NO_ITEM))
        return PackedBlocks(ids, mask, segments, positions, documents, np.asarray(total, np.int32))

    def _in_rows(
        self,
        groups: list[tuple[int, NDArray[np.int64]]],
        found: Sequence[NDArray[np.int32]],
        shape: tuple[int, int],
        fill: int,
    ) -> NDArray[np.int32]:
        """What was found for the rows of each dataset, as one array."""
        if len(found) == 1 and len(found[0]) == shape[0]:
            return found[0]
        together = np.full(shape, fill, np.int32)
        for (_, rows), values in zip(groups, found, strict=True):
            together[rows] = values
        return together

    def _options(self) -> dict[str, Any]:
        return {
            "shuffle": self._shuffle,
            "batch_size": self.batch_size,
            "chunk_tokens": self.chunk_tokens,
            "extra_token": bool(self._extra),
            "drop_last": self._drop_last,
            "weights": self._weights,
        }


class _Columns(NamedTuple):
    """What is known of the documents of windows; `int32`, shape `(windows, length)` each."""

    attention_mask: NDArray[np.int32]
    segment_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    document_ids: NDArray[np.int32]


def _columns_of(
    document_splits: NDArray[np.int64], starts: NDArray[np.int64], length: int, first_document: int
) -> _Columns:
    """Which document each token of windows is of, and its place there: a few runs a window."""
    # Of documents of no tokens that start at one place, the last is the one whose tokens stand there.
    first = np.searchsorted(document_splits, starts, "right") - 1
    counts = np.searchsorted(document_splits, starts + length, "left") - first
    windows = np.repeat(np.arange(len(starts)), counts)
    documents = ranges(first, counts)
    begins = np.maximum(document_splits.take(documents) - starts.take(windows), 0)
    places = begins + windows * length
    kept = np.flatnonzero(np.diff(places, append=len(starts) * length))
    windows, documents, begins, places = (
        column.take(kept) for column in (windows, documents, begins, places)
    )
    runs = np.diff(places, append=len(starts) * length)
    segments = np.arange(1, len(runs) + 1) - np.searchsorted(windows, np.arange(len(starts))).take(windows)

    def spread(values: NDArray[np.int64]) -> NDArray[np.int32]:
        return np.repeat(values.astype(np.int32), runs).reshape(len(starts), length)

    positions = np.arange(length, dtype=np.int32) - spread(begins)
    mask = np.ones((len(starts), length), np.int32)
    return _Columns(mask, spread(segments), positions, spread(documents + first_document))
