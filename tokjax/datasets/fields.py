"""What a dataset stores for each document."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core import protocol
from tokjax.errors import DatasetMismatchError, InvalidArgumentError
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.protocol import Special
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


CustomField = TypeVar("CustomField", bound=type[TokenField])
FIRST_CUSTOM_TYPE_ID = 1000
CUSTOM_FIELDS: dict[int, type[TokenField]] = {}
"""Those that were registered, by their numbers."""


def register_field(field: CustomField) -> CustomField:
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
            f"a field of your own is a subclass of tokjax.datasets.TokenField, not {field!r:.100}"
        )
    parameters = vars(field).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise InvalidArgumentError(
            f"{field.__name__} must be a dataclass: put @dataclass(frozen=True) over it"
        )
    number = check_int(
        f"{field.__name__}.TYPE_ID", getattr(field, "TYPE_ID", 0), minimum=FIRST_CUSTOM_TYPE_ID
    )
    registered = CUSTOM_FIELDS.setdefault(number, field)
    if (registered.__module__, registered.__qualname__) != (field.__module__, field.__qualname__):
        raise InvalidArgumentError(
            f"{registered.__name__} has the TYPE_ID {number} already; give {field.__name__} another"
        )
    CUSTOM_FIELDS[number] = field  # (the same once more, of a cell that was run again)
    return field


def check_custom_field(field: TokenField) -> None:
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


def check_custom_options(field: type[TokenField], options: Mapping[str, Any]) -> None:
    """Refuse those of another version of the class; an option that came later has its default."""
    available = {one.name: one for one in dataclasses.fields(field)}
    unknown = sorted(options.keys() - available.keys())
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    needed = [name for name, one in available.items() if (one.default, one.default_factory) == missing]
    lacking = sorted({*needed} - options.keys() - {"tokenizer"})
    if unknown or lacking:
        which = f"has no option {unknown[0]!r}" if unknown else f"needs the option {lacking[0]!r}"
        raise DatasetMismatchError(f"{field.__name__} {which}; the dataset records {dict(options)}")


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest of `uint8`, `uint16` and `uint32` that holds every id of a vocabulary.

    >>> token_dtype(65_536), token_dtype(65_537)
    (dtype('uint16'), dtype('uint32'))
    """
    return get_unsigned_dtype(vocab_size - 1)


def get_unsigned_dtype(largest: int) -> np.dtype[Any]:
    """The smallest unsigned little-endian dtype that holds `largest`."""
    for dtype in ("u1", "<u2", "<u4", "<u8"):
        if largest <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise InvalidArgumentError(f"{largest} does not fit 64 bits")


@dataclass(frozen=True)
class RawTextField:
    """Texts as they are, in UTF-8; they are tokenized when they are loaded, by any tokenizer.

    Attributes:
        max_chars: longer texts are cut to so many characters; `None` for any number.
    """

    TYPE_ID: ClassVar[int] = 40
    DATA: ClassVar[str] = "text"
    tokenizer: ClassVar[None] = None

    max_chars: int | None = 100_000

    def __post_init__(self) -> None:
        """Check the options."""
        if self.max_chars is not None:
            object.__setattr__(self, "max_chars", check_int("max_chars", self.max_chars, minimum=1))

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """The dtype of what is stored: bytes."""
        return np.dtype(np.uint8)

    @property
    def options(self) -> dict[str, Any]:
        """What the manifest records of the field."""
        return {"max_chars": self.max_chars}


@dataclass(frozen=True)
class TokenizedTextField(StoredIds):
    """The token ids of each document, with what the tokenizer puts around a text.

    Attributes:
        tokenizer: makes the ids.
        max_tokens: longer documents are cut at their end, so that they have so many ids with those around
            them; `None` for any number.
        add_special_tokens: put the tokenizer's template around each document.
        allowed_special: special tokens that are recognised in documents: names, or `"all"`.
        disallowed_special: special tokens that are refused in documents, as in `encode_batch_result`.
    """

    TYPE_ID: ClassVar[int] = 41

    max_tokens: int | None = 2048
    add_special_tokens: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Check the options."""
        if self.max_tokens is not None:
            object.__setattr__(self, "max_tokens", check_int("max_tokens", self.max_tokens, minimum=1))
        object.__setattr__(self, "add_special_tokens", bool(self.add_special_tokens))
        _set_special(self)

    @property
    def options(self) -> dict[str, Any]:
        """What the manifest records of the field."""
        return {
            "max_tokens": self.max_tokens,
            "add_special_tokens": self.add_special_tokens,
            **_get_special_options(self),
        }


@dataclass(frozen=True)
class SentencePieceTextField(TokenizedTextField):
    """The same by a SentencePiece model.

    Attributes:
        tokenizer: the path of a `.model` file, its contents, or a `SentencePieceTokenizer`.
    """

    TYPE_ID: ClassVar[int] = 44

    def __post_init__(self) -> None:
        """Read the model, and check the options."""
        if not isinstance(self.tokenizer, SentencePieceTokenizer):
            object.__setattr__(self, "tokenizer", sentencepiece(self.tokenizer))
        super().__post_init__()


@dataclass(frozen=True)
class PackedTokenField(StoredIds):
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

    chunk_tokens: int = 4096
    add_eos_between_docs: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Check the options, and that the tokenizer has the EOS token that they need."""
        object.__setattr__(self, "chunk_tokens", check_int("chunk_tokens", self.chunk_tokens, minimum=1))
        object.__setattr__(self, "add_eos_between_docs", bool(self.add_eos_between_docs))
        _set_special(self)
        if self.add_eos_between_docs:
            protocol.get_vocabulary(self.tokenizer).require_role(
                "eos", "PackedTokenField(add_eos_between_docs=True)"
            )

    @property
    def options(self) -> dict[str, Any]:
        """What the manifest records of the field."""
        return {
            "chunk_tokens": self.chunk_tokens,
            "add_eos_between_docs": self.add_eos_between_docs,
            **_get_special_options(self),
        }


@dataclass(frozen=True)
class BucketedTokenField(StoredIds):
    """The token ids of each document, those of about one length side by side.

    Attributes:
        tokenizer: makes the ids.
        bucket_boundaries: the most ids that a document of each bucket has, such as a `LengthBuckets`. They
            are sorted, and `max_tokens` is the last of them.
        max_tokens: longer documents are cut at their end.
        add_special_tokens: put the tokenizer's template around each document.
        allowed_special: special tokens that are recognised in documents: names, or `"all"`.
        disallowed_special: special tokens that are refused in documents, as in `encode_batch_result`.
    """

    TYPE_ID: ClassVar[int] = 43

    bucket_boundaries: Sequence[int] = (64, 128, 256, 512, 1024, 2048)
    max_tokens: int = 4096
    add_special_tokens: bool = True
    allowed_special: Special = ()
    disallowed_special: Special = "all"

    def __post_init__(self) -> None:
        """Check the options, and sort the boundaries."""
        maximum = check_int("max_tokens", self.max_tokens, minimum=1)
        value = check_boundaries(self.bucket_boundaries)
        above = [boundary for boundary in value if boundary > maximum]
        if above:
            raise InvalidArgumentError(f"bucket_boundaries has {min(above)}, above max_tokens={maximum}")
        object.__setattr__(self, "max_tokens", maximum)
        object.__setattr__(self, "bucket_boundaries", tuple(sorted(value | {maximum})))
        object.__setattr__(self, "add_special_tokens", bool(self.add_special_tokens))
        _set_special(self)

    def get_bucket_id(self, length: int) -> int:
        """Which bucket a document of so many ids is in: the first whose boundary is not below it.

        Raises:
            InvalidArgumentError: it is longer than `max_tokens`.
        """
        if not 0 <= length <= self.max_tokens:
            raise InvalidArgumentError(f"length must be from 0 to max_tokens={self.max_tokens}, not {length}")
        return bisect_left(self.bucket_boundaries, length)

    @property
    def options(self) -> dict[str, Any]:
        """What the manifest records of the field."""
        return {
            "bucket_boundaries": list(self.bucket_boundaries),
            "max_tokens": self.max_tokens,
            "add_special_tokens": self.add_special_tokens,
            **_get_special_options(self),
        }


Field: TypeAlias = (
    RawTextField
    | TokenizedTextField
    | SentencePieceTextField
    | PackedTokenField
    | BucketedTokenField
    | TokenField
)
FIELDS: dict[int, type[Field]] = {
    field.TYPE_ID: field
    for field in (
        RawTextField,
        TokenizedTextField,
        SentencePieceTextField,
        PackedTokenField,
        BucketedTokenField,
    )
}
"""All fields of tokjax by their numbers."""


def check_registered(field: Field) -> None:
    """Refuse a field that could not be opened again, or would be another one then.

    Raises:
        InvalidArgumentError: its class is not known by its number, or its options don't make it again.
    """
    kind = type(field)
    number = getattr(kind, "TYPE_ID", 0)
    if FIELDS.get(number) is not kind and CUSTOM_FIELDS.get(number) is not kind:
        raise InvalidArgumentError(
            f"{kind.__name__} is not known by its TYPE_ID, {number}: derive it from tokjax.datasets.TokenField, give "
            "it a number of its own, and put @tokjax.datasets.register_field over it"
        )
    if isinstance(field, TokenField):
        check_custom_field(field)


def make_field(type_id: int, options: Mapping[str, Any], tokenizer: Any) -> Field:
    """The field of a dataset, from what its manifest records.

    Args:
        type_id: the number of its class.
        options: its options.
        tokenizer: what made its ids; `None` for texts.

    Raises:
        DatasetMismatchError: there is no field of this number.
    """
    if type_id in CUSTOM_FIELDS:
        own = CUSTOM_FIELDS[type_id]
        check_custom_options(own, options)
        return own(tokenizer, **options)
    if type_id not in FIELDS:
        available = ", ".join(f"{field.__name__} ({number})" for number, field in sorted(FIELDS.items()))
        hint = "; import the module that registers it first" if type_id >= FIRST_CUSTOM_TYPE_ID else ""
        raise DatasetMismatchError(f"no field has the type id {type_id}; this tokjax has {available}{hint}")
    made: Any = FIELDS[type_id]
    return made(**options) if made is RawTextField else made(tokenizer, **options)


def check_boundaries(boundaries: object) -> set[int]:
    """Boundaries of buckets; an error if they are none."""
    if isinstance(boundaries, (str, bytes)) or not isinstance(boundaries, Iterable):
        raise InvalidArgumentError(
            f"bucket_boundaries must be integers, for instance [64, 128], not {boundaries!r}"
        )
    return {check_int("bucket_boundaries", boundary, minimum=1) for boundary in boundaries}


def sort_special_names(names: Special) -> str | tuple[str, ...]:
    """Names of special tokens in one form."""
    return names if isinstance(names, str) else tuple(sorted(names))


def _set_special(field: Any) -> None:
    """Names of special tokens in one form, so that fields of one meaning are equal."""
    for option in ("allowed_special", "disallowed_special"):
        object.__setattr__(field, option, sort_special_names(getattr(field, option)))


def _get_special_options(field: Any) -> dict[str, Any]:
    names = {option: getattr(field, option) for option in ("allowed_special", "disallowed_special")}
    return {option: value if isinstance(value, str) else list(value) for option, value in names.items()}
