"""Batches of consecutive tokens from packed datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._checks import check_id, checked_int
from tokjax.batching.packing import PackedBlocks
from tokjax.loading.loader import Loader
from tokjax.loading.order import NO_ITEM, Order
from tokjax.ragged import ranges, splits_from_lengths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax._namespace import Array
    from tokjax.store.kinds import PackedDataset


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


class PackedTokenLoader(Loader["PackedDataset", "PackedBlocks | TokenChunks"]):
    """Batches of chunks of packed datasets, in an order that depends on the seed and the step alone.

    Chunks do not overlap (but for the extra token); a tail of a stream that fills no chunk is left out. With
    `drop_last`, so are chunks that fill no batch; with shuffling, other ones each epoch.

    Of several datasets without weights, each chunk comes once an epoch. With weights they are mixed without
    end: each dataset is gone through in an order of its own, and again in another when it is done.

    Attributes:
        batch_size: chunks a batch, of all processes together.
        chunk_tokens: ids a chunk, the extra one not counted.
    """

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
        weights: Sequence[float] | None = None,
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
        self._drop_last, self._weights = bool(drop_last), weights
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
            weights=weights,
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
        ids = np.full((len(starts), length), self._pad_id or 0, np.int32)
        for index, rows in groups:
            found = self.datasets[index].gather(starts[rows], length)
            if len(rows) == len(ids):
                ids = found
            else:
                ids[rows] = found
        if not self._documents:
            return TokenChunks(ids)
        total_tokens = length * int(np.count_nonzero(whole.items != NO_ITEM))
        return self._blocks(ids, starts, groups, total_tokens)

    def _blocks(
        self,
        ids: NDArray[np.int32],
        starts: NDArray[np.int64],
        groups: list[tuple[int, NDArray[np.int64]]],
        total_tokens: int,
    ) -> PackedBlocks:
        """Chunks, with what is known of their documents."""
        document_ids = np.full(ids.shape, -1, np.int32)
        segment_ids, positions = np.zeros((2, *ids.shape), np.int32)
        place = np.arange(ids.shape[1], dtype=np.int32)
        for index, rows in groups:
            found = _documents_of(self.datasets[index].document_splits, starts[rows], ids.shape[1])
            document_ids[rows] = found.document_ids + int(self._first_documents[index])
            segment_ids[rows] = np.cumsum(found.is_start, axis=1, dtype=np.int32)
            positions[rows] = place - np.maximum.accumulate(np.where(found.is_start, place, 0), axis=1)
        attention_mask = (segment_ids > 0).astype(np.int32)
        total = np.asarray(total_tokens, np.int32)
        return PackedBlocks(ids, attention_mask, segment_ids, positions, document_ids, total)

    def _options(self) -> dict[str, Any]:
        return {
            "shuffle": self._shuffle,
            "batch_size": self.batch_size,
            "chunk_tokens": self.chunk_tokens,
            "extra_token": bool(self._extra),
            "drop_last": self._drop_last,
            "weights": None if self._weights is None else list(map(float, self._weights)),
        }


class _Found(NamedTuple):
    """Which document each token of some windows is of, and where documents start in them."""

    document_ids: NDArray[np.int32]
    is_start: NDArray[np.bool_]


def _documents_of(document_splits: NDArray[np.int64], starts: NDArray[np.int64], length: int) -> _Found:
    """The running count of document starts along each window."""
    # Of documents of no tokens that start at one place, the last is the one whose tokens stand there.
    first = np.searchsorted(document_splits, starts, "right") - 1
    after = np.searchsorted(document_splits, starts + length, "left")
    counts = after - first - 1
    rows = np.repeat(np.arange(len(starts)), counts)
    columns = document_splits[first[rows] + 1 + ranges(0, counts)] - starts[rows]
    steps = np.zeros((len(starts), length), np.int32)
    np.add.at(steps, (rows, columns), 1)
    is_start = steps > 0
    is_start[:, 0] = True
    steps[:, 0] += first.astype(np.int32)
    return _Found(np.cumsum(steps, axis=1, dtype=np.int32), is_start)
