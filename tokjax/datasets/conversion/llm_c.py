"""llm.c's `.bin`: a header of 1,024 bytes, then ids. Each document begins with a special token.

In files for GPT-2, this is the EOS token. Documents of a dataset end with it instead. So the first EOS token
of a file moves to its end, and all documents keep their positions and lengths:

    file        [0, 5, 6, 0, 7, 0, 8]     (0 is the EOS id)
    splits      [0,       3,    5,    7]
    dataset     [5, 6, 0, 7, 0, 8, 0]

llm.c cuts a corpus into files of equal size, so a file can begin inside of a document:

    file        [4, 0, 5, 6, 0, 7]
    splits      [0, 1,       4,    6]
    dataset     [4, 5, 6, 0, 7, 0]

In files for Llama 3, documents begin with the BOS token. There, ids are not moved.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.atomic_files import write_atomically
from tokjax.core import protocol
from tokjax.datasets.conversion.token_streams import (
    TokenStream,
    check_absent,
    find_positions,
    make_splits,
    make_stream,
    write_ids,
)
from tokjax.errors import InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset

_MAX_IDS = (1 << 31) - 1
"""Maximum number of ids in a file: the header stores it as `int32`."""


class _Header(NamedTuple):
    """Numbers at the start of a file, which determine the dtype of its ids.

    Attributes:
        magic: the first number.
        version: the second number.
        dtype: dtype of the ids.
    """

    magic: int
    version: int
    dtype: np.dtype[Any]


_NUMBERS = struct.Struct("<iii")
"""Magic, version and number of ids. Zeros follow."""
_HEADER_SIZE = 1024
_GPT_2 = _Header(20240520, 1, np.dtype("<u2"))
_LLAMA_3 = _Header(20240801, 7, np.dtype("<u4"))


def has_header(path: Path) -> bool:
    """Returns whether a file begins with a header of llm.c."""
    with path.open("rb") as file:
        numbers = file.read(_NUMBERS.size)
    return len(numbers) == _NUMBERS.size and _find_header(*_NUMBERS.unpack(numbers)[:2]) is not None


def _find_header(magic: int, version: int) -> _Header | None:
    return next((header for header in (_GPT_2, _LLAMA_3) if header[:2] == (magic, version)), None)


def read(path: Path, tokenizer: Any) -> TokenStream:
    """Opens a file of ids.

    Raises:
        SourceError: the file has no known header, or another size than the header indicates.
    """
    ids = _map_ids(path)
    whole = make_stream(ids, make_splits(np.zeros(0, np.int64), len(ids)))
    bos, eos = protocol.bos_id(tokenizer), protocol.eos_id(tokenizer)
    if bos is not None and bos != eos:
        positions = find_positions(whole.read, len(ids), bos)
        if positions.size:
            return make_stream(ids, make_splits(positions, len(ids)))
    positions = np.zeros(0, np.int64) if eos is None else find_positions(whole.read, len(ids), eos)
    splits = make_splits(positions, len(ids))
    if not positions.size:
        return whole
    moved = int(positions[0])

    def read_moved(start: int, stop: int) -> NDArray[Any]:
        """Returns ids of the file after its first EOS token was moved to the end."""
        parts = [ids[start : min(stop, moved)], ids[max(start, moved) + 1 : stop + 1]]
        if stop == len(ids):
            parts.append(ids[moved : moved + 1])
        return np.concatenate(parts)

    return TokenStream(read_moved, splits)


def _map_ids(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        head = file.read(_HEADER_SIZE)
    magic, version, count = _NUMBERS.unpack_from(head.ljust(_HEADER_SIZE, b"\0"))
    header = _find_header(magic, version)
    if header is None:
        raise SourceError(
            f"{path}: is not a token file of llm.c: it begins with the numbers {magic} and {version}, not "
            f"with {_GPT_2.magic} and {_GPT_2.version}, or {_LLAMA_3.magic} and {_LLAMA_3.version}"
        )
    nbytes, expected = path.stat().st_size, _HEADER_SIZE + count * header.dtype.itemsize
    if count < 0 or nbytes != expected:
        raise SourceError(
            f"{path}: has {nbytes} bytes, its header says {count} ids of {header.dtype}, which are "
            f"{expected} bytes; it is truncated or damaged"
        )
    return np.memmap(path, header.dtype, "r", _HEADER_SIZE) if count else np.zeros(0, header.dtype)


def write(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
    """Writes the ids of a dataset, and returns the path of the file.

    Raises:
        InvalidArgumentError: there are too many ids for the header, or the documents of the file would not be
            those of the dataset.
    """
    if dataset.num_tokens > _MAX_IDS:
        raise InvalidArgumentError(
            f"the dataset has {dataset.num_tokens:,} ids, and llm.c's header stores their number as int32, "
            f"up to {_MAX_IDS:,}; write the dataset in parts"
        )
    check_absent([target], overwrite=overwrite)
    header = _GPT_2 if dataset.vocab_size <= 1 << 16 else _LLAMA_3
    moved, eos = _find_moved_position(dataset), protocol.eos_id(dataset.tokenizer)

    def write(file: BinaryIO) -> None:
        numbers = _NUMBERS.pack(header.magic, header.version, dataset.num_tokens)
        file.write(numbers.ljust(_HEADER_SIZE, b"\0"))
        if moved is None:
            write_ids(file, dataset, header.dtype, 0, dataset.num_tokens)
            return
        write_ids(file, dataset, header.dtype, 0, moved)
        file.write(np.array([eos], header.dtype).tobytes())
        write_ids(file, dataset, header.dtype, moved, dataset.num_tokens - 1)

    write_atomically(target, write)
    return (target,)


def _find_moved_position(dataset: TokenDataset) -> int | None:
    """Returns the position in the file to which the last EOS token of a dataset moves, or `None`.

    Raises:
        InvalidArgumentError: the documents of the file would not be those of the dataset.
    """
    bos, eos = protocol.bos_id(dataset.tokenizer), protocol.eos_id(dataset.tokenizer)
    splits = dataset.document_splits
    empty = np.flatnonzero(dataset.document_lengths == 0)
    if empty.size:
        raise InvalidArgumentError(f"document {empty[0]} is empty, and llm.c's files have no empty documents")
    if bos is not None and bos != eos:
        positions = find_positions(dataset.read, dataset.num_tokens, bos)
        if positions.size:
            _check_bos(dataset, positions, bos)
            return None
    if eos is None:
        if dataset.num_documents > 1:
            raise InvalidArgumentError(
                "documents of llm.c begin with the BOS or the EOS token, and the tokenizer declares no EOS "
                "token; pass format='npy'"
            )
        return None
    positions = find_positions(dataset.read, dataset.num_tokens, eos)
    ends = splits[1:] - 1
    if not len(ends) or np.array_equal(positions, ends[1:]):
        return int(splits[1]) if len(ends) > 1 else None
    _check_eos(dataset, positions, eos)
    return 0


def _check_bos(dataset: TokenDataset, positions: NDArray[np.int64], bos: int) -> None:
    """Checks that BOS begins all documents, but maybe the first, and occurs nowhere else.

    The first document may be the end of one that began in another file.
    """
    begins = dataset.document_splits[:-1]
    if np.array_equal(positions, begins[int(positions[0] > 0) :]):
        return
    inside = np.setdiff1d(positions, begins)
    cause = (
        f"the id {bos} at index {inside[0]} is the BOS token, and no document begins there"
        if inside.size
        else f"document {np.flatnonzero(~np.isin(begins, positions))[-1]} does not begin with the BOS id "
        f"{bos}, and others do"
    )
    raise InvalidArgumentError(
        f"{cause}, so llm.c would find other documents; pass format='megatron', whose index has the documents"
    )


def _check_eos(dataset: TokenDataset, positions: NDArray[np.int64], eos: int) -> None:
    """Checks that EOS ends all documents, and occurs nowhere else."""
    splits = dataset.document_splits
    unended = np.setdiff1d(splits[2:] - 1, positions)
    if unended.size:
        row = int(np.searchsorted(splits, unended[-1], "right")) - 1
        raise InvalidArgumentError(
            f"document {row} ends with the id {dataset.document(row)[-1]}, not with the EOS id {eos}, so "
            "llm.c would not find where the next one begins; pass format='npy', or write the dataset with "
            "PackedTokenField(tokenizer, add_eos_between_docs=True)"
        )
    inside = np.setdiff1d(positions, splits[1:] - 1)
    if inside.size:
        row = int(np.searchsorted(splits, inside[0], "right")) - 1
        raise InvalidArgumentError(
            f"document {row} contains the EOS id {eos} before its end, so llm.c would find other documents; "
            "pass format='megatron', whose index has the documents"
        )
