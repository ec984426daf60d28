"""SentencePiece model files: what is in them, and the library's processor for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokjax._util.files import NotRegularFileError, get_identity, open_regular
from tokjax._util.limits import exceeds_limit
from tokjax.core.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.models.protobuf import fields_of
from tokjax.models.sentencepiece_spans import SPACE, SpaceRules
from tokjax.models.text_growth import check_charsmap

if TYPE_CHECKING:
    import os

ModelType = Literal["unigram", "bpe", "word", "char"]
_MODEL_TYPES: dict[int, ModelType] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class About(NamedTuple):
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


def processor_of(proto: bytes) -> Any:
    """The library's `SentencePieceProcessor` of a serialized model; its errors are of several kinds."""
    from sentencepiece import SentencePieceProcessor  # noqa: PLC0415 (slow to import)

    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(proto)
    return processor


def about_model(proto: bytes) -> About:
    """What a serialized `ModelProto` says in its fields 2, 3 and 5: how it was trained and how it normalizes.

    Raises:
        TokenizerFormatError: it exceeds a limit.
        ValueError: a field is missing.
    """
    specs: dict[int, bytes] = {}
    num_pieces = 0
    for number, value in fields_of(proto):
        if number == 1:
            num_pieces += 1
            exceeded = exceeds_limit("vocab_size", num_pieces)
            if exceeded:
                raise TokenizerFormatError(f"has more than {num_pieces - 1:,} pieces; {exceeded}")
        if number in (2, 3, 5):  # parts of one message add up to it
            specs[number] = specs.get(number, b"") + value
    if not specs.keys() >= {2, 3}:
        raise ValueError("it does not say how it was trained and how it normalises")
    trainer, normalizer, denormalizer = (dict(fields_of(specs.get(number, b""))) for number in (2, 3, 5))
    for spec in (normalizer, denormalizer):
        check_charsmap(spec.get(2, b""))
    spaces = SpaceRules(
        mark=SPACE if normalizer.get(5, 1) else b" ",
        is_suffix=bool(trainer.get(24, 0)),
        is_added=bool(normalizer.get(3, 1)),
    )
    name = normalizer.get(1, b"").decode("utf-8") or "custom"
    return About(_MODEL_TYPES[trainer.get(3, 1)], name, spaces)
