"""Loader of packed datasets: batches of chunks of consecutive tokens.

A packed dataset is one stream of tokens, in which documents are concatenated. Chunk `i` of a loader has the
tokens from `i * chunk_tokens`. With `documents=True`, a batch also says to which document each token belongs.
Example: documents of 3, 5 and 2 tokens, `chunk_tokens=4`, and `extra_token=False`:

    stream           a0 a1 a2 b0 b1 b2 b3 b4 c0 c1         document_splits = 0, 3, 8, 10
    chunk 0          a0 a1 a2 b0                           (chunk 1 is b1 b2 b3 b4; c0 c1 do not fill a chunk)
    segment_ids       1  1  1  2                           documents of the chunk, from 1
    positions         0  1  2  0                           positions in the part of the document in this chunk
    document_ids      0  0  0  1                           rows of `dataset.documents`

Side columns of the dataset are read at the same positions as the ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

from tokjax._util.arrays import jit_eager
from tokjax._util.checks import check_int
from tokjax._util.display import display_batch
from tokjax.core.ragged import concatenate_ranges
from tokjax.datasets.dataset_types import PackedDataset
from tokjax.datasets.loaders.base import Loader, LoaderOptions, number_documents
from tokjax.datasets.loaders.batch_columns import split_loss_mask
from tokjax.packing.packed_blocks import PackedBlocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal, Unpack

    from numpy.typing import NDArray
    from typing_extensions import (
        TypeVar as TypeVarWithDefault,  # known to type checkers; the program does not need the library
    )

    from tokjax._util.arrays import Array
    from tokjax.datasets.dataset import Dataset


_PADDING = (0, 0, 0, 0, -1)
"""Padding of `ids` (replaced by the pad id), mask, segment ids, positions and document ids."""


@display_batch
class TokenChunks(NamedTuple):
    """Chunks of consecutive tokens without document columns, a pytree of arrays.

    Attributes:
        ids: token ids, `int32`, shape `(batch, length)`, where `length` is `chunk_tokens`, plus 1 with
            `extra_token`.
        loss_mask: 1 on the tokens that count as targets, `int32`, shape `(batch, length)`; `None` if the
            dataset has no column of this name.
        columns: other side columns by name, shape `(batch, length)`, as in `PackedBlocks`; `None` without
            such columns.
    """

    ids: Array
    loss_mask: Array | None = None
    columns: dict[str, Array] | None = None

    @property
    @jit_eager
    def inputs(self) -> Array:
        """Ids of each chunk except the last one, `int32`, shape `(batch, length - 1)`."""
        return self.ids[..., :-1]

    @property
    @jit_eager
    def targets(self) -> Array:
        """Id that follows each of the inputs, `int32`, shape `(batch, length - 1)`."""
        return self.ids[..., 1:]


class _Options(LoaderOptions, total=False):
    """Options of `PackedTokenLoader` that do not change the type of its batches."""

    chunk_tokens: int | None
    extra_token: bool


if TYPE_CHECKING:
    Chunks = TypeVarWithDefault("Chunks", bound=PackedBlocks | TokenChunks, default=PackedBlocks)
else:
    Chunks = TypeVar("Chunks")


class PackedTokenLoader(Loader[PackedDataset, Chunks], Generic[Chunks]):
    """Loader of batches of chunks of packed datasets, in an order that depends only on the seed and the step.

    Chunks do not overlap, except for the extra token. Tokens at the end of a dataset that do not fill a chunk
    are omitted. With `drop_last`, chunks that do not fill a batch are omitted, too; with shuffling these
    differ from epoch to epoch.

    With several datasets and no weights, each chunk occurs once per epoch. With weights, the datasets are
    mixed in an endless stream; each of them is shuffled separately, in another order whenever it starts
    again.

    Batches are `PackedBlocks` of NumPy arrays, `int32`, shape `(batch_size, length)`, where `length` is
    `chunk_tokens`, plus 1 with `extra_token`. `segment_ids` count the documents of each chunk from 1.
    `positions` count the tokens of each segment from 0. `document_ids` are rows of `dataset.documents`, with
    several datasets of their concatenation. On padding these three are 0, 0 and -1. With `documents=False`,
    batches are `TokenChunks`.

    Attributes:
        batch_size: number of chunks of a batch, of all processes together.
        chunk_tokens: number of ids of a chunk, without the extra one.
    """

    _dataset_type = PackedDataset

    @overload
    def __init__(
        self: PackedTokenLoader[TokenChunks],
        dataset: Dataset | Sequence[Dataset],
        *,
        batch_size: int,
        documents: Literal[False],
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: PackedTokenLoader[PackedBlocks],
        dataset: Dataset | Sequence[Dataset],
        *,
        batch_size: int,
        documents: bool = True,
        **options: Unpack[_Options],
    ) -> None: ...
    def __init__(
        self,
        dataset: Dataset | Sequence[Dataset],
        *,
        batch_size: int,
        chunk_tokens: int | None = None,
        extra_token: bool = False,
        documents: bool = True,
        **options: Unpack[LoaderOptions],
    ) -> None:
        """Initializes the loader. Tokens are read by `batch_at`.

        Args:
            dataset: an open dataset, or several.
            batch_size: number of chunks of a batch.
            chunk_tokens: number of ids of a chunk; `None` for the first dataset's `chunk_tokens`.
            extra_token: whether chunks have `chunk_tokens + 1` ids, so that `ids[:, :-1]` are inputs and
                `ids[:, 1:]` are their targets.
            documents: whether batches are `PackedBlocks`, with the document of each token; if not, they are
                `TokenChunks`, which load several times faster.
            **options: options of all loaders:

                - seed: seed of the order, 0 by default.
                - shuffle: whether the order differs from epoch to epoch, `True` by default.
                - drop_last: whether to omit chunks that do not fill a batch, `True` by default; if not, the
                  last batch of an epoch is padded.
                - pad_id: id of padding; by default the tokenizer's PAD token. Unused with `drop_last`.
                - weights: relative frequency of each dataset; by default all are gone through together.
                - columns: names of the side columns to load, or a dict with the dtype of each, such as
                  `{"weights": "float16"}`; by default all, in their own dtypes of at most 32 bits.

        Raises:
            DatasetMismatchError: the datasets have different side columns.
            InvalidArgumentError: an argument is invalid, the chunks do not fill a batch, or with `documents`
                there are more than 2**31 documents.
        """
        if options.get("drop_last", True):
            options["pad_id"] = 0  # (there is no padding, and perhaps no PAD token)
        super().__init__(dataset, **options)
        self.batch_size = check_int("batch_size", batch_size, minimum=1)
        chunk = self.datasets[0].chunk_tokens if chunk_tokens is None else chunk_tokens
        self.chunk_tokens = check_int("chunk_tokens", chunk, minimum=1)
        self._extra, self._documents = int(bool(extra_token)), bool(documents)
        sizes = [max(each.num_tokens - self._extra, 0) // self.chunk_tokens for each in self.datasets]
        self._set_order(sizes, self.batch_size)
        if self._documents:
            self._first_documents = number_documents(self.datasets, "pass documents=False to load only ids")

    def _load(self, step: int) -> PackedBlocks | TokenChunks:
        slots = self._order.compute_items(step).select(self._select_rows(self.batch_size))
        length, starts = self.chunk_tokens + self._extra, slots.items * self.chunk_tokens
        # One array for all columns: the allocator keeps one large array for the next batch. It returns
        # several smaller ones to the system, and the page faults of the next batch doubled the time.
        columns = np.empty((len(_PADDING) if self._documents else 1, len(starts), length), np.int32)
        groups = slots.group_by_dataset()
        if len(groups) == 1 and len(groups[0][1]) == len(starts):
            self._fill_columns(columns, groups[0][0], starts)
        else:
            padding = np.array((self._pad_id, *_PADDING[1:]), np.int32)[: len(columns)]
            columns[:] = padding[:, None, None]
            for index, rows in groups:
                dataset_columns = np.empty((len(columns), len(rows), length), np.int32)
                self._fill_columns(dataset_columns, index, starts[rows])
                columns[:, rows] = dataset_columns
        side_columns = self._load_side_columns(groups, starts, length)
        if self._documents:
            return PackedBlocks(*columns, **side_columns)
        return TokenChunks(columns[0], **side_columns)

    def _find_shards(self, step: int) -> Iterator[tuple[int, int]]:
        slots = self._order.compute_items(step).select(self._select_rows(self.batch_size))
        lengths = np.full(len(slots.items), self.chunk_tokens + self._extra)
        for index, rows in slots.group_by_dataset():
            starts = slots.items[rows] * self.chunk_tokens
            for shard in self.datasets[index]._find_item_shards(starts, lengths[rows]):
                yield index, shard

    def _fill_columns(self, columns: NDArray[np.int32], index: int, starts: NDArray[np.int64]) -> None:
        """Writes all columns of the chunks of one dataset, in place."""
        dataset = self.datasets[index]
        dataset.gather_into(starts, columns[0])
        if self._documents:
            _write_documents(columns[1:], dataset.document_splits, starts, int(self._first_documents[index]))

    def _load_side_columns(
        self, groups: list[tuple[int, NDArray[np.int64]]], starts: NDArray[np.int64], length: int
    ) -> dict[str, Any]:
        """Returns the fields of a batch with side columns.

        Args:
            groups: index of a dataset, and the rows of the batch that it fills.
            starts: start of each chunk in its dataset, in tokens, shape `(rows,)`.
            length: number of tokens of a chunk.
        """
        loaded = {}
        for column in self._columns:
            values = column.make_filled(len(starts), length)
            for index, rows in groups:
                dataset, firsts = self.datasets[index], starts[rows]
                stored = dataset.column(column.name)
                if column.column.per == "token":
                    lengths = np.full(len(rows), length)
                    read = stored.read_ranges(firsts, lengths).reshape(len(rows), length)
                else:
                    tokens = firsts[:, None] + np.arange(length)
                    read = stored[np.searchsorted(dataset.document_splits, tokens, "right") - 1]
                values[rows] = column.cast(read)
            loaded[column.name] = values
        return split_loss_mask(loaded)

    def _get_options(self) -> dict[str, Any]:
        return {
            **super()._get_options(),
            "batch_size": self.batch_size,
            "chunk_tokens": self.chunk_tokens,
            "extra_token": bool(self._extra),
        }


def _write_documents(
    columns: NDArray[np.int32],
    document_splits: NDArray[np.int64],
    starts: NDArray[np.int64],
    first_document: int,
) -> None:
    """Writes the document columns of chunks, in place.

    The columns are constant or count up in runs: the parts of documents in a chunk. A chunk has few runs, so
    only their starts are computed, and `np.repeat` expands them.

    Args:
        columns: output for attention mask, segment ids, positions and document ids, shape
            `(4, num_chunks, length)`.
        document_splits: start of each document of the dataset, and the end of the last one, in tokens,
            `int64`, shape `(num_documents + 1,)`.
        starts: start of each chunk, in tokens, `int64`, shape `(num_chunks,)`.
        first_document: number of documents of the datasets before this one.
    """
    mask, segments, positions, documents = columns
    count, length = mask.shape
    # Of several documents that start at the same token, all but the last are empty: search from the right.
    first = np.searchsorted(document_splits, starts, "right") - 1
    counts = np.searchsorted(document_splits, starts + length, "left") - first
    chunks = np.repeat(np.arange(count), counts)
    run_documents = concatenate_ranges(first, counts)
    begins = np.maximum(document_splits.take(run_documents) - starts.take(chunks), 0)
    run_starts = begins + chunks * length
    nonempty = np.flatnonzero(np.diff(run_starts, append=count * length))
    chunks, run_documents, begins, run_starts = (
        column.take(nonempty) for column in (chunks, run_documents, begins, run_starts)
    )
    run_lengths = np.diff(run_starts, append=count * length)

    def expand(values: NDArray[np.int64]) -> NDArray[np.int32]:
        """Repeats the value of each run for its tokens."""
        return np.repeat(values.astype(np.int32), run_lengths).reshape(count, length)

    mask[:] = 1
    segments[:] = expand(
        np.arange(1, len(run_lengths) + 1) - np.searchsorted(chunks, np.arange(count)).take(chunks)
    )
    np.subtract(np.arange(length, dtype=np.int32), expand(begins), out=positions)
    documents[:] = expand(run_documents + first_document)
