r"""Splits of numbers into groups of three digits from the right, as by `(?=(\d{3})+(?!\d))`.

SuperBPE's tokenizers split with this expression. It matches no text, but positions: those with three digits
after them, or six, or nine ..., up to the end of the number. Such a condition on arbitrarily long text has
no automaton that reads a text from left to right. The number of digits after each position decides:

    text      a  b  1  2  3  4  c  1  2
    digits    0  0  4  3  2  1  0  2  1      from each position on
    starts    ^        ^                     if a multiple of 3: "ab1", "234c12"
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tokjax.pretokenize.unicode_classes import Category, load_categories

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Classes = NDArray[np.uint8]

DIGIT_GROUP_EXPRESSIONS = (r"(?=(\d{3})+(?!\d))", r"(?=(?:\d{3})+(?!\d))")
_DIGIT, _END = 1, 2
_ASCII = 0x80


class DigitGroups:
    """Stand-in for the boundary tables of a pattern that splits numbers from the right.

    Attributes:
        size: number of digits of a group.
        end: the class of the end of a text. Digits have the class 1, other characters 0.
        splits_before_spaces: whether a space after a letter or number starts a pre-token: it does not.
        covers_any_text: whether the matches of the pattern cover every text: they have no text.
    """

    size = 3
    end = _END
    splits_before_spaces = False
    covers_any_text = False

    @cached_property
    def class_of_code(self) -> Classes:
        """The class of each code point, `uint8`, shape `(0x110000,)`."""
        classes: Classes = (load_categories() == Category.DIGIT).astype(np.uint8)
        return classes

    @cached_property
    def class_of_byte(self) -> bytes:
        """The class of each byte of ASCII, for `bytes.translate`; 0 for other bytes."""
        return self.class_of_code[:_ASCII].tobytes() + bytes(_ASCII)


def find_digit_groups(classes: Classes) -> Flags:
    """Returns where groups of digits start, `bool`, shape `(n,)`.

    Args:
        classes: the class of each character, shape `(n,)`.
    """
    is_digit = classes == _DIGIT
    run_ends = np.flatnonzero(is_digit & ~np.append(is_digit[1:], False))
    digits = np.flatnonzero(is_digit)
    remaining = run_ends[np.searchsorted(run_ends, digits)] - digits + 1
    starts = np.zeros(len(classes), bool)
    starts[digits[remaining % DigitGroups.size == 0]] = True
    return starts
