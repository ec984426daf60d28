"""A file from which a long training goes on: the merges so far, and the words as they were after them."""

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
    """Training at some time.

    Attributes:
        made: each merge, in order: the ids of the pair, and the id that it became.
        symbols: the words after them.
    """

    made: Sequence[tuple[int, int, int]]
    symbols: Symbols


class CheckpointFile:
    """Where checkpoints of one training are. It is written whole or not at all, and replaces the one before.

    Args:
        path: the file.
        training: what decides the merges, as JSON values: a file of another training is refused.

    Attributes:
        path: the file.
        num_saved: how many merges it has.
    """

    def __init__(self, path: Path, training: Mapping[str, Any]) -> None:
        self.path = path
        self.num_saved = 0
        self._training = {"version": _VERSION, **training}
        self._last = time.monotonic()

    def is_due(self) -> bool:
        """Whether it was written long ago."""
        return time.monotonic() - self._last >= _INTERVAL_SECONDS

    def try_to_save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; where that fails (a full disk?), training goes on, and the log says so."""
        try:
            self.save(checkpoint)
        except OSError as error:
            _log.warning("the checkpoint %s could not be written: %s", self.path, error)
            self._last = time.monotonic()

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint."""
        made, symbols = checkpoint
        columns: dict[str, Any] = {
            "training": np.frombuffer(json.dumps(self._training).encode("utf-8"), np.uint8),
            "made": np.array(made, np.int32).reshape(-1, 3),
            **symbols._asdict(),
        }

        def write(file: BinaryIO) -> None:
            np.savez(file, **columns)

        write_atomically(self.path, write)
        self.num_saved = len(made)
        self._last = time.monotonic()

    def load(self) -> Checkpoint | None:
        """The checkpoint, or `None` where none was written yet.

        Raises:
            InvalidArgumentError: the file is no checkpoint, or damaged, or of another training.
        """
        if not self.path.exists():
            return None
        try:
            arrays = read_arrays(self.path)
            training = json.loads(arrays["training"].tobytes())
            made = [(left, right, id_) for left, right, id_ in arrays["made"].tolist()]
            ids, lengths, counts = (arrays[name] for name in ("ids", "lengths", "counts"))
            symbols = Symbols(ids, lengths, counts, int(arrays["num_single"]))
            _check_symbols(symbols)
        except (ValueError, KeyError, TypeError, RecursionError, NotRegularFileError) as error:
            raise InvalidArgumentError(
                f"{self.path} is no checkpoint, or damaged: {error}; pass another path, or delete it"
            ) from error
        if not isinstance(training, dict):
            raise InvalidArgumentError(f"{self.path} is no checkpoint; pass another path, or delete it")
        for name, value in self._training.items():
            if training.get(name) != value:
                raise InvalidArgumentError(
                    f"{self.path} is of another training: its {name} is {training.get(name)!r}, not {value!r}"
                    "; pass another path, or delete it"
                )
        self.num_saved = len(made)
        return Checkpoint(made, symbols)


def _check_symbols(symbols: Symbols) -> None:
    columns = ((symbols.ids, np.int32), (symbols.lengths, np.int64), (symbols.counts, np.int64))
    if any(column.ndim != 1 or column.dtype != dtype for column, dtype in columns):
        raise ValueError("a column is of another type")
    if len(symbols.lengths) != len(symbols.counts) or symbols.lengths.sum() != len(symbols.ids):
        raise ValueError("the words don't fit together")
