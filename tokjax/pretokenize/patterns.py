"""Split patterns: the named patterns, and a splitter of text into pre-tokens for any pattern.

A pre-token is a match of the pattern. BPE merges only inside of pre-tokens.
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

# Whitespace without vertical tab, form feed and U+0085. BERT removes these from a text, so a word continues
# after them.
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
"""The split patterns by name: the published ones, and `"whitespace"`, whose pre-tokens are runs of other
characters with the whitespace before them (vertical tab, form feed and U+0085 do not count as whitespace).
The matches of each pattern cover every text completely."""


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


_STANDARD_CLASSES = {
    r"\p{L}": "A-Za-z\u3042\u017f",
    r"\p{Lu}": "A-Z",
    r"\p{Ll}": "a-z\u017f",
    r"\p{Lt}": "",
    r"\p{Lm}": "",
    r"\p{Lo}": "\u3042",
    r"\p{M}": "\u0301",
    r"\p{N}": "0-9",
    r"\s": r"\t-\r \x85",
}
"""The members of each class in a text of representatives, which is mostly ASCII."""
_CLASS_OR_BRACKET = re.compile(r"\\p\{\w+\}|\\[sS]|[\[\]]")


@lru_cache(maxsize=len(PATTERNS))
def make_standard_expression(name: str) -> str:
    r"""Returns a named pattern in the syntax of the standard library, which is more than twice as fast.

    It splits texts of representatives (see `map_text_to_representatives`) as the pattern does, and so any
    ASCII text.

    >>> make_standard_expression("gpt2").split("|")[5]
    ' ?[0-9]+'
    """
    depth = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal depth
        token = match.group()
        if token in ("[", "]"):
            depth += 1 if token == "[" else -1
            return token
        members = _STANDARD_CLASSES[token.lower() if token == r"\S" else token]
        if depth:
            return members
        return f"[^{members}]" if token == r"\S" else f"[{members}]"

    expression = PATTERNS[name].replace(_WHITE_SPACE, r"[\t\n\r ]").replace(_NOT_WHITE_SPACE, r"[^\t\n\r ]")
    return _CLASS_OR_BRACKET.sub(replace, expression)


def find_pattern_name(expression: str) -> str | None:
    """Returns the name of the pattern that has this regular expression or an equivalent one, else `None`."""
    name = next((name for name, pattern in PATTERNS.items() if pattern == expression), None)
    return name or _EQUIVALENT_EXPRESSIONS.get(expression)


@dataclass(frozen=True)
class PatternSplitter:
    """Splitter of text into the pre-tokens of one pattern. Make one with `make_pattern_splitter`.

    Attributes:
        pattern: a name in `PATTERNS`, or a regular expression in the syntax of the `regex` package.
    """

    pattern: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the pattern only, without the compiled expression."""
        return make_pattern_splitter, (self.pattern,)

    @property
    def is_named(self) -> bool:
        """Whether this is a named pattern, passed by name or as an expression. Its matches cover any text."""
        return self.name is not None

    @cached_property
    def name(self) -> str | None:
        """The name of the pattern, passed by name or as an expression; `None` for other expressions."""
        return find_pattern_name(self.expression)

    @property
    def expression(self) -> str:
        """The regular expression. Two patterns with the same expression split alike."""
        return PATTERNS.get(self.pattern, self.pattern)

    @cached_property
    def _compiled(self) -> Any:
        if self.name is not None:
            return re.compile(make_standard_expression(self.name))
        import regex  # noqa: PLC0415 (slow to import)

        try:
            return regex.compile(self.expression)
        except regex.error as error:
            raise InvalidArgumentError(
                f"pattern {self.pattern!r} is neither a name ({', '.join(PATTERNS)}) nor a regular "
                f"expression: {error}"
            ) from error

    def split(self, text: str) -> list[str]:
        """Splits a text into pre-tokens, whose concatenation is the text.

        Text between matches of the pattern becomes separate pre-tokens, so nothing is lost.

        >>> make_pattern_splitter("gpt2").split("it's 2 words")
        ['it', "'s", ' 2', ' words']
        >>> make_pattern_splitter("[a-z]+").split("ab, cd")
        ['ab', ', ', 'cd']
        """
        if not self.is_named:
            return list(self._iter_matches_and_gaps(text))
        if text.isascii():
            return self._compiled.findall(text)  # type: ignore[no-any-return]
        # Unicode tables differ between libraries. The representatives have the classes of tiktoken's tables.
        stops = itertools.accumulate(self.compute_lengths(map_text_to_representatives(text)))
        return [text[start:stop] for start, stop in itertools.pairwise(itertools.chain([0], stops))]

    def check_speed(self) -> None:
        """Rejects an expression that takes exponential time on some short texts: it would hang on long ones.

        Raises:
            InvalidArgumentError: the expression needs more than a second for one of the probe texts.
        """
        for text in _PROBES:
            try:
                self._compiled.findall(text, timeout=_PROBE_SECONDS)
            except TimeoutError as error:
                raise InvalidArgumentError(
                    f"pattern {self.pattern!r} takes more than {_PROBE_SECONDS:g} s for {len(text)} "
                    f"characters, {text[:20]!r}...: its repetitions can match one text in countless ways; "
                    "make them possessive (`++`), or let no two of them match the same text"
                ) from error

    def compute_lengths(self, text: str) -> list[int]:
        """Returns the lengths of the pre-tokens of representatives of characters, for a named pattern."""
        return list(map(len, self._compiled.findall(text)))

    def _iter_matches_and_gaps(self, text: str) -> Iterator[str]:
        previous_stop = 0
        for match in self._compiled.finditer(text):
            start, stop = match.span()
            if start == stop:
                continue
            if start > previous_stop:
                yield text[previous_stop:start]
            yield text[start:stop]
            previous_stop = stop
        if previous_stop < len(text):
            yield text[previous_stop:]


# Repeated parts with an end that makes the last match fail: then all ways to match the repetitions are tried.
_REPEATED = ("a", "A", "é", "日", "1", ".", "'s", " ", "\n", " \n", "a ", " a", "aA", "a1", "a.", "1.", "#a ")
_PROBES = [part * 100 + end for part in _REPEATED for end in ("", "!", "a", "1", " ", "\n")]
_PROBE_SECONDS = 1.0


_NAME_LIKE = re.compile(r"[A-Za-z0-9_-]{2,}")


@lru_cache(maxsize=64)
def make_pattern_splitter(pattern: str) -> PatternSplitter:
    """Returns the splitter of a pattern. It is compiled once and cached.

    Args:
        pattern: a name in `PATTERNS`, or a regular expression in the syntax of the `regex` package.

    Raises:
        InvalidArgumentError: the pattern is an unknown name, is not a valid regular expression, or takes
            exponential time.
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
        splitter.check_speed()  # also compiles the pattern, so that errors in it are raised here
    return splitter
