"""What a dataset stores for each document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokjax import protocol
from tokjax._checks import checked_int
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax.protocol import Special


@dataclass(frozen=True)
class PackedTokenField:
    """Token ids of all documents, joined into one stream without padding.

    Where the tokenizer declares a BOS token, each document starts with it; with `add_eos_between_docs`
    each document, the last one too, ends with the EOS token.

    Attributes:
        tokenizer: makes the ids.
        chunk_tokens: how many ids a loader gives at once, unless it is told another number.
        add_eos_between_docs: end every document with the tokenizer's EOS token.
        allowed_special: special tokens that are recognised in documents: names, or `"all"`.
        disallowed_special: special tokens that are refused in documents, as in `encode_batch_result`.
    """

    TYPE_ID: ClassVar[int] = 42

    tokenizer: Any
    chunk_tokens: int = 4096
    add_eos_between_docs: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Check the options, and that the tokenizer has the EOS token that they need."""
        object.__setattr__(self, "chunk_tokens", checked_int("chunk_tokens", self.chunk_tokens, least=1))
        object.__setattr__(self, "add_eos_between_docs", bool(self.add_eos_between_docs))
        if self.add_eos_between_docs:
            protocol.vocabulary_of(self.tokenizer).require_role(
                "eos", "PackedTokenField(add_eos_between_docs=True)"
            )

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The dtype of the ids on disk."""
        return token_dtype(protocol.vocab_size(self.tokenizer))

    @property
    def options(self) -> dict[str, Any]:
        """What the manifest records of the field."""
        return {
            "chunk_tokens": self.chunk_tokens,
            "add_eos_between_docs": self.add_eos_between_docs,
            "allowed_special": _listed(self.allowed_special),
            "disallowed_special": _listed(self.disallowed_special),
        }


def _listed(special: Special) -> str | list[str]:
    return special if isinstance(special, str) else sorted(special)


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest of `uint8`, `uint16` and `uint32` that holds every id of a vocabulary.

    >>> token_dtype(65_536), token_dtype(65_537)
    (dtype('uint16'), dtype('uint32'))
    """
    return smallest_unsigned(vocab_size - 1)


def smallest_unsigned(largest: int) -> np.dtype[Any]:
    """The smallest unsigned little-endian dtype that holds `largest`."""
    for dtype in ("u1", "<u2", "<u4", "<u8"):
        if largest <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise InvalidArgumentError(f"{largest} does not fit 64 bits")
