"""Texts that come as words: joined by blanks, and each token told which word it is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core import protocol
from tokjax.core.errors import InvalidArgumentError
from tokjax.core.ragged import splits_from_lengths
from tokjax.core.records import TokenizationBatch, adopt_batch
from tokjax.core.utf8 import Text, nbytes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class JoinedWords(NamedTuple):
    """Words with a blank between each two.

    Attributes:
        text: all of it.
        ends: where each word ends, 0-based, in bytes, `int64`, shape `(words,)`; a blank stands there, or the
            text ends.
    """

    text: Text
    ends: NDArray[np.int64]


def join_words(words: Any, row: int) -> JoinedWords:
    """The words of a text, joined.

    Raises:
        InvalidArgumentError: they are no sequence of `str`, nor of `bytes`.
    """
    if isinstance(words, (str, bytes)) or not isinstance(words, Sequence):
        raise InvalidArgumentError(
            f"with is_pretokenized=True each text is a sequence of words, and text {row} is "
            f"{words!r:.80}; split it, or leave is_pretokenized out"
        )
    kind = bytes if words and isinstance(words[0], bytes) else str
    for word in words:
        if not isinstance(word, kind):
            raise InvalidArgumentError(
                f"the words of text {row} are {kind.__name__}, but for {word!r}; they must be of one kind"
            )
    text = b" ".join(words) if kind is bytes else " ".join(words)
    lengths = splits_from_lengths(nbytes_of(word) + 1 for word in words)
    return JoinedWords(text, lengths[1:] - 1)


def words_of_tokens(
    tokenizer: Any, batch: TokenizationBatch, texts: Sequence[JoinedWords]
) -> TokenizationBatch:
    """The batch with `word_ids` that are places in the sequences of words.

    A token is of the word in which it begins; a blank between two words is the beginning of the second.

    Args:
        tokenizer: what encoded the texts.
        batch: the texts encoded, without a template.
        texts: the words of each row.
    """
    if batch.offsets is None:
        raise InvalidArgumentError(
            f"is_pretokenized=True needs offsets, and {type(tokenizer).__name__} gives none; pass "
            "return_offsets=False to have ids alone"
        )
    word_ids = np.empty(len(batch.ids), np.int32)
    in_view = batch.metadata.offsets_reference == "tokenizer_normalized_text"
    for row, (text, ends) in enumerate(texts):
        part = slice(int(batch.row_splits[row]), int(batch.row_splits[row + 1]))
        offsets = batch.offsets[part]
        if in_view:
            offsets = protocol.map_offsets_to_input(tokenizer, text, offsets)
        word_ids[part] = np.searchsorted(ends, offsets[:, 0] - 1, "right")
        np.minimum(word_ids[part], len(ends) - 1, out=word_ids[part])
    return adopt_batch(
        batch.ragged._replace(word_ids=word_ids),
        batch.metadata,
        protocol.vocabulary_of(tokenizer).strings_of,
        has_attention_mask=batch.has_attention_mask,
    )
