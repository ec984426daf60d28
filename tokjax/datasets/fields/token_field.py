"""`TokenField`, the base class of fields that compute ids with their own code."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tokjax._util.display import short_repr
from tokjax.datasets.fields.token_ids import StoredIds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from tokjax.core.ragged import Ragged
    from tokjax.core.utf8 import Text
    from tokjax.datasets.columns import Column


@short_repr
class RowsWithColumns(NamedTuple):
    """Rows of ids with side columns, which `encode_rows` of a custom field can return.

    Attributes:
        rows: one row of ids per document.
        columns: values of each column of the field with `source="field"`, by name: arrays of shape
            `(num_ids,)`, aligned with the ids of all rows, or of shape `(num_documents,)`.
        num_dropped: number of ids that the field left out of each row because the document was too long,
            integers, shape `(num_documents,)`; `None` if it left out none.
    """

    rows: Ragged
    columns: Mapping[str, ArrayLike]
    num_dropped: ArrayLike | None = None


@dataclass(frozen=True)
class TokenField(StoredIds, ABC):
    """Base class of custom fields, which compute the ids of a document with their own code.

    A subclass is a frozen dataclass with a `TYPE_ID`, options and `encode_rows`. Register it with
    `register_field`. Its datasets open as a `TokenDataset`. `tokjax.testing.check_field` tests a subclass.

    A subclass stores side columns if it overrides `columns`. It returns the values of columns with
    `source="field"` together with the ids, as `RowsWithColumns`.

    Attributes:
        TYPE_ID: number of the class in manifests, at least 1000.
        RECORD_KEYS: keys of a record that form the document, for example `("chosen", "rejected")`. The text
            of a document is then the JSON object of these keys, which `encode_rows` parses; keys that the
            record lacks, or whose value is `None`, are omitted. By default, documents are texts.
        tokenizer: tokenizer whose vocabulary contains the ids.
    """

    TYPE_ID: ClassVar[int]
    RECORD_KEYS: ClassVar[tuple[str, ...]] = ()

    @property
    def record_keys(self) -> tuple[str, ...]:
        """Keys of a record that form the document: `RECORD_KEYS` by default."""
        return self.RECORD_KEYS

    @property
    def columns(self) -> Sequence[Column]:
        """Side columns of the field; none by default."""
        return ()

    @property
    def options(self) -> dict[str, Any]:
        """Options for the manifest: the fields of the dataclass except tokenizer and columns, as JSON."""
        names = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names if name not in ("tokenizer", "columns")}

    @abstractmethod
    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> Ragged | RowsWithColumns:
        """Encodes documents into rows of ids. Each row must depend on the text of its document only.

        Args:
            texts: texts of the documents.
            threads: number of threads that share the work, as in `encode_batch_result`.

        Returns:
            One row of ids per document, with the values of side columns if the field has such columns.
        """
