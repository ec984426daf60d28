"""Unicode normalization (NFC), and the alignment of normalized text with the original text.

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
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.pretokenize.special_tokens import split_at_special
from tokjax.pretokenize.unicode_classes import COMBINES, DECOMPOSES, load_code_point_flags, sort_marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text

_MANY_MARKS = 64
_CODES_THAT_COMBINE = range(0x80, 0x1F000)
"""Code points of all combining marks and of all characters that compose, except compatibility ideographs."""


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
    spans = offsets - 1
    has_no_source = (spans < 0).any(axis=1)
    last = len(alignment.is_bytewise) - 1
    if last < 0:
        return offsets.copy()
    # The last group that starts at or before the start of a span, and the last that starts before its stop.
    first_group = np.clip(np.searchsorted(alignment.after, spans[:, 0], "right") - 1, 0, last)
    last_group = np.clip(np.searchsorted(alignment.after, spans[:, 1], "left") - 1, 0, last)
    shift = alignment.before[:-1] - alignment.after[:-1]
    starts = np.where(
        alignment.is_bytewise[first_group], spans[:, 0] + shift[first_group], alignment.before[first_group]
    )
    stops = np.where(
        alignment.is_bytewise[last_group], spans[:, 1] + shift[last_group], alignment.before[last_group + 1]
    )
    # An empty span at the end of the normalized text lies in no group.
    at_end = spans[:, 0] == alignment.after[-1]
    starts = np.where(at_end, alignment.before[-1], starts)
    stops = np.where(spans[:, 0] == spans[:, 1], starts, stops)
    mapped = np.stack([starts, stops], axis=1) + 1
    mapped[has_no_source] = 0
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
