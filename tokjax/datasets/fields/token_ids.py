"""Base classes of fields that store token ids, and the dtypes of stored ids."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokjax.core import protocol
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.datasets.columns import Column


@dataclass(frozen=True)
class StoredIds:
    """Base class of fields that store token ids.

    Attributes:
        DATA: name of the file of each shard that holds the ids.
        tokenizer: tokenizer that produces the ids.
    """

    DATA: ClassVar[str] = "tokens"

    tokenizer: Any

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """Dtype of the ids on disk: the smallest that holds every id of the vocabulary."""
        return token_dtype(protocol.vocab_size(self.tokenizer))

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The same as `data_dtype`."""
        return self.data_dtype

    @property
    def bytes_per_token(self) -> int:
        """Number of bytes of an id on disk."""
        return self.data_dtype.itemsize


@dataclass(frozen=True)
class StoredTokens(StoredIds):
    """Base class of built-in fields that store token ids.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        columns: side columns, with a value per token or per document.
    """

    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Returns the smallest of `uint8`, `uint16` and `uint32` that holds every id of a vocabulary.

    >>> token_dtype(65_536), token_dtype(65_537)
    (dtype('uint16'), dtype('uint32'))
    """
    return get_unsigned_dtype(vocab_size - 1)


def get_unsigned_dtype(largest: int) -> np.dtype[Any]:
    """Returns the smallest unsigned little-endian dtype that holds `largest`."""
    for dtype in ("u1", "<u2", "<u4", "<u8"):
        if largest <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise InvalidArgumentError(f"{largest} does not fit in 64 bits")
