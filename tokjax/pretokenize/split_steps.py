r"""One step of a split pattern: a regular expression, compiled for short texts and for arrays.

Short texts are split by the `re` module of the standard library, which is more than twice as fast as the
`regex` package. It has no Unicode properties. So each set of characters is written as its members: in one
expression those in ASCII, for texts of ASCII, and in another one those up to U+FFFF, for most other texts.
More members would make it slow. So if a text has a character above U+FFFF, all that are not in ASCII are
replaced by a *representative*: a character that the pattern does not distinguish from them, in ASCII if there
is one:

    pattern           ` ?\p{L}+`
    for `re`          ` ?[A-Za-z]+`
    text              "Größe 𝟏𝟐"
    representatives   "AAAAA   "

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
from tokjax.pretokenize.digit_groups import DIGIT_GROUP_EXPRESSIONS, DigitGroups, find_digit_groups
from tokjax.pretokenize.pretoken_starts import find_pretoken_starts
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.pretokenize.split_automaton import SplitAutomaton
    from tokjax.pretokenize.split_expressions import CodePointSet, Node

_ASCII = make_range(0, 0x7F)
_BASIC_PLANE = make_range(0, 0xFFFF)
_SET_OPERATION = re.compile(r"&&|--|\|\||~~|\[[^\]]*[^\]\\]\[")
"""Set operations and nested sets, which `regex` has in version 1 of its syntax."""
_FEW_CHARACTERS = 100
"""Up to this many characters, a dictionary is faster than arrays."""
_MAX_BACKTRACKED = 11_000
"""Up to this many characters, `re` splits a text, which `FEW_CHARACTERS` also limits."""
_MAX_CACHED = 1 << 16
"""Number of representatives at which their cache is cleared."""
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
            return None
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
            if self.automaton is None:
                return _split_at_matches(self._regex, text)
            if isinstance(self.tables, BoundaryTables):
                return _split_by_tables(self.tables, text)
        if text.isascii():
            mapped, expression = text, self._ascii_expression
        elif len(text.encode("utf-16-le", "surrogatepass")) == 2 * len(text):  # no characters above U+FFFF
            mapped, expression = text, self._expression
        else:
            mapped, expression = self._map_text(text), self._ascii_expression
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
        if self.automaton is not None:
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
    def _representatives(self) -> NDArray[np.uint32]:
        """A character of each class of the automaton, as code points. The last class, the end, has none."""
        automaton = self.automaton
        assert automaton is not None
        first_of_class = np.zeros(automaton.num_classes, "<u4")
        codes = np.append(np.arange(0x80), automaton.run_starts)[::-1]  # ASCII is written last, so it remains
        first_of_class[automaton.find_classes(codes)] = codes
        return first_of_class

    @cached_property
    def _ascii_expression(self) -> re.Pattern[str]:
        """The expression for texts of ASCII and representatives."""
        return self._compile(unite([_ASCII, make_set(map(chr, self._representatives[:-1]))]))

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        """The expression for texts without characters above U+FFFF."""
        return self._compile(_BASIC_PLANE)

    def _compile(self, characters: CodePointSet) -> re.Pattern[str]:
        """Compiles the expression for texts that consist of these characters."""
        assert self._tree_and_automaton is not None
        return re.compile(format_expression(self._tree_and_automaton[0], characters))

    @cached_property
    def _representative_cache(self) -> _RepresentativeCache:
        assert self.automaton is not None
        return _RepresentativeCache(self.automaton, self._representatives)

    def _map_text(self, text: str) -> str:
        """Replaces characters by representatives."""
        if len(text) <= _FEW_CHARACTERS:
            return text.translate(self._representative_cache)  # faster than array calls
        assert self.automaton is not None
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        mapped = self._representatives.take(self.automaton.class_of_code.take(codes))
        return mapped.tobytes().decode("utf-32-le", "surrogatepass")

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


class DigitGroupStep(SplitStep):
    """Step that splits numbers into groups of three digits from the right. See `digit_groups`."""

    @cached_property
    def tables(self) -> DigitGroups:
        """The classes of digits and of other characters."""
        return DigitGroups()

    def split(self, text: str) -> list[str]:
        """Splits a text before each group of digits."""
        if len(text) <= DigitGroups.size:
            return [text] if text else []
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        starts = np.flatnonzero(find_digit_groups(self.tables.class_of_code.take(codes))).tolist()
        return [
            text[start:stop] for start, stop in itertools.pairwise([0, *starts, len(text)]) if stop > start
        ]

    def check(self) -> None:
        """Does nothing: the expression takes linear time here."""


@lru_cache(maxsize=64)
def make_split_step(expression: str) -> SplitStep:
    """Returns the step of an expression. It is compiled once, for all patterns that have it."""
    return (DigitGroupStep if expression in DIGIT_GROUP_EXPRESSIONS else SplitStep)(expression)


class _RepresentativeCache(dict[int, int]):
    """Cache of the representatives of code points for `str.translate`, filled as code points occur."""

    def __init__(self, automaton: SplitAutomaton, representatives: NDArray[np.uint32]) -> None:
        super().__init__()
        self._automaton = automaton
        self._representatives = representatives

    def __missing__(self, code: int) -> int:
        if len(self) >= _MAX_CACHED:
            self.clear()
        [class_] = self._automaton.find_classes(np.array([code]))
        self[code] = representative = int(self._representatives[class_])
        return representative


def _make_probes(expression: str) -> list[str]:
    """Returns texts that take long to split by an expression that backtracks much.

    The characters of the expression are among them: a matcher that looks for a required one first fails fast
    without it.
    """
    letters = sorted({c for c in expression if c.isalnum()})[:_MAX_PROBED_LETTERS]
    parts = [*_REPEATED, *(letter for letter in letters if letter not in _REPEATED)]
    ends = [*_ENDS, "\0" + expression[:_PROBE_LENGTH]]
    return [part * _PROBE_LENGTH + end for part in parts for end in ends]


def _split_by_tables(tables: BoundaryTables, text: str) -> list[str]:
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
