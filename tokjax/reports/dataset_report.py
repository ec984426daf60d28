"""What a dataset is like: lengths, and how much of a batch would be padding, by every way to pad or pack."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_int
from tokjax._util.files import write_atomically
from tokjax._util.permutation import permute
from tokjax.datasets.dataset import Dataset
from tokjax.datasets.dataset_types import BucketedDataset, PackedDataset
from tokjax.datasets.opening import open_dataset
from tokjax.errors import InvalidArgumentError
from tokjax.reports.html_report import render_page
from tokjax.reports.plots import plot_document_lengths, plot_padding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MAX_MEASURED_DOCUMENTS = 1_000_000
_QUANTILES = {"shortest": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "longest": 1.0}


class Padding(NamedTuple):
    """How much of batches would be padding.

    Attributes:
        strategy: how they are made.
        share: the share of places that hold no token.
        shapes: how many different shapes they have, each of which a step compiles for.
    """

    strategy: str
    share: float
    shapes: int


@dataclass(frozen=True)
class DatasetReport:
    """What a dataset is like. Make one with `dataset_report`.

    Attributes:
        path: the dataset's, or its URL.
        field: what is stored.
        unit: what lengths are counted in: `"tokens"`, or of texts `"bytes"`.
        num_documents: how many documents there are.
        num_items: how many tokens, or bytes.
        num_bytes: bytes of text that were encoded; 0 where that is not known.
        num_cut: documents that were too long for the field, and cut.
        num_dropped: tokens, or bytes, that were cut off from them.
        bytes_per_token: bytes of text for each token, those that were cut off among them; `None` where that
            is not known.
        lengths: the shortest, the longest, and lengths that so many documents do not exceed.
        bins: where the bins of the histogram of lengths begin, and the last one ends.
        counts: how many documents are in each bin.
        batch_size: documents a batch, as padding is measured.
        padding: how much of batches would be padding.
        sources: the files that the documents came from, with their sizes; empty where that is not known.
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
    bins: tuple[int, ...]
    counts: tuple[int, ...]
    batch_size: int
    padding: tuple[Padding, ...]
    sources: tuple[tuple[str, int], ...]


def dataset_report(
    dataset: Dataset | str | os.PathLike[str], *, batch_size: int = 32, seed: int = 0
) -> DatasetReport:
    """Measures a dataset: only its index is read.

    Padding is what batches of shuffled documents would have: padded to the longest document of all, to the
    longest of each batch, to a length bucket, or packed end to end. Of more than a million documents a
    random million is measured.

    Args:
        dataset: an open dataset, or the directory or URL of one.
        batch_size: documents a batch.
        seed: names the order in which they are shuffled.
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
    bins = _compute_bins(int(lengths.max(initial=1)))
    counts = np.histogram(lengths, bins)[0]
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
        bins=tuple(bins.tolist()),
        counts=tuple(counts.tolist()),
        batch_size=size,
        padding=_measure_padding(dataset, _sample_lengths(lengths, seed), size),
        sources=tuple((str(name), int(nbytes)) for name, nbytes in sources),
    )


def dataset_report_to_json(report: DatasetReport) -> dict[str, Any]:
    """A report as plain JSON values, under the names of its attributes."""
    described = asdict(report)
    described["padding"] = [padding._asdict() for padding in report.padding]
    return described


def save_dataset_report_html(report: DatasetReport, path: str | os.PathLike[str]) -> Path:
    """Write a report as a page, whole or not at all: one file of HTML, without scripts, that loads nothing.

    Returns:
        The path of the file.

    Raises:
        MissingExtraError: matplotlib or jinja2 is not installed; `pip install 'tokjax[report]'`.
    """
    plots = [
        (
            "Lengths",
            f"Documents by their length in {report.unit}.",
            plot_document_lengths(report.bins, report.counts, report.unit),
        ),
        (
            "Padding",
            f"Of batches of {report.batch_size} documents of this very dataset, shuffled.",
            plot_padding([(each.strategy, each.share) for each in report.padding]),
        ),
    ]
    page = render_page("dataset.html", report=report, plots=plots).encode("utf-8")
    target = Path(path)
    write_atomically(target, lambda file: file.write(page))
    return target


def _compute_bins(longest: int) -> NDArray[np.int64]:
    """Bins that double, each in four."""
    edges = np.unique(np.round(2 ** (np.arange(0, 4 * (longest.bit_length() + 1)) / 4)).astype(np.int64))
    last = int(np.searchsorted(edges, longest, "right"))
    return np.concatenate([np.zeros(1, np.int64), edges[: last + 1]])


def compute_length_quantiles(lengths: NDArray[np.int64]) -> dict[str, int]:
    """Returns the shortest, the median and the longest of lengths, and the 5% and 95% quantiles.

    Each is the length of a document: of two that are equally near, the longer. All are 0 without documents.
    """
    if not len(lengths):
        return dict.fromkeys(_QUANTILES, 0)
    quantiles = np.quantile(lengths, list(_QUANTILES.values()), method="higher")
    return dict(zip(_QUANTILES, quantiles.tolist(), strict=True))


def _sample_lengths(lengths: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    count = min(len(lengths), _MAX_MEASURED_DOCUMENTS)
    return lengths.take(permute(np.arange(count), len(lengths), seed)) if count else lengths


def _measure_padding(dataset: Dataset, lengths: NDArray[np.int64], batch_size: int) -> tuple[Padding, ...]:
    longest = int(lengths.max(initial=0))
    if not longest:
        return ()
    longest_by_batch = np.maximum.reduceat(lengths, np.arange(0, len(lengths), batch_size))
    rows = np.diff(np.arange(0, len(lengths) + batch_size, batch_size).clip(max=len(lengths)))
    boundaries = _get_boundaries(dataset, longest)
    padded = boundaries.take(np.searchsorted(boundaries, lengths))
    used = len(np.unique(padded))
    total = int(lengths.sum())
    chunk = dataset.chunk_tokens if isinstance(dataset, PackedDataset) else longest
    return (
        Padding("padded to the longest of all", 1 - total / (longest * len(lengths)), 1),
        Padding(
            "padded to the longest of a batch",
            1 - total / int((longest_by_batch[: len(rows)] * rows).sum()),
            len(np.unique(longest_by_batch)),
        ),
        Padding(f"buckets of {_format_boundaries(boundaries)}", 1 - total / int(padded.sum()), used),
        Padding(f"packed in chunks of {chunk:,}", 1 - total / (-(-total // chunk) * chunk), 1),
    )


def _get_boundaries(dataset: Dataset, longest: int) -> NDArray[np.int64]:
    """The dataset's own, or powers of two."""
    if isinstance(dataset, BucketedDataset):
        return np.array(dataset.bucket_boundaries, np.int64)
    powers = 2 ** np.arange(5, max(longest - 1, 1).bit_length() + 1)
    return np.append(powers[powers < longest], longest)


def _format_boundaries(boundaries: Sequence[int] | NDArray[np.int64]) -> str:
    return ", ".join(f"{int(boundary):,}" for boundary in boundaries)
