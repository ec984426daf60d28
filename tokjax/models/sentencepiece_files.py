"""SentencePiece model files: what is in them, and the library's processor for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax._util.files import NotRegularFileError, get_identity, open_regular
from tokjax._util.limits import exceeds_limit
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.models.sentencepiece_spans import SPACE, SpaceRules
from tokjax.models.text_growth import check_charsmap

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


_VARINT, _EIGHT_BYTES, _LENGTH_FIRST, _FOUR_BYTES = 0, 1, 2, 5


def iter_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    r"""The fields of a serialized message in their order: the number of each, and its value.

    Args:
        message: one serialized message.

    Returns:
        Integers, and the bytes of what is no integer: strings, messages, floating-point numbers.

    Raises:
        ValueError: the bytes are no message, or were cut.

    >>> list(iter_fields(b"\x08\x96\x01\x12\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, kind = key >> 3, key & 7
        size, at = (
            _read_varint(message, at) if kind in (_VARINT, _LENGTH_FIRST) else (_get_fixed_size(kind), at)
        )
        if kind == _VARINT:
            yield number, size
            continue
        if at + size > len(message):
            raise ValueError("cut short: a field goes on behind the end")
        yield number, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The integer that starts at a place, and where it ends."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("cut short: the last integer has no end")


def _get_fixed_size(kind: int) -> int:
    if kind not in (_EIGHT_BYTES, _FOUR_BYTES):
        raise ValueError(f"no protocol buffer: there is no wire type {kind}")
    return 8 if kind == _EIGHT_BYTES else 4


ModelType = Literal["unigram", "bpe", "word", "char"]
_MODEL_TYPES: dict[int, ModelType] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class ModelInfo(NamedTuple):
    """What a model says of itself, and the library does not tell.

    Attributes:
        model_type: how it splits.
        normalizer: the name of what it does to texts.
        spaces: what it does with white space.
    """

    model_type: ModelType
    normalizer: str
    spaces: SpaceRules


def read_model(model: bytes | str | os.PathLike[str]) -> tuple[bytes, str]:
    """The contents of a model, and what to call it in an error."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), f"the model of {len(model)} bytes"
    try:
        path = Path(model)
    except TypeError:
        raise InvalidArgumentError(
            f"model must be the path of a .model file, or its contents as bytes, not {type(model).__name__}; "
            "of a SentencePieceProcessor, pass processor.serialized_model_proto()"
        ) from None
    try:
        with open_regular(path) as file:
            size = get_identity(file).nbytes
            exceeded = exceeds_limit("file_bytes", size)
            if exceeded:
                raise TokenizerFormatError(f"{path}: has {size:,} bytes; {exceeded}")
            return file.read(), str(path)
    except NotRegularFileError:
        raise TokenizerFormatError(f"{path}: is no regular file") from None


def load_processor(proto: bytes) -> Any:
    """The library's `SentencePieceProcessor` of a serialized model; its errors are of several kinds."""
    from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 (slow to import)

    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(proto)
    return processor


def parse_model_info(proto: bytes) -> ModelInfo:
    """What a serialized `ModelProto` says in its fields 2, 3 and 5: how it was trained and how it normalizes.

    Raises:
        TokenizerFormatError: it exceeds a limit.
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
        if number in (2, 3, 5):  # parts of one message add up to it
            specs[number] = specs.get(number, b"") + value
    if not specs.keys() >= {2, 3}:
        raise ValueError("it does not say how it was trained and how it normalises")
    trainer, normalizer, denormalizer = (dict(iter_fields(specs.get(number, b""))) for number in (2, 3, 5))
    for spec in (normalizer, denormalizer):
        check_charsmap(spec.get(2, b""))
    spaces = SpaceRules(
        mark=SPACE if normalizer.get(5, 1) else b" ",
        is_suffix=bool(trainer.get(24, 0)),
        is_added=bool(normalizer.get(3, 1)),
    )
    name = normalizer.get(1, b"").decode("utf-8") or "custom"
    return ModelInfo(_MODEL_TYPES[trainer.get(3, 1)], name, spaces)
