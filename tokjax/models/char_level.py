"""Character-level tokenizers: every character of an alphabet is a token, all others are unknown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokjax.bpe.encoded_segments import EncodedSegments
from tokjax.core.json_records import register_record
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts
from tokjax.core.vocabulary import Vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.assembly import flag_word_beginnings
from tokjax.models.base import SegmentModel
from tokjax.models.word_base import make_word_vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Segments
    from tokjax.core.vocabulary import Role

_SPACES = np.array(list(map(ord, " \t\n\r")), np.uint32)


@dataclass(frozen=True, repr=False)
class CharTokenizer(SegmentModel):
    """Tokenizer of characters. Create it with `char_level` and use it through the generic functions.

    For `word_ids`, a word is a run of non-whitespace characters together with the whitespace before it.
    Decoding concatenates the characters.

    Attributes:
        vocabulary: token ids and characters.
    """

    model = "char_level"

    vocabulary: Vocabulary

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (one pass over the characters is fast enough)
        *,
        sources: bool = True,
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another.

        Characters that are not in the vocabulary, and bytes that are not valid UTF-8, are unknown.
        """
        texts = segments.get_characters()
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4")
        splits = make_row_splits(map(len, texts))
        positions = np.searchsorted(self._codes, codes)
        is_known = self._codes.take(positions, mode="clip") == codes
        ids = np.where(is_known, self._ids.take(positions, mode="clip"), self._unknown).astype(np.int32)
        if not sources:
            return EncodedSegments(ids, splits, None)
        spans = map(_compute_spans, segments.encode())
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


def char_level(
    tokens: Mapping[str, int] | Sequence[str],
    *,
    special_tokens: Sequence[str] = (),
    unk_token: str = "[UNK]",
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "[PAD]",
) -> CharTokenizer:
    """Makes a character-level tokenizer from the characters of an alphabet.

    Args:
        tokens: character to id, or a list of all tokens in the order of their ids; special tokens included.
        special_tokens: special tokens in addition to those named below.
        unk_token: token for a character that is not among the tokens; it has the span of that character.
        bos_token: special token to insert at the start of a text, if any.
        eos_token: special token to insert at the end of a text, if any.
        pad_token: special token that pads a batch. It is ignored if it has the default name and is not among
            the tokens.

    Raises:
        InvalidArgumentError: a token that is not special has more than one character, a special token is not
            among the tokens, or an id is used twice.

    >>> from tokjax import encode
    >>> encode(char_level(["[UNK]", *"abc"]), "cab!").tolist()
    [3, 1, 2, 0]
    """
    roles: dict[Role, str | None]
    roles = {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token}
    return _make_char_level(make_word_vocabulary(tokens, special_tokens, roles))


@register_record(CharTokenizer)
def _make_char_level(vocabulary: Vocabulary) -> CharTokenizer:
    for token in vocabulary.ordinary:
        if len(token.decode("utf-8")) != 1:
            raise InvalidArgumentError(
                f"{token.decode('utf-8')!r} is not a single character; if it is a special token, pass "
                "special_tokens=[...]"
            )
    tokenizer = CharTokenizer(vocabulary)
    tokenizer._unknown  # noqa: B018 (raises if there is no such token)
    return tokenizer


def _compute_spans(text: bytes) -> NDArray[np.int64]:
    """Computes the 0-based byte span of each character of a text, `int64`, shape `(n, 2)`."""
    starts = find_character_starts(text)
    return np.stack([starts[:-1], starts[1:]], axis=1)
