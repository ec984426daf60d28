"""Base class of tokenizers that are frozen dataclasses: pickling, `repr`, vocabulary and fingerprint."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tokjax._util.files import compute_json_checksum
from tokjax.core import protocol
from tokjax.models.method_hints import MethodHints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokjax.core.vocabulary import Vocabulary


class TokenizerRecord(MethodHints):
    """Base class of tokenizers that are frozen dataclasses with a vocabulary.

    A subclass inherits pickling, `get_vocabulary` and `fingerprint`. A subclass declared with
    `@dataclass(frozen=True, repr=False)` also inherits a `repr` with the vocabulary size and the special
    tokens.

    Attributes:
        vocabulary: token ids and token bytes.
    """

    vocabulary: Vocabulary

    def _to_fingerprint_json(self) -> Any:
        """Returns JSON values that define the tokenizer; the fingerprint is their checksum.

        By default `None`: the fingerprint then covers the type and the vocabulary. A subclass with other
        options must override it, or tokenizers that differ only in these options get the same fingerprint.
        """

    def _get_repr_options(self) -> Mapping[str, Any]:
        """Returns the options that `repr` shows between the vocabulary size and the special tokens."""
        return {}

    @cached_property
    def _fingerprint(self) -> str:
        definition = self._to_fingerprint_json()
        if definition is None:
            return protocol.fingerprint.dispatch(object)(self)
        return compute_json_checksum(definition)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the dataclass fields and leaves out cached properties."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """Returns the vocabulary size, the options and the special tokens."""
        options = "".join(f"{name}={value!r}, " for name, value in self._get_repr_options().items())
        return (
            f"{type(self).__name__}(vocab_size={self.vocabulary.size}, {options}"
            f"special_tokens={self.vocabulary.special_repr})"
        )


@protocol.get_vocabulary.register(TokenizerRecord)
def _vocabulary(tokenizer: TokenizerRecord) -> Vocabulary:
    return tokenizer.vocabulary


@protocol.fingerprint.register(TokenizerRecord)
def _fingerprint(tokenizer: TokenizerRecord) -> str:
    return tokenizer._fingerprint
