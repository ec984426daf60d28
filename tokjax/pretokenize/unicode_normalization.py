"""Unicode normalisation, and the way back from normalised text to the text as it was."""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax.core.ragged import make_row_splits
from tokjax.core.utf8 import from_characters, to_characters
from tokjax.pretokenize.special_tokens import split_at_special

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text

_MANY_MARKS = 64
# Before an ASCII character nothing composes with what precedes it. Others are told one by one.
_PIECES = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]")


class Alignment(NamedTuple):
    """Which bytes of a text became which bytes of its normalised form, group by group.

    Attributes:
        before: where each group starts in the text, 0-based, and last its end; `int64`, `(groups + 1,)`.
        after: the same in the normalised text.
        is_bytewise: which groups became what they are byte by byte, each in its place, `bool`, `(groups,)`.
    """

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    is_bytewise: NDArray[np.bool_]


def normalize_text(text: Text, preserved: frozenset[str], normalize: Callable[[str], str]) -> Text:
    """The normal form of a text, but for what is `preserved` (special tokens) as it is.

    Args:
        text: any text.
        preserved: it also parts the text: nothing changes across it.
        normalize: the normal form of a stretch of characters.
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
    """How `normalize_text(text, preserved, normalize)` changed the text.

    Args:
        text: the text before normalisation.
        preserved: as in `normalize_text`.
        split_groups: parts of a stretch of characters that normalise independently; those of several ASCII
            characters keep each of them in its place, unless they become something else than ASCII.
        normalize: as in `normalize_text`, for one group.
    """
    before: list[int] = []
    after: list[int] = []
    is_bytewise: list[bool] = []
    for i, piece in enumerate(split_at_special(to_characters(text), preserved)):
        groups = [piece] if i % 2 or not piece else split_groups(piece)
        changed = groups if i % 2 else list(map(normalize, groups))
        before += [len(from_characters(group)) for group in groups]
        after += [len(from_characters(group)) for group in changed]
        is_bytewise += [
            old == new or (len(old) == len(new) and old.isascii() and new.isascii())
            for old, new in zip(groups, changed, strict=True)
        ]
    return Alignment(make_row_splits(before), make_row_splits(after), np.array(is_bytewise, bool))


def to_nfc(text: Text, preserved: frozenset[str] = frozenset()) -> Text:
    r"""The text in Unicode's form NFC, but for what is `preserved` (special tokens) as it is.

    >>> to_nfc("e\u0301")
    'é'
    """
    return normalize_text(text, preserved, _normalize_nfc)


def align_nfc(text: Text, preserved: frozenset[str] = frozenset()) -> Alignment:
    """How `to_nfc(text, preserved)` changed the text.

    Args:
        text: the text before normalisation.
        preserved: as in `to_nfc`.
    """
    return align(text, preserved, _split_groups, _normalize_nfc)


def map_spans_back(alignment: Alignment, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """1-based byte spans in the normalised text as spans in the text; see `map_offsets_to_input`."""
    spans = offsets - 1
    absent = (spans < 0).any(axis=1)
    last = len(alignment.is_bytewise) - 1
    if last < 0:
        return offsets.copy()
    first_group = np.clip(np.searchsorted(alignment.after, spans[:, 0], "right") - 1, 0, last)
    last_group = np.clip(np.searchsorted(alignment.after, spans[:, 1], "left") - 1, 0, last)
    shift = alignment.before[:-1] - alignment.after[:-1]
    starts = np.where(
        alignment.is_bytewise[first_group], spans[:, 0] + shift[first_group], alignment.before[first_group]
    )
    stops = np.where(
        alignment.is_bytewise[last_group], spans[:, 1] + shift[last_group], alignment.before[last_group + 1]
    )
    at_end = spans[:, 0] == alignment.after[-1]
    starts = np.where(at_end, alignment.before[-1], starts)
    stops = np.where(spans[:, 0] == spans[:, 1], starts, stops)
    mapped = np.stack([starts, stops], axis=1) + 1
    mapped[absent] = 0
    return mapped


def _normalize_nfc(piece: str) -> str:
    """The form NFC, in linear time: the library sorts marks by insertion, which is slow for many in a row."""
    if not piece.isascii() and len(piece) > _MANY_MARKS:
        piece = _compile_many_marks().sub(_sort_marks, piece)
    return unicodedata.normalize("NFC", piece)


@lru_cache(maxsize=1)
def _compile_many_marks() -> Any:
    import regex  # noqa: PLC0415 (slow to import)

    return regex.compile(rf"\p{{M}}{{{_MANY_MARKS},}}")


def _sort_marks(match: Any) -> str:
    """Marks between two of class 0 in the order that normal forms give them."""
    marks = itertools.groupby(match.group(), lambda mark: unicodedata.combining(mark) != 0)
    return "".join("".join(sorted(run, key=unicodedata.combining)) for _, run in marks)


def _split_groups(piece: str) -> list[str]:
    """Parts that normalise independently: together they give what the whole gives."""
    gathered: list[list[str]] = []
    for part in _PIECES.findall(piece):
        if gathered and not part.isascii() and not _starts_group(part):
            last = gathered[-1][-1]
            if len(last) > 1:  # ASCII, of which only the last character can compose
                gathered[-1:] = [[last[:-1]], [last[-1]]]
            gathered[-1].append(part)
        else:
            gathered.append([part])
    groups = list(map("".join, gathered))
    if "".join(map(_normalize_nfc, groups)) != _normalize_nfc(piece):
        return [piece]  # a character that composes and is neither a mark nor a Hangul vowel or final
    return groups


def _starts_group(character: str) -> bool:
    if unicodedata.combining(character) or unicodedata.category(character).startswith("M"):
        return False
    return not 0x1160 <= ord(character) <= 0x11FF
