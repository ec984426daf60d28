r"""Normalizer steps of a `tokenizer.json`, with the bytes of the text that each character comes from.

The text "ﬁé", where "é" is "e" and an accent, with `NFKC` and `Prepend`:

    characters            ﬁ (3 bytes)   e      U+0301
    spans                 0,3           3,4    4,6
    NFKC                  f    i        é
    spans                 0,3  0,3      3,6
    Prepend "▁"      ▁    f    i        é
    spans            0,3  0,3  0,3      3,6

The characters are those of the `tokenizers` library. A step is a list of changes, as there:

    change    character
    0         replaces a character, and has its span
    1         is inserted, and has the span of the character before
    -n        replaces a character and the n after it, and has their span

This is the slow and obvious way, a character at a time. `models/unigram_words.py` uses it for single
characters, and for words whose characters change one another.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tokjax.pretokenize.special_tokens import WHITE_SPACE
from tokjax.pretokenize.unicode_classes import (
    COMPATIBLE,
    DECOMPOSES,
    EXTENDS,
    STRIPPED,
    get_combining_class,
    load_code_point_flags,
    load_lowercase_map,
    sort_marks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Changes = Iterable[tuple[str, int]]

PREPENDING = (
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd\U000111c2\U000111c3\U000113d1"
    "\U0001193f\U00011941\U00011a84-\U00011a89\U00011d46\U00011f02"
)
"""Characters that form a grapheme with the character after them, as a set of an expression."""
_CONTROL = (
    "\\x00-\\x1f\\x7f-\\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
)
_CONSONANTS = "\u0915-\u0939\u0958-\u095f\u0978-\u097f\u0995-\u09b9\u09dc-\u09df\u09f0\u09f1"
_LINKERS = "\u094d\u09cd"
_NMT_REMOVED = re.compile("[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")
_NMT_SPACES = frozenset("\t\n\f\r\u1680\u200b\u200c\u200d\u200e\u200f\u2028\u2029▁\ufeff\ufffd")
_MAX_GRAPHEME_BYTES = 5
"""`Precompiled` looks up graphemes of up to this many bytes as a whole, and others by character."""
MANY_SPACES = " {2,}"
_HAS_VALUE, _IS_FAR, _VALUE_BITS = 1 << 8, 1 << 9, (1 << 31) - 1
_LABEL_BITS = 1 << 31 | 0xFF
_MAX_CACHED = 1 << 14


class AlignedText(NamedTuple):
    """Characters of a text after some steps, and the 0-based byte spans that they come from."""

    text: str
    spans: list[tuple[int, int]]

    def slice(self, start: int, stop: int) -> AlignedText:
        """Returns the characters from `start` to `stop`."""
        return AlignedText(self.text[start:stop], self.spans[start:stop])

    def change(self, changes: Changes, position: int = 0) -> AlignedText:
        """Returns the text after changes. The first `position` characters are removed."""
        characters, spans = [], []
        for character, change in changes:
            if change > 0:
                spans.append(self.spans[position - 1] if position else (0, 0))
            else:
                stop = position + 1 - change
                spans.append((self.spans[position][0], self.spans[stop - 1][1]))
                position = stop
            characters.append(character)
        return AlignedText("".join(characters), spans)

    def replace(self, pattern: re.Pattern[str], content: str) -> AlignedText:
        """Returns the text with other strings. They have the span of the match: of spaces, the last one."""
        parts, spans, stop = [], [], 0
        for match in pattern.finditer(self.text):
            parts += [self.text[stop : match.start()], content]
            first = match.end() - 1 if pattern.pattern == MANY_SPACES else match.start()
            span = self.spans[first][0], self.spans[match.end() - 1][1]
            spans += self.spans[stop : match.start()] + [span] * len(content)
            stop = match.end()
        return AlignedText("".join([*parts, self.text[stop:]]), spans + self.spans[stop:])

    def prepend(self, content: str) -> AlignedText:
        """Returns the text, unless it is empty, after a string with the span of its first character."""
        spans = [self.spans[0]] * len(content) + self.spans if self.text else []
        return AlignedText(content * bool(self.text) + self.text, spans)


class Edges(NamedTuple):
    """Whether a text begins and ends where the text between two added tokens does."""

    begins: bool
    ends: bool


class StepNormalizer:
    """Normalizer of a `tokenizer.json`.

    Args:
        steps: its steps, `Sequence` flattened.

    Attributes:
        types: types of the steps.
        trie: character map of `Precompiled`, or `None`.
        merges_spaces: whether several spaces become one.
        strings: strings of several characters that the first steps replace. In a text without them, these
            steps change nothing but single characters.

    Raises:
        KeyError: a step has another type, or lacks a field.
        ValueError: a step has another pattern or a damaged character map, or replaces a string after others.
    """

    def __init__(self, steps: Sequence[Mapping[str, Any]]) -> None:
        self._definition = steps
        self.types = [step["type"] for step in steps]
        self.trie: CharacterTrie | None = None
        self._steps = [self._make_step(step) for step in steps]
        self.merges_spaces = any(step.get("pattern") == {"Regex": MANY_SPACES} for step in steps)
        self.strings = _list_strings(steps)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as the definition of the steps."""
        return StepNormalizer, (self._definition,)

    def normalize(self, text: AlignedText, edges: Edges) -> AlignedText:
        """Returns a text after all steps."""
        for step in self._steps:
            text = step(text, edges)
        return text

    def normalize_string(self, text: str) -> str:
        """Returns a string, with no added tokens before and after it, after all steps."""
        return self.normalize(_align(text), Edges(True, True)).text

    def iter_forms(self, character: str) -> Iterator[str]:
        """Yields a character, and what it is after each of the steps, in the middle of a text."""
        text = _align(character)
        yield text.text
        for step in self._steps:
            text = step(text, Edges(False, False))
            yield text.text

    def _make_step(self, step: Mapping[str, Any]) -> Callable[[AlignedText, Edges], AlignedText]:
        kind = step["type"]
        if kind == "Precompiled":
            trie = self.trie = CharacterTrie(base64.b64decode(step["precompiled_charsmap"]))
            return lambda text, _: text.change(_iter_mapped(text.text, trie))
        if kind == "Replace":
            literal, expression = (step["pattern"].get(name) for name in ("String", "Regex"))
            if not literal and expression != MANY_SPACES:
                raise ValueError(f"its normalizer replaces {step['pattern']!r}")
            pattern, content = re.compile(re.escape(literal) if literal else MANY_SPACES), step["content"]
            return lambda text, _: text.replace(pattern, content)
        if kind == "Strip":
            left, right = step["strip_left"], step["strip_right"]
            return lambda text, edges: _strip(text, left and edges.begins, right and edges.ends)
        if kind == "Prepend":
            prepended = step["prepend"]
            return lambda text, edges: text.prepend(prepended) if edges.begins else text
        return _SIMPLE_STEPS[kind]


def _align(text: str) -> AlignedText:
    """Returns the characters of a text whose spans have no meaning."""
    return AlignedText(text, [(0, 0)] * len(text))


def _list_strings(steps: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Returns the strings of several characters that the first steps replace.

    Raises:
        ValueError: another step replaces such a string, or one that a step before it can make.
    """
    strings, inserted = set[str](), set[str]()
    is_first = True
    for step in steps:
        string = step["pattern"].get("String") if step["type"] == "Replace" else None
        is_first &= string is not None and inserted.isdisjoint(string)
        if string is not None and len(string) > 1:
            if not is_first:
                raise ValueError(f"it replaces {string!r} after other steps")
            strings.add(string)
        inserted.update(step.get("content", ""))
    return frozenset(strings)


def _strip(text: AlignedText, left: bool, right: bool) -> AlignedText:
    kept = text.text.lstrip(WHITE_SPACE) if left else text.text
    start = len(text.text) - len(kept)
    return text.slice(start, start + len(kept.rstrip(WHITE_SPACE) if right else kept))


def _remove(text: AlignedText, is_removed: Callable[[str], bool]) -> AlignedText:
    kept = [i for i, character in enumerate(text.text) if not is_removed(character)]
    return AlignedText("".join(text.text[i] for i in kept), [text.spans[i] for i in kept])


def _apply_nmt(text: AlignedText) -> AlignedText:
    text = _remove(text, lambda character: _NMT_REMOVED.match(character) is not None)
    return text._replace(text="".join(" " if c in _NMT_SPACES else c for c in text.text))


def _iter_lowercase(text: str) -> Changes:
    lower = load_lowercase_map()
    for character in text:
        for i, new in enumerate(lower.get(ord(character), character)):
            yield new, min(i, 1)


def _iter_mapped(text: str, trie: CharacterTrie) -> Changes:
    """Returns the changes of `Precompiled`.

    If it removes the first characters of a text, the spans of all others are those of the characters before.
    """
    changes: list[list[Any]] = []
    for grapheme in compile_grapheme_expression().findall(text):
        is_short = len(grapheme) == 1 or len(grapheme.encode("utf-8")) <= _MAX_GRAPHEME_BYTES
        whole = trie.find(grapheme) if is_short else None
        for part in grapheme if whole is None else [grapheme]:
            new = trie.find(part) if whole is None else whole
            if new is None:
                changes.append([part, 0])
                continue
            num_more = len(new) - len(part)
            changes += [[character, int(i >= len(part))] for i, character in enumerate(new)]
            if num_more < 0 and changes:
                changes[-1][1] += num_more
    return changes  # type: ignore[return-value]


@lru_cache(maxsize=1)
def compile_grapheme_expression() -> Any:
    """Compiles the expression of a grapheme, with the tables of the library.

    Pairs of regional indicators are separate graphemes here, which changes no result: of more than 5 bytes,
    the characters are looked up separately.
    """
    import regex  # noqa: PLC0415 (slow to import)

    extends = (load_code_point_flags() & EXTENDS > 0).astype(np.int8)
    runs = np.flatnonzero(np.diff(extends, prepend=0, append=0)).reshape(-1, 2).tolist()
    extending = "".join(f"{chr(first)}-{chr(stop - 1)}" for first, stop in runs)
    first, vowel, last = (
        "[\u1100-\u115f\ua960-\ua97c]",
        "[\u1160-\u11a7\ud7b0-\ud7c6]",
        "[\u11a8-\u11ff\ud7cb-\ud7fb]",
    )
    pictograph = r"\p{Extended_Pictographic}"
    return regex.compile(
        rf"\r\n|[{_CONTROL}]|(?!$)[{PREPENDING}]*+(?:{first}*+(?:[\uac00-\ud7a3]?{vowel}*+{last}++|"
        rf"[\uac00-\ud7a3]{vowel}*+|{vowel}++)|{first}++|{pictograph}(?:[{extending}]*\u200d{pictograph})*+|"
        rf"[{_CONSONANTS}](?:[{extending}]*[{_LINKERS}][{extending}]*[{_CONSONANTS}])*+|"
        rf"[^{_CONTROL}{PREPENDING}])?+[{extending}]*+",
        regex.VERSION1 | regex.DOTALL,
    )


def _iter_decomposed(text: str, form: Literal["NFD", "NFKD"], flag: int) -> Iterator[tuple[str, int]]:
    """Yields the changes of a decomposition: marks in a row are sorted by their combining class."""
    flags = load_code_point_flags()
    changes = (
        (part, min(i, 1))
        for character in text
        for i, part in enumerate(
            unicodedata.normalize(form, character) if flags[ord(character)] & flag else character
        )
    )
    return sort_marks(changes, lambda change: get_combining_class(change[0]))


def _iter_composed(changes: Changes) -> Iterator[tuple[str, int]]:
    """Yields the changes of a composition after a decomposition."""
    starter: tuple[str, int] | None = None
    marks: list[tuple[str, int]] = []  # after the starter, not composed
    for character, change in changes:
        class_ = get_combining_class(character)
        if starter is None:
            if class_:
                yield character, change
            else:
                starter = character, change
            continue
        is_blocked = bool(marks) and get_combining_class(marks[-1][0]) >= class_
        composed = "" if is_blocked else unicodedata.normalize("NFC", starter[0] + character)
        if len(composed) == 1 and load_code_point_flags()[ord(composed)] & DECOMPOSES:
            starter = composed, starter[1] + change - 1
        elif class_:
            marks.append((character, change))
        else:
            yield from (starter, *marks)
            starter, marks = (character, change), []
    if starter is not None:
        yield from (starter, *marks)


def _make_unicode_step(form: str) -> Callable[[AlignedText, Edges], AlignedText]:
    decomposed: Literal["NFD", "NFKD"] = "NFKD" if "K" in form else "NFD"
    flag = COMPATIBLE | DECOMPOSES if "K" in form else DECOMPOSES
    if "C" not in form:
        return lambda text, _: text.change(_iter_decomposed(text.text, decomposed, flag))
    return lambda text, _: text.change(_iter_composed(_iter_decomposed(text.text, decomposed, flag)))


_SIMPLE_STEPS: dict[str, Callable[[AlignedText, Edges], AlignedText]] = {
    **{form: _make_unicode_step(form) for form in ("NFC", "NFD", "NFKC", "NFKD")},
    "StripAccents": lambda text, _: _remove(
        text, lambda character: bool(load_code_point_flags()[ord(character)] & STRIPPED)
    ),
    "Lowercase": lambda text, _: text.change(_iter_lowercase(text.text)),
    "Nmt": lambda text, _: _apply_nmt(text),
}


class CharacterTrie:
    """A precompiled character map of SentencePiece: sequences of characters and their replacements.

    A map is stored as a trie in a double array, as darts-clone writes it, followed by the replacements. A
    unit of the array is a 32-bit integer:

        bits 0 to 7     the byte that leads to the unit (its label); bit 31 is 0
        bit 8           whether a key ends here
        bits 10 to 30   offset of the children; 256 times as large if bit 9 is set

    The child of the unit at `p` for byte `b` is at `p ^ offset ^ b`, and exists if its label is `b`. Where a
    key ends, the unit at `p ^ offset` holds the position of its replacement.

    Args:
        charsmap: size of the trie (4 bytes, little-endian), the trie, and the replacements in UTF-8, each
            followed by a zero byte; empty for none.

    Raises:
        ValueError: the size is wrong, or the replacements are not valid UTF-8.
    """

    def __init__(self, charsmap: bytes) -> None:
        size = int.from_bytes(charsmap[:4], "little")
        if charsmap and (size % 4 or not 4 <= size <= len(charsmap) - 4):
            raise ValueError(f"a trie of {size} bytes can't be in a character map of {len(charsmap)} bytes")
        self._units: list[int] = np.frombuffer(charsmap, "<u4", size // 4, 4).tolist() if charsmap else [0]
        self._values = charsmap[4 + size :]
        self._values.decode("utf-8")
        self.find = lru_cache(maxsize=_MAX_CACHED)(self._find)

    def _find(self, text: str) -> str | None:
        """Returns the replacement of the shortest prefix of a text that has one, or `None`."""
        for position, has_value in self._walk(text):
            if has_value:
                start = (self._units[position] if position < len(self._units) else 0) & _VALUE_BITS
                return self._values[start : self._values.find(b"\0", start)].decode("utf-8", "replace")
        return None

    def begins_key(self, character: str) -> bool:
        """Returns whether a character is the start of a sequence that is replaced, or is itself replaced."""
        return len(list(self._walk(character))) == len(character.encode("utf-8"))

    def _walk(self, text: str) -> Iterator[tuple[int, bool]]:
        """Yields the position of each prefix of a text in bytes, and whether it has a value there."""
        position = self._get_offset(self._units[0])
        for byte in text.encode("utf-8"):
            position ^= byte
            unit = self._units[position] if position < len(self._units) else 0
            if not byte or unit & _LABEL_BITS != byte:
                return
            position ^= self._get_offset(unit)
            yield position, bool(unit & _HAS_VALUE)

    def _get_offset(self, unit: int) -> int:
        return (unit >> 10) << ((unit & _IS_FAR) >> 6)
