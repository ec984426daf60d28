"""Batches of documents of about one length: of a number of rows, or as many as a budget allows."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.permutation import permute
from tokjax.batching.collate import PaddedBatch, pad_ragged
from tokjax.batching.length_buckets import LengthBuckets
from tokjax.core.ragged import make_row_splits, ragged_from_rows
from tokjax.datasets.dataset_types import BucketedDataset, TokenDataset
from tokjax.datasets.fields import check_boundaries
from tokjax.datasets.loaders.base import Loader
from tokjax.datasets.loaders.item_order import ItemOrder, check_weights
from tokjax.datasets.loaders.sequences import resolve_pad_id
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.datasets.loaders.item_order import ItemSlots

_COLUMNS = ("ids", "attention_mask")


class Buckets(NamedTuple):
    """The documents of a dataset by their lengths.

    Attributes:
        lengths: to which length the documents of each bucket are padded, `int64`, shape `(buckets,)`.
        sizes: how many documents each has.
        rows: gives the documents at some places of a bucket.
    """

    lengths: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: Callable[[int, NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True)
class _SortedRows:
    """The documents of all buckets, one bucket after the other: what pickles, as a function would not.

    Attributes:
        rows: the documents, `int64`, shape `(documents,)`.
        starts: where those of each bucket start, `int64`, shape `(buckets,)`.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]

    def __call__(self, bucket: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The documents at some places of a bucket."""
        found: NDArray[np.int64] = self.rows.take(positions + self.starts[bucket])
        return found


class _BucketBatches(NamedTuple):
    """The batches of a dataset.

    Attributes:
        rows: how many rows a batch of each bucket has, `int64`, shape `(buckets,)`.
        up_to: how many batches there are before each bucket, and in all, shape `(buckets + 1,)`.
    """

    rows: NDArray[np.int64]
    up_to: NDArray[np.int64]


class _LengthBucketedLoader(Loader[TokenDataset, PaddedBatch]):
    """Loaders whose batches are each of one bucket of one dataset."""

    _dataset_type = TokenDataset

    def __init__(
        self,
        dataset: TokenDataset | Sequence[TokenDataset],
        *,
        pad_id: int | None,
        seed: int,
        shuffle: bool,
        drop_last: bool,
        weights: Iterable[float] | None,
    ) -> None:
        super().__init__(dataset, seed)
        self._pad_id = resolve_pad_id(pad_id, lambda: self.datasets[0].tokenizer)
        self._shuffle, self._drop_last = bool(shuffle), bool(drop_last)
        self._weights = check_weights(weights)
        self._buckets = [self._build_buckets(each) for each in self.datasets]
        self._batches = [self._count_batches(buckets) for buckets in self._buckets]
        counts = [int(batches.up_to[-1]) for batches in self._batches]
        self._check_nonempty(counts)
        self._order = ItemOrder(
            counts,
            1,
            seed=self.seed,
            shuffle=self._shuffle,
            weights=self._weights,
        )

    def _check_nonempty(self, counts: list[int]) -> None:
        """Refuse datasets that fill no batch."""
        if any(counts) if self._weights is None else all(counts):
            return
        empty = counts.index(0)
        fullest = int(self._buckets[empty].sizes.max(initial=0))
        why = f"its fullest bucket has {fullest} documents; make batches smaller, or pass drop_last=False"
        raise InvalidArgumentError(
            f"{self.datasets[empty].location} fills no batch: {why if fullest else 'it has no documents'}"
        )

    @abstractmethod
    def _build_buckets(self, dataset: TokenDataset) -> Buckets:
        """The buckets of a dataset."""

    @abstractmethod
    def _compute_rows(self, length: int, size: int) -> int:
        """How many rows a batch of a length has, where there are so many documents of it."""

    def batch_at(self, step: int) -> PaddedBatch:
        """The batch of a step, counted from 0 through all epochs; a pure function of seed and step.

        Returns:
            `ids` and `attention_mask`, NumPy arrays, `int32`, of shape `(rows, length)` of the bucket.
        """
        positions: ItemSlots = self._order.at(check_int("step", step, minimum=0))
        index, item, epoch = (int(column[0]) for column in positions)
        buckets, batches = self._buckets[index], self._batches[index]
        bucket = int(np.searchsorted(batches.up_to, item, "right")) - 1
        count, size = int(batches.rows[bucket]), int(buckets.sizes[bucket])
        first = (item - int(batches.up_to[bucket])) * count
        own = self._select_rows(count)
        wanted = np.arange(first + own.start, min(first + own.stop, size))
        if self._shuffle:
            wanted = permute(wanted, size, self.seed, epoch, index, bucket)
        documents = buckets.rows(bucket, wanted)
        rows = [self.datasets[index].document(row) for row in documents.tolist()]
        rows += [np.zeros(0, np.int32)] * (own.stop - own.start - len(rows))
        length = int(buckets.lengths[bucket])
        return pad_ragged(ragged_from_rows(rows), length=length, pad_id=self._pad_id, columns=_COLUMNS)

    def _count_batches(self, buckets: Buckets) -> _BucketBatches:
        sized = zip(buckets.lengths.tolist(), buckets.sizes.tolist(), strict=True)
        rows = np.array([self._compute_rows(length, size) for length, size in sized], np.int64)
        counts = buckets.sizes // rows if self._drop_last else -(-buckets.sizes // rows)
        return _BucketBatches(rows, make_row_splits(counts))

    def _get_common_options(self) -> dict[str, Any]:
        return {
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "weights": self._weights,
        }


class BucketedLoader(_LengthBucketedLoader):
    """Batches of documents of one length bucket, padded to its boundary: as many shapes as buckets.

    Batches of all buckets are mixed. Of several datasets without weights each document comes once an epoch,
    but for those that fill no batch if `drop_last` is set; with weights they are mixed without end.

    Attributes:
        batch_size: documents a batch, of all processes together.
    """

    def __init__(
        self,
        dataset: TokenDataset | Sequence[TokenDataset],
        *,
        batch_size: int,
        bucket_boundaries: Sequence[int] | None = None,
        pad_id: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        weights: Iterable[float] | None = None,
    ) -> None:
        """Plan the batches; nothing is read yet but lengths, and of a `BucketedDataset` not even those.

        Args:
            dataset: an open dataset, or several.
            batch_size: documents a batch.
            bucket_boundaries: the most ids that a document of each bucket has, such as a `LengthBuckets`;
                `None` for those of the dataset's field.
            pad_id: the id on padding; `None` for the tokenizer's PAD token.
            seed: names the order.
            shuffle: whether documents come in another order each epoch.
            drop_last: leave out documents that fill no batch; if not, such batches have empty rows.
            weights: how often a batch of each dataset is drawn; `None` to go through all of them together.
        """
        self.batch_size = check_int("batch_size", batch_size, minimum=1)
        self._boundaries: tuple[int, ...] | None = None
        if bucket_boundaries is not None:
            boundaries = check_boundaries(bucket_boundaries)
            if not boundaries:
                raise InvalidArgumentError("bucket_boundaries is empty")
            self._boundaries = tuple(sorted(boundaries))
        super().__init__(
            dataset, pad_id=pad_id, seed=seed, shuffle=shuffle, drop_last=drop_last, weights=weights
        )

    @property
    def batch_rows(self) -> int:
        """Of how many rows the processes take equal parts."""
        return self.batch_size

    def _build_buckets(self, dataset: TokenDataset) -> Buckets:
        if self._boundaries is not None:
            return _sort_into_buckets(dataset, np.array(self._boundaries, np.int64))
        if not isinstance(dataset, BucketedDataset):
            raise InvalidArgumentError(
                f"{type(dataset.field).__name__} has no buckets; pass bucket_boundaries=[...]"
            )
        lengths = np.array(dataset.bucket_boundaries, np.int64)
        return Buckets(lengths, dataset.bucket_sizes(), dataset.bucket_rows)

    def _compute_rows(self, length: int, size: int) -> int:  # noqa: ARG002 (the same for all)
        return self.batch_size

    def _get_options(self) -> dict[str, Any]:
        boundaries = None if self._boundaries is None else list(self._boundaries)
        return {"batch_size": self.batch_size, "bucket_boundaries": boundaries, **self._get_common_options()}


class TokenBudgetLoader(_LengthBucketedLoader):
    """Batches of as many documents as a budget allows: many short ones, or a few long ones.

    Documents are padded to one of at most `max_shapes` lengths: those multiples of `multiple_of` that pad the
    documents of all datasets least (`LengthBuckets.fit`). All batches of a length have the same number of
    rows, so a jitted step compiles at most `max_shapes` times. (With `drop_last`, a dataset with few
    documents of a length has batches of fewer rows, which is one more shape.)

    Attributes:
        budget: what a batch may cost, of all processes together.
    """

    _rows_option = "rows_multiple_of"

    def __init__(
        self,
        dataset: TokenDataset | Sequence[TokenDataset],
        *,
        budget: int,
        cost: Callable[[int, int], float] | None = None,
        multiple_of: int = 64,
        max_shapes: int = 8,
        rows_multiple_of: int = 1,
        pad_id: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        weights: Iterable[float] | None = None,
    ) -> None:
        """Plan the batches from the lengths of documents.

        Args:
            dataset: an open dataset, or several.
            budget: the most that a batch may cost.
            cost: what a batch of `(rows, length)` costs, rising with both: for instance the bytes that a step
                takes. `None` for `rows * length`: the budget is in tokens, padding among them.
            multiple_of: documents are padded to multiples of this.
            max_shapes: how many lengths there are at most. More of them pad less, and compile more often.
            rows_multiple_of: a batch has a multiple of so many rows; the number of processes must divide it.
            pad_id: the id on padding; `None` for the tokenizer's PAD token.
            seed: names the order.
            shuffle: whether documents come in another order each epoch.
            drop_last: leave out documents that fill no batch; if not, such batches have empty rows.
            weights: how often a batch of each dataset is drawn; `None` to go through all of them together.

        Raises:
            InvalidArgumentError: a document alone costs more than the budget, or `cost` gives no number.
        """
        self.budget = check_int("budget", budget, minimum=1)
        self._cost = cost
        self._multiple_of = check_int("multiple_of", multiple_of, minimum=1)
        self._max_shapes = check_int("max_shapes", max_shapes, minimum=1)
        self._rows_multiple_of = check_int("rows_multiple_of", rows_multiple_of, minimum=1)
        super().__init__(
            dataset, pad_id=pad_id, seed=seed, shuffle=shuffle, drop_last=drop_last, weights=weights
        )

    @property
    def batch_rows(self) -> int:
        """Of how many rows the processes take equal parts."""
        return self._rows_multiple_of

    def _build_buckets(self, dataset: TokenDataset) -> Buckets:
        return _sort_into_buckets(dataset, self._lengths)

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        """The lengths that documents are padded to, rising, shape `(lengths,)`."""
        lengths = np.concatenate([dataset.document_lengths for dataset in self.datasets])
        if not len(lengths):
            return np.array([self._multiple_of])
        buckets = LengthBuckets.fit(lengths, self._max_shapes, multiple_of=self._multiple_of)
        return np.array(buckets.boundaries, np.int64)

    def _compute_rows(self, length: int, size: int) -> int:
        """The most rows whose cost is within the budget."""
        step = self._rows_multiple_of
        cost = self._compute_cost
        if not self._drop_last:  # batches of all datasets have one shape
            size = sum(int(buckets.sizes[buckets.lengths == length].sum()) for buckets in self._buckets)
        if cost(step, length) > self.budget:
            raise InvalidArgumentError(
                f"{step} rows of {length} ids cost {cost(step, length)}, above the budget of {self.budget}; "
                "raise it, or cut documents when the dataset is written (max_tokens)"
            )
        fits, too_many = 1, 2
        maximum = -(-size // step)  # (more rows than there are documents would be empty)
        while too_many <= maximum and cost(too_many * step, length) <= self.budget:
            fits, too_many = too_many, 2 * too_many
        too_many = min(too_many, maximum + 1)
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            fits, too_many = (
                (middle, too_many) if cost(middle * step, length) <= self.budget else (fits, middle)
            )
        return fits * step

    def _compute_cost(self, rows: int, length: int) -> float:
        if self._cost is None:
            return rows * length
        value: Any = self._cost(rows, length)
        if not isinstance(value, Real) or math.isnan(value):
            raise InvalidArgumentError(f"cost({rows}, {length}) gave {value!r}, which is no number")
        return float(value)

    def _get_options(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "multiple_of": self._multiple_of,
            "max_shapes": self._max_shapes,
            "rows_multiple_of": self._rows_multiple_of,
            "rows": [batches.rows.tolist() for batches in self._batches],
            **self._get_common_options(),
        }


def _sort_into_buckets(dataset: TokenDataset, boundaries: NDArray[np.int64]) -> Buckets:
    """The documents of a dataset in buckets; those of no bucket's length are refused."""
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
    filled = np.flatnonzero(sizes)
    return Buckets(boundaries.take(filled), sizes.take(filled), _SortedRows(order, starts.take(filled)))
