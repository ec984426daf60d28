"""`RawTextField`: texts that are tokenized when they are loaded."""

from __future__ import annotations

import codecs
import dataclasses
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokjax.datasets.fields.options import set_columns, set_limit
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.datasets.columns import Column


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
        set_columns(self, per_token=False)
        set_limit(self, "max_chars")
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
        return {"max_chars": self.max_chars}


def _is_utf8(encoding: object) -> bool:
    try:
        return isinstance(encoding, str) and codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        return False
