"""Texts for the `regex` package as if it had tokjax's pinned Unicode tables.

The installed `regex` may have a newer version of Unicode than tiktoken: version 17 made U+323B0 a letter.
"""

from functools import cache

import numpy as np
import regex

from tokjax.pretokenize.unicode_classes import CODE_POINTS, Category, load_categories

# An expression for each category, and a character that has had the category for a long time.
CATEGORIES = {
    Category.UPPER: (r"\p{Lu}", "É"),
    Category.TITLE: (r"\p{Lt}", "ǅ"),
    Category.LOWER: (r"\p{Ll}", "é"),
    Category.MODIFIER: (r"\p{Lm}", "ʰ"),
    Category.LETTER: (r"\p{Lo}", "ש"),
    Category.MARK: (r"\p{M}", "\u0301"),
    Category.DIGIT: (r"\p{Nd}", "٣"),
    Category.NUMBER: (r"[\p{Nl}\p{No}]", "²"),
    Category.PUNCTUATION: (r"\p{P}", "“"),
    Category.SYMBOL: (r"\p{S}", "€"),
    Category.SPACE: (r"\s", "\u3000"),
    Category.OTHER: (r"[^\p{L}\p{M}\p{N}\p{P}\p{S}\s]", "\u200b"),
}


@cache
def compute_replacements():
    """Returns a character of the pinned category for each code point with another category in `regex`."""
    codes = np.array([code for code in range(CODE_POINTS) if not 0xD800 <= code <= 0xDFFF])
    characters = "".join(map(chr, codes.tolist()))
    pinned = load_categories()
    replacements = {}
    for category, (expression, character) in CATEGORIES.items():
        members = {ord(member) for member in regex.findall(expression, characters)}
        wrong = {int(code) for code in np.flatnonzero(pinned == category)} - members
        replacements |= {code: character for code in wrong if not 0xD800 <= code <= 0xDFFF}
    return replacements


@cache
def compute_replacements_without(named):
    return {code: new for code, new in compute_replacements().items() if chr(code) not in named}


def replace_new_characters(text, named=""):
    """Returns a text of the same length that the `regex` package splits as tokjax splits the original.

    Characters that the pattern names (`named`) are not replaced.
    """
    return text.translate(compute_replacements_without(named))
