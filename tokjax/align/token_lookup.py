"""Which token a byte, a character or a word became, and the other way round.

Tokens are counted from 0, as arrays are; bytes from 1, as offsets are; characters from 0, as in strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokjax._util.checks import check_int
from tokjax.core.records import TokenizationResult
from tokjax.errors import InvalidArgumentError
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text


def byte_to_token(result: TokenizationResult, byte: int, *, sequence_id: int = 0) -> int | None:
    """The first token whose span holds a byte of the text; `None` where none does.

    Args:
        result: one text, or a pair of them, with offsets.
        byte: from 1 on, in the text that the offsets refer to.
        sequence_id: which text of a pair.

    Raises:
        InvalidArgumentError: the result has no offsets, or `byte` is not positive.
    """
    offsets = _get_column(result, "offsets")
    position = check_int("byte", byte, minimum=1)
    holds = (offsets[:, 0] <= position) & (position < offsets[:, 1])
    return _find_first(holds & (_get_column(result, "sequence_ids") == sequence_id))


def char_to_token(
    result: TokenizationResult, text: Text, character: int, *, sequence_id: int = 0
) -> int | None:
    """The first token whose span holds the first byte of a character; `None` where none does.

    Each call reads the text up to its end: for many characters, call `char_to_byte_spans` once and
    `byte_to_token` for each, or `align_spans` for labels.

    Args:
        result: one text, or a pair of them, with offsets.
        text: the text that the offsets refer to.
        character: from 0 on, so that it is `text[character]`.
        sequence_id: which text of a pair.

    Raises:
        InvalidArgumentError: the result has no offsets.
        OffsetsContractError: the text has no such character.
    """
    position = check_int("character", character, minimum=0)
    [[byte, _]] = char_to_byte_spans(text, [(position, position + 1)])
    return byte_to_token(result, int(byte), sequence_id=sequence_id)


def token_to_span(result: TokenizationResult, token: int) -> tuple[int, int]:
    """The 1-based byte span of a token: `(0, 0)` for one that was inserted.

    Args:
        result: one text, or a pair of them, with offsets.
        token: from 0 on.

    Raises:
        InvalidArgumentError: the result has no offsets, or no such token.
    """
    start, stop = _get_column(result, "offsets")[_check_token_index(result, token)].tolist()
    return start, stop


def token_to_word(result: TokenizationResult, token: int) -> int | None:
    """The word that a token is of; `None` for one that was inserted.

    Args:
        result: one text, or a pair of them, with `word_ids`.
        token: from 0 on.

    Raises:
        InvalidArgumentError: the result has no `word_ids`, or no such token.
    """
    word = int(_get_column(result, "word_ids")[_check_token_index(result, token)])
    return None if word < 0 else word


def word_to_tokens(result: TokenizationResult, word: int, *, sequence_id: int = 0) -> slice | None:
    """The tokens of a word, as a slice of the result's columns; `None` where it has none.

    Args:
        result: one text, or a pair of them, with `word_ids`.
        word: from 0 on.
        sequence_id: which text of a pair.

    Raises:
        InvalidArgumentError: the result has no `word_ids`.
    """
    of_word = _get_column(result, "word_ids") == check_int("word", word, minimum=0)
    positions = np.flatnonzero(of_word & (_get_column(result, "sequence_ids") == sequence_id))
    return slice(int(positions[0]), int(positions[-1]) + 1) if len(positions) else None


def _get_column(result: TokenizationResult, name: str) -> NDArray[np.integer]:
    if not isinstance(result, TokenizationResult):
        raise InvalidArgumentError(f"result must be a TokenizationResult, not a {type(result).__name__}")
    column: NDArray[np.integer] | None = getattr(result, name)
    if column is None:
        raise InvalidArgumentError(f"the result has no {name}; encode with return_offsets=True")
    return column


def _check_token_index(result: TokenizationResult, token: int) -> int:
    position = check_int("token", token, minimum=0)
    if position >= len(result):
        raise InvalidArgumentError(f"token is {position}, and the result has {len(result)} tokens")
    return position


def _find_first(holds: NDArray[np.bool_]) -> int | None:
    positions = np.flatnonzero(holds)
    return int(positions[0]) if len(positions) else None
