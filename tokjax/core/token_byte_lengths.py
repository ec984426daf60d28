"""Number of bytes of text that each token id stands for, for losses per byte."""

from __future__ import annotations

import re
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.core.protocol import decode_batch, decode_bytes, get_vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTE_PIECE = re.compile(rb"<0x[0-9A-F]{2}>")
"""Tokens that stand for one byte, in vocabularies with byte fallback."""


def token_byte_lengths(tokenizer: Any) -> NDArray[np.int32]:
    """Returns the number of bytes that each id adds to a decoded text, for `objectives.bits_per_byte`.

    For tokenizers that keep every byte, such as byte-level BPE, the lengths of the ids of a text add up to
    its UTF-8 bytes. For others they add up to the bytes of the decoded text: a word of WordPiece counts the
    space before it. The space that some tokenizers put before a text also counts.

    Args:
        tokenizer: any registered tokenizer.

    Returns:
        `int32`, shape `(vocab_size,)`; 0 for special tokens, the unknown token included, and for ids without
        a token.

    >>> from tokjax import byte_level, wordpiece
    >>> token_byte_lengths(byte_level(["</s>"]))[:2]
    array([0, 1], dtype=int32)
    >>> token_byte_lengths(wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing"]))
    array([0, 0, 0, 0, 5, 3], dtype=int32)
    """
    vocabulary = get_vocabulary(tokenizer)
    lengths = np.array(find_text_lengths(tokenizer), np.int32)
    lengths[vocabulary.is_special | (vocabulary.byte_lengths < 0)] = 0
    return lengths


@singledispatch
def find_text_lengths(tokenizer: Any) -> NDArray[np.integer[Any]]:
    """Returns the number of bytes that each id adds to a decoded text, integers, shape `(vocab_size,)`.

    Values of special tokens and unused ids are ignored. By default, the number of bytes of each token if
    decoding concatenates them. Otherwise each id is decoded between two others: some decoders change the
    first or the last token of a text.
    """
    vocabulary = get_vocabulary(tokenizer)
    # A byte piece can't be a neighbour: it may form a character with the byte piece next to it.
    words = [id_ for token, id_ in vocabulary.ordinary.items() if not BYTE_PIECE.fullmatch(token)]
    if decode_bytes.dispatch(type(tokenizer)) is decode_bytes.dispatch(object) or not words:
        return vocabulary.byte_lengths
    left, right = words[0], words[-1]
    ids = list(vocabulary.bytes_by_id)
    rows = [[left, right], *([left, id_, right] for id_ in ids)]
    texts = decode_batch(tokenizer, rows, errors="surrogateescape")
    without, *nbytes = (len(text.encode("utf-8", "surrogateescape")) for text in texts)
    lengths = np.zeros(vocabulary.size, np.int64)
    lengths[ids] = np.subtract(nbytes, without)
    return lengths
