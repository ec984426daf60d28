"""NumPy's `.npy`: one array of integers. Its rows are documents.

The documents of a one-dimensional array end with the EOS token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax._util.atomic_files import convert_npy_errors, write_atomically
from tokjax.core import protocol
from tokjax.datasets.conversion.token_streams import (
    TokenStream,
    check_absent,
    make_stream,
    split_after,
    write_ids,
)
from tokjax.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from tokjax.datasets.dataset_types import TokenDataset


def read_npy(path: Path, tokenizer: Any) -> TokenStream:
    """Opens an `.npy` file.

    Raises:
        SourceError: the file is damaged, or is not one array of integers of one or two dimensions.
    """
    try:
        with convert_npy_errors():
            ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise SourceError(f"{path}: truncated, or not an .npy file: {error}") from error
    if not isinstance(ids, np.ndarray):
        raise SourceError(f"{path}: holds several arrays; save the array of ids as an .npy")
    return _split_rows(ids, path, tokenizer)


def write_npy(dataset: TokenDataset, target: Path, *, overwrite: bool) -> tuple[Path, ...]:
    """Writes the ids of a dataset as an array of one dimension, and returns the path of the file."""
    check_absent([target], overwrite=overwrite)
    dtype = np.dtype(dataset.manifest.plan.data_dtype)

    def write(file: BinaryIO) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (dataset.num_tokens,)})
        write_ids(file, dataset, dtype, 0, dataset.num_tokens)

    write_atomically(target, write)
    return (target,)


def _split_rows(ids: NDArray[Any], path: Path, tokenizer: Any) -> TokenStream:
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2):
        raise SourceError(
            f"{path}: holds {ids.dtype} of {ids.ndim} dimensions; expected integers of one or two dimensions"
        )
    if ids.ndim == 1:
        return make_stream(ids, split_after(ids, protocol.eos_id(tokenizer)))
    return make_stream(ids.reshape(-1), np.arange(len(ids) + 1) * ids.shape[1])
