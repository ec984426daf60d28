r"""Spans of characters that a normalizer changes together, such as a letter and the accents after it.

The library assigns a character of the normalized text to one character of the text. The other characters that
it was made of are in no span. Here, they are added to the span of the token beside them:

    normalizer           text          tokens     library's spans, in bytes    spans here
    NFC                  "e\u0301s"    é  s       [1, 2)  [4, 5)               [1, 4)  [4, 5)
    Replace(``, ")       "``s"         "  s       [2, 3)  [3, 4)               [1, 3)  [3, 4)
    Replace(a, nothing)  "as"          s          [2, 3)                       [2, 3)
    NFD, StripAccents    "e\u0301s"    e  s       [1, 2)  [4, 5)               [1, 2)  [4, 5)

Characters are changed together if the normalizer makes something else of them than of each part. In the last
two rows they are not: a character that is removed, or becomes whitespace that is dropped, stays in no span.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_MAX_GAP_BYTES = 256
"""Maximum number of bytes between two tokens. More bytes are taken as removed, which saves time."""
_MAX_CHARACTER_BYTES = 4
_MAX_CACHED = 1 << 12
_SPACE = ord(" ")


def cover_changed_characters(spans: NDArray[np.int64], text: bytes, test: ChangeTest) -> NDArray[np.int64]:
    r"""Extends spans over the characters that a normalizer changes together with theirs.

    Args:
        spans: 1-based half-open byte spans of the tokens of a text, monotone and without overlaps, `int64`,
            shape `(n, 2)`.
        text: the text.
        test: test of characters.

    >>> from unicodedata import normalize
    >>> test = ChangeTest(lambda text: normalize("NFC", text))
    >>> spans = np.array([[1, 1], [1, 2], [4, 5]])
    >>> cover_changed_characters(spans, "e\u0301s".encode(), test).tolist()
    [[1, 1], [1, 4], [4, 5]]
    """
    if not len(spans):
        return spans
    starts, stops = np.append(1, spans[:, 1]), np.append(spans[:, 0], len(text) + 1)
    first_bytes = np.frombuffer(text + b" ", np.uint8).take(starts - 1)
    gaps = np.flatnonzero((stops > starts) & ~((stops == starts + 1) & (first_bytes <= _SPACE)))
    if not len(gaps):
        return spans
    covered = spans.copy()
    for gap in gaps.tolist():
        _cover_gap(covered, gap, text, test)
    return covered


class ChangeTest:
    """Test of characters: whether a normalizer changes them together.

    Args:
        normalize: the normalizer.
    """

    def __init__(self, normalize: Callable[[str], str]) -> None:
        self._normalize = normalize
        self._get_normalized = lru_cache(_MAX_CACHED)(self._normalize_between_bars)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles without the cache."""
        return ChangeTest, (self._normalize,)

    def changes_together(self, *parts: str) -> bool:
        """Returns whether parts of a text become something else than each part becomes separately."""
        return self._get_normalized("".join(parts)) != "".join(map(self._get_normalized, parts))

    def remains(self, character: str) -> bool:
        """Returns whether a character is neither removed nor made whitespace."""
        return bool(self._get_normalized(character).strip())

    def _normalize_between_bars(self, characters: str) -> str:
        """Returns characters after normalization. They are normalized between two bars.

        So a step that changes the start or the end of a text does not change them.
        """
        normalized = self._normalize(f"|{characters}|")
        return normalized[normalized.find("|") + 1 : normalized.rfind("|")]


def _cover_gap(spans: NDArray[np.int64], gap: int, text: bytes, test: ChangeTest) -> None:
    """Extends the spans before and after a gap over its characters, in place.

    Args:
        spans: the spans.
        gap: index of the token after the gap.
        text: the text.
        test: test of characters.
    """
    start = int(spans[gap - 1, 1]) if gap else 1
    stop = int(spans[gap, 0]) if gap < len(spans) else len(text) + 1
    if stop - start > _MAX_GAP_BYTES:
        return
    try:
        between = text[start - 1 : stop - 1].decode("utf-8")
    except UnicodeDecodeError:
        return
    before = text[max(start - 1 - _MAX_CHARACTER_BYTES, 0) : start - 1].decode("utf-8", "ignore")[-1:]
    after = text[stop - 1 : stop - 1 + _MAX_CHARACTER_BYTES].decode("utf-8", "ignore")[:1]
    left = "".join(takewhile(test.remains, between))
    right = "".join(takewhile(test.remains, between[::-1]))[::-1]
    joins_left = bool(before and left) and test.changes_together(before, left)
    joins_right = bool(after and right) and test.changes_together(right, after)
    if before and after and left == between and not joins_right:  # marks that change places
        joins_left = joins_left or test.changes_together(before, left, after)
    if joins_left:
        _extend_stop(spans, gap - 1, start, start + len(left.encode("utf-8")))
    if joins_right and not (joins_left and left == between):
        _extend_start(spans, gap, stop, stop - len(right.encode("utf-8")))


def _extend_stop(spans: NDArray[np.int64], last: int, stop: int, new_stop: int) -> None:
    """Extends the last span that is not empty, of those up to `last` that stop at `stop`, in place."""
    extended = last
    while extended >= 0 and spans[extended, 0] == stop:
        extended -= 1
    if extended >= 0 and spans[extended, 1] == stop:
        spans[extended, 1] = new_stop
        spans[extended + 1 : last + 1] = new_stop


def _extend_start(spans: NDArray[np.int64], first: int, start: int, new_start: int) -> None:
    """Extends the first span that is not empty, of those from `first` on that start at `start`, in place."""
    extended = first
    while extended < len(spans) and spans[extended, 1] == start:
        extended += 1
    if extended < len(spans) and spans[extended, 0] == start:
        spans[extended, 0] = new_start
        spans[first:extended] = new_start
