"""Names of the formats of token files, and their detection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tokjax.errors import Hint, InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

TokenFormat: TypeAlias = Literal["nanogpt", "llm.c", "megatron", "npy", "torch", "levanter", "array_record"]
_SUFFIXES: dict[str, TokenFormat] = {
    ".bin": "nanogpt",
    ".idx": "megatron",
    ".npy": "npy",
    ".pt": "torch",
    ".array_record": "array_record",
}


def detect_format(path: Path, named: str | None) -> TokenFormat:
    """Returns the format that the caller named, or else the usual format of files with this suffix.

    Raises:
        InvalidArgumentError: there is no such format, or the suffix indicates none.
    """
    kind = named or _SUFFIXES.get(path.suffix)
    if kind not in get_args(TokenFormat):
        cause = (
            f"can't detect a format from the name {path.name!r}" if named is None else f"format is {named!r}"
        )
        formats = f"one of {get_args(TokenFormat)}"
        raise InvalidArgumentError(cause, hint=Hint(f"pass format, {formats}", f"pass --format, {formats}"))
    return kind  # type: ignore[return-value]
