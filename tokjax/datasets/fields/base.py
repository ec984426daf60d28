"""Base classes of fields that store token ids, their dtypes, and checks of options that fields share."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from tokjax._util.checks import check_int, check_names, is_iterable
from tokjax._util.display import short_repr
from tokjax.core import protocol
from tokjax.datasets.columns import check_columns
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from tokjax.core.encode_options import Special
    from tokjax.core.ragged import Ragged
    from tokjax.core.utf8 import Text
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

    TYPE_ID: ClassVar[int]

    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return get_options(self)


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


def set_options(field: Any) -> None:
    """Checks the options of a built-in field by their annotations, and stores equal ones in the same form.

    Integers are at least 1. Special tokens are sorted. Columns become a tuple.
    """
    for each in dataclasses.fields(field):
        value = getattr(field, each.name)
        if each.type == "int" or (each.type == "int | None" and value is not None):
            value = check_int(each.name, value, minimum=1)
        elif each.type == "bool":
            value = bool(value)
        elif each.type == "Special":
            value = sort_special_names(value if value == "all" else check_names(each.name, value))
        elif each.name == "columns":
            value = check_columns(value)
            for column in value:
                _check_column(field, column)
        object.__setattr__(field, each.name, value)


def check_template(template: object) -> None:
    """Raises `InvalidArgumentError` unless a chat template is a string."""
    if not isinstance(template, str):
        raise InvalidArgumentError(
            f"template must be a chat template, such as load_chat_template(PATH), not {template!r:.80}"
        )


def as_boundaries(boundaries: object) -> set[int]:
    """Returns bucket boundaries as a set of positive integers.

    Raises:
        InvalidArgumentError: `boundaries` is not an iterable of positive integers.
    """
    if isinstance(boundaries, (str, bytes)) or not is_iterable(boundaries):
        raise InvalidArgumentError(
            f"bucket_boundaries must be integers, for instance [64, 128], not {boundaries!r}"
        )
    return {check_int("bucket_boundaries", boundary, minimum=1) for boundary in boundaries}


def _check_column(field: Any, column: Column) -> None:
    """Raises `InvalidArgumentError` for a column that a built-in field can't have."""
    kind = type(field).__name__
    if column.per == "token" and field.DATA == "text":
        raise InvalidArgumentError(
            f"{kind} stores no tokens, and column {column.name!r} has a value per token; pass "
            "per='document', or store ids, for instance with TokenizedTextField"
        )
    if column.source == "field" and not isinstance(field, TokenField):
        raise InvalidArgumentError(
            f"{kind} computes no column {column.name!r}; only ChatField and custom fields have columns "
            "with source='field'"
        )


def sort_special_names(names: Special) -> str | tuple[str, ...]:
    """Returns names of special tokens in a canonical form: `"all"`, or a sorted tuple."""
    return names if isinstance(names, str) else tuple(sorted(names))


def get_options(field: Any) -> dict[str, Any]:
    """Returns the options of a built-in field for the manifest: its fields except tokenizer and columns."""
    names = [each.name for each in dataclasses.fields(field) if each.name not in ("tokenizer", "columns")]
    values = {name: getattr(field, name) for name in names}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
