"""Sources of the commands `train` and `estimate-mixture`: files of text, or of pre-token counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from tokjax._util.urls import is_url
from tokjax.cli.options import STDIN, make_source, open_stdin
from tokjax.corpus.decompression import open_source
from tokjax.corpus.files import text_files
from tokjax.trainer import PretokenCounts, count_pretokens, load_pretoken_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokjax.corpus.sources import Source
    from tokjax.pretokenize.patterns import Pattern

_ZIP_MAGIC = b"PK\x03\x04"
"""First bytes of `.npz` files, which contain pre-token counts."""


class Reading(NamedTuple):
    """How files are read and counted.

    Attributes:
        text_column: field or column with the text of each record.
        file_format: format of all files, or `"auto"`.
        special_tokens: names of the special tokens at which texts are split.
        pattern: the split pattern.
        sample: options `max_bytes` and `seed` of `count_pretokens`, if they were passed.
        shared: options `progress` and `workers` of `count_pretokens`.
        normalize: option `normalize` of `count_pretokens`.
        accepts_counts: whether files of pre-token counts can be read, too.
    """

    text_column: str
    file_format: str
    special_tokens: Sequence[str]
    pattern: Pattern
    sample: Mapping[str, Any]
    shared: Mapping[str, Any]
    normalize: Any = "auto"
    accepts_counts: bool = True


def read_files(files: list[str], reading: Reading) -> Source | PretokenCounts:
    """Returns files as one source, or the sum of their pre-token counts.

    Args:
        files: paths and patterns, or `-` alone.
        reading: how they are read.

    Raises:
        typer.BadParameter: some of the files have pre-token counts, and others do not, or an option is for
            texts.
    """
    counts_files = [path for path in find_paths(files) if _is_counts_file(path)]
    if not counts_files:
        source = make_source(files, reading.text_column, reading.file_format, takes_stdin=True)
        return open_stdin(source, reading.special_tokens)
    is_default = (reading.text_column, reading.file_format) == ("text", "auto")
    if not reading.accepts_counts or reading.sample or not is_default:
        raise typer.BadParameter(
            f"{counts_files[0]} contains pre-token counts, which can't be used with --max-bytes, --seed, "
            "--save-counts, --text-column, --format or a SentencePiece model"
        )
    paths = find_paths(files)
    if len(counts_files) < len(paths):
        other = next(path for path in paths if path not in counts_files)
        raise typer.BadParameter(
            f"{counts_files[0]} contains pre-token counts, but {other} does not; count it first with "
            "--save-counts"
        )
    return sum(map(load_pretoken_counts, paths[1:]), load_pretoken_counts(paths[0]))


def count_files(files: list[str], reading: Reading) -> PretokenCounts:
    """Returns the pre-token counts of all files together."""
    source = read_files(files, reading)
    if isinstance(source, PretokenCounts):
        return source
    return count_pretokens(
        source,
        special_tokens=reading.special_tokens,
        pattern=reading.pattern,
        normalize=reading.normalize,
        **reading.sample,
        **reading.shared,
    )


def count_each(files: list[str], reading: Reading) -> dict[str, PretokenCounts]:
    """Returns the pre-token counts of each path or pattern.

    Raises:
        typer.BadParameter: a path is passed twice.
    """
    duplicate = next((file for i, file in enumerate(files) if file in files[:i]), None)
    if duplicate is not None:
        raise typer.BadParameter(f"{duplicate} is passed twice; each of FILES is a separate source")
    local_files = [file for file in files if file != STDIN and not is_url(file)]
    if local_files:
        find_paths(local_files)  # raises if one is missing, before another is counted
    return {file: count_files([file], reading) for file in files}


def find_paths(files: list[str]) -> tuple[Path, ...]:
    """Returns the source files, including files of pre-token counts; none for standard input."""
    return () if files == [STDIN] else text_files(files, format="text").paths


def _is_counts_file(path: Path) -> bool:
    """Returns whether a file is a ZIP archive, as `.npz` files are."""
    with open_source(path) as file:
        return file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
