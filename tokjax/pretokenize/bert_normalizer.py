r"""BERT text normalization as in Hugging Face's `tokenizers`, and the alignment with the original text.

The four steps of the normalizer, for the text "Café", tab, "中" (`_` is a space):

    text                    C  a  f  é  \t  中
    clean_text              C  a  f  é  _   中      whitespace becomes spaces, control characters are removed
    handle_chinese_chars    C  a  f  é  _   _中_    CJK ideographs get spaces around them
    strip_accents           C  a  f  e  _   _中_    decomposed (NFD), nonspacing marks are removed
    lowercase               c  a  f  e  _   _中_

Nearly every character is normalized independently of its neighbours. So the four steps together are one table
from characters to replacements, for `str.translate`. It is filled as characters occur. ASCII has a table for
`bytes.translate`, which is faster.

The exception is combining marks in a row: NFD sorts them by their combining class. This has a visible result
only if marks remain, namely marks that are not nonspacing:

    text                    a  U+302E  U+1B44       classes 224 and 9
    normalized              a  U+1B44  U+302E

The replacement of such a mark is `_SORT_MARKER`. A piece whose replacement contains it is normalized by two
tables instead, with the sorting between them. See docs/performance.md, section "WordPiece and word-level
tokenizers".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.unicode_classes import (
    ACCENT,
    CHINESE,
    DROPPED,
    CharacterTable,
    decompose,
    get_combining_class,
    is_space,
    load_code_point_flags,
    load_lowercase_map,
    sort_marks,
)
from tokjax.pretokenize.unicode_normalization import align, normalize_text, split_groups

if TYPE_CHECKING:
    from tokjax.core.utf8 import Text
    from tokjax.pretokenize.unicode_normalization import Alignment

_ASCII = 128
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# The replacement of a mark that has to be sorted. No text contains this surrogate after `to_characters`.
_SORT_MARKER = "\ud800"


@dataclass(frozen=True)
class BertNormalizer:
    """Text normalization before a text is split into words, in the order of the attributes.

    Attributes:
        clean_text: whether to remove control characters, and to replace all whitespace by spaces.
        handle_chinese_chars: whether to put spaces around CJK ideographs.
        strip_accents: whether to decompose characters (NFD) and to remove nonspacing marks.
        lowercase: whether to replace each character by its lower case, independently of its neighbours.
    """

    clean_text: bool = True
    handle_chinese_chars: bool = True
    strip_accents: bool = True
    lowercase: bool = True

    def __post_init__(self) -> None:
        """Checks that all attributes are booleans."""
        # In reverse order, so that an invalid `lowercase` is reported before a `strip_accents` derived from
        # it.
        for step in reversed(fields(self)):
            value = getattr(self, step.name)
            if not isinstance(value, bool):
                raise InvalidArgumentError(f"{step.name} must be True or False, not {value!r}")

    @property
    def is_identity(self) -> bool:
        """Whether no step is enabled, so that no text changes."""
        return self == _IDENTITY

    def normalize(self, text: Text, preserved: frozenset[str] = frozenset()) -> Text:
        r"""Returns the normalized text.

        Args:
            text: the text to normalize.
            preserved: special tokens, which are not changed where they occur in the text.

        >>> BertNormalizer().normalize("Café\t中 [CLS]", frozenset({"[CLS]"}))
        'cafe  中  [CLS]'
        """
        return normalize_text(text, preserved, _get_tables(self).normalize_piece)

    def align(self, text: Text, preserved: frozenset[str] = frozenset()) -> Alignment:
        """Returns the alignment of a text with `normalize(text, preserved)`."""
        tables = _get_tables(self)
        return align(text, preserved, tables.split_groups, tables.normalize_group)


def bert_normalizer(
    *, lowercase: bool, strip_accents: bool | None, clean_text: bool, handle_chinese_chars: bool
) -> BertNormalizer:
    """Returns the normalizer for BERT's options; `strip_accents=None` means the value of `lowercase`."""
    return BertNormalizer(
        clean_text=clean_text,
        handle_chinese_chars=handle_chinese_chars,
        strip_accents=lowercase if strip_accents is None else strip_accents,
        lowercase=lowercase,
    )


class _CharacterTables:
    """The steps of a normalizer as tables of character replacements.

    `_complete` holds all steps, for text without marks to sort. `_expanding` holds the steps before NFD sorts
    marks (cleaning, spaces, decomposition), and `_reducing` the steps after it (removal of accents, lower
    case).
    """

    def __init__(self, normalizer: BertNormalizer) -> None:
        self._normalizer = normalizer
        self._complete = CharacterTable(self._normalize_character)
        self._expanding = CharacterTable(self._expand)
        self._reducing = CharacterTable(self._reduce)
        # ASCII characters become one ASCII character or nothing, so `bytes.translate` handles them.
        ascii_characters = [self._normalize_character(chr(code)) for code in range(_ASCII)]
        self._dropped = bytes(code for code, replacement in enumerate(ascii_characters) if not replacement)
        replacements = (replacement or "\0" for replacement in ascii_characters)
        self._ascii_table = "".join(replacements).encode("ascii") + bytes(range(_ASCII, 256))
        dropped = "".join(map(re.escape, self._dropped.decode("ascii")))
        not_dropped = f"(?:(?![{dropped}])[\\x00-\\x7f])+" if dropped else r"[\x00-\x7f]+"
        self._groups = re.compile(f"{not_dropped}|.", re.DOTALL)

    def normalize_piece(self, piece: str) -> str:
        """Normalizes a piece of text without special tokens."""
        data = piece.encode("utf-8", "surrogatepass").translate(self._ascii_table, self._dropped)
        with_ascii_done = data.decode("utf-8", "surrogatepass")
        if with_ascii_done.isascii():
            return with_ascii_done
        normalized = _NOT_ASCII.sub(self._normalize_match, with_ascii_done)
        return self._normalize_with_sorting(with_ascii_done) if _SORT_MARKER in normalized else normalized

    def normalize_group(self, group: str) -> str:
        """Normalizes one of the groups that `split_groups` returns."""
        normalized = group.translate(self._complete)
        return self._normalize_with_sorting(group) if _SORT_MARKER in normalized else normalized

    def split_groups(self, piece: str) -> list[str]:
        """Splits a piece into groups that can be normalized independently.

        A group is a run of ASCII characters of which none is removed, or a single other character. If the
        piece has marks to sort, each group is a character with all marks after it.
        """
        if _SORT_MARKER in piece.translate(self._complete):
            return split_groups(piece, self.normalize_group)
        return self._groups.findall(piece)

    def _normalize_match(self, match: re.Match[str]) -> str:
        return match.group().translate(self._complete)

    def _normalize_with_sorting(self, piece: str) -> str:
        expanded = sort_marks(piece.translate(self._expanding), get_combining_class)
        return "".join(expanded).translate(self._reducing)

    def _normalize_character(self, character: str) -> str:
        expanded = self._expand(character)
        # Accents are removed after the sorting, so their order does not matter.
        if self._normalizer.strip_accents and any(
            get_combining_class(part) and not load_code_point_flags()[ord(part)] & ACCENT for part in expanded
        ):
            return _SORT_MARKER
        return "".join(map(self._reduce, expanded))

    def _expand(self, character: str) -> str:
        """Cleans and decomposes a character, and puts spaces around it if it is a CJK ideograph."""
        flags = load_code_point_flags()[ord(character)]
        if self._normalizer.clean_text:
            if flags & DROPPED:
                return ""
            if is_space(ord(character)):
                return " "
        if self._normalizer.strip_accents:
            character = decompose(character)
        return f" {character} " if self._normalizer.handle_chinese_chars and flags & CHINESE else character

    def _reduce(self, character: str) -> str:
        """Removes a character if it is an accent, and converts it to lower case."""
        if self._normalizer.strip_accents and load_code_point_flags()[ord(character)] & ACCENT:
            return ""
        return (
            load_lowercase_map().get(ord(character), character) if self._normalizer.lowercase else character
        )


@lru_cache(maxsize=16)  # the number of different normalizers
def _get_tables(normalizer: BertNormalizer) -> _CharacterTables:
    return _CharacterTables(normalizer)


_IDENTITY = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
