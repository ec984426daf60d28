"""Chunk boundaries: byte positions that split a file so that its chunks can be processed independently.

`find_chunk_boundaries` splits at the start of separators. `refine_boundaries` splits the chunks that are
still too long between a letter or number and the whitespace after it:

    file         one text<|e|>two words here<|e|>three
    2 chunks     0                 18                     equal sizes: 37 bytes, every 18 bytes
    separators   0                          27            moved to the next separator
    refined      0               16         27            first safe split after 10 bytes

The file is read in windows, so memory use does not depend on its size. Consecutive windows overlap by the
longest separator, so that separators at their ends are found.
See docs/performance.md, section "Chunks".
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, BinaryIO

from tokjax._util.checks import check_int, is_iterable
from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.unicode_classes import LETTERS_AND_NUMBERS, load_categories

if TYPE_CHECKING:
    from collections.abc import Sequence

_WINDOW = 1 << 16
# A letter or digit of ASCII, or any other character, before a space or newline. `_is_safe` checks the others.
_SAFE_SPLIT_CANDIDATE = re.compile(rb"(?:[A-Za-z0-9]|[\xc2-\xf4][\x80-\xbf]{1,3})(?=[ \n])")


def find_chunk_boundaries(
    file: BinaryIO, desired_num_chunks: int, split_special_token: bytes | Sequence[bytes]
) -> list[int]:
    """Returns byte positions that split a file into chunks at the start of separators.

    Every chunk except the first starts with a separator. Splitting the chunks separately therefore yields the
    same pieces as splitting the entire file, for any number of chunks. A file is never split where separators
    overlap one another.

    Args:
        file: a file opened in binary mode.
        desired_num_chunks: the desired number of chunks, at least 1. There are fewer chunks if the file has
            too few separators.
        split_special_token: the separator, or several separators.

    Returns:
        Strictly increasing 0-based positions; the first is 0, the last is the size of the file. `[0]` for an
        empty file.

    Raises:
        InvalidArgumentError: `file` is not a binary file, the number of chunks is less than 1, or a
            separator is empty or not `bytes`.

    >>> import io
    >>> text = b"Text1<|endoftext|>Text2<|endoftext|>Text3"
    >>> find_chunk_boundaries(io.BytesIO(text), 2, b"<|endoftext|>")
    [0, 23, 41]
    """
    separators = _check_separators(split_special_token)
    check_int("desired_num_chunks", desired_num_chunks, minimum=1)
    if not hasattr(file, "seek") or hasattr(file, "encoding"):
        raise InvalidArgumentError(
            f"file must be open in binary mode: open(PATH, 'rb'); got a {type(file).__name__}"
        )
    size = file.seek(0, os.SEEK_END)
    step = max(size // desired_num_chunks, 1)
    boundaries = [0]
    for guess in range(step, min(step * desired_num_chunks, size), step):
        if guess > boundaries[-1]:
            boundaries.append(_find_next_separator(file, guess, size, separators))
    return boundaries if boundaries[-1] == size else [*boundaries, size]


def refine_boundaries(
    file: BinaryIO, boundaries: list[int], target_nbytes: int, separators: Sequence[bytes] = ()
) -> list[int]:
    """Splits chunks that are longer than `target_nbytes` between a letter or number and whitespace.

    Most split patterns (`PatternSplitter.splits_before_spaces`) start a pre-token there, and split the text
    on each side independently of the text on the other side. Positions inside a separator or at its end are
    not used. A chunk without a safe position stays long.

    Args:
        file: a file opened in binary mode.
        boundaries: the boundaries returned by `find_chunk_boundaries`.
        target_nbytes: the target size of a chunk in bytes; chunks end at the first safe position after it.
        separators: byte strings that are kept intact.

    Returns:
        Strictly increasing positions that include all `boundaries`.
    """
    reach = max(map(len, separators), default=1)
    refined = boundaries[:1]
    for stop in boundaries[1:]:
        while stop - refined[-1] > target_nbytes:
            split_point = _find_safe_split(file, refined[-1] + target_nbytes, stop, separators, reach)
            if split_point is None:
                break
            refined.append(split_point)
        refined.append(stop)
    return refined


def _find_next_separator(file: BinaryIO, start: int, size: int, separators: Sequence[bytes]) -> int:
    """Returns the first separator at or after `start` that no other separator overlaps from the left.

    Returns `size` if no such separator exists.
    """
    reach = max(map(len, separators))
    longest_first = sorted(separators, key=len, reverse=True)
    matcher = re.compile(b"|".join(map(re.escape, longest_first)))
    position = start
    while position < size:
        # The window also holds the bytes before `position` at which an overlapping separator may start.
        base = max(position - reach + 1, 0)
        file.seek(base)
        window = file.read(position - base + _WINDOW + 2 * reach)
        stop = min(position + _WINDOW, size)
        first = position - base
        match = matcher.search(window)
        while match and match.start() < stop - base:
            if match.start() >= first:
                return base + match.start()
            # Reject "bcd" in "abcd" if "abc" is a separator, too: the entire file is split at "abc", and a
            # chunk that starts at "bcd" would be split there.
            first = max(first, match.end())
            match = matcher.search(window, match.start() + 1)
        position = stop
    return size


def _find_safe_split(
    file: BinaryIO, start: int, stop: int, separators: Sequence[bytes], reach: int
) -> int | None:
    """Returns the first safe position in `[start, stop)`; `reach` is the length of the longest separator."""
    position = start
    while position < stop:
        base = max(position - reach, 0)
        file.seek(base)
        window = file.read(min(position + _WINDOW + reach, stop) - base)
        for match in _SAFE_SPLIT_CANDIDATE.finditer(window, position - base):
            split_point = match.end()
            if not _is_safe(match.group()):
                continue
            if split_point > position - base + _WINDOW:
                break  # this window may lack the bytes after the candidate; the next window has them
            # All separators that contain this position or end there lie within `reach` bytes of it.
            context = window[max(split_point - reach, 0) : split_point + reach - 1]
            if not any(separator in context for separator in separators):
                return base + split_point if base + split_point < stop else None
        position += _WINDOW
    return None


def _is_safe(character: bytes) -> bool:
    """Returns whether a space or newline after this character always starts a pre-token.

    It does after letters and numbers. It may not after marks and punctuation: `o200k` joins newlines to "!".
    """
    if len(character) == 1:
        return True  # a letter or digit of ASCII; see `_SAFE_SPLIT_CANDIDATE`
    try:
        return load_categories()[ord(character.decode("utf-8"))] in LETTERS_AND_NUMBERS
    except (UnicodeDecodeError, TypeError):  # not one valid UTF-8 character
        return False


def _check_separators(value: bytes | Sequence[bytes]) -> list[bytes]:
    separators: list[Any] = [value] if isinstance(value, bytes) or not is_iterable(value) else list(value)
    for separator in separators:
        if not isinstance(separator, bytes) or not separator:
            raise InvalidArgumentError(
                f"split_special_token must be one or several non-empty byte strings, not {separator!r}"
            )
    if not separators:
        raise InvalidArgumentError("split_special_token must contain at least one separator")
    return separators
