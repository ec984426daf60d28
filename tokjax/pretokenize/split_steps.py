r"""One step of a split pattern: a regular expression, compiled for short texts and for arrays.

Short texts are split by the `re` module of the standard library, which is more than twice as fast as the
`regex` package. It has no Unicode properties. So each set of characters is written as its members: in one
expression those in ASCII, for texts of ASCII, and in another one those up to U+FFFF, for other texts. More
members would make it slow. So characters above U+FFFF are replaced by a *representative*: the first one that
the pattern does not distinguish from them.

    pattern           ` ?\p{L}+`
    for `re`          ` ?[A-Za-z]+`               ` ?[A-Za-zªµºÀ-Ö...]+`
    text              "size"                      "Größe 𝟏𝟐"
    representatives                               "Größe ²²"

`re` tries all ways to match a text, which takes quadratic or exponential time for some expressions. So long
texts, and all texts of such expressions, are split by boundary tables. Expressions with parts that
`split_expressions` does not support are split by the `regex` package.
"""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.boundary_tables import BoundaryTables, build_boundary_tables
from tokjax.pretokenize.pretoken_starts import DigitGroups, find_pretoken_starts
from tokjax.pretokenize.split_automaton import compile_automaton
from tokjax.pretokenize.split_expressions import (
    ExpressionTooLargeError,
    UnsupportedExpressionError,
    backtracks_little,
    format_expression,
    iter_sets,
    make_range,
    make_set,
    parse_expression,
    unite,
)
from tokjax.pretokenize.unicode_classes import CharacterTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.pretokenize.split_automaton import SplitAutomaton
    from tokjax.pretokenize.split_expressions import CodePointSet, Node

_ASCII = make_range(0, 0x7F)
_BASIC_PLANE = make_range(0, 0xFFFF)
_ABOVE_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]+")
_DIGIT_GROUP_EXPRESSIONS = (r"(?=(\d{3})+(?!\d))", r"(?=(?:\d{3})+(?!\d))")
_SET_OPERATION = re.compile(r"&&|--|\|\||~~|\[[^\]]*[^\]\\]\[")
"""Set operations and nested sets, which `regex` has in version 1 of its syntax."""
_MAX_BACKTRACKED = 11_000
"""Up to this many characters, `re` splits a text, which `FEW_CHARACTERS` also limits."""
# Repeated parts with an end that makes the last match fail: then all ways to match the repetitions are tried.
_REPEATED = ("a", "A", "é", "日", "1", ".", "'s", " ", "\n", " \n", "a ", " a", "aA", "a1", "a.", "1.", "#a ")
_ENDS = ("", "!", "a", "1", " ", "\n")
_PROBE_LENGTH = 100
_MAX_PROBED_LETTERS = 16
_PROBE_SECONDS = 2.0
"""Time limit of all probes together."""


@dataclass(frozen=True)
class SplitStep:
    """One step of a split pattern. Make one with `make_split_step`.

    Attributes:
        expression: a regular expression in the syntax of the `regex` package.
    """

    expression: str

    @property
    def automaton(self) -> SplitAutomaton | None:
        """The automaton of the expression; `None` if it has unsupported parts."""
        return None if self._tree_and_automaton is None else self._tree_and_automaton[1]

    @cached_property
    def tables(self) -> BoundaryTables | DigitGroups | None:
        """The boundary tables of the expression; `None` if it has unsupported parts, or many classes."""
        if self.automaton is None:
            return DigitGroups() if self.expression in _DIGIT_GROUP_EXPRESSIONS else None
        try:
            return build_boundary_tables(self.automaton)
        except UnsupportedExpressionError:
            return None

    def names_only(self, members: CodePointSet) -> bool:
        """Returns whether all sets of the expression, and of its lookaheads, are subsets of a set."""
        if self._tree_and_automaton is None:
            return False
        sets = iter_sets(self._tree_and_automaton[0])
        return np.array_equal(unite([*sets, members]), members)

    def split(self, text: str) -> list[str]:
        """Splits a text into matches, and the text between them. Their concatenation is the text."""
        if len(text) > _MAX_BACKTRACKED or not self._backtracks_little:
            if self.tables is not None:
                return _split_by_tables(self.tables, text)
            if self.automaton is None:
                return _split_at_matches(self._regex, text)
        mapped, expression = text, self._ascii_expression
        if not text.isascii():
            expression = self._expression
            if len(text.encode("utf-16-le", "surrogatepass")) > 2 * len(text):  # characters above U+FFFF
                mapped = _ABOVE_BASIC_PLANE.sub(lambda match: match[0].translate(self._representatives), text)
        parts: list[str] = expression.findall(mapped)
        if len("".join(parts)) < len(text):  # some text is between matches
            parts = _split_at_matches(expression, mapped)
        if mapped is text:
            return parts
        stops = itertools.accumulate(map(len, parts))
        return [text[start:stop] for start, stop in itertools.pairwise(itertools.chain([0], stops))]

    def check(self) -> None:
        """Checks the syntax and speed of the expression: some would take hours on long texts.

        Raises:
            InvalidArgumentError: it is not a regular expression, is too large, or needs more than two
                seconds for the probe texts.
        """
        if self.automaton is not None or self.tables is not None:
            return
        deadline = time.monotonic() + _PROBE_SECONDS
        for text in _make_probes(self.expression):
            try:
                self._regex.findall(text, timeout=max(deadline - time.monotonic(), 1e-3))
            except TimeoutError as error:
                raise InvalidArgumentError(
                    f"pattern {self.expression!r} takes more than {_PROBE_SECONDS:g} s for texts such as "
                    f"{text[:20]!r}..., of {len(text)} characters: its repetitions can match one text in "
                    "countless ways; make them possessive (`++`), or let no two of them match the same text"
                ) from error

    @cached_property
    def _tree_and_automaton(self) -> tuple[Node, SplitAutomaton] | None:
        try:
            tree = parse_expression(self.expression)
            automaton = compile_automaton(tree)
            if not backtracks_little(tree):
                build_boundary_tables(automaton)  # raises an error if only `re` could split by it
            return tree, automaton
        except ExpressionTooLargeError as error:  # `regex` would need gigabytes for some of them
            raise InvalidArgumentError(f"pattern {self.expression[:60]!r} is too large: {error}") from error
        except UnsupportedExpressionError:
            return None

    @cached_property
    def _backtracks_little(self) -> bool:
        return self._tree_and_automaton is not None and backtracks_little(self._tree_and_automaton[0])

    @cached_property
    def _first_of_class(self) -> NDArray[np.int64]:
        """The first code point of each class of the automaton. The last class, the end, has none."""
        assert self.automaton is not None
        codes = self.automaton.run_starts[::-1]  # the first code points are written last, so they remain
        first_of_class = np.zeros(self.automaton.num_classes, np.int64)
        first_of_class[self.automaton.find_classes(codes)] = codes
        return first_of_class

    @cached_property
    def _representatives(self) -> CharacterTable:
        """The first character of the class of each character, for `str.translate`."""
        automaton = self.automaton
        assert automaton is not None
        return CharacterTable(
            lambda character: chr(self._first_of_class[automaton.find_classes(np.array([ord(character)]))[0]])
        )

    @cached_property
    def _ascii_expression(self) -> re.Pattern[str]:
        """The expression for texts of ASCII."""
        return self._compile(_ASCII)

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        """The expression for texts of characters up to U+FFFF, and of representatives."""
        return self._compile(unite([_BASIC_PLANE, make_set(map(chr, self._first_of_class))]))

    def _compile(self, characters: CodePointSet) -> re.Pattern[str]:
        """Compiles the expression for texts that consist of these characters."""
        assert self._tree_and_automaton is not None
        return re.compile(format_expression(self._tree_and_automaton[0], characters))

    @cached_property
    def _regex(self) -> Any:
        import regex  # noqa: PLC0415 (slow to import)

        try:
            version = regex.V1 if _SET_OPERATION.search(self.expression) else regex.V0
            return regex.compile(self.expression, version)
        except regex.error as error:
            raise InvalidArgumentError(
                f"pattern {self.expression!r} is not a regular expression: {error}"
            ) from error


@lru_cache(maxsize=64)
def make_split_step(expression: str) -> SplitStep:
    """Returns the step of an expression. It is compiled once, for all patterns that have it."""
    return SplitStep(expression)


def _make_probes(expression: str) -> list[str]:
    """Returns texts that take long to split by an expression that backtracks much.

    The characters of the expression are among them: a matcher that looks for a required one first fails fast
    without it.
    """
    letters = sorted({c for c in expression if c.isalnum()})[:_MAX_PROBED_LETTERS]
    parts = [*_REPEATED, *(letter for letter in letters if letter not in _REPEATED)]
    ends = [*_ENDS, "\0" + expression[:_PROBE_LENGTH]]
    return [part * _PROBE_LENGTH + end for part in parts for end in ends]


def _split_by_tables(tables: BoundaryTables | DigitGroups, text: str) -> list[str]:
    """Splits a text into matches, and the text between them."""
    codes = np.frombuffer((text + "\n").encode("utf-32-le", "surrogatepass"), "<u4")
    starts = np.flatnonzero(find_pretoken_starts((tables,), codes, np.array([len(text)])))
    return [text[start:stop] for start, stop in itertools.pairwise(starts.tolist())]


def _split_at_matches(compiled: Any, text: str) -> list[str]:
    """Splits a text into the matches of an expression, and the text between them."""
    parts: list[str] = []
    previous_stop = 0
    for match in compiled.finditer(text):
        start, stop = match.span()
        if start == stop:
            continue
        if start > previous_stop:
            parts.append(text[previous_stop:start])
        parts.append(text[start:stop])
        previous_stop = stop
    if previous_stop < len(text):
        parts.append(text[previous_stop:])
    return parts
