"""What fields of token ids have in common, and fields of one's own."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from tokjax._util.checks import checked_int
from tokjax.core import protocol
from tokjax.core.errors import DatasetMismatchError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.ragged import Ragged
    from tokjax.core.utf8 import Text


@dataclass(frozen=True)
class StoredIds:
    """What fields of token ids have in common."""

    DATA: ClassVar[str] = "tokens"

    tokenizer: Any

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """The dtype of the ids on disk: the smallest that holds every id of the vocabulary."""
        return token_dtype(protocol.vocab_size(self.tokenizer))


@dataclass(frozen=True)
class TokenField(StoredIds, ABC):
    """The base of a field of one's own: ids of each document, made in a way that tokjax does not know.

    A subclass is a frozen dataclass with a number, options, and `encode_rows`; `register_field` makes it
    known. Its datasets open as a `TokenDataset`. `tokjax.testing.check_field` checks one.

    Attributes:
        TYPE_ID: the number of the class, which datasets record: from 1000 on.
        tokenizer: whose vocabulary the ids are of.
    """

    TYPE_ID: ClassVar[int]

    @property
    def options(self) -> dict[str, Any]:
        """What the manifest records: the fields of the dataclass but for the tokenizer, as JSON has them."""
        names = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names if name != "tokenizer"}

    @abstractmethod
    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> Ragged:
        """The ids that are stored of some documents, a row each; of each row a function of its text alone.

        Args:
            texts: the documents.
            threads: how many share the work, as in `encode_batch_result`.

        Returns:
            A row of ids a document; other columns are not stored.
        """


OwnField = TypeVar("OwnField", bound=type[TokenField])
FIRST_OWN_TYPE_ID = 1000
OWN_FIELDS: dict[int, type[TokenField]] = {}
"""Those that were registered, by their numbers."""


def register_field(field: OwnField) -> OwnField:
    """Make a field of one's own known, so that datasets of it can be opened: a decorator of its class.

    Whatever opens such a dataset has to import the module of the class first.

    Args:
        field: a subclass of `TokenField`.

    Returns:
        The class.

    Raises:
        InvalidArgumentError: it is no frozen dataclass of that kind, or its number is not its own.
    """
    if not (isinstance(field, type) and issubclass(field, TokenField)):
        raise InvalidArgumentError(
            f"a field of your own is a subclass of tokjax.TokenField, not {field!r:.100}"
        )
    parameters = vars(field).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise InvalidArgumentError(
            f"{field.__name__} must be a dataclass: put @dataclass(frozen=True) over it"
        )
    number = checked_int(f"{field.__name__}.TYPE_ID", getattr(field, "TYPE_ID", 0), least=FIRST_OWN_TYPE_ID)
    there = OWN_FIELDS.setdefault(number, field)
    if (there.__module__, there.__qualname__) != (field.__module__, field.__qualname__):
        raise InvalidArgumentError(
            f"{there.__name__} has the TYPE_ID {number} already; give {field.__name__} another"
        )
    OWN_FIELDS[number] = field  # (the same once more, of a cell that was run again)
    return field


def check_own_field(field: TokenField) -> None:
    """Refuse a field whose options don't make it again.

    Raises:
        InvalidArgumentError: an option is not as JSON gives it back, or they make another field.
    """
    kind = type(field)
    for name, value in field.options.items():
        shown = f"{kind.__name__}'s option {name}={value!r:.80}"
        try:
            found = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{shown} can't be written as JSON: {error}") from None
        if found != value:
            raise InvalidArgumentError(
                f"{shown} comes back from JSON as {found!r:.80}; convert it in __post_init__, or in options"
            )
    again = kind(field.tokenizer, **json.loads(json.dumps(field.options)))
    if again != field:
        raise InvalidArgumentError(f"its options make {again!r:.200}, which is not equal to {field!r:.200}")


def check_own_options(field: type[TokenField], options: Mapping[str, Any]) -> None:
    """Refuse those of another version of the class; an option that came later has its default."""
    known = {one.name: one for one in dataclasses.fields(field)}
    unknown = sorted(options.keys() - known.keys())
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    needed = [name for name, one in known.items() if (one.default, one.default_factory) == missing]
    lacking = sorted({*needed} - options.keys() - {"tokenizer"})
    if unknown or lacking:
        which = f"has no option {unknown[0]!r}" if unknown else f"needs the option {lacking[0]!r}"
        raise DatasetMismatchError(f"{field.__name__} {which}; the dataset records {dict(options)}")


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
