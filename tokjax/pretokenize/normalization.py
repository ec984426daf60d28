r"""Normalization of texts: NFC and BERT's, and the alignment of normalized text with the original text.

An alignment divides a text into groups of characters that are normalized independently. For "étudée" with two
accents as separate combining marks:

    text           e  U+0301    t  u  d    e  U+0301    e
    groups         0            1          2            3          end
    before         0            3          6            9          10        bytes of the text
    after          0            2          5            7          8         bytes of the normalized text
    is_bytewise    no           yes        no           yes

Normalization is that of the `tokenizers` library, whose tables are those of Unicode 9, for any version of
Python. To the library, characters that are newer are not combining marks, and compose with nothing.

A span of the normalized text is mapped back to the groups that it covers. Inside of a bytewise group, every
byte has its own position, so there the mapping is exact: bytes [2, 5) are bytes [3, 6) of the text.

BERT's normalizer
-----------------
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
import unicodedata
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.checks import check_bool
from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.pretokenize.special_tokens import split_at_special
from tokjax.pretokenize.unicode_classes import (
    ACCENT,
    CHINESE,
    COMBINES,
    DECOMPOSES,
    DROPPED,
    Category,
    ReplacementTable,
    get_combining_class,
    load_categories,
    load_code_point_flags,
    load_lowercase_map,
    sort_marks,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text

_MANY_MARKS = 64
_CODES_THAT_COMBINE = range(0x80, 0x1F000)
"""Code points of all combining marks and of all characters that compose, except compatibility ideographs."""
_ASCII = 128
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
# The replacement of a mark that has to be sorted. No text contains this surrogate after `to_characters`.
_SORT_MARKER = "\ud800"


class Alignment(NamedTuple):
    """Corresponding byte positions of a text and its normalized form, by groups of characters.

    Attributes:
        before: the 0-based start of each group in the text, and the end of the text; `int64`, shape
            `(num_groups + 1,)`.
        after: the 0-based start of each group in the normalized text, and its end; `int64`, shape
            `(num_groups + 1,)`.
        is_bytewise: whether byte `i` of a group corresponds to byte `i` of its normalized form; `bool`, shape
            `(num_groups,)`.
    """

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    is_bytewise: NDArray[np.bool_]


def normalize_text(text: Text, preserved: frozenset[str], normalize: Callable[[str], str]) -> Text:
    """Normalizes a text except its special tokens.

    Args:
        text: the text to normalize.
        preserved: special tokens, which are not changed. The text on both sides of them is normalized
            separately.
        normalize: the function that normalizes the text between special tokens.
    """
    pieces = split_at_special(to_characters(text), preserved)
    pieces[::2] = map(normalize, pieces[::2])
    joined = "".join(pieces)
    return from_characters(joined) if isinstance(text, bytes) else joined


def align(
    text: Text,
    preserved: frozenset[str],
    split_groups: Callable[[str], list[str]],
    normalize: Callable[[str], str],
) -> Alignment:
    """Returns the alignment of a text with `normalize_text(text, preserved, normalize)`.

    Args:
        text: the text before normalization.
        preserved: special tokens, as in `normalize_text`.
        split_groups: the function that splits text into groups that can be normalized independently. If a
            group of several ASCII characters stays ASCII, each character must keep its position.
        normalize: the function that normalizes one group.
    """
    before: list[int] = []
    after: list[int] = []
    is_bytewise: list[bool] = []
    for i, piece in enumerate(split_at_special(to_characters(text), preserved)):
        groups = [piece] if i % 2 or not piece else split_groups(piece)
        changed = groups if i % 2 else list(map(normalize, groups))
        before += [len(from_characters(group)) for group in groups]
        after += [len(from_characters(group)) for group in changed]
        # ASCII of the same length, such as upper and lower case, corresponds byte by byte.
        is_bytewise += [
            old == new or (len(old) == len(new) and old.isascii() and new.isascii())
            for old, new in zip(groups, changed, strict=True)
        ]
    return Alignment(make_row_splits(before), make_row_splits(after), np.array(is_bytewise, bool))


def to_nfc(text: Text, preserved: frozenset[str] = frozenset()) -> Text:
    r"""Returns the text in Unicode's normalization form NFC, except its special tokens (`preserved`).

    >>> to_nfc("e\u0301")
    'é'
    """
    return normalize_text(text, preserved, _normalize_nfc)


def align_nfc(text: Text, preserved: frozenset[str] = frozenset()) -> Alignment:
    """Returns the alignment of a text with `to_nfc(text, preserved)`.

    Args:
        text: the text before normalization.
        preserved: special tokens, as in `to_nfc`.
    """
    return align(text, preserved, lambda piece: split_groups(piece, _normalize_nfc), _normalize_nfc)


def map_spans_back(alignment: Alignment, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Maps byte spans of the normalized text to byte spans of the original text.

    A span that covers part of a group that is not bytewise is extended to the entire group. Empty spans stay
    empty. See `map_offsets_to_input`.

    Args:
        alignment: the alignment of both texts.
        offsets: 1-based byte spans of the normalized text, `int64`, shape `(n, 2)`; `(0, 0)` without source
            text.

    Returns:
        1-based byte spans of the original text, `int64`, shape `(n, 2)`.
    """
    before, lengths = alignment.before, np.diff(alignment.after)
    is_bytewise = np.repeat(alignment.is_bytewise, lengths)
    firsts = np.repeat(before[:-1], lengths)
    same = firsts + concatenate_ranges(0, lengths)
    # The position in the text for each start of a span, and for each stop.
    starts = np.append(np.where(is_bytewise, same, firsts), before[-1])
    stops = np.append(before[0], np.where(is_bytewise, same + 1, np.repeat(before[1:], lengths)))
    mapped = np.stack([starts.take(offsets[:, 0] - 1), stops.take(offsets[:, 1] - 1)], axis=1) + 1
    is_empty = offsets[:, 0] == offsets[:, 1]
    mapped[is_empty, 1] = mapped[is_empty, 0]
    mapped[(offsets == 0).any(axis=1)] = 0
    return mapped


def _normalize_nfc(piece: str) -> str:
    """Returns the NFC form of the library, in linear time."""
    normalized = _normalize_by_python(piece)
    if normalized == piece:  # so the library does not change it, either
        return piece
    parts = _compile_new_characters().split(piece)
    if len(parts) == 1:
        return normalized
    return "".join(part if i % 2 else _normalize_by_python(part) for i, part in enumerate(parts))


def _normalize_by_python(piece: str) -> str:
    """Returns the NFC form of `unicodedata` in linear time.

    `unicodedata` sorts marks in a row by insertion, which takes quadratic time. So long runs are sorted here
    first.
    """
    if not piece.isascii() and len(piece) > _MANY_MARKS:
        piece = _compile_many_marks().sub(
            lambda match: "".join(sort_marks(match.group(), unicodedata.combining)), piece
        )
    return unicodedata.normalize("NFC", piece)


@lru_cache(maxsize=1)
def _compile_new_characters() -> re.Pattern[str]:
    """Compiles an expression for the characters that `unicodedata` combines with others, and the library not.

    One that is not a combining mark is the first of two characters that compose: no two characters that were
    there before ever compose.
    """
    flags = load_code_point_flags()
    new = set()
    for code in _CODES_THAT_COMBINE:
        character = chr(code)
        if unicodedata.combining(character) and not flags[code] & (COMBINES | DECOMPOSES):
            new.add(character)
        decomposed = unicodedata.decomposition(character)
        if decomposed and decomposed[0] != "<" and not flags[code] & DECOMPOSES:
            new.add(chr(int(decomposed.split()[0], 16)))
    return re.compile(f"([{''.join(map(re.escape, sorted(new)))}])")


def split_groups(piece: str, normalize: Callable[[str], str]) -> list[str]:
    """Splits a piece into groups that can be normalized independently.

    A group is a character with all marks after it, or a run of ASCII without marks.
    """
    groups: list[str] = _compile_groups().findall(piece)
    if "".join(map(normalize, groups)) != normalize(piece):
        return [piece]  # some other character combines with the one before it
    return groups


@lru_cache(maxsize=1)
def _compile_groups() -> Any:
    import regex  # noqa: PLC0415 (slow to import)

    following = r"[\p{M}\u1160-\u11ff]"  # marks, Hangul vowels and finals
    return regex.compile(rf"[\x00-\x7f]+(?!{following})|.{following}*", regex.DOTALL)


@lru_cache(maxsize=1)
def _compile_many_marks() -> Any:
    import regex  # noqa: PLC0415 (slow to import)

    return regex.compile(rf"\p{{M}}{{{_MANY_MARKS},}}")


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
            check_bool(step.name, getattr(self, step.name))

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
        return align(text, preserved, tables.split_groups, tables.normalize_piece)


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
        self._complete = ReplacementTable(self._normalize_character)
        self._expanding = ReplacementTable(self._expand)
        self._reducing = ReplacementTable(self._reduce)
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
        normalized = _NOT_ASCII.sub(lambda match: match[0].translate(self._complete), with_ascii_done)
        return self._normalize_with_sorting(with_ascii_done) if _SORT_MARKER in normalized else normalized

    def split_groups(self, piece: str) -> list[str]:
        """Splits a piece into groups that can be normalized independently.

        A group is a run of ASCII characters of which none is removed, or a single other character. If the
        piece has marks to sort, each group is a character with all marks after it.
        """
        if _SORT_MARKER in piece.translate(self._complete):
            return split_groups(piece, self.normalize_piece)
        return self._groups.findall(piece)

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
            if load_categories()[ord(character)] == Category.SPACE:
                return " "
        if self._normalizer.strip_accents and flags & DECOMPOSES:
            character = unicodedata.normalize("NFD", character)
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
