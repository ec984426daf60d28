"""A `tokenizer.json` that the `tokenizers` library has loaded, and errors of the library."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokjax._util.imports import import_optional
from tokjax.errors import MissingExtraError, TokenizerFormatError
from tokjax.formats.huggingface.definition import get_steps, is_byte_level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokjax.errors import TokjaxError


@dataclass(frozen=True)
class LoadedDefinition:
    """A `tokenizer.json` as JSON values, and as tokenizers of the library, each made when it is first needed.

    Attributes:
        text: contents of the file, as JSON text.
    """

    text: str

    @cached_property
    def contents(self) -> dict[str, Any]:
        """The parsed definition."""
        contents: dict[str, Any] = json.loads(self.text)
        return contents

    @cached_property
    def pipeline(self) -> dict[str, Any]:
        """The definition without the vocabulary of its model: the part that encoding and decoding use."""
        return select_pipeline(self.contents)

    @cached_property
    def library_tokenizer(self) -> Any:
        """The library's `Tokenizer`. Do not change its settings."""
        return load_library_tokenizer(self.text)

    @cached_property
    def special_as_text_tokenizer(self) -> Any:
        """The library's `Tokenizer`, with special tokens in texts encoded as ordinary text."""
        instance = load_library_tokenizer(self.text)
        instance.encode_special_tokens = True
        return instance

    @cached_property
    def unknown_id(self) -> int | None:
        """Id of the unknown token of the model. Another token can have that role in configuration files."""
        model = self.pipeline["model"]
        if model.get("unk_id") is not None:
            return int(model["unk_id"])
        unknown = model.get("unk_token")
        return None if unknown is None else self.library_tokenizer.token_to_id(unknown)

    @cached_property
    def is_byte_level(self) -> bool:
        """Whether tokens are written as `bytes_to_unicode` writes bytes."""
        return is_byte_level(self.pipeline)

    @cached_property
    def normalization(self) -> str | None:
        """Types of the normalizer's steps, joined with `+`; `None` without a normalizer."""
        return "+".join(str(step.get("type")) for step in get_steps(self.pipeline, "normalizer")) or None


def select_pipeline(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a parsed definition without the tokens and merges of its model."""
    model = {name: part for name, part in contents["model"].items() if name not in ("vocab", "merges")}
    return {**contents, "model": model}


def import_tokenizers() -> Any:
    """Imports the `tokenizers` library. Version 1 has no `from_str`, offsets and word ids.

    Raises:
        MissingExtraError: the library is not installed, or in a version that has another interface.
    """
    tokenizers = import_optional("tokenizers", extra="huggingface", purpose="this tokenizer")
    version: str = tokenizers.__version__
    if not (0, 22) <= tuple(map(int, version.split(".")[:2])) < (1, 0):
        raise MissingExtraError(
            f"this tokenizer needs tokenizers>=0.22,<1, and version {version} is installed; "
            "pip install 'tokjax[huggingface]'"
        )
    return tokenizers


def load_library_tokenizer(definition: str) -> Any:
    """Loads the library's `Tokenizer` for a definition, without padding and truncation.

    Raises:
        MissingExtraError: the library is not installed, or in a version that has another interface.
        TokenizerFormatError: the library can't read the definition.
    """
    tokenizers = import_tokenizers()
    with raise_as(TokenizerFormatError, "the tokenizers library can't read it"):
        instance = tokenizers.Tokenizer.from_str(definition)
    instance.no_padding()
    instance.no_truncation()
    return instance


@contextmanager
def raise_as(error_type: type[TokjaxError], message: str) -> Iterator[None]:
    """Converts errors of the library to errors of tokjax.

    A panic in Rust, for example in a pattern that backtracks for too long, is a `BaseException` in Python.

    Args:
        error_type: type of the new error.
        message: first part of its message.
    """
    try:
        yield
    except (KeyboardInterrupt, MemoryError, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise error_type(f"{message}: {error}") from error
