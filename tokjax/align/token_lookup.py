"""Lookup of the token of a byte, character or word, and of the span or word of a token.

Tokens, words and characters are 0-based, as array and string indices are. Bytes are 1-based, as offsets are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.checks import check_int
from tokjax.align.flat_tokens import is_reference_normalized, reject_normalized_offsets
from tokjax.core.records import TokenizationResult
from tokjax.errors import InvalidArgumentError
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text


def byte_to_token(result: TokenizationResult, byte: int, *, sequence_id: int = 0) -> int | None:
    """Returns the first token whose span contains a byte of the text, or `None`.

    Args:
        result: encoding of one text or of a pair of texts, with offsets.
        byte: 1-based position of the byte in the text that the offsets refer to, which is the normalized text
            unless `result.metadata.offsets_reference` is `"input_text"`.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.

    Raises:
        InvalidArgumentError: the result has no offsets, or `byte` is not positive.
    """
    offsets = _get_column(result, "offsets")
    position = check_int("byte", byte, minimum=1)
    contains_byte = (offsets[:, 0] <= position) & (position < offsets[:, 1])
    return _find_first(contains_byte & (_get_column(result, "sequence_ids") == sequence_id))


def char_to_token(
    result: TokenizationResult, text: Text, character: int, *, sequence_id: int = 0
) -> int | None:
    """Returns the first token whose span contains the first byte of a character, or `None`.

    Each call reads the whole text. For many characters, call `char_to_byte_spans` once and `byte_to_token`
    for each character, or `align_spans` for labels.

    Args:
        result: encoding of one text or of a pair of texts, with offsets.
        text: the text that the offsets refer to.
        character: 0-based index of the character `text[character]`.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.

    Raises:
        InvalidArgumentError: the result has no offsets, or they refer to the normalized text; see
            `map_offsets_to_input`.
        OffsetsContractError: the index is beyond the end of the text.
    """
    position = check_int("character", character, minimum=0)
    reject_normalized_offsets(is_reference_normalized(result))
    [[byte, _]] = char_to_byte_spans(text, [(position, position + 1)])
    return byte_to_token(result, int(byte), sequence_id=sequence_id)


def token_to_span(result: TokenizationResult, token: int) -> tuple[int, int]:
    """Returns the 1-based byte span of a token, or `(0, 0)` for an inserted special token.

    Args:
        result: encoding of one text or of a pair of texts, with offsets.
        token: 0-based index of the token.

    Raises:
        InvalidArgumentError: the result has no offsets, or `token` is out of range.
    """
    start, stop = _get_column(result, "offsets")[_check_token_index(result, token)].tolist()
    return start, stop


def token_to_word(result: TokenizationResult, token: int) -> int | None:
    """Returns the index of the word of a token, or `None` for an inserted special token.

    Args:
        result: encoding of one text or of a pair of texts, with `word_ids`.
        token: 0-based index of the token.

    Raises:
        InvalidArgumentError: the result has no `word_ids`, or `token` is out of range.
    """
    word = int(_get_column(result, "word_ids")[_check_token_index(result, token)])
    return None if word < 0 else word


def word_to_tokens(result: TokenizationResult, word: int, *, sequence_id: int = 0) -> slice | None:
    """Returns the tokens of a word as a slice of the result's columns, or `None` if it has no token.

    Args:
        result: encoding of one text or of a pair of texts, with `word_ids`.
        word: 0-based index of the word.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.

    Raises:
        InvalidArgumentError: the result has no `word_ids`.
    """
    is_in_word = _get_column(result, "word_ids") == check_int("word", word, minimum=0)
    positions = np.flatnonzero(is_in_word & (_get_column(result, "sequence_ids") == sequence_id))
    return slice(int(positions[0]), int(positions[-1]) + 1) if len(positions) else None


def _get_column(result: TokenizationResult, name: str) -> NDArray[np.integer]:
    """Returns a column of the result; raises `InvalidArgumentError` if it is absent."""
    if not isinstance(result, TokenizationResult):
        raise InvalidArgumentError(f"result must be a TokenizationResult, not a {type(result).__name__}")
    column: NDArray[np.integer] | None = getattr(result, name)
    if column is None:
        raise InvalidArgumentError(f"the result has no {name}; encode with return_offsets=True")
    return column


def _check_token_index(result: TokenizationResult, token: int) -> int:
    """Returns the index of a token; raises `InvalidArgumentError` if it is out of range."""
    position = check_int("token", token, minimum=0)
    if position >= len(result):
        raise InvalidArgumentError(f"token is {position}, and the result has {len(result)} tokens")
    return position


def _find_first(mask: NDArray[np.bool_]) -> int | None:
    """Returns the index of the first true entry, or `None`."""
    positions = np.flatnonzero(mask)
    return int(positions[0]) if len(positions) else None
