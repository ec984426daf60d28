r"""Word boundaries: the positions of words for WordPiece and word-level tokenizers.

Whitespace separates words. For BERT, each punctuation character is also a word. Unlike the pre-tokens of a
split pattern, words do not include the whitespace between them:

    text      d  o  n  '  t  _  o  k  。 \n         _ is a space
    classes   i  i  i  s  i  w  i  i  s  w          inside a longer word, single, whitespace
    starts    ^        ^  ^     ^     ^
    stops              ^  ^  ^        ^  ^          the positions after words

See docs/performance.md, section "WordPiece and word-level tokenizers".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokjax.pretokenize.pretoken_starts import iter_classes
from tokjax.pretokenize.split_expressions import format_expression, make_range, parse_expression
from tokjax.pretokenize.unicode_classes import (
    CODE_POINTS,
    PUNCTUATION,
    Category,
    load_categories,
    load_code_point_flags,
    make_punctuation_set,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.pretokenize.pretoken_starts import Characters

    Positions = NDArray[np.int64]

Splitter = Literal["whitespace", "bert"]
"""The rule that separates words. `"whitespace"`: a word is a run of characters that are not whitespace.
`"bert"`: in addition, each punctuation character is a word, as in BERT's pre-tokenizer."""
SPLITTERS: tuple[Splitter, ...] = ("whitespace", "bert")

_INSIDE, _SPACE, _SINGLE = range(3)


def find_word_bounds(
    splitter: Splitter, characters: Characters, ends: Positions
) -> tuple[Positions, Positions]:
    """Finds the words of one or several texts.

    Args:
        splitter: the rule that separates words.
        characters: the texts, as in `find_pretoken_starts`.
        ends: the positions of the ends of texts, as there.

    Returns:
        `(starts, stops)`: the position of the first character of each word, and of the character after it;
        `int64`, shape `(num_words,)` each.
    """
    [classes] = iter_classes([_make_classes(splitter)], characters, ends)
    inside, single = classes == _INSIDE, classes == _SINGLE
    is_edge = inside[1:] != inside[:-1]
    starts, stops = single.copy(), single[:-1] | (is_edge & inside[:-1])
    starts[0] |= inside[0]
    starts[1:] |= is_edge & inside[1:]
    return np.flatnonzero(starts), np.flatnonzero(stops) + 1


@lru_cache(maxsize=len(SPLITTERS))
def compile_word_expression(splitter: Splitter) -> re.Pattern[str]:
    """Returns the regular expression whose matches are the words of a text, for short texts."""
    punctuation = make_punctuation_set()
    expression = rf"[^\s{punctuation}]+|{punctuation}" if splitter == "bert" else r"\S+"
    return re.compile(format_expression(parse_expression(expression), make_range(0, CODE_POINTS - 1)))


class _WordClasses(NamedTuple):
    """Classes of characters, for `iter_classes`. The end of a text is whitespace."""

    class_of_code: NDArray[np.uint8]
    end: int = _SPACE


@lru_cache(maxsize=len(SPLITTERS))
def _make_classes(splitter: Splitter) -> _WordClasses:
    classes = np.full(CODE_POINTS, _INSIDE, np.uint8)
    if splitter == "bert":
        classes[load_code_point_flags() & PUNCTUATION != 0] = _SINGLE
    classes[load_categories() == Category.SPACE] = _SPACE
    return _WordClasses(classes)
