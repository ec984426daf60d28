"""SentencePiece model files: parsing of their protocol buffer, loading, and a limit on text growth.

The precompiled normalizer of a model can make a text much longer. The limit rejects models that do.
"""

from __future__ import annotations

import itertools
import struct
import unicodedata
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax._util.limits import exceeds_limit
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.models.format_errors import read_bytes
from tokjax.models.sentencepiece_spans import SPACE, SpaceRules

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Mapping


def check_charsmap(charsmap: bytes) -> None:
    """Rejects a precompiled SentencePiece normalizer that can make a text too long.

    Args:
        charsmap: field `precompiled_charsmap` of the model; empty for none.

    Raises:
        TokenizerFormatError: the normalizer exceeds the limit `text_growth`.
    """
    growth = compute_longest_replacement(charsmap)
    check_text_growth(f"its normalizer can make {growth:,} characters of one", growth)


def compute_longest_replacement(charsmap: bytes) -> int:
    """Returns the length in characters of the longest replacement, after NFKD.

    Args:
        charsmap: size of a trie (4 bytes), the trie, and the replacements, each followed by a zero byte.
    """
    replacements = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
    return max(
        1, *(len(unicodedata.normalize("NFKD", text.decode("utf-8", "replace"))) for text in replacements)
    )


def check_text_growth(about: str, value: float) -> None:
    """Raises `TokenizerFormatError` above the limit `text_growth`.

    Args:
        about: reason for the growth, for the error message.
        value: number of characters, or another measure of the growth.
    """
    exceeded = exceeds_limit("text_growth", value)
    if exceeded:
        raise TokenizerFormatError(f"{about}; {exceeded}")


# Wire types of protocol buffers.
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


def iter_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    r"""Yields the fields of a serialized protocol buffer message in order.

    Args:
        message: one serialized message.

    Yields:
        Field number and value: an integer, or bytes for strings, messages and floating-point numbers.

    Raises:
        ValueError: the bytes are not a message, or are truncated.

    >>> list(iter_fields(b"\x08\x96\x01\x12\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        number, wire_type = key >> 3, key & 7
        size, position = (
            _read_varint(message, position)
            if wire_type in (_VARINT, _LENGTH_DELIMITED)
            else (_get_fixed_size(wire_type), position)
        )
        if wire_type == _VARINT:
            yield number, size
            continue
        if position + size > len(message):
            raise ValueError("truncated: a field ends after the message")
        yield number, message[position : position + size]
        position += size


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Returns the variable-length integer at a position, and the position after it."""
    value = shift = 0
    while position < len(message):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("truncated: the last integer is incomplete")


def _get_fixed_size(wire_type: int) -> int:
    """Returns the number of bytes of a field with a fixed size."""
    if wire_type not in (_FIXED64, _FIXED32):
        raise ValueError(f"not a protocol buffer: unknown wire type {wire_type}")
    return 8 if wire_type == _FIXED64 else 4


ModelType = Literal["unigram", "bpe", "word", "char"]
_MODEL_TYPES: dict[int, ModelType] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class ModelInfo(NamedTuple):
    """Properties of a SentencePiece model that the library does not report.

    Attributes:
        model_type: algorithm that splits texts.
        normalizer: name of the normalizer.
        charsmap: precompiled character map of the normalizer; empty for none.
        spaces: how the model treats whitespace.
        has_byte_fallback: whether an unknown character becomes byte pieces.
        denormalizes: whether decoding changes the text of all pieces by a second normalizer.
    """

    model_type: ModelType
    normalizer: str
    charsmap: bytes
    spaces: SpaceRules
    has_byte_fallback: bool
    denormalizes: bool


class Pieces(NamedTuple):
    """Pieces of a SentencePiece model.

    Attributes:
        texts: text of the piece of each id.
        ids: text of ordinary pieces and user-defined symbols to their ids.
        scores: text of ordinary pieces to their scores.
        symbols: texts of the user-defined symbols.
        byte_ids: bytes to the ids of their pieces; empty if unknown characters do not become bytes.
        unknown_id: id of the unknown piece.
        has_unused: whether there are pieces that may not be in a result.
    """

    texts: list[str]
    ids: dict[str, int]
    scores: dict[str, float]
    symbols: list[str]
    byte_ids: dict[int, int]
    unknown_id: int
    has_unused: bool


def read_model(model: bytes | str | os.PathLike[str]) -> tuple[bytes, str]:
    """Returns the contents of a model, and its name for error messages."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), f"the model of {len(model)} bytes"
    try:
        path = Path(model)
    except TypeError:
        raise InvalidArgumentError(
            f"model must be the path of a .model file, or its contents as bytes, not {type(model).__name__}; "
            "for a SentencePieceProcessor, pass processor.serialized_model_proto()"
        ) from None
    return read_bytes(path), str(path)


def load_processor(proto: bytes) -> Any:
    """Loads the library's `SentencePieceProcessor` from a serialized model.

    The library raises errors of several types for invalid models.
    """
    from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 (slow to import)

    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(proto)
    return processor


def parse_model_info(proto: bytes) -> ModelInfo:
    """Parses the training and normalization settings of a serialized `ModelProto` (fields 2, 3 and 5).

    Raises:
        TokenizerFormatError: the model exceeds a limit.
        ValueError: a field is missing.
    """
    specs: dict[int, bytes] = {}
    num_pieces = 0
    for number, value in iter_fields(proto):
        if number == 1:
            num_pieces += 1
            exceeded = exceeds_limit("vocab_size", num_pieces)
            if exceeded:
                raise TokenizerFormatError(f"has more than {num_pieces - 1:,} pieces; {exceeded}")
        if number in (2, 3, 5):  # a message may be split into several fields
            specs[number] = specs.get(number, b"") + value
    if not specs.keys() >= {2, 3}:
        raise ValueError("it has no trainer and normalizer settings")
    trainer, normalizer, denormalizer = (dict(iter_fields(specs.get(number, b""))) for number in (2, 3, 5))
    for spec in (normalizer, denormalizer):
        check_charsmap(spec.get(2, b""))
    spaces = SpaceRules(
        mark=SPACE if normalizer.get(5, 1) else b" ",
        is_suffix=bool(trainer.get(24, 0)),
        is_added=bool(normalizer.get(3, 1)),
        are_merged=bool(normalizer.get(4, 1)),
    )
    name = normalizer.get(1, b"").decode("utf-8") or "custom"
    return ModelInfo(
        model_type=_MODEL_TYPES[trainer.get(3, 1)],
        normalizer=name,
        charsmap=normalizer.get(2, b""),
        spaces=spaces,
        has_byte_fallback=bool(trainer.get(35, 0)),
        denormalizes=bool(denormalizer.get(2)),
    )


class PieceType(IntEnum):
    """Types of pieces, by their number in a model."""

    NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def iter_pieces(proto: bytes) -> Iterator[tuple[str, float, int]]:
    """Yields text, score and `PieceType` of the pieces of a `ModelProto`, in the order of their ids."""
    for number, message in iter_fields(proto):
        if number == 1:
            fields = dict(iter_fields(message))
            [score] = struct.unpack("<f", fields.get(2, bytes(4)))
            yield fields[1].decode("utf-8"), score, fields.get(3, PieceType.NORMAL)


def parse_pieces(proto: bytes, *, has_byte_fallback: bool) -> Pieces:
    """Parses the pieces of a serialized `ModelProto` that the library accepts.

    Args:
        proto: serialized model.
        has_byte_fallback: whether unknown characters become byte pieces.
    """
    pieces = Pieces([], {}, {}, [], {}, 0, False)
    for id_, (text, score, piece_type) in enumerate(iter_pieces(proto)):
        pieces.texts.append(text)
        if piece_type in (PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.UNUSED):
            pieces.ids[text] = id_
        if piece_type == PieceType.NORMAL:
            pieces.scores[text] = score
        elif piece_type == PieceType.USER_DEFINED:
            pieces.symbols.append(text)
        elif piece_type == PieceType.BYTE and has_byte_fallback:
            pieces.byte_ids[int(text[1:-1], 16)] = id_
        elif piece_type in (PieceType.UNKNOWN, PieceType.UNUSED):
            pieces = pieces._replace(
                unknown_id=id_ if piece_type == PieceType.UNKNOWN else pieces.unknown_id,
                has_unused=pieces.has_unused or piece_type == PieceType.UNUSED,
            )
    return pieces


def append_pieces(proto: bytes, piece_types: Mapping[str, PieceType]) -> bytes:
    """Appends pieces to a serialized `ModelProto`. Names that it already has as such pieces are left out.

    The new pieces get the next ids. A normal piece can become a user-defined symbol, and a symbol a control
    piece. Both keep their ids.

    Args:
        proto: the serialized model.
        piece_types: types of the pieces by name, control pieces or user-defined symbols.

    Raises:
        InvalidArgumentError: the model has one of them as a piece of another type, or a user-defined symbol
            contains a space or `▁`.
    """
    types = {text: piece_type for text, _, piece_type in iter_pieces(proto)}
    changed: dict[bytes, PieceType] = {}
    changes = (PieceType.NORMAL, PieceType.USER_DEFINED), (PieceType.USER_DEFINED, PieceType.CONTROL)
    new_messages: list[bytes] = []
    for name, piece_type in piece_types.items():
        is_symbol, name_bytes = piece_type == PieceType.USER_DEFINED, name.encode("utf-8")
        if is_symbol and (" " in name or "\u2581" in name):
            raise InvalidArgumentError(f"a SentencePiece symbol can't contain a space, as {name!r} does")
        if name not in types:
            new_messages.append(_write_bytes(1, name_bytes) + _write_integer(3, piece_type))
        elif (types[name], piece_type) in changes:
            changed[name_bytes] = piece_type
        elif types[name] != piece_type:
            raise InvalidArgumentError(f"the model already has the piece {name!r}, of another type")
    if changed:
        proto = b"".join(
            _write_bytes(number, value + _write_integer(3, changed[piece]))  # replaces the type
            if number == 1 and (piece := dict(iter_fields(value))[1]) in changed
            else _write_bytes(number, value)
            for number, value in iter_fields(proto)
            if isinstance(value, bytes)
        )
    # A repeated field of a message can be extended by appending to its bytes.
    return proto + b"".join(_write_bytes(1, message) for message in new_messages)


def keep_pieces(proto: bytes, ids: Collection[int]) -> bytes:
    """Returns a serialized `ModelProto` with some of its pieces, which get consecutive ids."""
    next_id = itertools.count()
    return b"".join(
        _write_bytes(number, value)
        for number, value in iter_fields(proto)
        if isinstance(value, bytes) and (number != 1 or next(next_id) in ids)
    )


def _write_bytes(number: int, data: bytes) -> bytes:
    """Returns a field of a message: a string, or a message."""
    return _write_varint(number << 3 | _LENGTH_DELIMITED) + _write_varint(len(data)) + data


def _write_integer(number: int, value: int) -> bytes:
    """Returns a field of a message: an integer that is not negative."""
    return _write_varint(number << 3 | _VARINT) + _write_varint(value)


def _write_varint(value: int) -> bytes:
    """Returns the variable-length form of an integer that is not negative."""
    digits = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])
