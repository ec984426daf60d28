"""BERT's normaliser, as Hugging Face's `tokenizers` has it, and the way back to the text as it was."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

from tokjax.core.errors import InvalidArgumentError
from tokjax.pretokenize.bert_characters import (
    ACCENT,
    CHINESE,
    DROPPED,
    bits_of_code_point,
    combining,
    decomposed,
    is_space,
    lower_case,
)
from tokjax.pretokenize.unicode_normalization import align, normalized

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokjax.core.utf8 import Text
    from tokjax.pretokenize.unicode_normalization import Alignment

_ASCII = 128
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# No text of characters has this: it stands for a mark that stays, and so has to be sorted among others.
_HAS_TO_BE_SORTED = "\ud800"
_MOST_REMEMBERED = 1 << 16


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
    def is_idle(self) -> bool:
        """Whether no text is changed."""
        return self == _IDLE

    def normalize(self, text: Text, kept: frozenset[str] = frozenset()) -> Text:
        r"""The normal form of a text, but for what is `kept` (special tokens) as it is.

        >>> BertNormalizer().normalize("Café\t中 [CLS]", frozenset({"[CLS]"}))
        'cafe  中  [CLS]'
        """
        return normalized(text, kept, _steps(self).of_piece)

    def align(self, text: Text, kept: frozenset[str] = frozenset()) -> Alignment:
        """How `normalize(text, kept)` changed the text."""
        steps = _steps(self)
        return align(text, kept, steps.groups, steps.of_group)


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


class _Steps:
    """The steps of a normaliser, as tables of characters.

    Nearly every character goes its own way, whatever stands around it. The exception: marks in a row are put
    into the order of form NFD, which shows where some of them are not nonspacing, and stay.
    """

    def __init__(self, normalizer: BertNormalizer) -> None:
        self._normalizer = normalizer
        self._all = _Table(self._of_character)
        self._first = _Table(self._expanded)
        self._second = _Table(self._reduced)
        ascii_characters = [self._of_character(chr(code)) for code in range(_ASCII)]
        self._dropped = bytes(code for code, becomes in enumerate(ascii_characters) if not becomes)
        kept = (becomes or "\0" for becomes in ascii_characters)
        self._of_ascii = "".join(kept).encode("ascii") + bytes(range(_ASCII, 256))
        dropped = "".join(map(re.escape, self._dropped.decode("ascii")))
        not_dropped = f"(?:(?![{dropped}])[\\x00-\\x7f])+" if dropped else r"[\x00-\x7f]+"
        self._single_or_ascii = re.compile(f"{not_dropped}|.", re.DOTALL)

    def of_piece(self, piece: str) -> str:
        """The normal form of any text."""
        data = piece.encode("utf-8", "surrogatepass").translate(self._of_ascii, self._dropped)
        plain = data.decode("utf-8", "surrogatepass")
        if plain.isascii():
            return plain
        becomes = _NOT_ASCII.sub(self._of_match, plain)
        return self._with_sorting(plain) if _HAS_TO_BE_SORTED in becomes else becomes

    def of_group(self, group: str) -> str:
        """The same of one of `groups`."""
        becomes = group.translate(self._all)
        return self._with_sorting(group) if _HAS_TO_BE_SORTED in becomes else becomes

    def groups(self, piece: str) -> list[str]:
        """Parts that normalise independently, ASCII with as many characters as before."""
        if _HAS_TO_BE_SORTED not in piece.translate(self._all):
            return self._single_or_ascii.findall(piece)
        gathered: list[list[str]] = []
        for character in piece:
            first = self._expanded(character)[:1]
            if gathered and (not first or combining(first)):
                gathered[-1].append(character)
            else:
                gathered.append([character])
        return list(map("".join, gathered))

    def _of_match(self, match: re.Match[str]) -> str:
        return match.group().translate(self._all)

    def _with_sorting(self, piece: str) -> str:
        runs = itertools.groupby(piece.translate(self._first), lambda character: combining(character) != 0)
        return "".join("".join(sorted(run, key=combining)) for _, run in runs).translate(self._second)

    def _of_character(self, character: str) -> str:
        expanded = self._expanded(character)
        if self._normalizer.strip_accents and any(
            combining(part) and not bits_of_code_point()[ord(part)] & ACCENT for part in expanded
        ):
            return _HAS_TO_BE_SORTED
        return "".join(map(self._reduced, expanded))

    def _expanded(self, character: str) -> str:
        """Cleaned, set between blanks, decomposed."""
        bits = bits_of_code_point()[ord(character)]
        if self._normalizer.clean_text:
            if bits & DROPPED:
                return ""
            if is_space(ord(character)):
                return " "
        if self._normalizer.strip_accents:
            character = decomposed(character)
        return f" {character} " if self._normalizer.handle_chinese_chars and bits & CHINESE else character

    def _reduced(self, character: str) -> str:
        """Dropped if it is an accent, and in lower case."""
        if self._normalizer.strip_accents and bits_of_code_point()[ord(character)] & ACCENT:
            return ""
        return lower_case().get(ord(character), character) if self._normalizer.lowercase else character


class _Table(dict[int, str]):
    """What characters become, worked out when they are first seen, as `str.translate` wants it."""

    def __init__(self, becomes: Callable[[str], str]) -> None:
        super().__init__()
        self._becomes = becomes

    def __missing__(self, code: int) -> str:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        self[code] = self._becomes(chr(code))
        return self[code]


@lru_cache(maxsize=16)  # as many as there are normalisers
def _steps(normalizer: BertNormalizer) -> _Steps:
    return _Steps(normalizer)


_IDLE = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
