"""What is said of tokenizer files whose values make no tokenizer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tokjax._util.limits import exceeds_limit
from tokjax.errors import MissingSpecialTokenError, TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


def check_vocab_size(size: int, where: str) -> None:
    """Raises `TokenizerFormatError` if a file has more tokens than the limit `vocab_size`."""
    exceeded = exceeds_limit("vocab_size", size)
    if exceeded:
        raise TokenizerFormatError(f"{where}: has {size:,} tokens; {exceeded}")


def check_piece_comparisons(pieces: Collection[str]) -> None:
    """Rejects the pieces of a model that take too long to find in a text.

    All pieces that begin at a position of a text are found: in "aaaa" the pieces "a", "aa", "aaa" and "aaaa".
    The length of the longest piece gives an upper bound, which published vocabularies do not exceed.

    Raises:
        TokenizerFormatError: they exceed the limit `piece_comparisons`.
    """
    longest = max(map(len, pieces), default=0)
    if exceeds_limit("piece_comparisons", longest * (longest + 1) // 2):
        about = f"too many pieces begin alike, or are too long (the longest has {longest:,} characters)"
        check_work_per_position(_compute_largest_prefix_sum(pieces), about)


def check_work_per_position(comparisons: int, about: str) -> None:
    """Raises `TokenizerFormatError` above the limit `piece_comparisons`.

    Args:
        comparisons: characters compared at each position of a text.
        about: why there are so many, for the message.
    """
    exceeded = exceeds_limit("piece_comparisons", comparisons)
    if exceeded:
        raise TokenizerFormatError(
            f"up to {comparisons:,} characters are compared at each position of a text: {about}; {exceeded}"
        )


def _compute_largest_prefix_sum(pieces: Collection[str]) -> int:
    """Returns the largest sum of the lengths of pieces that are prefixes of one another."""
    prefixes: list[tuple[str, int]] = [("", 0)]
    largest = 0
    for piece in sorted(pieces):
        while not piece.startswith(prefixes[-1][0]):
            prefixes.pop()
        prefixes.append((piece, prefixes[-1][1] + len(piece)))
        largest = max(largest, prefixes[-1][1])
    return largest


@contextmanager
def as_format_errors(where: str = "") -> Iterator[None]:
    """Errors that say what is wrong with a tokenizer's file.

    Args:
        where: the file, if it is known.
    """
    begins = f"{where}: " if where else ""
    try:
        yield
    except TokenizerFormatError as error:
        if str(error).startswith(begins):
            raise
        raise TokenizerFormatError(f"{begins}{error.message}", hint=error.hint) from error
    except KeyError as error:
        raise TokenizerFormatError(f"{begins}the field {error} is missing") from error
    except (TypeError, ValueError, AttributeError, MissingSpecialTokenError) as error:
        raise TokenizerFormatError(f"{begins}the values make no tokenizer: {error}") from error
