"""Names of the formats of token files, and their detection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tokjax.errors import Hint, InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

TokenFormat: TypeAlias = Literal["nanogpt", "megatron", "npy", "array_record"]
_SUFFIXES = {
    ".bin": "nanogpt",
    ".idx": "megatron",
    ".npy": "npy",
    ".pt": "torch",
    ".array_record": "array_record",
}
OTHER_WAYS = {
    "llm.c": "pass the documents of numpy.fromfile(PATH, 'uint16', offset=1024) to write_dataset, each as "
    "{'ids': DOCUMENT}",
    "levanter": "pass the rows of its input_ids, which tensorstore reads, to write_dataset, each as {'ids': "
    "ROW}; Levanter trains on the batches of a loader",
    "torch": "numpy.save('ids.npy', torch.load(PATH, weights_only=True).numpy()) writes a file to convert, "
    "and torch.from_numpy(numpy.load('ids.npy')) reads an exported one",
}
"""What to do with files of formats that other libraries read better."""


def detect_format(path: Path, named: str | None) -> TokenFormat:
    """Returns the format that the caller named, or else the usual format of files with this suffix.

    Raises:
        InvalidArgumentError: there is no such format, or the suffix indicates none.
    """
    kind = named or _SUFFIXES.get(path.suffix)
    if kind in OTHER_WAYS:
        raise InvalidArgumentError(f"the format {kind!r} is not read or written; {OTHER_WAYS[kind]}")
    if kind not in get_args(TokenFormat):
        cause = (
            f"can't detect a format from the name {path.name!r}" if named is None else f"format is {named!r}"
        )
        formats = f"one of {get_args(TokenFormat)}"
        raise InvalidArgumentError(cause, hint=Hint(f"pass format, {formats}", f"pass --format, {formats}"))
    return kind  # type: ignore[return-value]
