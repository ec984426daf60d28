"""nanoGPT's `.bin`: `uint16` ids without a header. Documents end with the EOS token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.atomic_files import write_atomically
from tokjax.core import protocol
from tokjax.datasets.conversion.formats import OTHER_WAYS
from tokjax.datasets.conversion.token_streams import (
    TokenStream,
    check_absent,
    make_stream,
    split_after,
    write_ids,
)
from tokjax.errors import InvalidArgumentError, SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset

_DTYPE = np.dtype("<u2")
_LLM_C_HEADERS = [number.to_bytes(4, "little") for number in (20240520, 20240801)]
"""First bytes of llm.c's files for GPT-2 and for Llama 3."""
_INSPECTED_IDS = 1 << 16
_MIN_INSPECTED_IDS = 64
"""Number of ids from which a regular pattern is no coincidence."""


def read(path: Path, tokenizer: Any) -> TokenStream:
    """Opens a file of ids.

    Raises:
        SourceError: the file has an odd number of bytes, or the header of llm.c, or ids of another dtype.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) in _LLM_C_HEADERS:  # (read as uint16 ids, the header would be noise)
            raise SourceError(f"{path}: begins with a header of llm.c; {OTHER_WAYS['llm.c']}")
    if size % 2:
        raise SourceError(
            f"{path}: has {size} bytes, an odd number, so it does not hold uint16 ids; it is truncated, or "
            "has another format"
        )
    ids = np.memmap(path, _DTYPE, "r") if size else np.zeros(0, _DTYPE)
    _reject_uint32(ids[:_INSPECTED_IDS], protocol.vocab_size(tokenizer), path)
    return make_stream(ids, split_after(ids, protocol.eos_id(tokenizer)))


def _reject_uint32(numbers: NDArray[np.uint16], vocab_size: int, path: Path) -> None:
    """Raises `SourceError` for the first ids of a file if they are probably `uint32`.

    Read as `uint16`, each of them is its low half, and its high half, which is small: 7, 0 is the id 7.
    """
    maximum = (vocab_size - 1) >> 16
    low, high = numbers[::2], numbers[1::2]
    if len(numbers) >= _MIN_INSPECTED_IDS and high.max() <= maximum < np.median(low):
        raise SourceError(
            f"{path}: every second of its first {len(numbers):,} numbers is at most {maximum}, so its ids "
            "are probably uint32, and files of nanoGPT are uint16; convert the file that "
            f"numpy.save('ids.npy', numpy.fromfile({str(path)!r}, 'uint32')) writes"
        )


def write(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
    """Writes the ids of a dataset, and returns the path of the file.

    Raises:
        InvalidArgumentError: `uint16` does not hold all ids of the vocabulary.
    """
    if np.dtype(dataset.manifest.plan.data_dtype).itemsize > 2:
        raise InvalidArgumentError(
            f"nanoGPT's files are uint16, and the vocabulary has {dataset.vocab_size:,} ids; pass "
            "format='megatron' or 'npy'"
        )
    check_absent([target], overwrite=overwrite)
    write_atomically(target, lambda file: write_ids(file, dataset, _DTYPE, 0, dataset.num_tokens))
    return (target,)
