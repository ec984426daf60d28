"""Split patterns: the named patterns, and a splitter of text into pre-tokens for any pattern.

A pre-token is a match of the pattern. BPE merges only inside of pre-tokens.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.split_steps import make_split_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokjax.pretokenize.boundary_tables import BoundaryTables
    from tokjax.pretokenize.pretoken_starts import DigitGroups
    from tokjax.pretokenize.split_steps import SplitStep

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
        InvalidArgumentError: the pattern is an unknown name, is not a valid regular expression, is too
            large, or takes exponential time.
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
        if find_pattern_name(part) is None:
            make_split_step(part).check()
    return PatternSplitter(pattern)
