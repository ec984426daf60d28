"""Tokenizers without merges: every byte is a token, or every character of an alphabet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

import numpy as np

from tokjax.bpe.chunks import EncodedSegments
from tokjax.core.encode_options import RoleOptions, accept_options, get_roles
from tokjax.core.json_records import register_record
from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import find_character_starts
from tokjax.core.vocabulary import Vocabulary, make_vocabulary
from tokjax.errors import InvalidArgumentError
from tokjax.models.assembly import flag_word_beginnings
from tokjax.models.base import SegmentModel
from tokjax.models.words import DEFAULT_ROLES, make_word_vocabulary
from tokjax.pretokenize.special_tokens import check_special_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokjax.bpe.chunks import Segments

_SPACES = np.frombuffer(b" \t\n\r", np.uint8)


@register_record()
@dataclass(frozen=True, repr=False)
class ByteTokenizer(SegmentModel):
    """Tokenizer of bytes. Create it with `byte_level` and use it through the generic functions.

    For `word_ids`, a word is a run of non-whitespace characters together with the whitespace before it.

    Attributes:
        vocabulary: token ids and token bytes; the ids of the 256 bytes are consecutive.
    """

    model = "byte_level"

    vocabulary: Vocabulary

    def __post_init__(self) -> None:
        """Checks the vocabulary.

        Raises:
            InvalidArgumentError: the ids of the bytes are not consecutive.
        """
        ids = [self.vocabulary.ordinary.get(bytes([i]), -1) for i in range(256)]
        if ids != [*range(ids[0], ids[0] + 256)] or ids[0] < 0:
            raise InvalidArgumentError("the vocabulary must have all 256 bytes, with consecutive ids")

    def encode_segments(
        self,
        segments: Segments,
        threads: int = 1,  # noqa: ARG002 (one pass over the bytes is fast enough)
        *,
        sources: bool = True,
    ) -> EncodedSegments:
        """Encodes segments of ordinary text, independently of one another."""
        texts = segments.encode()
        data = np.frombuffer(b"".join(texts), np.uint8)
        splits = make_row_splits(map(len, texts))
        begins = flag_word_beginnings(np.isin(data, _SPACES), splits) if sources else None
        ids = data.astype(np.int32) + np.int32(self._first_id)
        return EncodedSegments(ids, splits, begins)

    @cached_property
    def _first_id(self) -> int:
        return self.vocabulary.ordinary[b"\0"]


@accept_options(RoleOptions)
def byte_level(
    special_tokens: Sequence[str] = (),
    **roles: Unpack[RoleOptions],
) -> ByteTokenizer:
    """Makes a tokenizer whose tokens are the 256 bytes.

    Args:
        special_tokens: special tokens. They get the first ids, and the bytes get the ids after these. With
            `["<pad>", "</s>", "<unk>"]` the ids are those of ByT5.
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none.

    Raises:
        InvalidArgumentError: a special token is a duplicate, or a role names a token that is not special.

    >>> from tokjax import encode
    >>> encode(byte_level(["<pad>", "</s>", "<unk>"]), "hi").tolist()
    [107, 108]
    """
    special = {name: i for i, name in enumerate(check_special_names(special_tokens))}
    ordinary = {bytes([i]): len(special) + i for i in range(256)}
    return ByteTokenizer(make_vocabulary(ordinary, special, get_roles(roles)))


@register_record()
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

    def __post_init__(self) -> None:
        """Checks the vocabulary.

        Raises:
            InvalidArgumentError: a token that is not special has more than one character.
            MissingSpecialTokenError: there is no unknown token.
        """
        for token in map(bytes.decode, self.vocabulary.ordinary):
            if len(token) != 1:
                raise InvalidArgumentError(
                    f"{token!r} is not a single character; if it is a special token, pass "
                    "special_tokens=[...]"
                )
        self._unknown  # noqa: B018 (raises if there is no such token)

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
        known_codes, known_ids = self._table
        positions = np.searchsorted(known_codes, codes)
        is_known = known_codes.take(positions, mode="clip") == codes
        ids = np.where(is_known, known_ids.take(positions, mode="clip"), self._unknown).astype(np.int32)
        if not sources:
            return EncodedSegments(ids, splits, None)
        starts = map(find_character_starts, segments.encode())
        spans = [np.stack([each[:-1], each[1:]], axis=1) for each in starts]
        begins = flag_word_beginnings(np.isin(codes, _SPACES), splits)
        return EncodedSegments(ids, splits, begins, np.concatenate([np.zeros((0, 2), np.int64), *spans]))

    @cached_property
    def _unknown(self) -> int:
        return self.vocabulary.require_role("unk", "a vocabulary of characters")

    @cached_property
    def _table(self) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """Code points of the characters, ascending, and their ids; with one at least."""
        ids = {ord(token.decode("utf-8")): id_ for token, id_ in self.vocabulary.ordinary.items()}
        codes = sorted(ids) or [0xFFFFFFFF]
        return np.array(codes, np.uint32), np.array([ids.get(code, 0) for code in codes], np.int32)


@accept_options(RoleOptions, **DEFAULT_ROLES)
def char_level(
    tokens: Mapping[str, int] | Sequence[str],
    *,
    special_tokens: Sequence[str] = (),
    **roles: Unpack[RoleOptions],
) -> CharTokenizer:
    """Makes a character-level tokenizer from the characters of an alphabet.

    Args:
        tokens: character to id, or a list of all tokens in the order of their ids; special tokens included.
        special_tokens: special tokens in addition to those named below.
        **roles: special tokens in roles: `bos_token` and `eos_token`, which are inserted around texts,
            `pad_token`, `unk_token`, `cls_token`, `sep_token` and `mask_token`; by default none, except for
            `unk_token="[UNK]"`, and `pad_token="[PAD]"` if it is among the tokens.

    Raises:
        InvalidArgumentError: a token that is not special has more than one character, a special token is not
            among the tokens, or an id is used twice.

    >>> from tokjax import encode
    >>> encode(char_level(["[UNK]", *"abc"]), "cab!").tolist()
    [3, 1, 2, 0]
    """
    return CharTokenizer(make_word_vocabulary(tokens, special_tokens, get_roles(roles, **DEFAULT_ROLES)))
