"""Fields: which arrays a dataset stores for each document.

A field has a `TYPE_ID` and `options`. A manifest records both, and `make_field` builds the field again from
them.
"""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core import protocol
from tokjax.core.ragged import Ragged, make_row_splits, ragged_from_rows
from tokjax.datasets.columns import LOSS_MASK, Column, check_columns
from tokjax.datasets.preference_pairs import (
    PAIR_KEYS,
    VARIABLE_KEYS,
    encode_chat_pair,
    encode_text_pairs,
    get_variables,
)
from tokjax.encoding.chat.encode_chat import encode_chat
from tokjax.errors import DatasetMismatchError, InvalidArgumentError
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text


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


CustomField = TypeVar("CustomField", bound=type[TokenField])
FIRST_CUSTOM_TYPE_ID = 1000
CUSTOM_FIELDS: dict[int, type[TokenField]] = {}
"""Registered custom fields by `TYPE_ID`."""


def register_field(field: CustomField) -> CustomField:
    """Registers a custom field, so that its datasets can be written and opened. Use it as a class decorator.

    A program that opens such a dataset must import the module of the class first.

    Args:
        field: subclass of `TokenField`.

    Returns:
        The class.

    Raises:
        InvalidArgumentError: `field` is not a frozen dataclass derived from `TokenField`, or another class
            has its `TYPE_ID`.
    """
    if not (isinstance(field, type) and issubclass(field, TokenField)):
        raise InvalidArgumentError(
            f"a custom field must be a subclass of tokjax.datasets.TokenField, not {field!r:.100}"
        )
    parameters = vars(field).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise InvalidArgumentError(
            f"{field.__name__} must be a frozen dataclass; decorate it with @dataclass(frozen=True)"
        )
    number = check_int(
        f"{field.__name__}.TYPE_ID", getattr(field, "TYPE_ID", 0), minimum=FIRST_CUSTOM_TYPE_ID
    )
    registered = CUSTOM_FIELDS.setdefault(number, field)
    if (registered.__module__, registered.__qualname__) != (field.__module__, field.__qualname__):
        raise InvalidArgumentError(
            f"{registered.__name__} already has TYPE_ID {number}; choose another one for {field.__name__}"
        )
    CUSTOM_FIELDS[number] = field  # (the same class may be defined again, for instance in a notebook cell)
    return field


def check_custom_field(field: TokenField) -> None:
    """Raises an error for a custom field that its options do not reproduce.

    Args:
        field: instance of a custom field.

    Raises:
        InvalidArgumentError: an option changes in a round trip through JSON, the options build another field,
            or a column has byte lengths.
    """
    kind = type(field)
    for column in field.columns:
        if column.source == "byte_lengths":
            raise InvalidArgumentError(
                f"column {column.name!r} has source='byte_lengths', and the documents of {kind.__name__} are "
                "not texts that are encoded as they are; store byte lengths with a built-in field of texts"
            )
    for name, value in field.options.items():
        described = f"{kind.__name__}'s option {name}={value!r:.80}"
        try:
            decoded = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{described} can't be written as JSON: {error}") from None
        if decoded != value:
            raise InvalidArgumentError(
                f"{described} becomes {decoded!r:.80} in JSON; convert it in __post_init__, or in options"
            )
    rebuilt = _make_custom(kind, field.tokenizer, json.loads(json.dumps(field.options)), field.columns)
    if rebuilt != field:
        raise InvalidArgumentError(
            f"its options build {rebuilt!r:.200}, which is not equal to {field!r:.200}"
        )


def check_custom_options(field: type[TokenField], options: Mapping[str, Any]) -> None:
    """Raises an error for options of another version of a custom field.

    A newer version of the class may add options with a default.

    Args:
        field: class of the custom field.
        options: options that a manifest records.

    Raises:
        DatasetMismatchError: an option is unknown to the class, or missing without a default.
    """
    available = {one.name: one for one in dataclasses.fields(field)}
    unknown = sorted(options.keys() - available.keys())
    no_default = (dataclasses.MISSING, dataclasses.MISSING)
    required = [name for name, one in available.items() if (one.default, one.default_factory) == no_default]
    missing = sorted({*required} - options.keys() - {"tokenizer", "columns"})
    if unknown or missing:
        which = f"has no option {unknown[0]!r}" if unknown else f"needs the option {missing[0]!r}"
        raise DatasetMismatchError(f"{field.__name__} {which}; the dataset records {dict(options)}")


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
        _set_columns(self, per_token=False)
        if self.max_chars is not None:
            object.__setattr__(self, "max_chars", check_int("max_chars", self.max_chars, minimum=1))

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """Dtype of the stored bytes, `uint8`."""
        return np.dtype(np.uint8)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {"max_chars": self.max_chars}


@dataclass(frozen=True)
class StoredTokens(StoredIds):
    """Base class of built-in fields that store token ids.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        columns: side columns, with a value per token or per document.
    """

    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)


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
        _set_columns(self)
        if self.max_tokens is not None:
            object.__setattr__(self, "max_tokens", check_int("max_tokens", self.max_tokens, minimum=1))
        object.__setattr__(self, "add_special_tokens", bool(self.add_special_tokens))
        _set_special(self)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {
            "max_tokens": self.max_tokens,
            "add_special_tokens": self.add_special_tokens,
            **_get_special_options(self),
        }


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
        _set_columns(self)
        object.__setattr__(self, "chunk_tokens", check_int("chunk_tokens", self.chunk_tokens, minimum=1))
        object.__setattr__(self, "add_eos_between_docs", bool(self.add_eos_between_docs))
        _set_special(self)
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
            **_get_special_options(self),
        }


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
        _set_columns(self)
        maximum = check_int("max_tokens", self.max_tokens, minimum=1)
        value = as_boundaries(self.bucket_boundaries)
        too_large = [boundary for boundary in value if boundary > maximum]
        if too_large:
            raise InvalidArgumentError(f"bucket_boundaries has {min(too_large)}, above max_tokens={maximum}")
        object.__setattr__(self, "max_tokens", maximum)
        object.__setattr__(self, "bucket_boundaries", tuple(sorted(value | {maximum})))
        object.__setattr__(self, "add_special_tokens", bool(self.add_special_tokens))
        _set_special(self)

    def get_bucket_id(self, length: int) -> int:
        """Returns the index of the bucket for documents of `length` ids.

        That is the first bucket whose boundary is at least `length`.

        Raises:
            InvalidArgumentError: `length` is negative, or greater than `max_tokens`.
        """
        if not 0 <= length <= self.max_tokens:
            raise InvalidArgumentError(f"length must be from 0 to max_tokens={self.max_tokens}, not {length}")
        return bisect_left(self.bucket_boundaries, length)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {
            "bucket_boundaries": list(self.bucket_boundaries),
            "max_tokens": self.max_tokens,
            "add_special_tokens": self.add_special_tokens,
            **_get_special_options(self),
        }


_SOURCES = Column("sources", "int8", source="field")
"""Column of the role and the field of each token of a conversation."""


@dataclass(frozen=True)
class ChatField(TokenField):
    """Token ids of conversations, with a loss mask of the assistant's tokens. Needs `tokjax[chat]`.

    Documents are records with `"messages"`, and optionally `"tools"` and `"documents"` (also as texts in
    JSON), which `encode_chat` encodes. The column `loss_mask` is 1 on the tokens of the assistant. The
    dataset opens as a `PackedDataset`, and every loader of ids can load it. With
    `Column("sources", "int8", source="field")` among the columns, the role and the field of each token are
    stored, too, for `tokjax.objectives.chat_loss_mask`.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        template: chat template, as `load_chat_template` returns it.
        max_tokens: maximum number of ids per conversation. Longer ones are truncated at their end; `None` for
            no limit.
        chunk_tokens: number of ids that `PackedTokenLoader` returns per chunk by default.
        allowed_special: special tokens that are recognized in messages, as in `encode_chat`.
        disallowed_special: special tokens that raise an error in messages, as in `encode_chat`.
        columns: other side columns; their values come from the records. A column per token has one value for
            each id of the conversation.
    """

    TYPE_ID: ClassVar[int] = 45
    RECORD_KEYS: ClassVar[tuple[str, ...]] = ("messages", *VARIABLE_KEYS)

    template: str
    max_tokens: int | None = None
    chunk_tokens: int = 4096
    allowed_special: Special = ()
    disallowed_special: Special = "all"
    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Checks the options, and adds the column of the loss mask."""
        _check_template(self.template)
        if self.max_tokens is not None:
            object.__setattr__(self, "max_tokens", check_int("max_tokens", self.max_tokens, minimum=1))
        object.__setattr__(self, "chunk_tokens", check_int("chunk_tokens", self.chunk_tokens, minimum=1))
        mask = Column(LOSS_MASK, "bool", source="field")
        others = [column for column in check_columns("ChatField", self.columns) if column != mask]
        for column in others:
            if column.source == "field" and column != _SOURCES:
                raise InvalidArgumentError(
                    f"ChatField computes no {column}; it computes {LOSS_MASK!r} and {_SOURCES}"
                )
        object.__setattr__(self, "columns", [mask, *others])
        _set_columns(self)
        _set_special(self)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {
            "template": self.template,
            "max_tokens": self.max_tokens,
            "chunk_tokens": self.chunk_tokens,
            **_get_special_options(self),
        }

    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> RowsWithColumns:  # noqa: ARG002 (conversations are encoded one by one)
        """Encodes conversations, given as JSON objects, into ids and loss masks, without truncation."""
        ids, masks, sources = [], [], []
        for text in texts:
            record = json.loads(text)
            chat = encode_chat(
                self.tokenizer,
                record.get("messages"),
                self.template,
                allowed_special=self.allowed_special,
                disallowed_special=self.disallowed_special,
                variables=get_variables(record),
            )
            ids.append(chat.result.ids)
            masks.append(np.asarray(chat.assistant_mask, bool))
            sources.append(np.asarray(chat.sources, np.int8))
        columns: dict[str, Any] = {LOSS_MASK: np.concatenate([np.zeros(0, bool), *masks])}
        if any(column == _SOURCES for column in self.columns):
            columns[_SOURCES.name] = np.concatenate([np.zeros(0, np.int8), *sources])
        return RowsWithColumns(ragged_from_rows(ids), columns)


_PAIR_COLUMNS = (Column(LOSS_MASK, "bool", source="field"), Column("rejected", "bool", source="field"))


@dataclass(frozen=True)
class PreferenceField(TokenField):
    """Token ids of preference pairs, with a loss mask of the answers. For DPO and similar objectives.

    Documents are records with `"chosen"` and `"rejected"`, and optionally `"prompt"`, as texts or as lists of
    messages. Without `"prompt"`, it is what both sides begin with; a prompt of messages that both sides begin
    with is not repeated. Messages can come with `"tools"` and `"documents"`, as for `ChatField`.

    Each pair is one document: the prompt and the chosen answer, then the prompt and the rejected answer. The
    column `loss_mask` is 1 on the answers, and the column `rejected` on the tokens of the second side.
    `tokjax.packing.split_preference_pairs` separates the sides in the training step. Load the dataset with
    `PlannedLoader`, which keeps pairs whole.

    Attributes:
        tokenizer: tokenizer that produces the ids.
        template: chat template of pairs of messages, as `load_chat_template` returns it (needs
            `tokjax[chat]`). `None` for pairs of texts: each side then begins with BOS, if the tokenizer
            declares it, and ends with EOS, which counts as a target.
        max_tokens: maximum number of ids per side. Longer sides are truncated at their end; `None` for no
            limit.
        allowed_special: special tokens that are recognized in texts and messages, as in `encode_chat`.
        disallowed_special: special tokens that raise an error in texts and messages, as in `encode_chat`.
        columns: other side columns, with a value per document; their values come from the records.
    """

    TYPE_ID: ClassVar[int] = 46
    RECORD_KEYS: ClassVar[tuple[str, ...]] = PAIR_KEYS

    template: str | None = None
    max_tokens: int | None = None
    allowed_special: Special = ()
    disallowed_special: Special = "all"
    columns: Sequence[Column] = dataclasses.field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Checks the options, and adds the columns of the loss mask and the sides."""
        if self.template is None:
            vocabulary = protocol.get_vocabulary(self.tokenizer)
            vocabulary.require_role("eos", "PreferenceField without a chat template")
        else:
            _check_template(self.template)
        if self.max_tokens is not None:
            object.__setattr__(self, "max_tokens", check_int("max_tokens", self.max_tokens, minimum=1))
        columns = check_columns("PreferenceField", self.columns)
        others = [column for column in columns if column not in _PAIR_COLUMNS]
        for column in others:
            if column.per == "token":
                raise InvalidArgumentError(
                    f"column {column.name!r} has a value per token, and the sides of a preference pair are "
                    "encoded separately; pass per='document'"
                )
        object.__setattr__(self, "columns", [*_PAIR_COLUMNS, *others])
        _set_columns(self)
        _set_special(self)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the field for the manifest."""
        return {
            "template": self.template,
            "max_tokens": self.max_tokens,
            **_get_special_options(self),
        }

    def encode_rows(self, texts: Sequence[Text], *, threads: int | None = None) -> RowsWithColumns:
        """Encodes preference pairs, given as JSON objects, into ids, loss masks and sides."""
        special: Any = {name: getattr(self, name) for name in ("allowed_special", "disallowed_special")}
        if self.template is None:
            pairs = encode_text_pairs(self.tokenizer, texts, threads=threads, **special)
        else:
            pairs = [encode_chat_pair(self.tokenizer, text, self.template, **special) for text in texts]
        sides = [side for pair in pairs for side in pair]
        kept = [side.ids[: self.max_tokens] for side in sides]
        masks = [side.loss_mask[: self.max_tokens] for side in sides]
        dropped = [len(side.ids) - len(ids) for side, ids in zip(sides, kept, strict=True)]
        lengths = [len(ids) for ids in kept]
        columns = {
            "loss_mask": np.concatenate([np.zeros(0, bool), *masks]),
            "rejected": np.repeat(np.arange(len(sides)) % 2 == 1, lengths),
        }
        ids = np.concatenate([np.zeros(0, np.int32), *kept])
        rows = Ragged(ids, make_row_splits(map(sum, zip(lengths[::2], lengths[1::2], strict=True))))
        return RowsWithColumns(rows, columns, np.reshape(dropped, (-1, 2)).sum(axis=1, dtype=np.int64))


def _check_template(template: object) -> None:
    if not isinstance(template, str):
        raise InvalidArgumentError(
            f"template must be a chat template, such as load_chat_template(PATH), not {template!r:.80}"
        )


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
        ChatField,
        PreferenceField,
    )
}
"""Built-in fields by `TYPE_ID`."""


def check_registered(field: Field) -> None:
    """Raises an error for a field that could not be opened again, or would be opened as a different one.

    Args:
        field: field to check.

    Raises:
        InvalidArgumentError: the class is not registered under its `TYPE_ID`, or its options do not reproduce
            it.
    """
    kind = type(field)
    number = getattr(kind, "TYPE_ID", 0)
    if FIELDS.get(number) is not kind and CUSTOM_FIELDS.get(number) is not kind:
        raise InvalidArgumentError(
            f"{kind.__name__} is not registered under its TYPE_ID, {number}: derive it from "
            "tokjax.datasets.TokenField, choose a unique TYPE_ID, and decorate it with "
            "@tokjax.datasets.register_field"
        )
    if isinstance(field, TokenField):
        check_custom_field(field)


def make_field(
    type_id: int, options: Mapping[str, Any], tokenizer: Any, columns: Sequence[Column] = ()
) -> Field:
    """Builds the field of a dataset from its entries in the manifest.

    Args:
        type_id: `TYPE_ID` of the class.
        options: options of the field.
        tokenizer: tokenizer that produced the ids; `None` for raw text.
        columns: side columns.

    Returns:
        The field.

    Raises:
        DatasetMismatchError: no field has this `TYPE_ID`, or the options or columns are of another version of
            its class.
    """
    if type_id in CUSTOM_FIELDS:
        custom_field = CUSTOM_FIELDS[type_id]
        check_custom_options(custom_field, options)
        return _make_custom(custom_field, tokenizer, options, columns)
    if type_id not in FIELDS:
        available = ", ".join(f"{field.__name__} ({number})" for number, field in sorted(FIELDS.items()))
        hint = "; import the module that registers it first" if type_id >= FIRST_CUSTOM_TYPE_ID else ""
        raise DatasetMismatchError(f"no field has TYPE_ID {type_id}; this tokjax has {available}{hint}")
    made: Any = FIELDS[type_id]
    if made is RawTextField:
        return RawTextField(**options, columns=columns)
    field: Field = made(tokenizer, **options, columns=columns)
    return field


def as_boundaries(boundaries: object) -> set[int]:
    """Returns bucket boundaries as a set of positive integers.

    Raises:
        InvalidArgumentError: `boundaries` is not an iterable of positive integers.
    """
    if isinstance(boundaries, (str, bytes)) or not isinstance(boundaries, Iterable):
        raise InvalidArgumentError(
            f"bucket_boundaries must be integers, for instance [64, 128], not {boundaries!r}"
        )
    return {check_int("bucket_boundaries", boundary, minimum=1) for boundary in boundaries}


def sort_special_names(names: Special) -> str | tuple[str, ...]:
    """Returns names of special tokens in a canonical form: `"all"`, or a sorted tuple."""
    return names if isinstance(names, str) else tuple(sorted(names))


def _make_custom(
    kind: type[TokenField], tokenizer: Any, options: Mapping[str, Any], columns: Sequence[Column]
) -> TokenField:
    """Builds a custom field. Its columns are an option of the class, or determined by the other options."""
    has_option = any(one.name == "columns" for one in dataclasses.fields(kind))
    field = kind(tokenizer, **options, **({"columns": tuple(columns)} if has_option else {}))
    if tuple(field.columns) != tuple(columns):
        raise DatasetMismatchError(
            f"{kind.__name__} has the columns {tuple(field.columns)}; the dataset records {tuple(columns)}"
        )
    return field


def _set_columns(field: Any, *, per_token: bool = True) -> None:
    """Checks the columns of a built-in field, and stores them as a tuple."""
    kind = type(field).__name__
    columns = check_columns(kind, field.columns, per_token=per_token)
    for column in columns:
        if column.source == "field" and not isinstance(field, TokenField):
            raise InvalidArgumentError(
                f"{kind} computes no column {column.name!r}; only ChatField and custom fields have columns "
                "with source='field'"
            )
    object.__setattr__(field, "columns", columns)


def _set_special(field: Any) -> None:
    """Sorts the names of special tokens, so that fields with the same meaning are equal."""
    for option in ("allowed_special", "disallowed_special"):
        object.__setattr__(field, option, sort_special_names(getattr(field, option)))


def _get_special_options(field: Any) -> dict[str, Any]:
    names = {option: getattr(field, option) for option in ("allowed_special", "disallowed_special")}
    return {option: value if isinstance(value, str) else list(value) for option, value in names.items()}
