r"""Syntax trees of split patterns: a parser for the part of regular expressions that they are made of.

Supported are characters and sets of them, alternatives, greedy and lazy repetitions, `(?i:...)` for any case,
and the lookaheads `(?=...)` and `(?!...)` of one character:

    gpt2        '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    Kimi K2     [\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*...

Sets may be nested and have intersections (`&&`), as in Rust's and Oniguruma's syntax. The rest (anchors,
backreferences, lookbehind, possessive repetitions that are not equivalent to greedy ones ...) raises
`UnsupportedExpressionError`. Such a pattern is split by the `regex` package.

A set of code points is an ascending array of those at which membership changes. `[a-cx]` is
`[97, 100, 120, 121]`: 97 to 99 are members, and 120. Union, intersection and complement only have to look at
these points.
"""

from __future__ import annotations

import functools
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokjax.core.ragged import find_distinct
from tokjax.pretokenize.unicode_classes import (
    CODE_POINTS,
    PROPERTIES,
    load_category_runs,
    load_han_ranges,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class UnsupportedExpressionError(Exception):
    """Raised for an expression outside of the supported part of the syntax. The message is the reason."""


class ExpressionTooLargeError(UnsupportedExpressionError):
    """Raised for an expression that would need too much memory."""


class OneOf(NamedTuple):
    """One character of a set."""

    members: CodePointSet


class Sequence(NamedTuple):
    """Parts that follow each other."""

    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    """Alternatives, of which the first that matches is taken."""

    parts: tuple[Node, ...]


class Repetition(NamedTuple):
    """`low` to `high` times a part; `None` for no maximum."""

    part: Node
    low: int
    high: int | None
    is_lazy: bool


class Lookahead(NamedTuple):
    """A condition on the next character: it is in a set or, if negative, it is not, or the text ends."""

    members: CodePointSet
    is_negative: bool


Node: TypeAlias = OneOf | Sequence | Alternatives | Repetition | Lookahead

_QUANTIFIER = re.compile(r"(?:([*+?])|\{([0-9]{1,9})(?:(,)([0-9]{0,9}))?\})([+?]?)")
_PROPERTY = re.compile(r"\{(\w+)\}")
_HEXADECIMAL = re.compile(r"x([0-9A-Fa-f]{2})|x\{((?:10|[0-9A-Fa-f])?[0-9A-Fa-f]{1,4})\}|u([0-9A-Fa-f]{4})")
_CONTROL_CHARACTERS = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}
_MAX_LENGTH = 30_000
"""Maximum number of characters of an expression, such as one that lists the ideographs."""
_MAX_DEPTH = 50
"""Maximum number of groups and sets inside of one another."""
_MAX_REPETITIONS = 64
"""Maximum number of a counted repetition. Each one needs separate states."""
_MAX_CHOICES = 8
"""Maximum number of choices that precede a part that can fail: their combinations are tried one by one."""
_OTHER_CASES = {"s": "\u017f", "k": "\u212a"}
"""Characters outside of ASCII that equal an ASCII letter if case is ignored."""
_HAS_LIGATURES = re.compile(r"(?i:f[fil]|s[st])")
"""Letters that some libraries, when they ignore case, also find in one character such as `ß`."""


def parse_expression(expression: str) -> Node:
    """Parses a regular expression.

    Raises:
        UnsupportedExpressionError: it has a part that is not supported.
        ExpressionTooLargeError: it is too large for any library.
    """
    if len(expression) > _MAX_LENGTH:
        raise ExpressionTooLargeError(f"more than {_MAX_LENGTH:,} characters")
    parser = _Parser(expression)
    try:
        tree = parser.parse_alternatives()
    except IndexError:
        raise UnsupportedExpressionError("it ends too early") from None
    if parser.position < len(expression):
        raise UnsupportedExpressionError(f"{expression[parser.position :][:20]!r}")
    return tree


def format_expression(tree: Node, characters: CodePointSet) -> str:
    r"""Formats a syntax tree for the `re` module of the standard library.

    Args:
        tree: the pattern.
        characters: the set of all characters that the texts consist of.

    >>> format_expression(parse_expression(r"\p{L}+"), make_range(0, 0x7F))
    '[A-Za-z]{1,}'
    """
    match tree:
        case OneOf(members):
            return _format_set(intersect(members, characters))
        case Lookahead(members, is_negative):
            return f"(?{'!' if is_negative else '='}{_format_set(intersect(members, characters))})"
        case Sequence(parts):
            return "".join(format_expression(part, characters) for part in parts)
        case Alternatives(parts):
            return f"(?:{'|'.join(format_expression(part, characters) for part in parts)})"
        case Repetition(part, low, high, is_lazy):
            formatted = format_expression(part, characters)
            group = formatted if isinstance(part, OneOf) else f"(?:{formatted})"
            return f"{group}{{{low},{'' if high is None else high}}}{'?' if is_lazy else ''}"


def _format_set(members: CodePointSet) -> str:
    """Formats a set of code points."""
    if not len(members):
        return "(?!)"
    bounds = members if len(members) % 2 == 0 else np.append(members, CODE_POINTS)
    ranges = (map(re.escape, (chr(first), chr(stop - 1))) for first, stop in bounds.reshape(-1, 2).tolist())
    return "[" + "".join(map("-".join, ranges)) + "]"


def backtracks_little(tree: Node) -> bool:
    """Returns whether a backtracking matcher, such as `re`, matches a pattern in linear time.

    It tries another way to match only where a later part fails. So the ways multiply if several repetitions
    or choices precede a part that can fail: `a*a*b` is slow on a long run of `a`, and `(?:a+)+b` on a short
    one. Alternatives that fail are not slow, because each of them is tried once.
    """
    try:
        choices, loops = _count_choices(tree, can_fail_later=False)
    except UnsupportedExpressionError:
        return False
    return choices <= _MAX_CHOICES and loops <= 1


def _count_choices(tree: Node, *, can_fail_later: bool) -> tuple[int, int]:
    """Returns the number of choices, and of repetitions, that a matcher can change when a later part fails.

    Args:
        tree: the pattern.
        can_fail_later: whether a part after it can fail.

    Raises:
        UnsupportedExpressionError: a part that is not a single character is repeated.
    """
    match tree:
        case OneOf() | Lookahead():
            return 0, 0
        case Sequence(parts):
            choices = loops = 0
            for part in reversed(parts):
                counts = _count_choices(part, can_fail_later=can_fail_later)
                choices, loops = choices + counts[0], loops + counts[1]
                can_fail_later |= _can_fail(part)
            return choices, loops
        case Alternatives(parts):
            counts_of_parts = [_count_choices(part, can_fail_later=can_fail_later) for part in parts]
            choices, loops = (max(counts) for counts in zip(*counts_of_parts, strict=True))
            return choices + can_fail_later * (len(parts) - 1), loops
        case Repetition(part, low, high):
            if high is not None and high <= 1:
                choices, loops = _count_choices(part, can_fail_later=can_fail_later)
                return choices + (can_fail_later and low < high), loops
            if not isinstance(part, OneOf):
                raise UnsupportedExpressionError("repetition of several characters")
            return 0, int(can_fail_later and low != high)


def _can_fail(tree: Node, *, by_lookahead: bool = True) -> bool:
    """Returns whether there are texts at whose start a pattern does not match, at least the empty text.

    Args:
        tree: the pattern.
        by_lookahead: whether lookaheads can fail. If not, the pattern always matches if and only if it can
            match without reading a character.
    """
    can_fail = functools.partial(_can_fail, by_lookahead=by_lookahead)
    match tree:
        case OneOf():
            return True
        case Lookahead():
            return by_lookahead
        case Sequence(parts):
            return any(map(can_fail, parts))
        case Alternatives(parts):
            return all(map(can_fail, parts))
        case Repetition(part, low):
            return low > 0 and can_fail(part)


class _Parser:
    """A recursive descent parser. Each method parses one construct from `position` on."""

    def __init__(self, expression: str) -> None:
        self.position = 0
        self._depth = 0
        self._expression = expression
        self._ignores_case = False

    def parse_alternatives(self) -> Node:
        parts = [self._parse_sequence()]
        while self._accept("|"):
            parts.append(self._parse_sequence())
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _parse_sequence(self) -> Node:
        parts: list[Node] = []
        while self.position < len(self._expression) and self._peek() not in "|)":
            parts.append(self._parse_quantifier(self._parse_atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _parse_quantifier(self, part: Node) -> Node:
        match = self._match(_QUANTIFIER)
        if match is None:
            return part
        if not _can_fail(part, by_lookahead=False):
            raise UnsupportedExpressionError("repetition of a part that can match the empty text")
        symbol, low, comma, high, mode = match.groups()
        if mode == "+":
            raise UnsupportedExpressionError("possessive repetition")
        if symbol:
            bounds: tuple[int, int | None] = {"*": (0, None), "+": (1, None), "?": (0, 1)}[symbol]
        else:
            bounds = int(low), int(high) if high else None if comma else int(low)
            if max(bounds[0], bounds[1] or 0) > _MAX_REPETITIONS:
                raise ExpressionTooLargeError(f"more than {_MAX_REPETITIONS} repetitions")
            if bounds[1] is not None and bounds[0] > bounds[1]:
                raise UnsupportedExpressionError("a maximum below the minimum")
            if mode == "?" and comma is None:  # lazy in some libraries, optional in others
                raise UnsupportedExpressionError("a question mark after a fixed number of repetitions")
        return Repetition(part, *bounds, is_lazy=mode == "?")

    def _parse_atom(self) -> Node:
        for opening, is_negative in (("(?=", False), ("(?!", True)):
            if self._accept(opening):
                condition = self._parse_rest_of_group()
                if not isinstance(condition, OneOf):
                    raise UnsupportedExpressionError("lookahead of more than one character")
                return Lookahead(condition.members, is_negative)
        if self._accept("(?i:"):
            start, previous = self.position, self._ignores_case
            self._ignores_case = True
            part = self._parse_rest_of_group()
            self._ignores_case = previous
            if _HAS_LIGATURES.search(self._expression, start, self.position):
                raise UnsupportedExpressionError("letters in any case that also equal a ligature")
            return part
        if self._accept("(?:"):
            return self._parse_rest_of_group()
        if self._accept("["):
            return OneOf(self._parse_set())
        if self._peek() == "\\":
            return OneOf(self._parse_escape())
        character = self._take()
        if character in ".^$*+?{()":
            raise UnsupportedExpressionError(f"{character!r}")
        return OneOf(self._make_literal(character))

    def _parse_rest_of_group(self) -> Node:
        self._enter()
        part = self.parse_alternatives()
        self._depth -= 1
        if not self._accept(")"):
            raise UnsupportedExpressionError("a group that is not closed")
        return part

    def _parse_set(self) -> CodePointSet:
        self._enter()
        is_negative = self._accept("^")
        operands: list[list[CodePointSet]] = [[]]
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._accept("&&"):
                operands.append([])
            else:
                operands[-1].append(self._parse_set_item())
        self._take()
        self._depth -= 1
        members = functools.reduce(intersect, map(unite, operands))
        return complement(members) if is_negative else members

    def _parse_set_item(self) -> CodePointSet:
        if self._accept("["):
            if self._peek() == ":":
                raise UnsupportedExpressionError("POSIX class")
            return self._parse_set()
        item = self._parse_set_character()
        is_range = self._peek() == "-" and self._expression[self.position + 1] not in "]["
        if not is_range:
            return item
        self._take()
        last = self._parse_set_character()
        if self._ignores_case or any(len(bound) != 2 or np.diff(bound) != 1 for bound in (item, last)):
            raise UnsupportedExpressionError("a range with bounds that are not single characters")
        if item[0] > last[0]:
            raise UnsupportedExpressionError("a range whose end is before its start")
        return make_range(int(item[0]), int(last[0]))

    def _parse_set_character(self) -> CodePointSet:
        if self._peek() == "\\":
            return self._parse_escape()
        if self._expression[self.position : self.position + 2] in ("--", "||", "~~"):
            raise UnsupportedExpressionError("set difference")
        return self._make_literal(self._take())

    def _parse_escape(self) -> CodePointSet:
        self._take()
        if (match := self._match(_HEXADECIMAL)) is not None:
            return self._make_literal(chr(int(next(filter(None, match.groups())), 16)))
        character = self._take()
        if character in "pP":
            match = self._match(_PROPERTY)
            members = None if match is None or self._ignores_case else find_property(match[1])
        elif character in "sSdD":
            members = find_property("White_Space" if character in "sS" else "Nd")
        elif character in _CONTROL_CHARACTERS:
            return self._make_literal(_CONTROL_CHARACTERS[character])
        else:
            members = None if character.isalnum() else self._make_literal(character)
        if members is None:
            raise UnsupportedExpressionError(f"\\{character}")
        return complement(members) if character in "PSD" else members

    def _make_literal(self, character: str) -> CodePointSet:
        if not self._ignores_case:
            return make_set(character)
        if not character.isascii():
            raise UnsupportedExpressionError(f"{character!r} in any case")
        lower = character.lower()
        return make_set({lower, character.upper(), *_OTHER_CASES.get(lower, "")})

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ExpressionTooLargeError(f"more than {_MAX_DEPTH} groups inside of one another")

    def _peek(self) -> str:
        return self._expression[self.position]

    def _take(self) -> str:
        self.position += 1
        return self._expression[self.position - 1]

    def _accept(self, text: str) -> bool:
        is_next = self._expression.startswith(text, self.position)
        self.position += len(text) * is_next
        return is_next

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._expression, self.position)
        if match is not None:
            self.position = match.end()
        return match


CodePointSet: TypeAlias = NDArray[np.int64]
"""The code points at which membership changes, ascending, `int64`. It starts without membership."""
EMPTY_SET: CodePointSet = np.zeros(0, np.int64)


def make_range(first: int, last: int) -> CodePointSet:
    """Returns the set of the code points from `first` to `last`, both included."""
    return np.array([first, last + 1])


def make_set(characters: Iterable[str]) -> CodePointSet:
    """Returns the set of some characters."""
    return unite([make_range(ord(character), ord(character)) for character in characters])


def contains(members: CodePointSet, codes: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Returns which code points are in a set, `bool`, in the shape of `codes`."""
    inside: NDArray[np.bool_] = np.searchsorted(members, codes, "right") % 2 == 1
    return inside


def unite(sets: Iterable[CodePointSet]) -> CodePointSet:
    """Returns the union of sets.

    >>> unite([make_range(97, 99), make_range(98, 100)]).tolist()
    [97, 101]
    """
    sets = list(sets)
    if not sets:
        return EMPTY_SET
    points = find_distinct(np.concatenate(sets))
    return _find_changes(points, np.any([contains(members, points) for members in sets], axis=0))


def intersect(left: CodePointSet, right: CodePointSet) -> CodePointSet:
    """Returns the intersection of two sets."""
    return complement(unite([complement(left), complement(right)]))


def complement(members: CodePointSet) -> CodePointSet:
    """Returns the set of all other code points.

    >>> complement(make_range(97, 99)).tolist()
    [0, 97, 100]
    """
    return members[1:] if len(members) and members[0] == 0 else np.append([0], members)


@lru_cache(maxsize=32)
def find_property(name: str) -> CodePointSet | None:
    r"""Returns the code points with a Unicode property, as in `\p{Lu}`; `None` for an unknown name."""
    if name == "Han":
        return unite(make_range(first, last) for first, last in load_han_ranges())
    if name not in PROPERTIES:
        return None
    starts, categories = load_category_runs()
    return _find_changes(starts, np.isin(categories, PROPERTIES[name]))


def _find_changes(points: NDArray[np.int64], inside: NDArray[np.bool_]) -> CodePointSet:
    """Returns the points at which membership changes, without those that are not code points."""
    changed = points[np.flatnonzero(np.diff(inside, prepend=False))]
    return changed[changed < CODE_POINTS]
