"""Byte-level tokenizers without merges: every byte is a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.bpe.encoded_segments import EncodedSegments
from tokjax.core.json_records import register_record
from tokjax.core.ragged import make_row_splits
from tokjax.core.template import Template
from tokjax.core.vocabulary import AddedToken, Role, Vocabulary, make_vocabulary
from tokjax.models.assembly import flag_word_beginnings
from tokjax.models.base import SegmentModel
from tokjax.pretokenize.special_tokens import check_special_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokjax.bpe.chunks import Segments

_IS_SPACE = np.isin(np.arange(256), np.frombuffer(b" \t\n\r", np.uint8))


@dataclass(frozen=True, repr=False)
class ByteTokenizer(SegmentModel):
    """Tokenizer of bytes. Create it with `byte_level` and use it through the generic functions.

    For `word_ids`, a word is a run of non-whitespace characters together with the whitespace before it.

    Attributes:
        vocabulary: token ids and token bytes; the ids of the 256 bytes are consecutive.
    """

    model = "byte_level"

    vocabulary: Vocabulary

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
        begins = flag_word_beginnings(_IS_SPACE.take(data), splits) if sources else None
        ids = data.astype(np.int32) + np.int32(self._first_id)
        return EncodedSegments(ids, splits, begins)

    @cached_property
    def _first_id(self) -> int:
        return self.vocabulary.ordinary[b"\0"]


def byte_level(
    special_tokens: Sequence[str] = (),
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    unk_token: str | None = None,
) -> ByteTokenizer:
    """Makes a tokenizer whose tokens are the 256 bytes.

    Args:
        special_tokens: special tokens. They get the first ids, and the bytes get the ids after these. With
            `["<pad>", "</s>", "<unk>"]` the ids are those of ByT5.
        bos_token: special token to insert at the start of a text, if any.
        eos_token: special token to insert at the end of a text, if any.
        pad_token: special token that pads a batch, if any.
        unk_token: special token for unknown text, if any; bytes never produce it.

    Raises:
        InvalidArgumentError: a special token is a duplicate, or a role names a token that is not special.

    >>> from tokjax import encode
    >>> encode(byte_level(["<pad>", "</s>", "<unk>"]), "hi").tolist()
    [107, 108]
    """
    special = {name: i for i, name in enumerate(check_special_names(special_tokens))}
    roles: dict[Role, str | None]
    roles = {"bos": bos_token, "eos": eos_token, "pad": pad_token, "unk": unk_token}
    return _make_byte_tokenizer(len(special), special, roles)


def _define(tokenizer: ByteTokenizer) -> dict[str, Any]:
    """Returns the arguments of `_make_byte_tokenizer`."""
    names = ("special", "roles", "explicit_template", "added_tokens")
    vocabulary = tokenizer.vocabulary
    return {"first_id": tokenizer._first_id} | {name: getattr(vocabulary, name) for name in names}


@register_record(ByteTokenizer, _define)
def _make_byte_tokenizer(
    first_id: int,
    special: Mapping[str, int],
    roles: Mapping[Role, str | None],
    explicit_template: Template | None = None,
    added_tokens: Mapping[str, AddedToken] = MappingProxyType({}),
) -> ByteTokenizer:
    ordinary = {bytes([i]): first_id + i for i in range(256)}
    return ByteTokenizer(make_vocabulary(ordinary, special, roles, explicit_template, added_tokens))
