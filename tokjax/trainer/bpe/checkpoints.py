"""Checkpoints of BPE training: the merges so far, and the symbols of all pre-tokens after them."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from tokjax._util.files import NotRegularFileError, read_arrays, write_atomically
from tokjax.errors import InvalidArgumentError
from tokjax.trainer.bpe.linked_symbols import Symbols

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_log = logging.getLogger("tokjax")
_VERSION = 1
_INTERVAL_SECONDS = 10.0


class Checkpoint(NamedTuple):
    """The state of BPE training after some merges.

    Attributes:
        id_merges: the merges, in order: left id, right id, and the id that the pair became.
        symbols: the pre-tokens after these merges.
    """

    id_merges: Sequence[tuple[int, int, int]]
    symbols: Symbols


class CheckpointFile:
    """File with the latest checkpoint of one training run. Writes are atomic.

    Args:
        path: path of the file.
        training: everything that the merges depend on, as JSON values. A file with other values is rejected.

    Attributes:
        path: path of the file.
        num_saved: number of merges in the file.
    """

    def __init__(self, path: Path, training: Mapping[str, Any]) -> None:
        self.path = path
        self.num_saved = 0
        self._training = {"version": _VERSION, **training}
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Returns whether the last write is long enough ago that the next is due."""
        return time.monotonic() - self._last >= _INTERVAL_SECONDS

    def try_to_save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint. If that fails, logs a warning, so that a full disk does not end training."""
        try:
            self.save(checkpoint)
        except OSError as error:
            _log.warning("the checkpoint %s could not be written: %s", self.path, error)
            self._last = time.monotonic()

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes a checkpoint."""
        id_merges, symbols = checkpoint
        columns: dict[str, Any] = {
            "training": np.frombuffer(json.dumps(self._training).encode("utf-8"), np.uint8),
            "made": np.array(id_merges, np.int32).reshape(-1, 3),
            **symbols._asdict(),
        }

        def write(file: BinaryIO) -> None:
            np.savez(file, **columns)

        write_atomically(self.path, write)
        self.num_saved = len(id_merges)
        self._last = time.monotonic()

    def load(self) -> Checkpoint | None:
        """Returns the checkpoint, or `None` if the file does not exist.

        Raises:
            InvalidArgumentError: the file is not a checkpoint, is damaged, or belongs to another training
                run.
        """
        if not self.path.exists():
            return None
        try:
            arrays = read_arrays(self.path)
            training = json.loads(arrays["training"].tobytes())
            id_merges = [(left, right, id_) for left, right, id_ in arrays["made"].tolist()]
            ids, lengths, counts = (arrays[name] for name in ("ids", "lengths", "counts"))
            symbols = Symbols(ids, lengths, counts, int(arrays["num_single"]))
            _check_symbols(symbols)
        except (ValueError, KeyError, TypeError, RecursionError, NotRegularFileError) as error:
            raise InvalidArgumentError(
                f"{self.path} is not a checkpoint, or is damaged: {error}; pass another path, or delete "
                "the file"
            ) from error
        if not isinstance(training, dict):
            raise InvalidArgumentError(
                f"{self.path} is not a checkpoint; pass another path, or delete the file"
            )
        for name, value in self._training.items():
            if training.get(name) != value:
                raise InvalidArgumentError(
                    f"{self.path} is a checkpoint of another training run: its {name} is "
                    f"{training.get(name)!r}, not {value!r}; pass another path, or delete the file"
                )
        self.num_saved = len(id_merges)
        return Checkpoint(id_merges, symbols)


def _check_symbols(symbols: Symbols) -> None:
    """Raises `ValueError` if the columns do not fit together."""
    columns = ((symbols.ids, np.int32), (symbols.lengths, np.int64), (symbols.counts, np.int64))
    if any(column.ndim != 1 or column.dtype != dtype for column, dtype in columns):
        raise ValueError("a column has the wrong shape or dtype")
    if len(symbols.lengths) != len(symbols.counts) or symbols.lengths.sum() != len(symbols.ids):
        raise ValueError("the lengths and counts of the pre-tokens do not match")
