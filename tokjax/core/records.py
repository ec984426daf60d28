"""The records that a person reads: one text's tokens, and a batch of them.

Both are immutable: attributes can't be set, and arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from tokjax._util.arrays import Array, as_integers
from tokjax._util.display import render_tokens_html
from tokjax.core.ragged import COLUMNS, Ragged
from tokjax.errors import InvalidArgumentError
from tokjax.offsets import offsets_coordinate_system, offsets_index_base, offsets_span_style

_INT64_COLUMNS = ("offsets", "row_splits")

TokenStringLookup = Callable[[NDArray[np.int32]], tuple[str, ...]]
"""Gives the readable forms of ids."""
OffsetsReference = Literal["input_text", "tokenizer_normalized_text"]


@dataclass(frozen=True)
class ResultMetadata:
    """Where a result comes from, and what its offsets mean.

    Attributes:
        model: the kind of tokenizer, for instance `"byte_level_bpe"`.
        normalizer: what the tokenizer does to a text before it splits it, or `None`.
        offsets_reference: `"input_text"` if offsets are places in the text as given;
            `"tokenizer_normalized_text"` if in `tokenization_view(tokenizer, text)`.
        offsets_coordinate_system: what a span counts, `"utf8_bytes"`.
        offsets_index_base: the number of the first byte, 1.
        offsets_span_style: `"half_open"`.
    """

    model: str
    normalizer: str | None = None
    offsets_reference: OffsetsReference = "input_text"
    offsets_coordinate_system: str = offsets_coordinate_system()
    offsets_index_base: int = offsets_index_base()
    offsets_span_style: str = offsets_span_style()


@dataclass(frozen=True, eq=False, repr=False)
class TokenizationResult:
    r"""The tokens of one text. Arrays given to it are copied.

    Attributes:
        ids: `int32`, shape `(n,)`, 0-based.
        tokens: `n` readable strings (bytes that are no UTF-8 as `\xNN`); `id_to_bytes` is exact.
        offsets: 1-based half-open spans of UTF-8 bytes, `int64` of shape `(n, 2)`, or `None`.
        attention_mask: all 1 (padding comes with collation), `int32` of shape `(n,)`, or `None`.
        token_type_ids: `int32`, shape `(n,)`, or `None`.
        special_tokens_mask: 1 on special tokens, inserted or found, `int32` of shape `(n,)`, or `None`.
        word_ids: which word of the text, -1 for inserted tokens, `int32` of shape `(n,)`, or `None`.
        sequence_ids: which text of a pair, -1 for inserted tokens, `int32` of shape `(n,)`, or `None`.
        metadata: what the offsets refer to, and which model made them.
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
        """Check that all columns are of one length, and freeze them."""
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
        """Pickle as the call that makes it, so that arrays are read-only again."""
        return TokenizationResult, tuple(getattr(self, column.name) for column in fields(self))

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    def __eq__(self, other: object) -> bool:
        """Equal if every field is, arrays by their values."""
        if not isinstance(other, TokenizationResult):
            return NotImplemented
        return all(
            _are_equal(getattr(self, column.name), getattr(other, column.name)) for column in fields(self)
        )

    def __hash__(self) -> int:
        """Equal results have equal hashes."""
        return hash((self.ids.tobytes(), self.tokens, self.metadata))

    def __repr__(self) -> str:
        """The first tokens with their ids, and the names of the columns that are there."""
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


class TokenizationBatch(Sequence[TokenizationResult]):
    """Flat columns for many texts, and a sequence of `TokenizationResult`s that are views of them.

    The columns of `Ragged` are attributes (`batch.ids`, `batch.row_splits`, `batch.offsets`, ...), and
    `batch.ragged` is the `Ragged` itself. An item is made when it is asked for.

    Attributes:
        ragged: the columns, as read-only NumPy arrays.
        metadata: what the offsets refer to, and which model made them.
        has_attention_mask: whether the items carry an attention mask (in a batch it is all ones).
    """

    __slots__ = ("_get_token_strings", "has_attention_mask", "metadata", "ragged")

    ragged: Ragged
    metadata: ResultMetadata
    has_attention_mask: bool
    _get_token_strings: TokenStringLookup

    def __init__(
        self,
        ragged: Ragged,
        metadata: ResultMetadata,
        get_token_strings: TokenStringLookup,
        *,
        has_attention_mask: bool = True,
    ) -> None:
        """Copy checked columns (see `make_ragged`); `get_token_strings` gives the readable forms of ids."""
        frozen: dict[str, Any] = {
            name: None if column is None else _freeze_copy(name, column)
            for name, column in ragged._asdict().items()
        }
        self._set_fields(Ragged(**frozen), metadata, get_token_strings, has_attention_mask)

    def _set_fields(
        self,
        ragged: Ragged,
        metadata: ResultMetadata,
        get_token_strings: TokenStringLookup,
        has_attention_mask: bool,
    ) -> None:
        set_once = object.__setattr__
        set_once(self, "ragged", ragged)
        set_once(self, "metadata", metadata)
        set_once(self, "has_attention_mask", has_attention_mask)
        set_once(self, "_get_token_strings", get_token_strings)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: the record is immutable."""
        raise AttributeError(f"TokenizationBatch is immutable; {name} can't be set")

    def __delattr__(self, name: str) -> None:
        """Refuse: the record is immutable."""
        raise AttributeError(f"TokenizationBatch is immutable; {name} can't be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns, and the readable forms of the ids that they hold."""
        return _restore_batch, (
            self.ragged,
            self.metadata,
            TokenStringTable.from_ids(self.ids, self._get_token_strings),
            self.has_attention_mask,
        )

    @property
    def ids(self) -> NDArray[np.int32]:
        """All ids, `int32`, shape `(n,)`."""
        return self.ragged.ids  # type: ignore[return-value]

    @property
    def row_splits(self) -> NDArray[np.int64]:
        """Where each text's tokens start, `int64`, shape `(texts + 1,)`."""
        return self.ragged.row_splits  # type: ignore[return-value]

    @property
    def offsets(self) -> NDArray[np.int64] | None:
        """1-based byte spans, `int64`, shape `(n, 2)`, or `None`."""
        return self.ragged.offsets  # type: ignore[return-value]

    @property
    def special_tokens_mask(self) -> NDArray[np.int32] | None:
        """1 on special tokens, `int32`, shape `(n,)`, or `None`."""
        return self.ragged.special_tokens_mask  # type: ignore[return-value]

    @property
    def token_type_ids(self) -> NDArray[np.int32] | None:
        """Segment of the input, `int32`, shape `(n,)`, or `None`."""
        return self.ragged.token_type_ids  # type: ignore[return-value]

    @property
    def word_ids(self) -> NDArray[np.int32] | None:
        """Word of the text, `int32`, shape `(n,)`, or `None`."""
        return self.ragged.word_ids  # type: ignore[return-value]

    @property
    def sequence_ids(self) -> NDArray[np.int32] | None:
        """Text of a pair, `int32`, shape `(n,)`, or `None`."""
        return self.ragged.sequence_ids  # type: ignore[return-value]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each text, `int64`, shape `(texts,)`."""
        return np.diff(self.row_splits)

    def __len__(self) -> int:
        """The number of texts."""
        return self.ragged.num_rows

    @overload
    def __getitem__(self, index: int) -> TokenizationResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[TokenizationResult]: ...
    def __getitem__(self, index: int | slice) -> TokenizationResult | list[TokenizationResult]:
        """The result of one text, or a list of results for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"batch of {len(self)} texts has no text {index}")
        row = range(len(self))[index]
        part = slice(int(self.row_splits[row]), int(self.row_splits[row + 1]))
        columns: dict[str, Any] = {
            name: None if column is None else column[part]
            for name, column in self.ragged._asdict().items()
            if name != "row_splits"
        }
        columns["attention_mask"] = _make_ones(part.stop - part.start) if self.has_attention_mask else None
        result = object.__new__(TokenizationResult)  # its arrays are views, checked and frozen already
        for name, column in columns.items():
            object.__setattr__(result, name, column)
        object.__setattr__(result, "tokens", self._get_token_strings(result.ids))
        object.__setattr__(result, "metadata", self.metadata)
        return result

    def __eq__(self, other: object) -> bool:
        """Equal if all columns, tokens and the metadata are."""
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
        """Equal batches have equal hashes."""
        return hash((self.ids.tobytes(), self.row_splits.tobytes(), self.metadata))

    def __repr__(self) -> str:
        """How many texts and tokens, and the names of the columns that are there."""
        columns = [name for name in COLUMNS if getattr(self.ragged, name) is not None]
        return (
            f"TokenizationBatch({len(self)} texts, {len(self.ids)} tokens, "
            f"columns: {', '.join(columns)}, offsets in {self.metadata.offsets_reference})"
        )

    def _repr_html_(self) -> str:
        shown = "".join(f"<li>{result._repr_html_()}</li>" for result in self[:10])
        more = f"<p>and {len(self) - 10} more texts</p>" if len(self) > 10 else ""
        return f"<ol start='0'>{shown}</ol>{more}"


Results = TokenizationBatch | Ragged | Iterable[TokenizationResult]
"""What every batching function takes for results."""


@dataclass(frozen=True)
class TokenStringTable:
    """The readable forms of some ids: what a batch needs of a vocabulary.

    Attributes:
        strings_by_id: id to readable form.
    """

    strings_by_id: dict[int, str]

    @classmethod
    def from_ids(cls, ids: NDArray[np.int32], get_token_strings: TokenStringLookup) -> TokenStringTable:
        """The forms of all different ids."""
        different = np.unique(ids)
        return cls(dict(zip(different.tolist(), get_token_strings(different), strict=True)))

    def __call__(self, ids: NDArray[np.int32]) -> tuple[str, ...]:
        """The readable forms of ids."""
        return tuple(map(self.strings_by_id.__getitem__, ids.tolist()))


def make_batch_without_copy(
    ragged: Ragged,
    metadata: ResultMetadata,
    get_token_strings: TokenStringLookup,
    *,
    has_attention_mask: bool,
) -> TokenizationBatch:
    """A batch of columns that no one else holds, and that have the right dtypes: they are not copied."""
    batch = TokenizationBatch.__new__(TokenizationBatch)
    frozen: dict[str, Any] = {
        name: None if column is None else _freeze(column) for name, column in ragged._asdict().items()
    }
    batch._set_fields(Ragged(**frozen), metadata, get_token_strings, has_attention_mask)
    return batch


def _restore_batch(
    ragged: Ragged, metadata: ResultMetadata, get_token_strings: TokenStringLookup, has_attention_mask: bool
) -> TokenizationBatch:
    return make_batch_without_copy(ragged, metadata, get_token_strings, has_attention_mask=has_attention_mask)


def _make_ones(length: int) -> NDArray[np.int32]:
    return _freeze(np.ones(length, np.int32))


def _freeze_copy(name: str, values: Any) -> NDArray[Any]:
    """A read-only copy, of the column's dtype."""
    array = as_integers(name, values, np.int64 if name in _INT64_COLUMNS else np.int32)
    return _freeze(array.copy())


def _freeze(array: NDArray[Any]) -> NDArray[Any]:
    """A view that can't be made writable again, since its base is read-only."""
    array.setflags(write=False)
    return array.view()


def _are_equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.array_equal(left, right)
    return type(left) is type(right) and bool(left == right)


class Windows(NamedTuple):
    """Texts in windows.

    Attributes:
        batch: a result a window. Offsets are places in the whole text.
        text_ids: which text each window is of, `int64`, shape `(windows,)`.
    """

    batch: TokenizationBatch
    text_ids: NDArray[np.int64]


class MergedWindows(NamedTuple):
    """Values per token of whole texts, merged from windows by `tokjax.align.merge_windows`.

    Attributes:
        values: one value per token, shape `(n, ...)`.
        offsets: 1-based byte spans, `int64`, shape `(n, 2)`.
        row_splits: bounds of each text's tokens, `int64`, shape `(num_texts + 1,)`.
    """

    values: Array
    offsets: NDArray[np.int64]
    row_splits: NDArray[np.int64]
