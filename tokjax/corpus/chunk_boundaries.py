"""Where a file can be cut so that its parts can be read independently."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, BinaryIO

from tokjax.errors import InvalidArgumentError
from tokjax.pretokenize.unicode_classes import LETTER, LOWER, NUMBER, UPPER, load_code_point_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_WINDOW = 1 << 16
_SAFE_SPLIT_CANDIDATE = re.compile(rb"(?:[A-Za-z0-9]|[\xc2-\xf4][\x80-\xbf]{1,3})(?=[ \n])")
_BEFORE_SPLIT = (UPPER, LOWER, LETTER, NUMBER)


def find_chunk_boundaries(
    file: BinaryIO, desired_num_chunks: int, split_special_token: bytes | Sequence[bytes]
) -> list[int]:
    """Byte positions that cut a file into chunks, each at the start of a separator.

    Every chunk but the first starts with a separator, so splitting the chunks one by one gives the
    same pieces as splitting the whole file, for any number of chunks. (A place where separators overlap
    one another is not cut.)

    Args:
        file: opened in binary mode; read from its start to its end.
        desired_num_chunks: how many chunks to aim at. There are fewer where separators are.
        split_special_token: the separator, or several of them.

    Returns:
        Rising positions, 0 first and the size of the file last; `[0]` for an empty file.

    >>> import io
    >>> text = b"Text1<|endoftext|>Text2<|endoftext|>Text3"
    >>> find_chunk_boundaries(io.BytesIO(text), 2, b"<|endoftext|>")
    [0, 23, 41]
    """
    separators = _check_separators(split_special_token)
    if desired_num_chunks < 1:
        raise InvalidArgumentError(f"desired_num_chunks must be at least 1, not {desired_num_chunks}")
    size = file.seek(0, os.SEEK_END)
    step = max(size // desired_num_chunks, 1)
    boundaries = [0]
    for guess in range(step, min(step * desired_num_chunks, size), step):
        if guess > boundaries[-1]:
            boundaries.append(_find_next_separator(file, guess, size, separators))
    return boundaries if boundaries[-1] == size else [*boundaries, size]


def refine_boundaries(
    file: BinaryIO, boundaries: list[int], longest: int, separators: Sequence[bytes] = ()
) -> list[int]:
    """Cut chunks that are still longer than `longest` bytes, between a letter or number and white space.

    There, every published split pattern splits the left part alike whatever follows, and the right part
    alike whatever precedes. A place inside a separator, or at its end, is not cut; a chunk without a safe
    place stays long.

    Args:
        file: opened in binary mode.
        boundaries: as `find_chunk_boundaries` gives them.
        longest: the length to aim at, in bytes.
        separators: byte strings that are not cut apart.
    """
    reach = max(map(len, separators), default=1)
    refined = boundaries[:1]
    for stop in boundaries[1:]:
        while stop - refined[-1] > longest:
            split_point = _find_safe_split(file, refined[-1] + longest, stop, separators, reach)
            if split_point is None:
                break
            refined.append(split_point)
        refined.append(stop)
    return refined


def _find_next_separator(file: BinaryIO, start: int, size: int, separators: Sequence[bytes]) -> int:
    """The first separator at or after `start` that no other separator overlaps from the left."""
    reach = max(map(len, separators))
    matcher = re.compile(b"|".join(map(re.escape, separators)))
    position = start
    while position < size:
        base = max(position - reach + 1, 0)
        file.seek(base)
        window = file.read(position - base + _WINDOW + 2 * reach)
        last = min(position + _WINDOW, size)
        for at in _iter_occurrences(matcher, window, position - base, last - base):
            if not any(
                at < other + len(separator)
                for separator in separators
                for other in _find_positions(separator, window, max(at - len(separator) + 1, 0), at)
            ):
                return base + at
        position = last
    return size


def _iter_occurrences(matcher: re.Pattern[bytes], window: bytes, start: int, stop: int) -> Iterator[int]:
    match = matcher.search(window, start)
    while match and match.start() < stop:
        yield match.start()
        match = matcher.search(window, match.start() + 1)


def _find_positions(separator: bytes, window: bytes, start: int, stop: int) -> list[int]:
    return [i for i in range(start, stop) if window.startswith(separator, i)]


def _find_safe_split(
    file: BinaryIO, start: int, stop: int, separators: Sequence[bytes], reach: int
) -> int | None:
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
                break  # what stands around it is in the next window
            around = window[max(split_point - reach, 0) : split_point + reach - 1]
            if not any(separator in around for separator in separators):
                return base + split_point if base + split_point < stop else None
        position += _WINDOW
    return None


def _is_safe(before: bytes) -> bool:
    """Whether a blank or line feed behind this character, or these bytes, begins another word in any case."""
    if len(before) == 1:
        return True
    try:
        return load_code_point_classes()[ord(before.decode("utf-8"))] in _BEFORE_SPLIT
    except (UnicodeDecodeError, TypeError):
        return False


def _check_separators(value: bytes | Sequence[bytes]) -> list[bytes]:
    separators = [value] if isinstance(value, bytes) else list(value)
    for separator in separators:
        if not isinstance(separator, bytes) or not separator:
            raise InvalidArgumentError(
                f"split_special_token must be one or several byte strings, not {separator!r}"
            )
    if not separators:
        raise InvalidArgumentError("split_special_token must name at least one separator")
    return separators
