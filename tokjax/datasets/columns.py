"""Side columns of datasets: values that are stored for each token, or for each document, next to the ids.

Three documents, a column `loss_mask` per token and a column `score` per document. The field adds `</s>` (id
0) to each document, whose loss mask is the fill value, 0:

    first       {"ids": [7, 8, 9], "loss_mask": [0, 1, 1], "score": 0.5}
    tokens      7  8  9  0  |  5  0  |  0              shard-00000.tokens.npy
    loss_mask   0  1  1  0  |  1  0  |  0              shard-00000.loss_mask.npy, 7 bits in one byte: 0x16
    score       0.5         |  0.25  |  1.0            shard-00000.score.npy

Booleans are stored as bits, the first value in the lowest bit of the first byte. See docs/dataset-format.md,
section "Side columns".
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from tokjax._util.checks import check_choice
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import DTypeLike, NDArray


Per: TypeAlias = Literal["token", "document"]
ColumnSource: TypeAlias = Literal["record", "field", "byte_lengths"]

LOSS_MASK = "loss_mask"
"""Name of the column that loaders give as the `loss_mask` of a batch."""
IDS_KEY = "ids"
"""Key of a record that holds the ids of a document, instead of its text."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_RESERVED = (IDS_KEY, "tokens", "text", "num_tokens", "byte_length", "char_length", "doc_id")
_DTYPES = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *(f"float{bits}" for bits in (16, 32, 64)),
)


@dataclass(frozen=True)
class StoredColumn:
    """Values of the tokens or documents of a dataset, as they are stored in a file of each shard.

    Attributes:
        name: name of the column, and of its files.
        dtype: name of the dtype of the values.
        per: whether each `"token"` (for texts, each byte) or each `"document"` has a value.
    """

    name: str
    dtype: str
    per: Per = "token"

    @cached_property
    def kind(self) -> str:
        """Kind of the dtype: `"b"`, `"i"`, `"u"` or `"f"`."""
        return np.dtype(self.dtype).kind

    @cached_property
    def bits(self) -> int:
        """Number of bits of a stored value: 1 for booleans."""
        return 1 if self.kind == "b" else 8 * np.dtype(self.dtype).itemsize

    @cached_property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype of the file: that of the values, little-endian; `uint8` for the bytes of packed booleans."""
        return np.dtype(np.uint8) if self.kind == "b" else np.dtype(self.dtype).newbyteorder("<")

    def count_stored(self, count: int) -> int:
        """Returns the number of entries of the file for `count` values."""
        return -(-count // 8) if self.kind == "b" else count

    def pack(self, values: NDArray[Any]) -> NDArray[Any]:
        """Returns values as they are stored, shape `(count_stored(len(values)),)`."""
        if self.kind == "b":
            return np.packbits(values, bitorder="little")
        return values.astype(self.stored_dtype, copy=False)

    def unpack(self, stored: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
        """Returns values `[start, stop)` of a file, in the dtype of the column, shape `(stop - start,)`."""
        if self.kind != "b":
            return stored[start:stop].astype(self.dtype, copy=False)
        first = start // 8
        bits = np.unpackbits(stored[first : -(-stop // 8)], bitorder="little")
        return bits[start - 8 * first : stop - 8 * first].view(np.bool_)


@dataclass(frozen=True)
class Column(StoredColumn):
    """Description of a side column of a dataset. Pass it to a field: `PackedTokenField(..., columns=[...])`.

    Values come from the records that are written (`source="record"`): a record has them under the name of the
    column. A column per token has one value for each id of the document, without the special tokens that the
    field adds. These get the fill value. A record can also have one value for each id that the field stores
    before truncation, with those of the special tokens.

    A column named `loss_mask` becomes the `loss_mask` of batches, which is 0 on padding. It is boolean or of
    integers, per token. With `fill=1`, special tokens that the field adds, such as EOS, count as targets.

    Attributes:
        name: name of the column: lower-case ASCII letters, digits and underscores, at most 64 characters.
        dtype: dtype of the values: `"bool"` (stored as bits), an integer of 8 to 64 bits, or a float of 16 to
            64 bits. Any form that `np.dtype` accepts; it is stored as a name.
        per: whether each `"token"` or each `"document"` has a value.
        fill: value of special tokens that the field adds, and of padding in batches.
        source: where values come from: `"record"` for the records of the source; `"byte_lengths"` for the
            number of bytes from the end of the previous token to the end of this one, in the UTF-8 text of
            the document; `"field"` for values that the field computes (`ChatField`, and custom fields).

    Raises:
        InvalidArgumentError: the name is reserved or has other characters, or an option is invalid.

    >>> Column("loss_mask", bool)
    Column(name='loss_mask', dtype='bool', per='token', fill=False, source='record')
    """

    fill: bool | int | float = 0
    source: ColumnSource = "record"

    def __post_init__(self) -> None:
        """Checks the options, and converts the dtype to its name."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidArgumentError(
                f"the name of a column must be lower-case letters, digits and underscores, such as "
                f"'weights', not {self.name!r:.100}"
            )
        if self.name in _RESERVED:
            raise InvalidArgumentError(
                f"the name {self.name!r} is reserved; choose another name for the column"
            )
        object.__setattr__(self, "dtype", _get_dtype_name(self.name, self.dtype))
        for option, value, allowed in (
            ("per", self.per, get_args(Per)),
            ("source", self.source, get_args(ColumnSource)),
        ):
            check_choice(f"column {self.name!r}: {option}", value, allowed)
        if self.source == "byte_lengths" and (self.per != "token" or self.kind not in "iu"):
            raise InvalidArgumentError(
                f"column {self.name!r}: source='byte_lengths' needs per='token' and a dtype of integers, "
                f"such as 'uint16', not per={self.per!r} and dtype={self.dtype!r}"
            )
        if self.name == LOSS_MASK and (self.per != "token" or self.kind == "f"):
            raise InvalidArgumentError(
                f"column {LOSS_MASK!r} must be boolean or integers, per token; call weights of tokens "
                "'weights'"
            )
        fill = convert_values(self, self.fill, f"column {self.name!r}: fill", ndim=0)
        object.__setattr__(self, "fill", fill.item())


def check_columns(columns: object) -> tuple[Column, ...]:
    """Returns the columns of a field as a tuple.

    Raises:
        InvalidArgumentError: `columns` is not a list of columns, or two columns have the same name.
    """
    if not isinstance(columns, (list, tuple)) or not all(isinstance(each, Column) for each in columns):
        raise InvalidArgumentError(
            "columns must be a list of tokjax.datasets.Column, such as [Column('loss_mask', 'bool')], not "
            f"{columns!r:.100}"
        )
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"duplicate column {name!r}")
    return tuple(columns)


def describe_columns(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Returns the entries of columns in a manifest, as JSON values."""
    return [asdict(column) | {"bits": column.bits} for column in columns]


def parse_columns(described: object) -> tuple[Column, ...]:
    """Returns columns from their entries in a manifest. Inverse of `describe_columns`.

    Raises:
        ValueError: an entry is not one that `describe_columns` returns.
    """
    if not isinstance(described, list) or not all(isinstance(entry, dict) for entry in described):
        raise ValueError(f"plan.columns is {described!r:.200}")
    columns = tuple(
        Column(**{key: value for key, value in entry.items() if key != "bits"}) for entry in described
    )
    if describe_columns(check_columns(columns)) != described:
        raise ValueError(f"plan.columns is {described!r:.200}")
    return columns


def convert_values(column: Column, values: object, name: str, *, ndim: int = 1) -> NDArray[Any]:
    """Returns values in the dtype of a column, as an array.

    Args:
        column: description of the column.
        values: the values.
        name: name of the values in errors.
        ndim: 1 for the values of tokens, shape `(num_tokens,)`; 0 for one value, shape `()`.

    Raises:
        InvalidArgumentError: the values are not numbers that the dtype holds, or have another shape.
    """
    array = _as_array(values, name)
    if array.ndim and not ndim:
        raise InvalidArgumentError(f"{name} is {values!r:.80}; a document has one value, not a list")
    if array.ndim != ndim:
        raise InvalidArgumentError(
            f"{name} has shape {array.shape}; it needs a flat list with one value for each token"
        )
    return _convert(column, array, name)


def check_cast(name: str, stored: DTypeLike, target: DTypeLike) -> np.dtype[Any]:
    """Returns the dtype to cast a column to on loading.

    Raises:
        InvalidArgumentError: the dtype is not one of numbers or booleans, or the cast would lose information
            in every value: floats to integers, or numbers to booleans.
    """
    before, after = np.dtype(stored), _resolve_dtype(target)
    if after is None or after.name not in (*_DTYPES, "bfloat16"):
        raise InvalidArgumentError(
            f"column {name!r}: the dtype to load must be one of {', '.join(_DTYPES)}, not {target!r}"
        )
    if (after.kind == "b" and before.kind != "b") or (after.kind in "iu" and before.kind == "f"):
        raise InvalidArgumentError(
            f"column {name!r} has the dtype {before}, and can't be cast to {after}; cast it in your program, "
            "as you need it"
        )
    return after


def cast_values(name: str, values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns loaded values in a dtype that `check_cast` has accepted.

    Raises:
        InvalidArgumentError: a value does not fit an integer dtype, or a finite value becomes infinite.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind in "iu":
        _check_range(values, dtype, f"column {name!r}", f"; load it as {values.dtype.name}")
        return values.astype(dtype)
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)
    if values.dtype.kind != "b" and not np.can_cast(values.dtype, dtype):
        overflown = np.isinf(cast.astype(np.float64)) & ~np.isinf(values)
        if overflown.any():
            raise InvalidArgumentError(
                f"column {name!r} holds {values[overflown].flat[0]}, which does not fit {dtype}; load it as "
                f"{values.dtype.name}"
            )
    return cast


def compute_byte_lengths(offsets: NDArray[np.int64], splits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Computes the number of bytes from the end of the previous token of a document to the end of each token.

    The running sum of the values of a document has the ends of its tokens. If the tokens cover the text
    without gaps, as those of byte-level tokenizers do, this gives the offsets.

        text "a  bc", tokens "a" and "bc"    offsets (1, 2), (4, 6)    byte lengths 1, 4

    Args:
        offsets: 1-based byte spans of the tokens of all documents; `(0, 0)` for tokens without text. Shape
            `(n, 2)`.
        splits: start of each document in `offsets`, and the end of the last, `int64`, shape
            `(documents + 1,)`.

    Returns:
        `int64`, shape `(n,)`; 0 for tokens without text.
    """
    ends = np.maximum(offsets[:, 1] - 1, 0)
    # A running maximum skips tokens without text. The documents are shifted apart, so that it restarts.
    base = int(ends.max(initial=0)) + 1
    documents = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    shifted = np.maximum.accumulate(ends + documents * base) - documents * base
    previous = np.concatenate([np.zeros(1, np.int64), shifted[:-1]])[: len(shifted)]
    previous[splits[:-1][np.diff(splits) > 0]] = 0
    lengths: NDArray[np.int64] = shifted - previous
    return lengths


def get_record_columns(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Returns the columns whose values come from records."""
    return tuple(column for column in columns if column.source == "record")


def _resolve_dtype(dtype: DTypeLike) -> np.dtype[Any] | None:
    """Returns a dtype, or `None` if NumPy has none of that name."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return None


def _get_dtype_name(name: str, dtype: DTypeLike) -> str:
    resolved = _resolve_dtype(dtype)
    if resolved is None or resolved.name not in _DTYPES:
        advice = "; store strings as integer codes" if resolved is not None and resolved.kind in "USO" else ""
        raise InvalidArgumentError(
            f"column {name!r}: dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}{advice}"
        )
    return resolved.name


def _as_array(values: object, name: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidArgumentError(f"{name} has rows of unequal length") from None
    if not array.size:
        return array.astype(bool)
    if array.dtype.kind in "USO":
        culprit = next((value for value in array.flat if not isinstance(value, (int, float))), array.flat[0])
        if isinstance(culprit, (int, float)):
            raise InvalidArgumentError(f"{name} holds {culprit}, which does not fit 64 bits")
        advice = "store strings as integer codes" if isinstance(culprit, (str, bytes)) else "pass a number"
        raise InvalidArgumentError(f"{name} is {culprit!r:.80}, which is not a number; {advice}")
    if array.dtype.kind == "f" and array.max() >= 1 << 63:
        # NumPy converts a list with integers below and above 2**63 to floats, which are not exact.
        exact = np.asarray(values, object)
        if all(isinstance(value, (int, np.integer)) and value >= 0 for value in exact.flat):
            return exact.astype(np.uint64)
    if array.dtype.kind not in "biuf":
        raise InvalidArgumentError(f"{name} has the dtype {array.dtype}; pass integers, floats or booleans")
    return array


def _convert(column: Column, array: NDArray[Any], name: str) -> NDArray[Any]:
    dtype = np.dtype(column.dtype)
    if array.dtype == dtype and dtype.kind != "f":
        return array
    if dtype.kind == "f":
        return _convert_to_floats(array, dtype, name)
    if array.dtype.kind == "f":
        raise InvalidArgumentError(
            f"{name} holds {array.flat[0]}, a float, and the dtype of the column is {dtype}; pass integers, "
            "or declare a float dtype"
        )
    _check_range(array, dtype, name, "; declare a larger dtype" if dtype.kind != "b" else "")
    return array.astype(dtype)


def _convert_to_floats(array: NDArray[Any], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    is_invalid = ~np.isfinite(converted)
    if is_invalid.any():
        value = array[is_invalid].flat[0]
        cause = "is not finite" if not np.isfinite(value) else f"does not fit {dtype}"
        raise InvalidArgumentError(f"{name} holds {value}, which {cause}")
    return converted


def _check_range(array: NDArray[Any], dtype: np.dtype[Any], name: str, advice: str) -> None:
    """Raises `InvalidArgumentError` for an integer that an integer or boolean dtype does not hold."""
    if array.dtype.kind == "b" or not array.size:
        return
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for value in (int(array.min()), int(array.max())):
        if not low <= value <= high:
            raise InvalidArgumentError(f"{name} holds {value}, which does not fit {dtype}{advice}")
