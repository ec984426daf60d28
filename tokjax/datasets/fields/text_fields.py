"""Fields of texts: stored as the ids of a stream, of documents or of buckets, or as they are."""

from __future__ import annotations

import codecs
import dataclasses
from bisect import bisect_left
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core import protocol
from tokjax.datasets.fields.base import StoredTokens, as_boundaries, get_options, set_options
from tokjax.errors import InvalidArgumentError
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.core.encode_options import Special
    from tokjax.datasets.columns import Column


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
        set_options(self)
        if self.add_eos_between_docs:
            protocol.get_vocabulary(self.tokenizer).require_role(
                "eos", "PackedTokenField(add_eos_between_docs=True)"
            )


@dataclass(frozen=True)
class BucketedTokenField(StoredTokens):
    """Token ids of each document, with documents of similar length stored together.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        bucket_boundaries: maximum number of ids per document of each bucket, for instance a `LengthBuckets`.
            They are sorted, and `max_tokens` is appended as the last boundary.
        max_tokens: maximum number of ids per document, including special tokens. Longer documents are
            truncated at their end.
        add_special_tokens: whether to apply the tokenizer's template to each document.
        allowed_special: special tokens that are recognized in documents: names, or `"all"`.
        disallowed_special: special tokens that raise an error in documents, as in `encode_batch_result`.
        columns: side columns: values per token or per document.
    """

    TYPE_ID: ClassVar[int] = 43

    bucket_boundaries: Sequence[int] = (64, 128, 256, 512, 1024, 2048)
    max_tokens: int = 4096
    add_special_tokens: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Checks the options, and sorts the boundaries."""
        set_options(self)
        value, maximum = as_boundaries(self.bucket_boundaries), self.max_tokens
        too_large = [boundary for boundary in value if boundary > maximum]
        if too_large:
            raise InvalidArgumentError(f"bucket_boundaries has {min(too_large)}, above max_tokens={maximum}")
        object.__setattr__(self, "bucket_boundaries", tuple(sorted(value | {maximum})))

    def get_bucket_id(self, length: int) -> int:
        """Returns the index of the bucket for documents of `length` ids.

        That is the first bucket whose boundary is at least `length`. Longer documents, which are truncated to
        `max_tokens`, are in the last bucket.

        Raises:
            InvalidArgumentError: `length` is negative.
        """
        length = min(check_int("length", length, minimum=0), self.max_tokens)
        return bisect_left(self.bucket_boundaries, length)


@dataclass(frozen=True)
class TokenizedTextField(StoredTokens):
    """Token ids of each document, including the special tokens that the tokenizer adds.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        max_tokens: maximum number of ids per document, including special tokens. Longer documents are
            truncated at their end; `None` for no limit.
        add_special_tokens: whether to apply the tokenizer's template to each document.
        allowed_special: special tokens that are recognized in documents: names, or `"all"`.
        disallowed_special: special tokens that raise an error in documents, as in `encode_batch_result`.
        columns: side columns: values per token or per document.
    """

    TYPE_ID: ClassVar[int] = 41

    max_tokens: int | None = 2048
    add_special_tokens: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Checks the options."""
        set_options(self)


@dataclass(frozen=True)
class SentencePieceTextField(TokenizedTextField):
    """Token ids of each document from a SentencePiece model, otherwise as in `TokenizedTextField`.

    Attributes:
        tokenizer: path of a `.model` file, its contents, or a `SentencePieceTokenizer`.
    """

    TYPE_ID: ClassVar[int] = 44

    def __post_init__(self) -> None:
        """Loads the model, and checks the options."""
        if not isinstance(self.tokenizer, SentencePieceTokenizer):
            object.__setattr__(self, "tokenizer", sentencepiece(self.tokenizer))
        super().__post_init__()


@dataclass(frozen=True)
class RawTextField:
    """Texts in UTF-8, stored unchanged. They are tokenized when they are loaded, by any tokenizer.

    Attributes:
        max_chars: maximum number of characters, to which longer texts are truncated; `None` for no limit.
        encoding: encoding of the stored texts. Only UTF-8 is valid, and it is not stored as an option.
        columns: side columns, with a value per document.
    """

    TYPE_ID: ClassVar[int] = 40
    DATA: ClassVar[str] = "text"
    tokenizer: ClassVar[None] = None

    max_chars: int | None = 100_000
    encoding: InitVar[str] = "utf-8"
    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self, encoding: str) -> None:
        """Checks the options."""
        set_options(self)
        if not _is_utf8(encoding):
            raise InvalidArgumentError(
                f"encoding is {encoding!r}, and texts are stored as UTF-8; omit it, and decode bytes of "
                "another encoding first: (text.decode(ENCODING) for text in TEXTS)"
            )

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """Dtype of the stored bytes, `uint8`."""
        return np.dtype(np.uint8)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return get_options(self)


def _is_utf8(encoding: object) -> bool:
    try:
        return isinstance(encoding, str) and codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        return False
