"""Split patterns that are known by name, and any other pattern, as a splitter of text into words.

A word here is what the pattern matches: the unit inside which byte-pair merging happens.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.unicode_classes import map_text_to_representatives

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_PUNCTUATION_AND_SPACE = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CL100K = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_PUNCTUATION_AND_SPACE}"

# White space but for control characters that BERT drops from a text: a word goes on behind them.
_WHITE_SPACE, _NOT_WHITE_SPACE = r"[^\S\x0b\x0c\x85]", r"[\S\x0b\x0c\x85]"

PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        "cl100k": _CL100K,
        "llama3": _CL100K,
        "qwen2": _CL100K.replace(r"\p{N}{1,3}", r"\p{N}"),
        "o200k": "|".join(
            [
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}?",
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+|\s+(?!\S)|\s+",
            ]
        ),
        "tekken": "|".join(
            [
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+",
                rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*",
                r"\p{N}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+|\s+(?!\S)|\s+",
            ]
        ),
        "whitespace": rf"{_WHITE_SPACE}*{_NOT_WHITE_SPACE}+|{_WHITE_SPACE}+",
    }
)
"""The split patterns that are known by name: published ones, and `"whitespace"`, whose words are runs of
other characters with the white space before them (vertical tab, form feed and U+0085 are none here). Each of
them matches all of any text."""


_TIKTOKEN_END = r"\s++$|\s+(?!\S)|\s"
_EQUIVALENT_EXPRESSIONS: Mapping[str, str] = MappingProxyType(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|" + _TIKTOKEN_END: "gpt2",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"
        + _TIKTOKEN_END.replace(r"\s+(", r"\s*[\r\n]|\s+("): "cl100k",
    }
)
"""Other ways to write some of them: tiktoken's own, which are faster for its engine, and older ones."""


def find_pattern_name(expression: str) -> str | None:
    """The name of the published pattern that a regular expression is, in any way that it is written."""
    name_found = next((name for name, written in PATTERNS.items() if written == expression), None)
    return name_found or _EQUIVALENT_EXPRESSIONS.get(expression)


@dataclass(frozen=True)
class PatternSplitter:
    """Splits text into the words of one pattern. Make one with `make_pattern_splitter`.

    Attributes:
        pattern: the name of a published pattern, or a regular expression in the `regex` package's syntax.
    """

    pattern: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the pattern alone."""
        return make_pattern_splitter, (self.pattern,)

    @property
    def is_named(self) -> bool:
        """Whether this is a published pattern (by its name or spelt out), which matches all of any text."""
        return self.name is not None

    @cached_property
    def name(self) -> str | None:
        """The name of the published pattern that this is, whether given by name or spelt out."""
        return find_pattern_name(self.expression)

    @property
    def expression(self) -> str:
        """The regular expression itself: equal for two patterns that split alike by definition."""
        return PATTERNS.get(self.pattern, self.pattern)

    @cached_property
    def _compiled(self) -> Any:
        import regex  # noqa: PLC0415 (slow to import)

        try:
            return regex.compile(self.expression)
        except regex.error as error:
            raise InvalidArgumentError(
                f"pattern {self.pattern!r} is neither a name ({', '.join(PATTERNS)}) nor a regular "
                f"expression: {error}"
            ) from error

    def split(self, text: str) -> list[str]:
        """The words of a text; joined, they are the text.

        Text that the pattern leaves unmatched makes words of its own: nothing is lost.

        >>> make_pattern_splitter("gpt2").split("it's 2 words")
        ['it', "'s", ' 2', ' words']
        >>> make_pattern_splitter("[a-z]+").split("ab, cd")
        ['ab', ', ', 'cd']
        """
        if not self.is_named:
            return list(self._iter_matches_and_gaps(text))
        if text.isascii():
            return self._compiled.findall(text)  # type: ignore[no-any-return]
        # The regex package's classes are not those of the reference: let it see characters it agrees on.
        stops = itertools.accumulate(self.compute_lengths(map_text_to_representatives(text)))
        return [text[start:stop] for start, stop in itertools.pairwise(itertools.chain([0], stops))]

    def check_speed(self) -> None:
        """Refuse an expression that tries countless ways to match short texts: it would not end on long ones.

        Raises:
            InvalidArgumentError: it is such a one, as far as some texts tell.
        """
        for text in _PROBES:
            try:
                self._compiled.findall(text, timeout=_PROBE_SECONDS)
            except TimeoutError as error:
                raise InvalidArgumentError(
                    f"pattern {self.pattern!r} is not done with {len(text)} characters, {text[:20]!r} and so "
                    f"on, within {_PROBE_SECONDS:g} s: its repetitions can match one text in countless ways; "
                    "make them possessive (`++`), or let no two of them match the same"
                ) from error

    def compute_lengths(self, text: str) -> list[int]:
        """The lengths of the words of a text of `representatives`, for a published pattern."""
        return list(map(len, self._compiled.findall(text)))

    def _iter_matches_and_gaps(self, text: str) -> Iterator[str]:
        done = 0
        for match in self._compiled.finditer(text):
            start, stop = match.span()
            if start == stop:
                continue
            if start > done:
                yield text[done:start]
            yield text[start:stop]
            done = stop
        if done < len(text):
            yield text[done:]


_REPEATED = ("a", "A", "é", "日", "1", ".", "'s", " ", "\n", " \n", "a ", " a", "aA", "a1", "a.", "1.", "#a ")
_PROBES = [part * 100 + end for part in _REPEATED for end in ("", "!", "a", "1", " ", "\n")]
_PROBE_SECONDS = 1.0


_NAME_LIKE = re.compile(r"[A-Za-z0-9_-]{2,}")


@lru_cache(maxsize=64)
def make_pattern_splitter(pattern: str) -> PatternSplitter:
    """The splitter of a pattern, compiled once.

    Args:
        pattern: a name of `PATTERNS`, or a regular expression.

    Raises:
        InvalidArgumentError: the pattern is no regular expression, or one that would not end, or a name that
            is not known.
    """
    if not isinstance(pattern, str) or not pattern:
        raise InvalidArgumentError(
            f"pattern must be a name ({', '.join(PATTERNS)}) or a regular expression, not {pattern!r}"
        )
    if pattern not in PATTERNS and _NAME_LIKE.fullmatch(pattern):
        raise InvalidArgumentError(
            f"pattern {pattern!r} is not one of the names {', '.join(PATTERNS)}; if you mean a regular "
            f"expression that matches just these characters, write '(?:{pattern})'"
        )
    splitter = PatternSplitter(pattern)
    if not splitter.is_named:
        splitter.check_speed()  # (and an error in the pattern shows here, not at the first text)
    return splitter
