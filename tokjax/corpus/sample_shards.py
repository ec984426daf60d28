"""Shards of samples, the layout that MosaicML Streaming and litdata share.

All numbers are little-endian:

    number of samples       uint32
    offsets                 uint32, one for each sample, and the end of the last
    description             bytes up to the first offset
    samples                 the sizes of values (uint32), then the values
"""

from __future__ import annotations

import itertools
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from tokjax._util.urls import get_path_or_url
from tokjax.corpus.decompression import report_damage
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

_MAX_SAMPLES = 1 << 26
_MAX_DESCRIPTION_BYTES = 1 << 20
_MAX_SAMPLE_BYTES = 1 << 28


class Shard(NamedTuple):
    """Open shard.

    Attributes:
        path: the path of the shard.
        stream: the decompressed file.
        offsets: the position of each sample, and the end of the last, `int64`, shape `(samples + 1,)`.
        description: the bytes before the first sample.
    """

    path: Path
    stream: BinaryIO
    offsets: NDArray[np.int64]
    description: bytes

    @property
    def num_samples(self) -> int:
        """The number of samples."""
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """The size in bytes before compression."""
        return int(self.offsets[-1])


@contextmanager
def open_shard(path: Path, opened: AbstractContextManager[tuple[BinaryIO, BinaryIO]]) -> Iterator[Shard]:
    """Opens a shard, and checks its offsets.

    Args:
        path: the path of the shard.
        opened: the file and the stream of its decompressed contents, as of `open_decompressed`.

    Raises:
        SourceError: the shard is damaged.
    """
    with opened as (file, stream):
        with report_damage(path):
            (count,) = struct.unpack("<I", _read_exactly(stream, 4, path))
            if count > _MAX_SAMPLES:
                raise make_damage_error(path, f"it has {count:,} samples, more than {_MAX_SAMPLES:,}")
            offsets = np.frombuffer(_read_exactly(stream, 4 * (count + 1), path), "<u4").astype(np.int64)
            nbytes = int(offsets[0]) - 4 * (count + 2)
            lengths = np.diff(offsets)
            if not 0 <= nbytes <= _MAX_DESCRIPTION_BYTES or (lengths < 0).any():
                raise make_damage_error(path, "its offsets are inconsistent")
            if (lengths > _MAX_SAMPLE_BYTES).any():
                raise SourceError(
                    f"{get_path_or_url(path)}: sample {lengths.argmax()} has {lengths.max():,} bytes, and at "
                    f"most {_MAX_SAMPLE_BYTES:,} are read"
                )
            description = _read_exactly(stream, nbytes, path)
        if stream is file and path.stat().st_size != offsets[-1]:
            raise make_damage_error(path, f"its samples end at byte {offsets[-1]} of {path.stat().st_size}")
        yield Shard(path, stream, offsets, description)


def iter_samples(shard: Shard, start: int, stop: int) -> Iterator[tuple[str, bytes]]:
    """Yields `(location, sample)` for the samples `[start, stop)` of a shard.

    Raises:
        SourceError: the shard is damaged.
    """
    name = get_path_or_url(shard.path)
    offsets = shard.offsets[start : stop + 1].tolist()
    with report_damage(shard.path):
        shard.stream.seek(offsets[0])
    for row, (begin, end) in enumerate(itertools.pairwise(offsets), start):
        with report_damage(shard.path):
            sample = _read_exactly(shard.stream, end - begin, shard.path)
        yield f"{name}, sample {row}", sample
    if stop == shard.num_samples:
        with report_damage(shard.path):  # (the checksum of a compressed file is at its end)
            if shard.stream.read(1):
                raise make_damage_error(shard.path, "data follow its samples")


def split_values(sample: bytes, fixed_sizes: Sequence[int | None], location: str) -> list[bytes]:
    """Returns the values of a sample.

    Args:
        sample: the sizes of values of variable size, and all values.
        fixed_sizes: the size of each value in bytes; `None` if it varies.
        location: the location of the sample, for errors.

    Raises:
        SourceError: the sample has another size.
    """
    num_variable = fixed_sizes.count(None)
    position = 4 * num_variable
    if position > len(sample):
        raise SourceError(f"{location}: is damaged: it has {len(sample)} bytes")
    variable = iter(struct.unpack_from(f"<{num_variable}I", sample))
    values = []
    for fixed in fixed_sizes:
        size = next(variable) if fixed is None else fixed
        values.append(sample[position : position + size])
        position += size
    if position != len(sample):
        raise SourceError(f"{location}: is damaged: its values have {position} bytes, and it {len(sample)}")
    return values


def make_damage_error(path: Path, cause: str) -> SourceError:
    """Returns the error for a damaged shard."""
    return SourceError(f"{get_path_or_url(path)}: truncated or damaged, or not a shard of samples: {cause}")


def _read_exactly(stream: BinaryIO, nbytes: int, path: Path) -> bytes:
    data = stream.read(nbytes)
    if len(data) < nbytes:
        raise make_damage_error(path, "it ends too early")
    return data
