"""BERT's normaliser, as Hugging Face's `tokenizers` has it, and the way back to the text as it was."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.unicode_classes import (
    ACCENT,
    CHINESE,
    DROPPED,
    combining,
    decompose,
    is_space,
    load_code_point_flags,
    load_lowercase_map,
)
from tokjax.pretokenize.unicode_normalization import align, normalize_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.core.utf8 import Text
    from tokjax.pretokenize.unicode_normalization import Alignment

_ASCII = 128
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# No text of characters has this: it stands for a mark that stays, and so has to be sorted among others.
_SORT_MARKER = "\ud800"
_MAX_CACHED = 1 << 16


@dataclass(frozen=True)
class BertNormalizer:
    """What is done to a text before it is split, step by step.

    Attributes:
        clean_text: control characters are dropped, and all white space becomes blanks.
        handle_chinese_chars: CJK ideographs are set between blanks.
        strip_accents: characters are decomposed (NFD), and nonspacing marks dropped.
        lowercase: each character becomes its lower case, whatever stands around it.
    """

    clean_text: bool = True
    handle_chinese_chars: bool = True
    strip_accents: bool = True
    lowercase: bool = True

    def __post_init__(self) -> None:
        """Check that each step is said to be done or not."""
        for step in reversed(fields(self)):  # (`lowercase` first, since it often decides on `strip_accents`)
            value = getattr(self, step.name)
            if not isinstance(value, bool):
                raise InvalidArgumentError(f"{step.name} must be True or False, not {value!r}")

    @property
    def is_identity(self) -> bool:
        """Whether no text is changed."""
        return self == _IDENTITY

    def normalize(self, text: Text, preserved: frozenset[str] = frozenset()) -> Text:
        r"""The normal form of a text, but for what is `preserved` (special tokens) as it is.

        >>> BertNormalizer().normalize("Café\t中 [CLS]", frozenset({"[CLS]"}))
        'cafe  中  [CLS]'
        """
        return normalize_text(text, preserved, _get_tables(self).normalize_piece)

    def align(self, text: Text, preserved: frozenset[str] = frozenset()) -> Alignment:
        """How `normalize(text, preserved)` changed the text."""
        tables = _get_tables(self)
        return align(text, preserved, tables.split_groups, tables.normalize_group)


def bert_normalizer(
    *, lowercase: bool, strip_accents: bool | None, clean_text: bool, handle_chinese_chars: bool
) -> BertNormalizer:
    """The normaliser of BERT's options, where `strip_accents=None` stands for what `lowercase` says."""
    return BertNormalizer(
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
        strip_accents=lowercase if strip_accents is None else strip_accents,
        lowercase=lowercase,
    )


class _CharacterTables:
    """The steps of a normaliser, as tables of characters.

    Nearly every character goes its own way, whatever stands around it. The exception: marks in a row are put
    into the order of form NFD, which shows where some of them are not nonspacing, and stay.
    """

    def __init__(self, normalizer: BertNormalizer) -> None:
        self._normalizer = normalizer
        self._all = _CharacterTable(self._normalize_character)
        self._first = _CharacterTable(self._expand)
        self._second = _CharacterTable(self._reduce)
        ascii_characters = [self._normalize_character(chr(code)) for code in range(_ASCII)]
        self._dropped = bytes(code for code, becomes in enumerate(ascii_characters) if not becomes)
        preserved = (becomes or "\0" for becomes in ascii_characters)
        self._ascii_table = "".join(preserved).encode("ascii") + bytes(range(_ASCII, 256))
        dropped = "".join(map(re.escape, self._dropped.decode("ascii")))
        not_dropped = f"(?:(?![{dropped}])[\\x00-\\x7f])+" if dropped else r"[\x00-\x7f]+"
        self._single_or_ascii = re.compile(f"{not_dropped}|.", re.DOTALL)

    def normalize_piece(self, piece: str) -> str:
        """The normal form of any text."""
        data = piece.encode("utf-8", "surrogatepass").translate(self._ascii_table, self._dropped)
        plain = data.decode("utf-8", "surrogatepass")
        if plain.isascii():
            return plain
        becomes = _NOT_ASCII.sub(self._normalize_match, plain)
        return self._normalize_with_sorting(plain) if _SORT_MARKER in becomes else becomes

    def normalize_group(self, group: str) -> str:
        """The same of one of `split_groups`."""
        becomes = group.translate(self._all)
        return self._normalize_with_sorting(group) if _SORT_MARKER in becomes else becomes

    def split_groups(self, piece: str) -> list[str]:
        """Parts that normalise independently, ASCII with as many characters as before."""
        if _SORT_MARKER not in piece.translate(self._all):
            return self._single_or_ascii.findall(piece)
        gathered: list[list[str]] = []
        for character in piece:
            first = self._expand(character)[:1]
            if gathered and (not first or combining(first)):
                gathered[-1].append(character)
            else:
                gathered.append([character])
        return list(map("".join, gathered))

    def _normalize_match(self, match: re.Match[str]) -> str:
        return match.group().translate(self._all)

    def _normalize_with_sorting(self, piece: str) -> str:
        runs = itertools.groupby(piece.translate(self._first), lambda character: combining(character) != 0)
        return "".join("".join(sorted(run, key=combining)) for _, run in runs).translate(self._second)

    def _normalize_character(self, character: str) -> str:
        expanded = self._expand(character)
        if self._normalizer.strip_accents and any(
            combining(part) and not load_code_point_flags()[ord(part)] & ACCENT for part in expanded
        ):
            return _SORT_MARKER
        return "".join(map(self._reduce, expanded))

    def _expand(self, character: str) -> str:
        """Cleaned, set between blanks, decomposed."""
        bits = load_code_point_flags()[ord(character)]
        if self._normalizer.clean_text:
            if bits & DROPPED:
                return ""
            if is_space(ord(character)):
                return " "
        if self._normalizer.strip_accents:
            character = decompose(character)
        return f" {character} " if self._normalizer.handle_chinese_chars and bits & CHINESE else character

    def _reduce(self, character: str) -> str:
        """Dropped if it is an accent, and in lower case."""
        if self._normalizer.strip_accents and load_code_point_flags()[ord(character)] & ACCENT:
            return ""
        return (
            load_lowercase_map().get(ord(character), character) if self._normalizer.lowercase else character
        )


class _CharacterTable(dict[int, str]):
    """What characters become, worked out when they are first seen, as `str.translate` wants it."""

    def __init__(self, becomes: Callable[[str], str]) -> None:
        super().__init__()
        self._compute = becomes

    def __missing__(self, code: int) -> str:
        if len(self) >= _MAX_CACHED:
            self.clear()
        self[code] = self._compute(chr(code))
        return self[code]


@lru_cache(maxsize=16)  # as many as there are normalisers
def _get_tables(normalizer: BertNormalizer) -> _CharacterTables:
    return _CharacterTables(normalizer)


_IDENTITY = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
