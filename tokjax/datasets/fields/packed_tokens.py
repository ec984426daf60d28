"""`PackedTokenField`: the token ids of all documents in one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tokjax._util.checks import check_int
from tokjax.core import protocol
from tokjax.datasets.fields.options import get_special_options, set_columns, set_special
from tokjax.datasets.fields.token_ids import StoredTokens

if TYPE_CHECKING:
    from tokjax.core.protocol import Special


@dataclass(frozen=True)
class PackedTokenField(StoredTokens):
    """Token ids of all documents, concatenated into one stream without padding.

    If the tokenizer declares a BOS token, each document starts with it. With `add_eos_between_docs`, each
    document ends with the EOS token, including the last.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        chunk_tokens: number of ids that a loader returns per chunk by default.
        add_eos_between_docs: whether to end each document with the tokenizer's EOS token.
        allowed_special: special tokens that are recognized in documents: names, or `"all"`.
        disallowed_special: special tokens that raise an error in documents, as in `encode_batch_result`.
        columns: side columns: values per token or per document.
    """

    TYPE_ID: ClassVar[int] = 42

    chunk_tokens: int = 4096
    add_eos_between_docs: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Checks the options, and that the tokenizer has an EOS token if one is needed."""
        set_columns(self)
        object.__setattr__(self, "chunk_tokens", check_int("chunk_tokens", self.chunk_tokens, minimum=1))
        object.__setattr__(self, "add_eos_between_docs", bool(self.add_eos_between_docs))
        set_special(self)
        if self.add_eos_between_docs:
            protocol.get_vocabulary(self.tokenizer).require_role(
                "eos", "PackedTokenField(add_eos_between_docs=True)"
            )

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {
            "chunk_tokens": self.chunk_tokens,
            "add_eos_between_docs": self.add_eos_between_docs,
            **get_special_options(self),
        }
