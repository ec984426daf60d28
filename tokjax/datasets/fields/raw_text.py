"""`RawTextField`: texts that are tokenized when they are loaded."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tokjax.datasets.fields.options import set_columns, set_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.datasets.columns import Column


@dataclass(frozen=True)
class RawTextField:
    """Texts in UTF-8, stored unchanged. They are tokenized when they are loaded, by any tokenizer.

    Attributes:
        max_chars: maximum number of characters, to which longer texts are truncated; `None` for no limit.
        columns: side columns, with a value per document.
    """

    TYPE_ID: ClassVar[int] = 40
    DATA: ClassVar[str] = "text"
    tokenizer: ClassVar[None] = None

    max_chars: int | None = 100_000
    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Checks the options."""
        set_columns(self, per_token=False)
        set_limit(self, "max_chars")

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """Dtype of the stored bytes, `uint8`."""
        return np.dtype(np.uint8)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {"max_chars": self.max_chars}
