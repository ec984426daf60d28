"""Batches of consecutive tokens from a packed dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._checks import checked_int
from tokjax.batching.packing import PackedBlocks
from tokjax.errors import DatasetMismatchError, InvalidArgumentError
from tokjax.loading.permutation import permute
from tokjax.ragged import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tokjax.store.kinds import PackedDataset

_STATE_VERSION = 1


class PackedTokenLoader:
    """Batches of chunks of a packed dataset, in an order that depends on the seed and the step alone.

    Iterating gives the rest of the current epoch; iterating again gives the next epoch, in another
    order. `batch_at(step)` gives any batch of any epoch at once. `get_state` and `set_state` save and
    restore the place.

    Chunks do not overlap (but for the extra token); a tail of the stream that fills no chunk, and chunks
    that fill no batch, are left out of an epoch. With shuffling, other chunks are left out each time.

    Attributes:
        dataset: where the ids come from.
        batch_size: chunks a batch.
        chunk_tokens: ids a chunk, the extra one not counted.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        chunk_tokens: int | None = None,
        extra_token: bool = False,
    ) -> None:
        """Plan the chunks; nothing is read yet.

        Args:
            dataset: an open dataset.
            batch_size: chunks a batch.
            seed: names the order.
            shuffle: whether chunks come in another order each epoch.
            chunk_tokens: ids a chunk; `None` for the dataset's own number.
            extra_token: give `chunk_tokens + 1` ids, so that `ids[:, :-1]` are inputs and `ids[:, 1:]`
                their targets.
        """
        self.dataset = dataset
        self.batch_size = checked_int("batch_size", batch_size, least=1)
        self.chunk_tokens = checked_int(
            "chunk_tokens", dataset.chunk_tokens if chunk_tokens is None else chunk_tokens, least=1
        )
        self._seed, self._shuffle, self._extra = (
            checked_int("seed", seed),
            bool(shuffle),
            int(bool(extra_token)),
        )
        self._num_chunks = max(dataset.num_tokens - self._extra, 0) // self.chunk_tokens
        self._step = 0
        if len(self) == 0:
            raise InvalidArgumentError(
                f"the dataset's {dataset.num_tokens} ids fill {self._num_chunks} chunks of "
                f"{self.chunk_tokens}, fewer than one batch of {batch_size}; use a smaller batch_size or "
                "chunk_tokens"
            )

    def __len__(self) -> int:
        """Batches an epoch."""
        return self._num_chunks // self.batch_size

    def __iter__(self) -> Iterator[PackedBlocks]:
        """The rest of the current epoch, or all of the next if that is done."""
        epoch = self._step // len(self)
        while self._step // len(self) == epoch:
            batch = self.batch_at(self._step)
            self._step += 1
            yield batch

    def batch_at(self, step: int) -> PackedBlocks:
        """The batch of a step, counted from 0 through all epochs; a pure function of seed and step.

        Returns:
            NumPy arrays, `int32`, of shape `(batch_size, chunk_tokens)`, one more with `extra_token`.
            `segment_ids` count the documents of each chunk from 1, `positions` count from 0 in each, and
            `document_ids` are rows of `dataset.documents`.
        """
        epoch, within = divmod(checked_int("step", step, least=0), len(self))
        places = np.arange(within * self.batch_size, (within + 1) * self.batch_size)
        chunks = permute(places, self._num_chunks, self._seed, epoch) if self._shuffle else places
        starts = chunks * self.chunk_tokens
        ids = self.dataset.gather(starts, self.chunk_tokens + self._extra)
        return _with_documents(ids, starts, self.dataset.document_splits)

    def get_state(self) -> dict[str, Any]:
        """The place in the stream, as a small JSON dict: what is next, and whose place it is."""
        return {"version": _STATE_VERSION, "step": self._step, **self._identity()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to the place that `get_state` gave, in this process or another.

        Raises:
            DatasetMismatchError: the state is of another dataset, or of a loader with other options.
        """
        expected = {"version": _STATE_VERSION, **self._identity()}
        for name, value in expected.items():
            if state.get(name) != value:
                raise DatasetMismatchError(
                    f"the state's {name} is {state.get(name)!r}, this loader's is {value!r}; make the "
                    "loader as it was when the state was taken"
                )
        self._step = checked_int("the state's step", state.get("step", -1), least=0)

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "shuffle": self._shuffle,
            "batch_size": self.batch_size,
            "chunk_tokens": self.chunk_tokens,
            "extra_token": bool(self._extra),
            "dataset": self.dataset.manifest.fingerprint,
        }


def _with_documents(
    ids: NDArray[np.int32], starts: NDArray[np.int64], document_splits: NDArray[np.int64]
) -> PackedBlocks:
    """Mark which document each place is of: the running count of document starts along a row."""
    batch, length = ids.shape
    # Of documents of no tokens that start at one place, the last is the one whose tokens stand there.
    first = np.searchsorted(document_splits, starts, "right") - 1
    after = np.searchsorted(document_splits, starts + length, "left")
    counts = after - first - 1
    rows = np.repeat(np.arange(batch), counts)
    within = ranges(0, counts)
    documents = first[rows] + 1 + within
    columns = document_splits[documents] - starts[rows]
    steps = np.zeros((batch, length), np.int32)
    np.add.at(steps, (rows, columns), 1)
    document_ids = (np.cumsum(steps, axis=1) + first[:, None]).astype(np.int32)

    is_start = steps > 0
    is_start[:, 0] = True
    place = np.arange(length, dtype=np.int32)
    last_start = np.maximum.accumulate(np.where(is_start, place, 0), axis=1)
    return PackedBlocks(
        ids=ids,
        attention_mask=np.ones_like(ids),
        segment_ids=np.cumsum(is_start, axis=1, dtype=np.int32),
        positions=place - last_start,
        document_ids=document_ids,
        total_tokens=np.asarray(ids.size, np.int32),
    )
