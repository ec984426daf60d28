"""`BucketedTokenField`: documents of similar length are stored together."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tokjax._util.checks import check_int
from tokjax.datasets.fields.options import as_boundaries, get_special_options, set_columns, set_special
from tokjax.datasets.fields.token_ids import StoredTokens
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.core.protocol import Special


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
        set_columns(self)
        maximum = check_int("max_tokens", self.max_tokens, minimum=1)
        value = as_boundaries(self.bucket_boundaries)
        too_large = [boundary for boundary in value if boundary > maximum]
        if too_large:
            raise InvalidArgumentError(f"bucket_boundaries has {min(too_large)}, above max_tokens={maximum}")
        object.__setattr__(self, "max_tokens", maximum)
        object.__setattr__(self, "bucket_boundaries", tuple(sorted(value | {maximum})))
        object.__setattr__(self, "add_special_tokens", bool(self.add_special_tokens))
        set_special(self)

    def get_bucket_id(self, length: int) -> int:
        """Returns the index of the bucket for documents of `length` ids.

        That is the first bucket whose boundary is at least `length`. Longer documents, which are truncated to
        `max_tokens`, are in the last bucket.

        Raises:
            InvalidArgumentError: `length` is negative.
        """
        length = min(check_int("length", length, minimum=0), self.max_tokens)
        return bisect_left(self.bucket_boundaries, length)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {
            "bucket_boundaries": list(self.bucket_boundaries),
            "max_tokens": self.max_tokens,
            "add_special_tokens": self.add_special_tokens,
            **get_special_options(self),
        }
