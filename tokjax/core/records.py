"""Records of tokenization results: the tokens of one text, and a batch of texts.

Both are immutable: attributes can't be set, and arrays are read-only. A column other than the ids may be
computed when it is first read. All threads that read it get the same array.

A `TokenizationBatch` holds flat columns (`Ragged`). Its items are views of the columns, made when they are
accessed:

    batch.ids          [ 5  6 | 7  8  9 | 4 ]      batch.row_splits   [0, 2, 5, 6]
    batch[1].ids              [ 7  8  9 ]          a read-only view, not a copy
    batch[1].tokens           computed from the ids by the vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from tokjax._util.arrays import Array, as_integers
from tokjax._util.display import render_tokens_html
from tokjax._util.locks import ThreadLock
from tokjax.core.ragged import COLUMNS, Ragged
from tokjax.errors import InvalidArgumentError
from tokjax.offsets import offsets_coordinate_system, offsets_index_base, offsets_span_style

_INT64_COLUMNS = ("offsets", "row_splits")

TokenStringLookup = Callable[[NDArray[np.int32]], tuple[str, ...]]
"""Function that returns the readable forms of ids, shape `(n,)`."""
OffsetsReference = Literal["input_text", "tokenizer_normalized_text"]


@dataclass(frozen=True)
class ResultMetadata:
    """Metadata of a result: the tokenizer model, and the meaning of the offsets.

    Attributes:
        model: kind of the tokenizer, for instance `"byte_level_bpe"`.
        normalizer: description of the tokenizer's normalizer, or `None`.
        offsets_reference: text that the offsets refer to: `"input_text"` for the text as passed,
            `"tokenizer_normalized_text"` for `tokenization_view(tokenizer, text)`.
        offsets_coordinate_system: unit of the offsets, `"utf8_bytes"`.
        offsets_index_base: position of the first byte, 1.
        offsets_span_style: `"half_open"`: the stop of a span is not part of it.
    """

    model: str
    normalizer: str | None = None
    offsets_reference: OffsetsReference = "input_text"
    offsets_coordinate_system: str = offsets_coordinate_system()
    offsets_index_base: int = offsets_index_base()
    offsets_span_style: str = offsets_span_style()


@dataclass(frozen=True, eq=False, repr=False)
class TokenizationResult:
    r"""Tokens of one text. The constructor copies its arrays.

    Attributes:
        ids: 0-based token ids, `int32`, shape `(n,)`.
        tokens: readable forms of the tokens, `n` strings, with invalid UTF-8 bytes as `\xNN`. Use
            `id_to_bytes` for exact bytes.
        offsets: 1-based half-open spans of UTF-8 bytes, `int64`, shape `(n, 2)`, or `None`.
        attention_mask: 1 on all tokens (collation adds padding), `int32`, shape `(n,)`, or `None`.
        token_type_ids: index of the token's segment of the input, `int32`, shape `(n,)`, or `None`.
        special_tokens_mask: 1 on special tokens, inserted ones and those in the text, `int32`, shape `(n,)`,
            or `None`.
        word_ids: index of the token's word in the text, -1 for inserted tokens, `int32`, shape `(n,)`, or
            `None`.
        sequence_ids: index of the token's text in a pair, -1 for inserted tokens, `int32`, shape `(n,)`, or
            `None`.
        metadata: model of the tokenizer, and meaning of the offsets.
    """

    ids: NDArray[np.int32]
    tokens: tuple[str, ...]
    offsets: NDArray[np.int64] | None = None
    attention_mask: NDArray[np.int32] | None = None
    token_type_ids: NDArray[np.int32] | None = None
    special_tokens_mask: NDArray[np.int32] | None = None
    word_ids: NDArray[np.int32] | None = None
    sequence_ids: NDArray[np.int32] | None = None
    metadata: ResultMetadata = ResultMetadata("unknown")

    def __post_init__(self) -> None:
        """Checks that all columns have the same length, copies them, and makes the copies read-only."""
        object.__setattr__(self, "tokens", tuple(self.tokens))
        for name in (*COLUMNS, "attention_mask"):
            column = getattr(self, name)
            if column is None and name != "ids":
                continue
            frozen = _freeze_copy(name, column)
            expected = (len(self.tokens), 2) if name == "offsets" else (len(self.tokens),)
            if name == "offsets" and frozen.size == 0:
                frozen = _freeze_copy(name, frozen.reshape(0, 2))
            if frozen.shape != expected:
                raise InvalidArgumentError(
                    f"{name} must have shape {expected} for {len(self.tokens)} tokens, not {frozen.shape}"
                )
            object.__setattr__(self, name, frozen)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as a call of the constructor, so that the arrays of a copy are read-only too."""
        return TokenizationResult, tuple(getattr(self, column.name) for column in fields(self))

    def __len__(self) -> int:
        """Returns the number of tokens."""
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        """Compares all fields, arrays by value."""
        if not isinstance(other, TokenizationResult):
            return NotImplemented
        return all(
            _are_equal(getattr(self, column.name), getattr(other, column.name)) for column in fields(self)
        )

    def __hash__(self) -> int:
        """Computes a hash that is equal for equal results."""
        return hash((self.ids.tobytes(), self.tokens, self.metadata))

    def __repr__(self) -> str:
        """Shows the first tokens with their ids, and the names of the columns."""
        shown = ", ".join(
            f"{token!r}: {id_}" for token, id_ in zip(self.tokens[:8], self.ids[:8], strict=True)
        )
        more = ", ..." if len(self) > 8 else ""
        columns = [
            name for name in ("offsets", "attention_mask", *COLUMNS[2:]) if getattr(self, name) is not None
        ]
        return (
            f"TokenizationResult({len(self)} tokens: {{{shown}{more}}}, "
            f"columns: {', '.join(columns) or 'none'}, offsets in {self.metadata.offsets_reference})"
        )

    def _repr_html_(self) -> str:
        return render_tokens_html(self.tokens, self.ids, self.offsets, self.special_tokens_mask)


class _LazyColumn:
    """Descriptor of a field of a `TokenizationResult` that is computed at the first access.

    The value is stored in the instance, which then hides the descriptor.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Stores the name of the field."""
        self._name = name

    def __get__(self, result: TokenizationResult | None, owner: type) -> Any:
        """Returns the value of the field."""
        if result is None:
            return self
        try:
            compute = result.__dict__["_compute"]
        except KeyError:
            raise AttributeError(self._name) from None
        return result.__dict__.setdefault(self._name, compute(self._name))  # the first of several threads


for _name in ("tokens", *COLUMNS[1:], "attention_mask"):
    _column = _LazyColumn()
    _column.__set_name__(TokenizationResult, _name)
    setattr(TokenizationResult, _name, _column)


class BatchColumns:
    """The columns of a batch. Those with a function are computed when they are first read, each once.

    Args:
        ragged: the columns that are known, with the dtypes of `make_ragged`. They become read-only.
        functions: functions that return the other columns, by name.
    """

    def __init__(self, ragged: Ragged, functions: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        columns = zip(Ragged._fields, ragged, strict=True)
        self._columns: dict[str, Any] = {
            name: None if column is None else freeze(np.asarray(column))
            for name, column in columns
            if name not in functions
        }
        self._functions = dict(functions)
        self._lock = ThreadLock() if functions else None

    def __getitem__(self, name: str) -> Any:
        """Returns a column, `None` if the batch does not have it."""
        column = self._columns.get(name, self)
        if column is not self:
            return column
        assert self._lock is not None
        with self._lock.current:
            if name not in self._columns:
                self._columns[name] = freeze(self._functions[name]())
                del self._functions[name]  # frees what the column was computed from
        return self._columns[name]

    def has(self, name: str) -> bool:
        """Returns whether the batch has a column, without computing it."""
        return self._columns.get(name, self) is not None

    def to_ragged(self) -> Ragged:
        """Returns all columns."""
        return Ragged(*map(self.__getitem__, Ragged._fields))


class TokenizationBatch(Sequence[TokenizationResult]):
    """Flat columns of many texts, and a sequence of `TokenizationResult`s that are views of the columns.

    The columns of `Ragged` are attributes (`batch.ids`, `batch.row_splits`, `batch.offsets`, ...), and
    `batch.ragged` is the `Ragged` itself. An item is made when it is accessed.

    Attributes:
        ragged: flat columns, as read-only NumPy arrays.
        metadata: model of the tokenizer, and meaning of the offsets.
        has_attention_mask: whether items have an attention mask. The batch does not store it: it is all ones.
    """

    __slots__ = ("_columns", "_get_token_strings", "has_attention_mask", "metadata")

    metadata: ResultMetadata
    has_attention_mask: bool
    _columns: BatchColumns
    _get_token_strings: TokenStringLookup

    def __init__(
        self,
        ragged: Ragged,
        metadata: ResultMetadata,
        get_token_strings: TokenStringLookup,
        *,
        has_attention_mask: bool = True,
    ) -> None:
        """Copies the columns.

        Args:
            ragged: valid columns (see `make_ragged`).
            metadata: model of the tokenizer, and meaning of the offsets.
            get_token_strings: function that returns the readable forms of ids.
            has_attention_mask: whether items have an attention mask.
        """
        copied: dict[str, Any] = {
            name: None if column is None else _freeze_copy(name, column)
            for name, column in ragged._asdict().items()
        }
        columns = BatchColumns(Ragged(**copied), {})
        self._set_fields(columns, metadata, get_token_strings, has_attention_mask)

    def _set_fields(
        self,
        columns: BatchColumns,
        metadata: ResultMetadata,
        get_token_strings: TokenStringLookup,
        has_attention_mask: bool,
    ) -> None:
        set_attribute = object.__setattr__  # this class's own `__setattr__` raises
        set_attribute(self, "_columns", columns)
        set_attribute(self, "metadata", metadata)
        set_attribute(self, "has_attention_mask", has_attention_mask)
        set_attribute(self, "_get_token_strings", get_token_strings)

    def __setattr__(self, name: str, value: object) -> None:
        """Raises `AttributeError`: the record is immutable."""
        raise AttributeError(f"TokenizationBatch is immutable; {name} can't be set")

    def __delattr__(self, name: str) -> None:
        """Raises `AttributeError`: the record is immutable."""
        raise AttributeError(f"TokenizationBatch is immutable; {name} can't be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the columns, and the readable forms of their ids instead of the vocabulary."""
        return _restore_batch, (
            self.ragged,
            self.metadata,
            TokenStringTable.from_ids(self.ids, self._get_token_strings),
            self.has_attention_mask,
        )

    @property
    def ragged(self) -> Ragged:
        """All columns, as read-only NumPy arrays."""
        return self._columns.to_ragged()

    @property
    def ids(self) -> NDArray[np.int32]:
        """Token ids of all texts, `int32`, shape `(n,)`."""
        return self._columns["ids"]  # type: ignore[no-any-return]

    @property
    def row_splits(self) -> NDArray[np.int64]:
        """Bounds of each text's tokens, `int64`, shape `(num_texts + 1,)`."""
        return self._columns["row_splits"]  # type: ignore[no-any-return]

    @property
    def offsets(self) -> NDArray[np.int64] | None:
        """1-based byte spans, `int64`, shape `(n, 2)`, or `None`."""
        return self._columns["offsets"]  # type: ignore[no-any-return]

    @property
    def special_tokens_mask(self) -> NDArray[np.int32] | None:
        """1 on special tokens, `int32`, shape `(n,)`, or `None`."""
        return self._columns["special_tokens_mask"]  # type: ignore[no-any-return]

    @property
    def token_type_ids(self) -> NDArray[np.int32] | None:
        """Index of each token's segment of the input, `int32`, shape `(n,)`, or `None`."""
        return self._columns["token_type_ids"]  # type: ignore[no-any-return]

    @property
    def word_ids(self) -> NDArray[np.int32] | None:
        """Index of each token's word, -1 for inserted tokens, `int32`, shape `(n,)`, or `None`."""
        return self._columns["word_ids"]  # type: ignore[no-any-return]

    @property
    def sequence_ids(self) -> NDArray[np.int32] | None:
        """Index of each token's text in a pair, -1 for inserted tokens, `int32`, shape `(n,)`, or `None`."""
        return self._columns["sequence_ids"]  # type: ignore[no-any-return]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text, `int64`, shape `(num_texts,)`."""
        return np.diff(self.row_splits)

    def __len__(self) -> int:
        """Returns the number of texts."""
        return len(self.row_splits) - 1

    @overload
    def __getitem__(self, index: int) -> TokenizationResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[TokenizationResult]: ...
    def __getitem__(self, index: int | slice) -> TokenizationResult | list[TokenizationResult]:
        """Returns the result of one text, or a list of results for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        splits = self._columns["row_splits"]
        num_texts = len(splits) - 1
        if not -num_texts <= index < num_texts:
            raise IndexError(f"batch of {num_texts} texts has no text {index}")
        row = range(num_texts)[index]
        part = slice(int(splits[row]), int(splits[row + 1]))
        return make_result_without_copy(
            self.ids[part], self.metadata, partial(self._compute_result_column, part)
        )

    def _compute_result_column(self, part: slice, name: str) -> Any:
        """Returns a field of the result of one text, whose tokens are `part`."""
        if name == "tokens":
            return self._get_token_strings(self.ids[part])
        if name == "attention_mask":
            return _make_ones(part.stop - part.start) if self.has_attention_mask else None
        column = self._columns[name]
        return None if column is None else column[part]

    def __eq__(self, other: object) -> bool:
        """Compares columns, tokens and metadata by value."""
        if not isinstance(other, TokenizationBatch):
            return NotImplemented
        return (
            self.metadata == other.metadata
            and self.has_attention_mask == other.has_attention_mask
            and all(map(_are_equal, self.ragged, other.ragged))
            and TokenStringTable.from_ids(self.ids, self._get_token_strings)
            == TokenStringTable.from_ids(other.ids, other._get_token_strings)
        )

    def __hash__(self) -> int:
        """Computes a hash that is equal for equal batches."""
        return hash((self.ids.tobytes(), self.row_splits.tobytes(), self.metadata))

    def __repr__(self) -> str:
        """Shows the number of texts and tokens, and the names of the columns."""
        columns = [name for name in COLUMNS if self._columns.has(name)]
        return (
            f"TokenizationBatch({len(self)} texts, {len(self.ids)} tokens, "
            f"columns: {', '.join(columns)}, offsets in {self.metadata.offsets_reference})"
        )

    def _repr_html_(self) -> str:
        shown = "".join(f"<li>{result._repr_html_()}</li>" for result in self[:10])
        more = f"<p>and {len(self) - 10} more texts</p>" if len(self) > 10 else ""
        return f"<ol start='0'>{shown}</ol>{more}"


Results = TokenizationBatch | Ragged | Iterable[TokenizationResult]
"""Type of the results that all batching functions take."""


@dataclass(frozen=True)
class TokenStringTable:
    """Readable forms of the ids of a batch. A pickled batch has this table instead of its vocabulary.

    Attributes:
        strings_by_id: mapping of ids to readable forms.
    """

    strings_by_id: dict[int, str]

    @classmethod
    def from_ids(cls, ids: NDArray[np.int32], get_token_strings: TokenStringLookup) -> TokenStringTable:
        """Makes the table of all distinct ids."""
        distinct = np.unique(ids)
        return cls(dict(zip(distinct.tolist(), get_token_strings(distinct), strict=True)))

    def __call__(self, ids: NDArray[np.int32]) -> tuple[str, ...]:
        """Returns the readable forms of ids, shape `(n,)`."""
        return tuple(map(self.strings_by_id.__getitem__, ids.tolist()))


def make_batch_without_copy(
    ragged: Ragged,
    metadata: ResultMetadata,
    get_token_strings: TokenStringLookup,
    *,
    has_attention_mask: bool,
    functions: Mapping[str, Callable[[], NDArray[Any]]] = MappingProxyType({}),
) -> TokenizationBatch:
    """Makes a batch without copying its columns.

    Args:
        ragged: valid columns with the dtypes of `make_ragged`. They become read-only, so the caller must not
            have writable views of them.
        metadata: model of the tokenizer, and meaning of the offsets.
        get_token_strings: function that returns the readable forms of ids.
        has_attention_mask: whether items have an attention mask.
        functions: functions that compute further columns when they are first read, by name.
    """
    batch = TokenizationBatch.__new__(TokenizationBatch)
    batch._set_fields(BatchColumns(ragged, functions), metadata, get_token_strings, has_attention_mask)
    return batch


def make_result_without_copy(
    ids: NDArray[np.int32], metadata: ResultMetadata, compute: Callable[[str], Any]
) -> TokenizationResult:
    """Makes the result of one text without copying its ids. Its other fields are computed when first read.

    Args:
        ids: token ids, `int32`, shape `(n,)`, read-only.
        metadata: model of the tokenizer, and meaning of the offsets.
        compute: function of the name of a field. It returns the value, in which arrays are read-only.
    """
    result = object.__new__(TokenizationResult)  # skips the constructor, which copies its arrays
    result.__dict__.update(ids=ids, metadata=metadata, _compute=compute)
    return result


def _restore_batch(
    ragged: Ragged, metadata: ResultMetadata, get_token_strings: TokenStringLookup, has_attention_mask: bool
) -> TokenizationBatch:
    return make_batch_without_copy(ragged, metadata, get_token_strings, has_attention_mask=has_attention_mask)


def _make_ones(length: int) -> NDArray[np.int32]:
    return freeze(np.ones(length, np.int32))


def _freeze_copy(name: str, values: Any) -> NDArray[Any]:
    """Returns a read-only copy with the dtype of the column."""
    array = as_integers(name, values, np.int64 if name in _INT64_COLUMNS else np.int32)
    return freeze(array.copy())


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """Makes an array read-only, and returns a view, which NumPy can't make writable again."""
    array.setflags(write=False)
    return array.view()


def _are_equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return type(left) is type(right) and bool(left == right)


class Windows(NamedTuple):
    """Texts that are split into overlapping windows.

    Attributes:
        batch: one result for each window. Offsets refer to the full text.
        text_ids: index of each window's text, `int64`, shape `(num_windows,)`.
    """

    batch: TokenizationBatch
    text_ids: NDArray[np.int64]


class MergedWindows(NamedTuple):
    """Values of the tokens of full texts, merged from windows by `tokjax.align.merge_windows`.

    Attributes:
        values: one value for each token, shape `(n, ...)`.
        offsets: 1-based byte spans, `int64`, shape `(n, 2)`.
        row_splits: bounds of each text's tokens, `int64`, shape `(num_texts + 1,)`.
        offsets_reference: text that the offsets refer to, as in `ResultMetadata`.
    """

    values: Array
    offsets: NDArray[np.int64]
    row_splits: NDArray[np.int64]
    offsets_reference: OffsetsReference = "input_text"
