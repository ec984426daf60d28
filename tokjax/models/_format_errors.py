"""What is said of tokenizer files whose values make no tokenizer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tokjax._limits import exceeds_limit
from tokjax.errors import MissingSpecialTokenError, TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator


def check_vocab_size(size: int, where: str) -> None:
    """Raises `TokenizerFormatError` if a file has more tokens than the limit `vocab_size`."""
    exceeded = exceeds_limit("vocab_size", size)
    if exceeded:
        raise TokenizerFormatError(f"{where}: has {size:,} tokens; {exceeded}")


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
        raise TokenizerFormatError(f"{begins}{error}") from error
    except KeyError as error:
        raise TokenizerFormatError(f"{begins}the field {error} is missing") from error
    except (TypeError, ValueError, AttributeError, MissingSpecialTokenError) as error:
        raise TokenizerFormatError(f"{begins}the values make no tokenizer: {error}") from error
