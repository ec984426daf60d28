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

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from tokjax._util.arrays import Array, as_integers
from tokjax._util.checks import reject_one_text
from tokjax._util.display import render_tokens_html, short_repr
from tokjax.core.ragged import COLUMNS, Ragged
from tokjax.errors import InvalidArgumentError
from tokjax.offsets import offsets_coordinate_system, offsets_index_base, offsets_span_style

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tokjax.core.utf8 import Text

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
    # `Any` rather than `None`: callers know which columns they requested, and need no check for the type.
    offsets: NDArray[np.int64] | Any = None
    attention_mask: NDArray[np.int32] | Any = None
    token_type_ids: NDArray[np.int32] | Any = None
    special_tokens_mask: NDArray[np.int32] | Any = None
    word_ids: NDArray[np.int32] | Any = None
    sequence_ids: NDArray[np.int32] | Any = None
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
    """Descriptor of a field of a result or a batch that is computed at the first access.

    The value is stored in the instance, which then hides the descriptor.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, record: Any, owner: type) -> Any:
        """Returns the value of the field."""
        if record is None:
            return self
        values = record.__dict__
        return values.setdefault(self._name, values["_compute"](self._name))  # the first of several threads


for _name in ("tokens", *COLUMNS[1:], "attention_mask"):
    setattr(TokenizationResult, _name, _LazyColumn(_name))


@dataclass(frozen=True, eq=False, repr=False, init=False)
class TokenizationBatch(Sequence[TokenizationResult]):
    """Flat columns of many texts, and a sequence of `TokenizationResult`s that are views of the columns.

    An item is made when it is accessed. `batch.ragged` has all columns. These are read-only NumPy arrays.

    Attributes:
        ids: token ids of all texts, `int32`, shape `(n,)`.
        row_splits: bounds of each text's tokens, `int64`, shape `(num_texts + 1,)`.
        offsets: 1-based byte spans, `int64`, shape `(n, 2)`, or `None`.
        special_tokens_mask: 1 on special tokens, `int32`, shape `(n,)`, or `None`.
        token_type_ids: index of each token's segment of the input, `int32`, shape `(n,)`, or `None`.
        word_ids: index of each token's word, -1 for inserted tokens, `int32`, shape `(n,)`, or `None`.
        sequence_ids: index of each token's text in a pair, -1 for inserted tokens, `int32`, shape `(n,)`, or
            `None`.
        metadata: model of the tokenizer, and meaning of the offsets.
        get_token_strings: function that returns the readable forms of ids.
        has_attention_mask: whether items have an attention mask. The batch does not store it: it is all ones.
    """

    ids: NDArray[np.int32]
    row_splits: NDArray[np.int64]
    offsets: NDArray[np.int64] | Any
    special_tokens_mask: NDArray[np.int32] | Any
    token_type_ids: NDArray[np.int32] | Any
    word_ids: NDArray[np.int32] | Any
    sequence_ids: NDArray[np.int32] | Any
    metadata: ResultMetadata
    get_token_strings: TokenStringLookup
    has_attention_mask: bool

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
        copied = ragged._replace(
            **{
                name: _freeze_copy(name, column)
                for name, column in ragged._asdict().items()
                if column is not None
            }
        )
        mask = has_attention_mask
        batch = make_batch_without_copy(copied, metadata, get_token_strings, has_attention_mask=mask)
        vars(self).update(vars(batch))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the columns, and the readable forms of their ids instead of the vocabulary."""
        get_token_strings = partial(_look_up_strings, self._map_token_strings())
        make_batch = partial(make_batch_without_copy, has_attention_mask=self.has_attention_mask)
        return make_batch, (self.ragged, self.metadata, get_token_strings)

    def replace_columns(self, ragged: Ragged, metadata: ResultMetadata | None = None) -> TokenizationBatch:
        """Returns a batch with other columns, as in `make_batch_without_copy`, and the same tokenizer."""
        return make_batch_without_copy(
            ragged,
            metadata or self.metadata,
            self.get_token_strings,
            has_attention_mask=self.has_attention_mask,
        )

    def _map_token_strings(self) -> dict[int, str]:
        """Returns the readable form of each id of the batch."""
        distinct = np.unique(self.ids)
        return dict(zip(distinct.tolist(), self.get_token_strings(distinct), strict=True))

    @property
    def ragged(self) -> Ragged:
        """All columns, as read-only NumPy arrays."""
        return Ragged(*(getattr(self, name) for name in Ragged._fields))

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
        splits = self.row_splits
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
            return self.get_token_strings(self.ids[part])
        if name == "attention_mask":
            return freeze(np.ones(part.stop - part.start, np.int32)) if self.has_attention_mask else None
        column = getattr(self, name)
        return None if column is None else column[part]

    def __eq__(self, other: object) -> bool:
        """Compares columns, tokens and metadata by value."""
        if not isinstance(other, TokenizationBatch):
            return NotImplemented
        return (
            self.metadata == other.metadata
            and self.has_attention_mask == other.has_attention_mask
            and all(map(_are_equal, self.ragged, other.ragged))
            and self._map_token_strings() == other._map_token_strings()
        )

    def __hash__(self) -> int:
        """Computes a hash that is equal for equal batches."""
        return hash((self.ids.tobytes(), self.row_splits.tobytes(), self.metadata))

    def __repr__(self) -> str:
        """Shows the number of texts and tokens, and the names of the columns."""
        columns = [name for name in COLUMNS if vars(self).get(name, self) is not None]
        return (
            f"TokenizationBatch({len(self)} texts, {len(self.ids)} tokens, "
            f"columns: {', '.join(columns)}, offsets in {self.metadata.offsets_reference})"
        )

    def _repr_html_(self) -> str:
        shown = "".join(f"<li>{result._repr_html_()}</li>" for result in self[:10])
        more = f"<p>and {len(self) - 10} more texts</p>" if len(self) > 10 else ""
        return f"<ol start='0'>{shown}</ol>{more}"


for _name in COLUMNS[1:]:
    setattr(TokenizationBatch, _name, _LazyColumn(_name))

Results = TokenizationBatch | Ragged | Iterable[TokenizationResult]
"""Type of the results that all batching functions take."""


def make_batch_without_copy(
    ragged: Ragged,
    metadata: ResultMetadata,
    get_token_strings: TokenStringLookup,
    *,
    has_attention_mask: bool,
    lazy: Collection[str] = (),
    compute: Callable[[str], NDArray[Any]] | None = None,
) -> TokenizationBatch:
    """Makes a batch without copying its columns.

    Args:
        ragged: valid columns with the dtypes of `make_ragged`. They become read-only, so the caller must not
            have writable views of them.
        metadata: model of the tokenizer, and meaning of the offsets.
        get_token_strings: function that returns the readable forms of ids.
        has_attention_mask: whether items have an attention mask.
        lazy: names of further columns, which `compute` computes when they are first read.
        compute: function of the name of such a column.
    """
    columns = {
        name: None if column is None else freeze(np.asarray(column))
        for name, column in zip(Ragged._fields, ragged, strict=True)
        if name not in lazy
    }
    batch = object.__new__(TokenizationBatch)  # skips the constructor, which copies its arrays
    vars(batch).update(
        columns,
        metadata=metadata,
        get_token_strings=get_token_strings,
        has_attention_mask=has_attention_mask,
        _compute=lambda name: freeze(compute(name)) if compute else None,
    )
    return batch


def _look_up_strings(strings_by_id: dict[int, str], ids: NDArray[np.int32]) -> tuple[str, ...]:
    return tuple(map(strings_by_id.__getitem__, ids.tolist()))


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


@short_repr
class Windows(NamedTuple):
    """Texts that are split into overlapping windows.

    Attributes:
        batch: one result for each window. Offsets refer to the full text.
        text_ids: index of each window's text, `int64`, shape `(num_windows,)`.
        starts: position of each window's first token among the tokens of its text, for both texts of a pair,
            `int64`, shape `(num_windows, 2)`.
    """

    batch: TokenizationBatch
    text_ids: NDArray[np.int64]
    starts: NDArray[np.int64]


@short_repr
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


Registered = TypeVar("Registered")
Mapped = TypeVar("Mapped", TokenizationResult, TokenizationBatch, Windows, list[TokenizationResult])


class MapOffsets(Protocol):
    """Type of `map_offsets_to_input`: a generic function of arrays, which also takes results."""

    def register(self, cls: type, func: Any = None) -> Callable[[Registered], Registered]:
        """Registers an implementation for an array, as `functools.singledispatch` does."""

    @overload
    def __call__(self, tokenizer: Any, text: Any, offsets: Mapped, *, pair: Any = None) -> Mapped: ...
    @overload
    def __call__(self, tokenizer: Any, text: Text, offsets: ArrayLike) -> NDArray[np.int64]: ...


def accept_results(map_spans: Callable[..., NDArray[np.int64]]) -> MapOffsets:
    """Decorates the generic function `map_offsets_to_input` of arrays, so that it takes results, too."""

    @wraps(map_spans)
    def map_offsets(tokenizer: Any, text: Any, offsets: Any, *, pair: Any = None) -> Any:
        if isinstance(offsets, Windows):
            text_ids = np.repeat(offsets.text_ids, offsets.batch.lengths)
            return offsets._replace(batch=map_tokens(tokenizer, [text, pair], offsets.batch, text_ids))
        if isinstance(offsets, TokenizationBatch):
            text_ids = np.repeat(np.arange(len(offsets)), offsets.lengths)
            return map_tokens(tokenizer, [text, pair], offsets, text_ids)
        if isinstance(offsets, TokenizationResult):
            texts = [None if each is None else [each] for each in (text, pair)]
            return map_tokens(tokenizer, texts, offsets, np.zeros(len(offsets), np.int64))
        if isinstance(offsets, list) and isinstance(next(iter(offsets), None), TokenizationResult):
            _check_texts(text, 0, np.arange(len(offsets)))
            pairs = pair or [None] * len(offsets)
            return [map_offsets(tokenizer, text[i], row, pair=pairs[i]) for i, row in enumerate(offsets)]
        return map_spans(tokenizer, text, as_integers("offsets", offsets, np.int64))

    def map_tokens(tokenizer: Any, texts: list[Any], tokens: Any, text_ids: NDArray[np.int64]) -> Any:
        """Maps the offsets of a result or a batch, those of all tokens of a text in one call."""
        if tokens.metadata.offsets_reference == "input_text":
            return tokens
        if tokens.offsets is None:
            raise InvalidArgumentError("the results have no offsets; encode with return_offsets=True")
        offsets = np.array(tokens.offsets)
        for sequence_id, rows in enumerate(texts):
            is_in_sequence = np.equal(0 if tokens.sequence_ids is None else tokens.sequence_ids, sequence_id)
            indices = np.flatnonzero(np.broadcast_to(is_in_sequence, len(offsets)))
            _check_texts(rows, sequence_id, text_ids[indices])
            indices = indices[np.argsort(text_ids[indices], kind="stable")]
            splits = np.searchsorted(text_ids[indices], np.arange(len(rows or ()) + 1)).tolist()
            for text, (start, stop) in zip(rows or (), pairwise(splits), strict=True):
                part = indices[start:stop]
                if len(part):
                    offsets[part] = map_spans(tokenizer, text, offsets[part])
        metadata = replace(tokens.metadata, offsets_reference="input_text")
        if isinstance(tokens, TokenizationResult):
            return replace(tokens, offsets=offsets, metadata=metadata)
        return tokens.replace_columns(tokens.ragged._replace(offsets=offsets), metadata)

    return map_offsets  # type: ignore[return-value]


def _check_texts(texts: Sequence[Text] | None, sequence_id: int, text_ids: NDArray[np.int64]) -> None:
    """Raises `InvalidArgumentError` if a token has no text."""
    name = "pair" if sequence_id else "text"
    if texts is not None:
        reject_one_text(texts)
    elif len(text_ids):
        raise InvalidArgumentError(f"the results have tokens of a second text; pass {name}= as in encoding")
    count = int(text_ids.max(initial=-1)) + 1
    if texts is not None and len(texts) < count:
        raise InvalidArgumentError(
            f"{name} has {len(texts)} texts, and the results are those of {count}; pass the texts that were "
            "encoded"
        )
