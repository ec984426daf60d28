"""Reading of tokenizer files, and errors for values that are invalid or exceed `tokjax.limits`."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tokjax._util.atomic_files import NotRegularFileError, get_identity, open_regular
from tokjax._util.limits import exceeds_limit
from tokjax.errors import MissingSpecialTokenError, TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_GZIP_HEADER = b"\x1f\x8b"
_POINTER = b"version https://git-lfs.github.com/spec/"


@contextmanager
def as_format_errors(where: str = "") -> Iterator[None]:
    """Converts errors raised inside the context to `TokenizerFormatError`.

    Args:
        where: name of the file for the message, if known.
    """
    prefix = f"{where}: " if where else ""
    try:
        yield
    except TokenizerFormatError as error:
        if str(error).startswith(prefix):
            raise
        raise TokenizerFormatError(f"{prefix}{error.message}", hint=error.hint) from error
    except KeyError as error:
        raise TokenizerFormatError(f"{prefix}the field {error} is missing") from error
    except (
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        struct.error,
        MissingSpecialTokenError,
    ) as error:
        raise TokenizerFormatError(f"{prefix}the values are invalid: {error}") from error


def check_vocab_size(size: int, where: str) -> None:
    """Raises `TokenizerFormatError` if a file has more tokens than the limit `vocab_size`."""
    exceeded = exceeds_limit("vocab_size", size)
    if exceeded:
        raise TokenizerFormatError(f"{where}: has {size:,} tokens; {exceeded}")


def read_bytes(path: Path, maximum: int = -1) -> bytes:
    """Reads a file.

    Args:
        path: path of the file.
        maximum: number of bytes to read; by default all.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenizerFormatError: it is not a regular file, is empty, compressed, or a pointer of Git LFS, or
            exceeds the limit `file_bytes`.
    """
    try:
        with open_regular(path) as file:
            size = get_identity(file).nbytes
            if exceeded := exceeds_limit("file_bytes", size):
                raise TokenizerFormatError(f"{path}: has {size:,} bytes; {exceeded}")
            data = file.read(maximum)
    except NotRegularFileError:
        raise TokenizerFormatError(f"{path}: is not a regular file") from None
    if not data:
        raise TokenizerFormatError(f"{path}: is empty")
    if data.startswith(_POINTER):
        raise TokenizerFormatError(
            f"{path}: is a pointer of Git LFS, not the file itself; run 'git lfs pull' in the clone of its "
            "repository"
        )
    if data.startswith(_GZIP_HEADER):
        raise TokenizerFormatError(f"{path}: is compressed with gzip; decompress it first")
    return data


def check_piece_comparisons(pieces: Collection[str]) -> None:
    """Rejects models whose pieces take too long to find in a text.

    At each position of a text, all pieces that begin there are found: in "aaaa" the pieces "a", "aa", "aaa"
    and "aaaa". The length of the longest piece gives a cheap upper bound of the characters compared.
    Published vocabularies are below the limit by that bound alone, so the exact number is rarely computed.

    Args:
        pieces: pieces of the model.

    Raises:
        TokenizerFormatError: the pieces exceed the limit `piece_comparisons`.
    """
    longest = max(map(len, pieces), default=0)
    if exceeds_limit("piece_comparisons", longest * (longest + 1) // 2):
        about = f"too many pieces share a prefix, or are too long (the longest has {longest:,} characters)"
        check_work_per_position(_compute_largest_prefix_sum(pieces), about)


def check_work_per_position(comparisons: int, about: str) -> None:
    """Raises `TokenizerFormatError` above the limit `piece_comparisons`.

    Args:
        comparisons: number of characters compared at each position of a text.
        about: reason for the number, for the error message.
    """
    exceeded = exceeds_limit("piece_comparisons", comparisons)
    if exceeded:
        raise TokenizerFormatError(
            f"up to {comparisons:,} characters are compared at each position of a text: {about}; {exceeded}"
        )


def _compute_largest_prefix_sum(pieces: Collection[str]) -> int:
    """Returns the largest total length of pieces that are all prefixes of the longest of them.

    Sorted pieces follow their prefixes, so a stack of the current prefixes is enough.
    """
    prefixes: list[tuple[str, int]] = [("", 0)]
    largest = 0
    for piece in sorted(pieces):
        while not piece.startswith(prefixes[-1][0]):
            prefixes.pop()
        prefixes.append((piece, prefixes[-1][1] + len(piece)))
        largest = max(largest, prefixes[-1][1])
    return largest
