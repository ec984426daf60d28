"""Starts and stops of words, for tokenizers whose words are encoded separately.

They are found from the kinds of characters (`character_kinds.py`). See `word_engine.py` for examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokjax.formats.huggingface.character_kinds import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray


def find_words(
    kinds: NDArray[np.uint8], *, keeps_spaces: bool, strips_start: bool, joins: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Finds words.

    Args:
        kinds: kind of each character of the texts, with `Kind.END` after each text and for the characters of
            added tokens.
        keeps_spaces: whether a word includes the whitespace before it.
        strips_start: whether the normalizer removes whitespace before a text.
        joins: whether the words around a character that can change them are joined.

    Returns:
        The starts and stops of words in characters, `int64`, shape `(2, words)`, and the indices of
        characters whose texts can't be encoded word by word, `int64`.
    """
    words = _find_words_with_spaces(kinds) if keeps_spaces else _find_words_without_spaces(kinds)
    splits = np.append(0, np.flatnonzero(kinds == Kind.END) + 1)
    hazards = _find_hazards(kinds)
    if joins and len(hazards):
        words, is_joined = _join_words(words, hazards, kinds, splits)
        hazards = hazards[~is_joined]
    if keeps_spaces and strips_start:
        starts = splits[:-1]
        hazards = np.append(hazards, starts[kinds.take(starts) == Kind.WHITESPACE])
    return words, hazards


def insert_words(
    words: NDArray[np.int64], added: NDArray[np.int64], numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inserts added tokens between words.

    Args:
        words: starts and stops of words, shape `(2, words)`.
        added: starts and stops of added tokens, shape `(2, tokens)`.
        numbers: numbers of the entries of the added tokens, shape `(tokens,)`.

    Returns:
        The starts and stops of all, in order, and the numbers, with -1 for the words.
    """
    no_numbers = np.full(words.shape[1], -1, np.int64)
    if not len(numbers):
        return words, no_numbers
    at = np.searchsorted(words[0], added[0])
    return np.insert(words, at, added, axis=1), np.insert(no_numbers, at, numbers)


def _find_words_with_spaces(kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns the starts and stops of words that include the whitespace before them, shape `(2, words)`.

    A word starts at whitespace after a letter or the end of a text, or at the first letter of a text.
    """
    is_end, is_space = kinds == Kind.END, kinds == Kind.WHITESPACE
    after_end = np.append(True, is_end[:-1])
    after_space = np.append(False, is_space[:-1])
    starts = (is_space & ~after_space) | (~(is_space | is_end) & after_end)
    first = np.flatnonzero(starts)
    bounds = np.flatnonzero(starts | is_end)
    return np.stack([first, bounds[np.searchsorted(bounds, first, "right")]])


def _find_words_without_spaces(kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns the starts and stops of words between whitespace, shape `(2, words)`."""
    separates = np.append(True, _separates_words(kinds))
    return np.flatnonzero(separates[1:] != separates[:-1]).reshape(-1, 2).T


def _find_hazards(kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns the indices of the characters that can change the words next to them, `int64`."""
    candidates = np.flatnonzero((kinds >= Kind.REMOVED) & (kinds <= Kind.HAZARD))
    kind, before, after = kinds[candidates], kinds[candidates - 1], kinds[candidates + 1]
    is_hazard = kind == Kind.HAZARD
    joins_next = kind == Kind.JOINING
    is_hazard |= (joins_next | (kind == Kind.MARK)) & _separates_words(before)
    is_hazard |= joins_next & _separates_words(after)
    # Removing a run of characters makes its neighbours adjacent.
    is_removed = kind == Kind.REMOVED
    starts_run = is_removed & (before != Kind.REMOVED)
    changes_next = _separates_words(before) | (before == Kind.JOINING) | (before == Kind.HAZARD)
    number_of_run = np.cumsum(starts_run) - 1
    is_hazard[is_removed] = changes_next[starts_run][number_of_run[is_removed]]
    hazards: NDArray[np.int64] = candidates[is_hazard]
    return hazards


def _separates_words(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    separates: NDArray[np.bool_] = (kinds == Kind.WHITESPACE) | (kinds == Kind.END)
    return separates


def _join_words(
    words: NDArray[np.int64],
    hazards: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    splits: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Joins the words around hazards.

    The last word that starts before a hazard is joined with the first one that stops after the next
    character, and with those between them. So both ends of the result are like those of other words.

    Args:
        words: starts and stops of words, shape `(2, words)`.
        hazards: indices of characters, shape `(hazards,)`.
        kinds: kind of each character, shape `(characters,)`.
        splits: start of each text or, if added tokens split texts, of each part, shape `(parts + 1,)`.

    Returns:
        The starts and stops of the words, and a mask of the hazards whose words are joined, shape
        `(hazards,)`. The others are at an end of their text, or next to the whitespace there.
    """
    starts, stops = words
    first = np.searchsorted(starts, hazards, "left") - 1
    last = np.searchsorted(stops, hazards + 1, "right")
    text = np.searchsorted(splits, hazards, "right") - 1
    start = starts.take(np.maximum(first, 0))
    stop = stops.take(last, mode="clip")
    is_joined = (first >= 0) & (last < len(stops)) & (start >= splits[text]) & (stop < splits[text + 1])
    is_joined &= kinds[stop - 1] != Kind.WHITESPACE
    steps = np.zeros(len(starts) + 1, np.int64)
    np.add.at(steps, first[is_joined] + 1, 1)
    np.add.at(steps, last[is_joined] + 1, -1)
    continues = np.cumsum(steps) > 0  # whether a word is joined to the one before
    return np.stack([starts[~continues[:-1]], stops[~continues[1:]]]), is_joined
