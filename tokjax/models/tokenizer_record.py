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

    A subclass inherits pickling, `get_vocabulary` and `fingerprint`. One that is declared with
    `@dataclass(frozen=True, repr=False)` also inherits a `repr` with the size and the special tokens.

    Attributes:
        vocabulary: ids and bytes.
    """

    vocabulary: Vocabulary

    def _described(self) -> Any:
        """Returns all that defines the tokenizer, as JSON values for its fingerprint.

        By default `None`: the fingerprint covers the type and the vocabulary. A type with options of its own
        must override it.
        """

    def _shown(self) -> Mapping[str, Any]:
        """Returns the options that the `repr` shows between the size and the special tokens."""
        return {}

    @cached_property
    def _fingerprint(self) -> str:
        described = self._described()
        if described is None:
            return protocol.fingerprint.dispatch(object)(self)
        return compute_json_checksum(described)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the fields, not the cached properties."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """The size, the options and the special tokens."""
        options = "".join(f"{name}={value!r}, " for name, value in self._shown().items())
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
