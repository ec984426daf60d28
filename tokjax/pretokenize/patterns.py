r"""Split patterns: the named patterns, and a splitter of text into pre-tokens for any pattern.

A pre-token is a match of the pattern. BPE merges only inside of pre-tokens. A pattern has one step or more:
expressions that are compiled for short texts and for arrays.

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
import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.boundary_tables import BoundaryTables, build_boundary_tables
from tokjax.pretokenize.pretoken_starts import DigitGroups, find_pretoken_starts
from tokjax.pretokenize.split_automaton import compile_automaton
from tokjax.pretokenize.split_expressions import (
    ExpressionTooLargeError,
    UnsupportedExpressionError,
    backtracks_little,
    contains,
    format_expression,
    make_range,
    make_set,
    parse_expression,
    unite,
)
from tokjax.pretokenize.unicode_classes import ReplacementTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokjax.pretokenize.split_automaton import SplitAutomaton
    from tokjax.pretokenize.split_expressions import CodePointSet, Node

_ASCII = make_range(0, 0x7F)
_BASIC_PLANE = make_range(0, 0xFFFF)
_ABOVE_BASIC_PLANE = re.compile("[\U00010000-\U0010ffff]+")
_DIGIT_GROUP_EXPRESSIONS = (r"(?=(\d{3})+(?!\d))", r"(?=(?:\d{3})+(?!\d))")
_SET_OPERATION = re.compile(r"&&|--|\|\||~~|\[[^\]]*[^\]\\]\[")
"""Set operations and nested sets, which `regex` has in version 1 of its syntax."""
_COUNT = re.compile(r"(?<!\\[xpPN])\{(?:[0-9]*,)?([0-9]{1,9})\}")
_MAX_UNROLLED = 10_000_000
"""Maximum number of characters of an expression for the `regex` package with all counts multiplied: it
repeats the parts in memory."""
_MAX_BACKTRACKED = 11_000
"""Up to this many characters, `re` splits a text, which `ArrayEngine.few_characters` also limits."""
_SECONDS, _SECONDS_PER_CHARACTER = 5.0, 1e-5
"""Time limit of the `regex` package, which takes about a thirtieth of it for most patterns."""

Pattern: TypeAlias = str | tuple[str, ...]
"""A split pattern: a name in `PATTERNS`, a regular expression, or several of them, applied in turn."""

_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_QWEN3_5 = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}|"
    rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACE}"
)


DIGIT = "[\\p{N}\U00011de0-\U00011de9\U00016ff4-\U00016ff6]"
"""The set of the step `Digits` of Hugging Face's tokenizers, which knows numbers that Unicode 17 added."""


def _make_cased_expression(contraction: str, numbers: str, newlines: str, letters: str = "") -> str:
    """Returns the expression of a pattern that splits between lower and upper case, as `o200k` does.

    Args:
        contraction: expression of the end of a word.
        numbers: expression of numbers.
        newlines: the characters that join the punctuation before them.
        letters: restriction of the sets of letters.
    """
    upper, lower = (rf"[{members}{letters}]" for members in (_UPPER, _LOWER))
    return "|".join(
        [
            rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{contraction}",
            rf"[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{contraction}",
            numbers,
            rf" ?[^\s\p{{L}}\p{{N}}]+[{newlines}]*",
            _SPACE,
        ]
    )


# Whitespace without vertical tab, form feed and U+0085. BERT removes these from a text, so a word continues
# after them.
_WHITE_SPACE, _NOT_WHITE_SPACE = r"[^\S\x0b\x0c\x85]", r"[\S\x0b\x0c\x85]"

PATTERNS: Mapping[str, Pattern] = MappingProxyType(
    {
        "gpt2": _GPT2,
        "cl100k": _CL100K,
        "llama3": _CL100K,
        "qwen2": _CL100K.replace(r"\p{N}{1,3}", r"\p{N}"),
        "qwen3_5": _QWEN3_5,
        "o200k": _make_cased_expression(f"{_CONTRACTION}?", r"\p{N}{1,3}", r"\r\n/"),
        "tekken": _make_cased_expression("", r"\p{N}", r"\r\n/"),
        "kimi_k2": r"[\p{Han}]+|"
        + _make_cased_expression(f"{_CONTRACTION}?", r"\p{N}{1,3}", r"\r\n", r"&&[^\p{Han}]"),
        "starcoder": (DIGIT, _GPT2),
        "deepseek_v3": (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK),
        "whitespace": rf"{_WHITE_SPACE}*{_NOT_WHITE_SPACE}+|{_WHITE_SPACE}+",
    }
)
"""The split patterns by name: the published ones, and `"whitespace"`, whose pre-tokens are runs of other
characters with the whitespace before them (vertical tab, form feed and U+0085 do not count as whitespace)."""


_TIKTOKEN_END = r"\s++$|\s+(?!\S)|\s"
_EQUIVALENT_EXPRESSIONS: Mapping[str, str] = MappingProxyType(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|" + _TIKTOKEN_END: "gpt2",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"
        + _TIKTOKEN_END.replace(r"\s+(", r"\s*[\r\n]|\s+("): "cl100k",
    }
)
"""Equivalent expressions of named patterns: tiktoken's own, which are faster for its engine, and older
ones."""


def find_pattern_name(pattern: Pattern) -> str | None:
    """Returns the name of the pattern with this regular expression or an equivalent one, else `None`."""
    name = next((name for name, known in PATTERNS.items() if pattern in (name, known)), None)
    return name or (_EQUIVALENT_EXPRESSIONS.get(pattern) if isinstance(pattern, str) else None)


@dataclass(frozen=True)
class PatternSplitter:
    """Splitter of text into the pre-tokens of one pattern. Make one with `make_pattern_splitter`.

    Attributes:
        pattern: the pattern as it was passed.
    """

    pattern: Pattern

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the pattern only, without the compiled expressions."""
        return make_pattern_splitter, (self.pattern,)

    @cached_property
    def name(self) -> str | None:
        """The name of the pattern, passed by name or as an expression; `None` for other patterns."""
        return find_pattern_name(self.pattern)

    @property
    def expression(self) -> Pattern:
        """The regular expressions. Two patterns with the same ones split alike."""
        expressions = tuple(step.expression for step in self.steps)
        return expressions[0] if len(expressions) == 1 else expressions

    @cached_property
    def steps(self) -> tuple[SplitStep, ...]:
        """The steps of the pattern. Each one splits the pre-tokens of the step before it."""
        return tuple(map(make_split_step, _list_expressions(self.name or self.pattern)))

    @cached_property
    def tables(self) -> tuple[BoundaryTables | DigitGroups, ...]:
        """The boundary tables of the steps that have them."""
        return tuple(step.tables for step in self.steps if step.tables is not None)

    @property
    def has_tables(self) -> bool:
        """Whether arrays can find the pre-tokens of large texts: all steps have boundary tables."""
        return len(self.tables) == len(self.steps)

    @property
    def covers_any_text(self) -> bool:
        """Whether the matches of each step cover every text."""
        return self.has_tables and all(tables.covers_any_text for tables in self.tables)

    @property
    def splits_before_spaces(self) -> bool:
        """Whether a space or newline after a letter or number starts a pre-token in any text."""
        return any(tables.splits_before_spaces for tables in self.tables)

    def split(self, text: str) -> list[str]:
        r"""Splits a text into pre-tokens, whose concatenation is the text.

        Text between matches of the pattern becomes separate pre-tokens, so nothing is lost.

        >>> make_pattern_splitter("gpt2").split("it's 2 words")
        ['it', "'s", ' 2', ' words']
        >>> make_pattern_splitter("[a-z]+").split("ab, cd")
        ['ab', ', ', 'cd']
        >>> make_pattern_splitter((r"\p{N}", "gpt2")).split("in 1999")
        ['in', ' ', '1', '9', '9', '9']
        """
        parts = self.steps[0].split(text)
        for step in self.steps[1:]:
            parts = list(itertools.chain.from_iterable(map(step.split, parts)))
        return parts


def _list_expressions(pattern: Pattern) -> list[str]:
    """Returns the regular expressions of a pattern, in order."""
    known = PATTERNS.get(pattern, pattern) if isinstance(pattern, str) else pattern
    if isinstance(known, str):
        return [known]
    return [expression for part in known for expression in _list_expressions(part)]


def split_alike(pattern: Pattern, other: Pattern) -> bool:
    """Returns whether two patterns have the same expressions, such as a name and its expression."""
    return make_pattern_splitter(pattern).expression == make_pattern_splitter(other).expression


_NAME_LIKE = re.compile(r"[A-Za-z0-9_-]{2,}")


def make_pattern_splitter(pattern: Pattern | list[str]) -> PatternSplitter:
    """Returns the splitter of a pattern. It is compiled once and cached.

    Args:
        pattern: a name in `PATTERNS`, a regular expression in the syntax of the `regex` package, or several
            of them: each one splits the pre-tokens of the one before it.

    Raises:
        InvalidArgumentError: the pattern is an unknown name, is not a valid regular expression, or is too
            large.
    """
    parts = (pattern,) if isinstance(pattern, str) else pattern
    are_texts = isinstance(parts, (tuple, list)) and all(isinstance(part, str) and part for part in parts)
    if not parts or not are_texts:
        raise InvalidArgumentError(
            f"pattern must be a name ({', '.join(PATTERNS)}), a regular expression, or a tuple of these, not "
            f"{pattern!r}"
        )
    return _make_pattern_splitter(pattern if isinstance(pattern, str) else tuple(parts))


@lru_cache(maxsize=64)
def _make_pattern_splitter(pattern: Pattern) -> PatternSplitter:
    parts = pattern if isinstance(pattern, tuple) else (pattern,)
    names = ", ".join(PATTERNS)
    for part in parts:
        if part not in PATTERNS and _NAME_LIKE.fullmatch(part):
            raise InvalidArgumentError(
                f"pattern {part!r} is not one of the names {names}; if you mean a regular expression that "
                f"matches just these characters, write '(?:{part})'"
            )
        step = make_split_step(part)
        if find_pattern_name(part) is None and step.tables is None:
            step.regex  # noqa: B018 (raises an error if it is invalid)
    return PatternSplitter(pattern)


@dataclass(frozen=True)
class SplitStep:
    """One step of a split pattern. Make one with `make_split_step`.

    Attributes:
        expression: a regular expression in the syntax of the `regex` package.
    """

    expression: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the expression only, without what is compiled from it."""
        return make_split_step, (self.expression,)

    @property
    def automaton(self) -> SplitAutomaton | None:
        """The automaton of the expression; `None` if it has unsupported parts."""
        return self._compiled[1]

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
        """Returns whether no character outside of a set can match, or be named in a lookahead."""
        if self.automaton is None:
            return False
        codes = np.append(self.automaton.run_starts, members)
        others = self.automaton.find_classes(codes[~contains(members, codes)])
        columns = np.concatenate([self.automaton.next_state, self.automaton.has_match]).T
        return bool((columns[others] == columns[-1]).all())  # they are as the end of a text

    def split(self, text: str) -> list[str]:
        """Splits a text into matches, and the text between them. Their concatenation is the text.

        Raises:
            InvalidArgumentError: the `regex` package takes too long, as for `(?:a|aa)+$` and many `a`.
        """
        if len(text) > _MAX_BACKTRACKED or self._compiled[0] is None:
            if self.tables is not None:
                return _split_by_tables(self.tables, text)
            if self.automaton is None:
                return self._split_by_regex(text)
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

    def _split_by_regex(self, text: str) -> list[str]:
        seconds = _SECONDS + len(text) * _SECONDS_PER_CHARACTER
        try:
            return _split_at_matches(self.regex, text, timeout=seconds)
        except (TimeoutError, MemoryError) as error:
            raise InvalidArgumentError(
                f"pattern {self.expression[:1000]!r} takes more than {seconds:.1f} s for the text "
                f"{text[:20]!r}..., of {len(text):,} characters, or all memory: its repetitions can match a "
                "text in countless ways; make them possessive (`++`), or let no two match the same text"
            ) from error

    @cached_property
    def _compiled(self) -> tuple[Node | None, SplitAutomaton | None]:
        """The syntax tree, `None` if `re` would take long, and the automaton; both `None` if unsupported."""
        try:
            tree = parse_expression(self.expression)
            automaton = compile_automaton(tree)
            if backtracks_little(tree):
                return tree, automaton
            build_boundary_tables(automaton)  # raises an error if only `re` could split by it
        except ExpressionTooLargeError as error:  # `regex` would need gigabytes for some of them
            raise InvalidArgumentError(f"pattern {self.expression[:60]!r} is too large: {error}") from error
        except UnsupportedExpressionError:
            return None, None
        return None, automaton

    @cached_property
    def _first_of_class(self) -> NDArray[np.int64]:
        """The first code point of each class of the automaton. The last class, the end, has none."""
        assert self.automaton is not None
        first_runs = np.unique(self.automaton.run_classes, return_index=True)[1]
        return self.automaton.run_starts[first_runs]

    @cached_property
    def _representatives(self) -> ReplacementTable:
        """The first character of the class of each character, for `str.translate`."""
        automaton = self.automaton
        assert automaton is not None
        return ReplacementTable(
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
        tree = self._compiled[0]
        assert tree is not None
        return re.compile(format_expression(tree, characters))

    @cached_property
    def regex(self) -> Any:
        """The compiled expression of the `regex` package.

        Raises:
            InvalidArgumentError: it is not a regular expression, or is too large.
        """
        import regex  # noqa: PLC0415 (slow to import)

        if len(self.expression) * math.prod(map(int, _COUNT.findall(self.expression))) > _MAX_UNROLLED:
            raise InvalidArgumentError(
                f"pattern {self.expression[:60]!r} is too large: its repetitions multiply to more than "
                f"{_MAX_UNROLLED:,} characters; write `*` or `+` for large counts"
            )
        try:
            version = regex.V1 if _SET_OPERATION.search(self.expression) else regex.V0
            return regex.compile(self.expression, version)
        except (regex.error, ValueError, RecursionError) as error:
            raise InvalidArgumentError(
                f"pattern {self.expression[:1000]!r} is not a regular expression: {error}"
            ) from error


@lru_cache(maxsize=64)
def make_split_step(expression: str) -> SplitStep:
    """Returns the step of an expression. It is compiled once, for all patterns that have it."""
    return SplitStep(expression)


def _split_by_tables(tables: BoundaryTables | DigitGroups, text: str) -> list[str]:
    """Splits a text into matches, and the text between them."""
    codes = np.frombuffer((text + "\n").encode("utf-32-le", "surrogatepass"), "<u4")
    starts = np.flatnonzero(find_pretoken_starts((tables,), codes, np.array([len(text)])))
    return [text[start:stop] for start, stop in itertools.pairwise(starts.tolist())]


def _split_at_matches(compiled: Any, text: str, **options: float) -> list[str]:
    """Splits a text into the matches of an expression, and the text between them."""
    parts: list[str] = []
    previous_stop = 0
    for match in compiled.finditer(text, **options):
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
