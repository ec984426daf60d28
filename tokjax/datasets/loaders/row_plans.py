"""Plans of packed rows: which documents are in which row, computed from lengths alone and kept on disk.

Documents are shuffled, and each window of consecutive documents is packed on its own. So the plan of a
billion documents needs the memory of one window, and a row has documents from everywhere in the corpus.
Example: `best_fit`, rows of 8 tokens, windows of 3 documents:

    document     0  1  2  3  4  5        length    5  8  3  2  4  7
    shuffled     4  0  2 | 5  3  1       length    4  5  3 | 7  2  8
    rows         [0 2] [4] | [5] [3] [1]

A row is a range of *pieces*. A piece is a document, or a part of one, and has 16 bytes: its first token, its
document and its length. Loading a row reads the pieces of this row only.

With a directory, the plan is written to files there, which are memory-mapped, and which later runs and
other processes use again. The name of the files is a digest of everything that determines the plan.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from tokjax._util.atomic_files import compute_file_sha256, read_regular, write_files_atomically
from tokjax._util.display import show_progress_bar
from tokjax._util.permutation import permute
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.errors import InvalidArgumentError
from tokjax.packing.plans import plan_packing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset
    from tokjax.packing.plans import Overlong, Strategy

PIECE_DTYPE = np.dtype([("start", "<u8"), ("document", "<u4"), ("length", "<u4")])
_VERSION = 1


class PlanOptions(NamedTuple):
    """Everything that determines a plan, apart from the documents. All values are plain JSON.

    Attributes:
        block_size: number of slots of a row.
        strategy: strategy of `plan_packing`.
        window: number of documents that are packed together.
        overlong: treatment of documents that are longer than a row, as in `plan_packing`.
        max_segments: maximum number of pieces of a row, or `None`.
        seed: seed of the shuffle of the documents; `None` for the order of the datasets.
    """

    block_size: int
    strategy: Strategy
    window: int
    overlong: Overlong
    max_segments: int | None
    seed: int | None


class RowPlan(NamedTuple):
    """Rows of pieces of documents.

    Attributes:
        pieces: pieces sorted by row, `PIECE_DTYPE`, shape `(pieces,)`. `start` counts the tokens of all
            datasets together, `document` their documents.
        row_splits: first piece of each row, and the end, `int64`, shape `(rows + 1,)`.
    """

    pieces: NDArray[Any]
    row_splits: NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.row_splits) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a plan in files as the paths of its files."""
        if isinstance(self.pieces, np.memmap) and isinstance(self.row_splits, np.memmap):
            return _map_plan, (Path(str(self.pieces.filename)), Path(str(self.row_splits.filename)))
        return RowPlan, tuple(self)

    def select(self, rows: NDArray[np.int64]) -> RowPlan:
        """Returns the plan of some rows, in the order given."""
        first = self.row_splits[rows]
        counts = self.row_splits[rows + 1] - first
        return RowPlan(self.pieces[concatenate_ranges(first, counts)], make_row_splits(counts))


def load_plan(
    datasets: Sequence[TokenDataset], options: PlanOptions, directory: Path | None, *, progress: bool
) -> RowPlan:
    """Makes the plan of the documents of datasets, or opens the files of one that was made before.

    Args:
        datasets: datasets whose documents are planned together.
        options: options of the plan.
        directory: directory of plans; `None` to keep the plan in memory.
        progress: whether to show a progress bar on standard error while a plan is made.

    Raises:
        InvalidArgumentError: a document is too long.
    """
    windows = _plan_windows(datasets, options, progress=progress)
    if directory is None:
        parts = list(windows)
        pieces = np.concatenate([np.zeros(0, PIECE_DTYPE), *(part for part, _ in parts)])
        counts = np.concatenate([np.zeros(0, np.int64), *(row_counts for _, row_counts in parts)])
        return RowPlan(pieces, make_row_splits(counts))
    files = _PlanFiles(directory, [dataset.fingerprint for dataset in datasets], options)
    if not files.are_valid():
        files.write(windows)
    return files.open()


def _plan_windows(
    datasets: Sequence[TokenDataset], options: PlanOptions, *, progress: bool
) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
    """Yields the plans of all windows: pieces, and the number of pieces of each row."""
    splits = _read_document_splits(datasets)
    count = len(splits) - 1
    with show_progress_bar("planning", count, unit="documents", enabled=progress) as advance:
        for first in range(0, count, options.window):
            documents = np.arange(first, min(first + options.window, count))
            if options.seed is not None:
                documents = permute(documents, count, options.seed)
            yield _plan_window(documents, splits, options)
            advance(len(documents))


def _plan_window(
    documents: NDArray[np.int64], splits: NDArray[np.int64], options: PlanOptions
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Packs the documents of one window.

    Args:
        documents: documents of the window, in the order in which they are packed.
        splits: first token of each document, and the end of the last one.
        options: options of the plan.

    Returns:
        Pieces sorted by row, and the number of pieces of each row. Documents without tokens have none.
    """
    lengths = splits[documents + 1] - splits[documents]
    documents, lengths = documents[lengths > 0], lengths[lengths > 0]
    if not len(documents):
        return np.zeros(0, PIECE_DTYPE), np.zeros(0, np.int64)
    if options.overlong == "error" and options.strategy != "concat":
        _reject_overlong(documents, lengths, options.block_size)
    plan = plan_packing(
        lengths,
        options.block_size,
        options.strategy,
        max_segments=options.max_segments,
        overlong=options.overlong,
    )
    pieces = np.empty(len(plan.lengths), PIECE_DTYPE)
    pieces["document"] = documents[plan.documents]
    pieces["start"] = splits[pieces["document"]] + plan.starts
    pieces["length"] = plan.lengths
    return pieces, np.bincount(plan.assignments, minlength=plan.num_blocks)


def _reject_overlong(documents: NDArray[np.int64], lengths: NDArray[np.int64], block_size: int) -> None:
    """Raises the error of `plan_packing` with the number of the document in the datasets."""
    longest = int(lengths.argmax())
    if lengths[longest] > block_size:
        raise InvalidArgumentError(
            f"document {documents[longest]} has {lengths[longest]} tokens, more than a row of {block_size} "
            "holds; pass overlong='split' or 'truncate', or a larger block_size"
        )


def _read_document_splits(datasets: Sequence[TokenDataset]) -> NDArray[np.int64]:
    """Returns the first token of each document of all datasets, and the end: 8 bytes for each document."""
    splits: NDArray[np.int64] = np.zeros(sum(dataset.num_documents for dataset in datasets) + 1, np.int64)
    first = 1
    for dataset in datasets:
        dataset.fill_document_lengths(splits[first : first + dataset.num_documents])
        first += dataset.num_documents
    np.cumsum(splits, out=splits)
    return splits


class _PlanFiles:
    """Files of a plan in a directory: `plan-DIGEST.pieces`, `plan-DIGEST.rows` and `plan-DIGEST.json`.

    The last one has the sizes and checksums of the others and is written last, so a plan whose writer was
    killed is made again.
    """

    def __init__(self, directory: Path, fingerprints: list[str], options: PlanOptions) -> None:
        identity = [_VERSION, fingerprints, list(options)]
        digest = hashlib.sha256(json.dumps(identity).encode("ascii")).hexdigest()[:16]
        self._pieces, self._rows, self._record = (
            directory / f"plan-{digest}.{suffix}" for suffix in ("pieces", "rows", "json")
        )
        self._identity = identity

    def are_valid(self) -> bool:
        """Returns whether there is a complete plan. Compares the checksums of its files."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(read_regular(self._record))
            return bool(
                record["identity"] == self._identity
                and record["pieces_sha256"] == compute_file_sha256(self._pieces)
                and record["rows_sha256"] == compute_file_sha256(self._rows)
            )
        return False

    def write(self, windows: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]) -> None:
        """Writes the plan, one window after the other."""
        self._record.parent.mkdir(parents=True, exist_ok=True)
        checksums: dict[str, str] = {}
        num_pieces: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]

        def iterate_pieces() -> Iterator[NDArray[Any]]:
            for pieces, row_counts in windows:
                num_pieces.append(row_counts)
                yield pieces

        def write_rows(file: BinaryIO) -> None:
            row_splits = np.cumsum(np.concatenate(num_pieces), dtype="<i8")
            checksums["rows_sha256"] = _write_arrays(file, [row_splits])

        def write_pieces(file: BinaryIO) -> None:
            checksums["pieces_sha256"] = _write_arrays(file, iterate_pieces())

        def write_record(file: BinaryIO) -> None:
            file.write(json.dumps({"identity": self._identity, **checksums}, indent=2).encode("ascii"))

        files: list[tuple[Path, Callable[[BinaryIO], object]]] = [
            (self._pieces, write_pieces),
            (self._rows, write_rows),
            (self._record, write_record),
        ]
        write_files_atomically(files)

    def open(self) -> RowPlan:
        """Memory-maps the plan."""
        if not self._pieces.stat().st_size:
            return RowPlan(np.zeros(0, PIECE_DTYPE), np.zeros(1, np.int64))
        return _map_plan(self._pieces, self._rows)


def _map_plan(pieces: Path, rows: Path) -> RowPlan:
    row_splits: Any = np.memmap(rows, "<i8", "r")
    return RowPlan(np.memmap(pieces, PIECE_DTYPE, "r"), row_splits)


def _write_arrays(file: BinaryIO, arrays: Iterator[NDArray[Any]] | list[NDArray[Any]]) -> str:
    """Writes the bytes of arrays and returns their SHA-256."""
    digest = hashlib.sha256()
    for array in arrays:
        data = array.tobytes()
        digest.update(data)
        file.write(data)
    return digest.hexdigest()
