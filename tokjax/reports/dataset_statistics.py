"""Dataset reports: document lengths, and the share of padding for each padding and packing strategy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.display import short_repr
from tokjax._util.permutation import permute
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.dataset_types import BucketedDataset, PackedDataset, open_dataset
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.datasets.columns import Column

_MAX_MEASURED_DOCUMENTS = 1_000_000
_QUANTILES = {"shortest": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "longest": 1.0}


@dataclass(frozen=True)
class Padding:
    """Padding of batches that are made with one strategy.

    Attributes:
        strategy: description of the strategy.
        share: share of the positions that are padding, 0 to 1.
        shapes: number of distinct batch shapes; a jitted step compiles once for each.
    """

    strategy: str
    share: float
    shapes: int


@short_repr
@dataclass(frozen=True)
class DatasetReport:
    """Statistics of a dataset, made by `dataset_report`.

    Attributes:
        path: path or URL of the dataset.
        field: name of the field that the dataset stores.
        unit: unit of lengths: `"tokens"`, or `"bytes"` for a dataset of texts.
        num_documents: number of documents.
        num_items: number of tokens, or of bytes for texts.
        num_bytes: bytes of text that were encoded; 0 if unknown.
        num_cut: number of truncated documents, which were too long for the field.
        num_dropped: number of tokens or bytes that truncation removed.
        bytes_per_token: bytes of text per token, including the removed tokens; `None` if unknown.
        lengths: quantiles of the document lengths, in units: `"shortest"`, `"5%"`, `"median"`, `"95%"` and
            `"longest"`.
        batch_size: documents per batch for the measurement of padding.
        padding: padding for each strategy.
        sources: names and sizes in bytes of the source files; empty if unknown.
        columns: descriptions of the side columns.
        num_dropped_documents: number of documents that the field left out, because they train nothing.
    """

    path: str
    field: str
    unit: str
    num_documents: int
    num_items: int
    num_bytes: int
    num_cut: int
    num_dropped: int
    bytes_per_token: float | None
    lengths: dict[str, int]
    batch_size: int
    padding: tuple[Padding, ...]
    sources: tuple[tuple[str, int], ...]
    columns: tuple[Column, ...] = ()
    num_dropped_documents: int = 0


def dataset_report(
    dataset: Dataset | str | os.PathLike[str], *, batch_size: int = 32, seed: int = 0
) -> DatasetReport:
    """Measures a dataset. Reads only its index.

    Padding is measured for batches of shuffled documents, with four strategies: padded to the longest
    document of the dataset, padded to the longest document of each batch, padded to length buckets, and
    concatenated into chunks. For a dataset of more than a million documents, a random sample of one million
    is measured.

    Args:
        dataset: open dataset, or its directory or URL.
        batch_size: documents per batch.
        seed: seed of the shuffle.

    Raises:
        InvalidArgumentError: `dataset` is neither a dataset nor a path, or `batch_size` is below 1.
    """
    size = check_int("batch_size", batch_size, minimum=1)
    if isinstance(dataset, (str, os.PathLike)):
        dataset = open_dataset(dataset)
    if not isinstance(dataset, Dataset):
        raise InvalidArgumentError(
            f"dataset must be an open dataset or its path, not {dataset!r:.100}; open one with "
            "open_dataset(path)"
        )
    manifest = dataset.manifest
    lengths = dataset.document_lengths
    count = min(len(lengths), _MAX_MEASURED_DOCUMENTS)
    sampled = lengths.take(permute(np.arange(count), len(lengths), seed)) if count else lengths
    source = manifest.source or {}
    sources = source.get("files", [])
    if "converted" in source:
        sources = [(source["converted"], source["num_bytes"])]
    return DatasetReport(
        path=dataset.location,
        field=manifest.plan.field,
        unit="bytes" if manifest.plan.tokenizer_fingerprint is None else "tokens",
        num_documents=manifest.num_documents,
        num_items=manifest.num_items,
        num_bytes=manifest.num_bytes,
        num_cut=manifest.num_cut,
        num_dropped=manifest.num_dropped,
        bytes_per_token=manifest.bytes_per_token,
        lengths=compute_length_quantiles(lengths),
        batch_size=size,
        padding=_measure_padding(dataset, sampled, size),
        sources=tuple((str(name), int(nbytes)) for name, nbytes in sources),
        columns=dataset.columns,
        num_dropped_documents=manifest.num_dropped_documents,
    )


def compute_length_quantiles(lengths: NDArray[np.int64]) -> dict[str, int]:
    """Returns the minimum, median and maximum of lengths, and their 5% and 95% quantiles.

    Each quantile is the length of a document, the longer one if it falls between two documents. Without
    documents, all are 0.
    """
    if not len(lengths):
        return dict.fromkeys(_QUANTILES, 0)
    quantiles = np.quantile(lengths, list(_QUANTILES.values()), method="higher")
    return dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def _measure_padding(dataset: Dataset, lengths: NDArray[np.int64], batch_size: int) -> tuple[Padding, ...]:
    longest = int(lengths.max(initial=0))
    if not longest:
        return ()
    longest_by_batch = np.maximum.reduceat(lengths, np.arange(0, len(lengths), batch_size))
    # All batches have `batch_size` rows except the last one.
    num_rows = np.diff(np.arange(0, len(lengths) + batch_size, batch_size).clip(max=len(lengths)))
    boundaries = _get_boundaries(dataset, longest)
    padded = boundaries.take(np.searchsorted(boundaries, lengths))
    num_used = len(np.unique(padded))
    named_boundaries = ", ".join(f"{boundary:,}" for boundary in boundaries.tolist())
    total = int(lengths.sum())
    chunk = dataset.chunk_tokens if isinstance(dataset, PackedDataset) else longest
    return (
        Padding("padded to the longest document", 1 - total / (longest * len(lengths)), 1),
        Padding(
            "padded to the longest in the batch",
            1 - total / int((longest_by_batch[: len(num_rows)] * num_rows).sum()),
            len(np.unique(longest_by_batch)),
        ),
        Padding(f"length buckets {named_boundaries}", 1 - total / int(padded.sum()), num_used),
        Padding(f"packed in chunks of {chunk:,}", 1 - total / (-(-total // chunk) * chunk), 1),
    )


def _get_boundaries(dataset: Dataset, longest: int) -> NDArray[np.int64]:
    """Returns the bucket boundaries of a bucketed dataset, or powers of two for another dataset."""
    if isinstance(dataset, BucketedDataset):
        return np.array(dataset.bucket_boundaries, np.int64)
    powers = 2 ** np.arange(5, max(longest - 1, 1).bit_length() + 1)
    return np.append(powers[powers < longest], longest)
