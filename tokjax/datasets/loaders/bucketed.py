"""Loaders of batches of documents of similar length: with a fixed number of rows, or with a cost budget.

The documents of a dataset are sorted into buckets by length, and each batch has documents of one bucket. The
batches of all buckets are numbered, and these numbers are the items of the `ItemOrder`. Example: 8 documents
in two buckets, 2 rows per batch, `drop_last=False`.

    bucket       0 (padded to 16)       1 (padded to 32)
    documents    1  4  5  7  8          0  2  6             their rows in the dataset
    position     0  1  2  3  4          0  1  2
    batch        0     1     2          3     4             batch_splits = 0, 3, 5

A step draws a batch, for example 1: positions 2 and 3 of bucket 0. Which documents are there differs from
epoch to epoch, since the positions of a bucket are permuted, too:

    permute([2, 3], 5, seed, epoch, dataset, bucket) = [4, 0], which are documents 8 and 1

So there are two shuffles: of the batches of all buckets, and of the documents of each bucket. Both are
functions of the step (see `item_order`), and every document occurs once per epoch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_right
from functools import cached_property, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.permutation import permute
from tokjax.batching.collate import PaddedBatch
from tokjax.batching.length_buckets import LengthBuckets
from tokjax.core.ragged import make_row_splits
from tokjax.datasets.dataset_types import BucketedDataset, TokenDataset
from tokjax.datasets.fields.base import as_boundaries
from tokjax.datasets.loaders.base import Loader
from tokjax.datasets.loaders.batch_columns import DocumentRow
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Unpack

    from numpy.typing import NDArray

    from tokjax.datasets.dataset import Dataset
    from tokjax.datasets.loaders.base import LoaderOptions


class Buckets(NamedTuple):
    """Documents of a dataset, sorted into buckets by length, and the batches of each bucket.

    Attributes:
        lengths: length that the documents of each bucket are padded to, `int64`, shape `(num_buckets,)`.
        sizes: number of documents of each bucket, `int64`, shape `(num_buckets,)`.
        rows: function of a bucket and positions in it, which returns the documents at these positions.
        batch_rows: number of rows of the batches of each bucket, `int64`, shape `(num_buckets,)`.
        batch_splits: number of the first batch of each bucket, then the number of all batches, `int64`, shape
            `(num_buckets + 1,)`.
    """

    lengths: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: Callable[[int, NDArray[np.int64]], NDArray[np.int64]]
    batch_rows: NDArray[np.int64] = np.zeros(0, np.int64)
    batch_splits: NDArray[np.int64] = np.zeros(1, np.int64)


class _Draw(NamedTuple):
    """Documents of a batch.

    Attributes:
        dataset: index of the dataset.
        documents: rows of the documents in the dataset.
        num_rows: number of rows of the batch, at least that of the documents.
        length: length of the rows.
    """

    dataset: int
    documents: list[int]
    num_rows: int
    length: int


class _LengthBucketedLoader(Loader[TokenDataset, PaddedBatch]):
    """Base class of loaders whose batches have documents of one bucket of one dataset."""

    _dataset_type = TokenDataset
    _reads_documents = True

    def __init__(self, dataset: Dataset | Sequence[Dataset], **options: Unpack[LoaderOptions]) -> None:
        super().__init__(dataset, **options)
        self._buckets = [self._build_buckets(each) for each in self.datasets]
        self._buckets = [self._count_batches(buckets) for buckets in self._buckets]
        counts = [int(buckets.batch_splits[-1]) for buckets in self._buckets]
        self._check_nonempty(counts)
        self._set_order(counts, 1)  # an item is a batch

    def _check_nonempty(self, counts: list[int]) -> None:
        """Raises an error if no dataset has a batch, or, with weights, if one of them has none."""
        if any(counts) if self._weights is None else all(counts):
            return
        empty = counts.index(0)
        fullest = int(self._buckets[empty].sizes.max(initial=0))
        cause = f"its fullest bucket has {fullest} documents; make batches smaller, or pass drop_last=False"
        raise InvalidArgumentError(
            f"{self.datasets[empty].location} fills no batch: {cause if fullest else 'it has no documents'}"
        )

    @abstractmethod
    def _build_buckets(self, dataset: TokenDataset) -> Buckets:
        """Sorts the documents of a dataset into buckets."""

    @abstractmethod
    def _compute_rows(self, length: int, size: int) -> int:
        """Returns the number of rows of a batch of a bucket.

        Args:
            length: the length that documents of the bucket are padded to.
            size: the number of documents of the bucket.
        """

    def _load(self, step: int) -> PaddedBatch:
        draw = self._draw(step)
        dataset = self.datasets[draw.dataset]
        values = dataset._read_column_rows((column.name for column in self._columns), draw.documents)
        rows: list[DocumentRow | None] = list(map(DocumentRow, dataset._read_ids(draw.documents), values))
        rows += [None] * (draw.num_rows - len(rows))
        return self._pad_rows(rows, draw.length)

    def _draw(self, step: int) -> _Draw:
        """Returns the documents of a step."""
        index, item, epoch = (int(column[0]) for column in self._order.compute_items(step))
        buckets = self._buckets[index]
        bucket = int(np.searchsorted(buckets.batch_splits, item, "right")) - 1
        count, size = int(buckets.batch_rows[bucket]), int(buckets.sizes[bucket])
        first = (item - int(buckets.batch_splits[bucket])) * count
        own = self._select_rows(count)
        positions = np.arange(first + own.start, min(first + own.stop, size))
        if self._shuffle:
            positions = permute(positions, size, self.seed, epoch, index, bucket)
        documents = buckets.rows(bucket, positions).tolist()
        return _Draw(index, documents, own.stop - own.start, int(buckets.lengths[bucket]))

    def _find_shards(self, step: int) -> Iterator[tuple[int, int]]:
        draw = self._draw(step)
        rows = np.array(draw.documents, np.int64)
        for shard in self.datasets[draw.dataset]._find_document_shards(rows):
            yield draw.dataset, shard

    def _make_examples(self) -> Iterator[PaddedBatch]:
        shapes = {
            (int(length), int(rows))
            for buckets in self._buckets
            for length, rows, count in zip(
                buckets.lengths, buckets.batch_rows, np.diff(buckets.batch_splits), strict=True
            )
            if count
        }
        return (self._make_empty(rows, length) for length, rows in sorted(shapes))

    def _count_batches(self, buckets: Buckets) -> Buckets:
        """Numbers the batches of all buckets."""
        sized = zip(buckets.lengths.tolist(), buckets.sizes.tolist(), strict=True)
        rows = np.array([self._compute_rows(length, size) for length, size in sized], np.int64)
        counts = buckets.sizes // rows if self._drop_last else -(-buckets.sizes // rows)
        return buckets._replace(batch_rows=rows, batch_splits=make_row_splits(counts))


class BucketedLoader(_LengthBucketedLoader):
    """Loader of batches of documents of one length bucket, padded to its boundary.

    There are as many shapes as buckets, and a jitted step compiles once for each. Batches of all buckets are
    mixed. With several datasets and no weights, each document occurs once per epoch, except documents that do
    not fill a batch if `drop_last` is set. With weights, the datasets are mixed in an endless stream.

    Batches are `PaddedBatch`es: `ids` and `attention_mask`, NumPy arrays, `int32`, shape `(rows, length)`,
    and the side columns. `length` is that of the bucket. If the bucket has too few documents, the last rows
    are empty.

    Attributes:
        batch_size: number of documents of a batch, of all processes together.
    """

    def __init__(
        self,
        dataset: Dataset | Sequence[Dataset],
        *,
        batch_size: int,
        bucket_boundaries: Sequence[int] | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        """Initializes the loader.

        Only the lengths of documents are read here, and those of a `BucketedDataset` are not needed either.

        Args:
            dataset: an open dataset, or several.
            batch_size: number of documents of a batch.
            bucket_boundaries: maximum number of ids of the documents of each bucket, for example a
                `LengthBuckets`; `None` for the boundaries of the dataset's field.
            **options: options of all loaders, as for `PackedTokenLoader`. `drop_last` omits documents that do
                not fill a batch; without it, such batches have empty rows. `weights` are those of batches.

        Raises:
            InvalidArgumentError: an argument is invalid, a document is longer than the last boundary, or the
                documents do not fill a batch.
        """
        self.batch_size = check_int("batch_size", batch_size, minimum=1)
        self._boundaries: tuple[int, ...] | None = None
        if bucket_boundaries is not None:
            boundaries = as_boundaries(bucket_boundaries)
            if not boundaries:
                raise InvalidArgumentError("bucket_boundaries is empty")
            self._boundaries = tuple(sorted(boundaries))
        super().__init__(dataset, **options)

    def _build_buckets(self, dataset: TokenDataset) -> Buckets:
        if self._boundaries is not None:
            return _sort_into_buckets(dataset, np.array(self._boundaries, np.int64))
        if not isinstance(dataset, BucketedDataset):
            raise InvalidArgumentError(
                f"{type(dataset.field).__name__} has no buckets; pass bucket_boundaries=[...]"
            )
        lengths = np.array(dataset.bucket_boundaries, np.int64)
        return Buckets(lengths, dataset.bucket_sizes(), dataset.bucket_rows)

    def _compute_rows(self, length: int, size: int) -> int:  # noqa: ARG002 (the same for all buckets)
        return self.batch_size

    def _get_options(self) -> dict[str, Any]:
        boundaries = None if self._boundaries is None else list(self._boundaries)
        return {"batch_size": self.batch_size, "bucket_boundaries": boundaries, **super()._get_options()}


class TokenBudgetLoader(_LengthBucketedLoader):
    """Loader of batches with as many documents as a budget allows: many short ones, or a few long ones.

    Documents are padded to one of at most `max_shapes` lengths. The lengths are the multiples of
    `multiple_of` that minimize the padding of all documents (`LengthBuckets.fit`). All batches of a length
    have the same number of rows, so a jitted step compiles at most `max_shapes` times. (With `drop_last`, a
    dataset with few documents of a length has batches with fewer rows, which is one more shape.)

    Batches are as those of `BucketedLoader`.

    Attributes:
        budget: maximum cost of a batch, of all processes together.
    """

    _rows_option = "rows_multiple_of"

    def __init__(
        self,
        dataset: Dataset | Sequence[Dataset],
        *,
        budget: int,
        cost: Callable[[int, int], float] | None = None,
        multiple_of: int = 64,
        max_shapes: int = 8,
        rows_multiple_of: int = 1,
        **options: Unpack[LoaderOptions],
    ) -> None:
        """Initializes the loader from the lengths of documents.

        Args:
            dataset: an open dataset, or several.
            budget: maximum cost of a batch.
            cost: function of the number of rows and the length of a batch that returns its cost, for example
                the memory of a training step in bytes. It must increase with both. `None` for `rows *
                length`, so that the budget is a number of tokens, including padding.
            multiple_of: number that the padded lengths are multiples of.
            max_shapes: maximum number of lengths. More lengths mean less padding, but more compilations.
            rows_multiple_of: number that the rows of a batch are a multiple of; the number of processes must
                divide it.
            **options: options of all loaders, as for `PackedTokenLoader`, but `drop_last` is `False` by
                default.

        Raises:
            InvalidArgumentError: an argument is invalid, `rows_multiple_of` documents cost more than the
                budget, or `cost` does not return a number.
        """
        self.budget = check_int("budget", budget, minimum=1)
        self._cost = cost
        self._multiple_of = check_int("multiple_of", multiple_of, minimum=1)
        self._max_shapes = check_int("max_shapes", max_shapes, minimum=1)
        self._rows_multiple_of = check_int("rows_multiple_of", rows_multiple_of, minimum=1)
        options.setdefault("drop_last", False)
        super().__init__(dataset, **options)

    @property
    def batch_rows(self) -> int:
        """Number of rows of which each process loads an equal share: `rows_multiple_of`."""
        return self._rows_multiple_of

    def _build_buckets(self, dataset: TokenDataset) -> Buckets:
        return _sort_into_buckets(dataset, self._lengths)

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        """Lengths that documents are padded to, ascending, `int64`, shape `(num_lengths,)`."""
        lengths = np.concatenate([dataset.document_lengths for dataset in self.datasets])
        if not len(lengths):
            return np.array([self._multiple_of])
        buckets = LengthBuckets.fit(lengths, self._max_shapes, multiple_of=self._multiple_of)
        return np.array(buckets.boundaries, np.int64)

    def _compute_rows(self, length: int, size: int) -> int:
        """Returns the maximum number of rows whose cost is within the budget, by binary search."""
        step = self._rows_multiple_of
        cost = self._compute_cost
        if not self._drop_last:  # one shape for all datasets
            size = sum(int(buckets.sizes[buckets.lengths == length].sum()) for buckets in self._buckets)
        if cost(step, length) > self.budget:
            raise InvalidArgumentError(
                f"{step} rows of {length} ids cost {cost(step, length)}, above the budget of {self.budget}; "
                "pass a larger budget, or truncate documents when the dataset is written (max_tokens)"
            )
        maximum = -(-size // step)  # rows beyond the number of documents would be empty
        count = bisect_right(range(1, maximum + 1), float(self.budget), key=lambda n: cost(n * step, length))
        return max(count, 1) * step

    def _compute_cost(self, rows: int, length: int) -> float:
        """Returns the cost of a batch; raises an error if `cost` does not return a number."""
        if self._cost is None:
            return rows * length
        value: Any = self._cost(rows, length)
        if not isinstance(value, Real) or math.isnan(value):
            raise InvalidArgumentError(f"cost({rows}, {length}) returned {value!r}, which is not a number")
        return float(value)

    def _get_options(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "multiple_of": self._multiple_of,
            "max_shapes": self._max_shapes,
            "rows_multiple_of": self._rows_multiple_of,
            "rows": [buckets.batch_rows.tolist() for buckets in self._buckets],
            **super()._get_options(),
        }


def _sort_into_buckets(dataset: TokenDataset, boundaries: NDArray[np.int64]) -> Buckets:
    """Sorts the documents of a dataset into buckets, and omits empty buckets.

    Args:
        dataset: the dataset.
        boundaries: maximum number of ids of the documents of each bucket, ascending.

    Raises:
        InvalidArgumentError: a document is longer than the last boundary.
    """
    lengths = dataset.document_lengths
    if len(lengths) and int(lengths.max()) > int(boundaries[-1]):
        raise InvalidArgumentError(
            f"a document has {int(lengths.max())} ids, more than the last of bucket_boundaries, "
            f"{int(boundaries[-1])}"
        )
    buckets = np.searchsorted(boundaries, lengths)
    order = np.argsort(buckets, kind="stable")
    sizes = np.bincount(buckets, minlength=len(boundaries))
    starts = make_row_splits(sizes)
    nonempty = np.flatnonzero(sizes)
    rows = partial(_take_rows, order, starts.take(nonempty))  # (local functions can't be pickled)
    return Buckets(boundaries.take(nonempty), sizes.take(nonempty), rows)


def _take_rows(
    order: NDArray[np.int64], starts: NDArray[np.int64], bucket: int, positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the documents at positions of a bucket, which begins at `starts[bucket]` of the order."""
    documents: NDArray[np.int64] = order.take(positions + starts[bucket])
    return documents
