"""Errors and panics of the `tokenizers` library as errors of tokjax, and checks that come before its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokjax.errors import TokjaxError


@contextmanager
def raise_as(kind: type[TokjaxError], about: str) -> Iterator[None]:
    """Raises errors of the library as errors of tokjax.

    A panic in Rust, such as a pattern that backtracks for too long, is a `BaseException` there.

    Args:
        kind: the type of the new error.
        about: the beginning of its message.
    """
    try:
        yield
    except (KeyboardInterrupt, MemoryError, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise kind(f"{about}: {error}") from error


def check_merges(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for merges that abort the process when the library reads them.

    It drops as many bytes of the second token as the prefix has characters, and may cut a character.
    """
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or [] if prefix else []:
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[-1]
        if not second.startswith(prefix):
            raise TokenizerFormatError(
                f"the merge {merge!r}: the second token does not begin with the continuing_subword_prefix "
                f"{prefix!r} of the model"
            )


def check_pieces(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for a unigram vocabulary that has a piece twice."""
    if not isinstance(model["vocab"], list):
        return
    seen: set[str] = set()
    for piece, _ in model["vocab"]:
        if piece in seen:
            raise TokenizerFormatError(
                f"the model's vocab has {piece!r} twice, so that two ids have one token; leave out the later "
                "one (the library's trainer learns it from text that spells a special token out)"
            )
        seen.add(piece)
