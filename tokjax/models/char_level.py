"""Character-level tokenizers: every character of an alphabet is a token, and all others are one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.bpe.encoded_segments import EncodedSegments
from tokjax.bpe.pre_tokenizers import flag_word_beginnings
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts, from_characters, to_characters, to_utf8
from tokjax.errors import InvalidArgumentError
from tokjax.models.base import SegmentModel
from tokjax.models.format_errors import as_format_errors
from tokjax.models.word_base import make_word_vocabulary, word_vocabulary_from_json, word_vocabulary_to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.core.vocabulary import Vocabulary

_SPACES = np.array(list(map(ord, " \t\n\r")), np.uint32)
_OPTIONAL_TOKENS = ("[PAD]",)


@dataclass(frozen=True, repr=False)
class CharTokenizer(SegmentModel):
    """A tokenizer of characters. Make one with `char_level`; use it through the generic functions.

    A word, as `word_ids` have it, is what stands between blanks, with the blanks before it. Decoding joins
    the characters.

    Attributes:
        vocabulary: ids and characters.
    """

    model = "char_level"

    vocabulary: Vocabulary

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (one pass is enough)
        *,
        sources: bool = True,
    ) -> EncodedSegments:
        """Encode stretches of ordinary text, each on its own; what is no character is unknown."""
        texts = segments.texts if segments.hold_bytes else list(map(to_characters, segments.texts))
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4")
        splits = make_row_splits(map(len, texts))
        positions = np.searchsorted(self._codes, codes)
        found = self._codes.take(positions, mode="clip") == codes
        ids = np.where(found, self._ids.take(positions, mode="clip"), self._unknown).astype(np.int32)
        if not sources:
            return EncodedSegments(ids, splits, None)
        as_bytes = from_characters if segments.hold_bytes else to_utf8
        spans = [_compute_spans(as_bytes(text)) for text in segments.texts]
        all_spans = np.concatenate([np.zeros((0, 2), np.int64), *spans])
        begins = flag_word_beginnings(np.isin(codes, _SPACES), splits)
        return EncodedSegments(ids, splits, begins, all_spans)

    @cached_property
    def _unknown(self) -> int:
        return self.vocabulary.require_role("unk", "a vocabulary of characters")

    @cached_property
    def _codes(self) -> NDArray[np.uint32]:
        return np.array(sorted(map(ord, self._characters)) or [0xFFFFFFFF], np.uint32)

    @cached_property
    def _ids(self) -> NDArray[np.int32]:
        return np.array([id_ for _, id_ in sorted(self._characters.items())] or [self._unknown], np.int32)

    @cached_property
    def _characters(self) -> dict[str, int]:
        return {token.decode("utf-8"): id_ for token, id_ in self.vocabulary.ordinary.items()}

    def _described(self) -> Any:
        return to_json(self)


def char_level(
    tokens: Mapping[str, int] | Sequence[str],
    *,
    special_tokens: Sequence[str] = (),
    unk_token: str = "[UNK]",
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "[PAD]",
) -> CharTokenizer:
    """A character-level tokenizer from the characters of an alphabet.

    Args:
        tokens: character to id, or all of them in the order of their ids. Special tokens are among them.
        special_tokens: which tokens are special besides those named below.
        unk_token: stands for a character that is not among the tokens, with that character's span.
        bos_token: begins a text, if any does.
        eos_token: ends a text, if any does.
        pad_token: pads a batch. (It is left out where `tokens` has none of the default name.)

    Raises:
        InvalidArgumentError: a token that is not special is no single character, a special token is not among
            the tokens, or an id is used twice.

    >>> from tokjax import encode
    >>> encode(char_level(["[UNK]", *"abc"]), "cab!").tolist()
    [3, 1, 2, 0]
    """
    roles = {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token}
    return _make_char_level(
        make_word_vocabulary(tokens, special_tokens, roles, optional_tokens=_OPTIONAL_TOKENS)
    )


def to_json(tokenizer: CharTokenizer) -> dict[str, Any]:
    """What defines the tokenizer, as plain JSON values."""
    return {"model": CharTokenizer.model, **word_vocabulary_to_json(tokenizer.vocabulary)}


def from_json(described: Mapping[str, Any]) -> CharTokenizer:
    """The tokenizer that `to_json` described.

    Raises:
        TokenizerFormatError: a field is missing or of the wrong type, or the values make no tokenizer.
    """
    with as_format_errors():
        return _make_char_level(word_vocabulary_from_json(described))


def _make_char_level(vocabulary: Vocabulary) -> CharTokenizer:
    for token in vocabulary.ordinary:
        if len(token.decode("utf-8")) != 1:
            raise InvalidArgumentError(
                f"{token.decode('utf-8')!r} is no single character; if it is a special token, say so: "
                "special_tokens=[...]"
            )
    tokenizer = CharTokenizer(vocabulary)
    tokenizer._unknown  # noqa: B018 (an error where there is none)
    return tokenizer


def _compute_spans(text: bytes) -> NDArray[np.int64]:
    starts = find_character_starts(text)
    return np.stack([starts[:-1], starts[1:]], axis=1)
