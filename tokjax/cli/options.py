"""Arguments and options that several commands have: source files, standard input, tokenizers."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import tokjax
from tokjax.corpus.files import text_files
from tokjax.corpus.opening import STANDARD_INPUT
from tokjax.corpus.readers import iter_stream_texts
from tokjax.formats.detection import detect_tokenizer_files
from tokjax.formats.tokenizer_files import with_roles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tokjax.core.utf8 import Text
    from tokjax.corpus.files import FileFormat, TextFiles

SEPARATOR_HELP = (
    r"The text between the documents of a file; \n, \t, \r and \\ are a line feed, a tab, a carriage "
    "return and a backslash."
)
FILES_HELP = (
    "Files of text in UTF-8, JSON lines, CSV, TSV or Parquet; compressed with gzip, bzip2 or xz, or not; "
    "patterns of them; or a directory of Parquet files."
)
STDIN = "-"
TextColumnOption = Annotated[
    str, typer.Option("--text-column", help="The field or column that holds the text in records.")
]
FormatOption = Annotated[
    str, typer.Option("--format", help="text, jsonl, csv, tsv, parquet, or auto: by the files' names.")
]
EosTokenOption = Annotated[
    str | None,
    typer.Option(
        "--eos-token", metavar="NAME", help="The tokenizer's EOS token, if its files do not name it."
    ),
]
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def make_source(files: list[str], text_column: str, file_format: str) -> TextFiles:
    """Returns files to be read as the options say."""
    if STDIN in files:
        raise typer.BadParameter(
            "- (standard input) can't be read here, or beside other files; save it as a file",
            param_hint="FILES",
        )
    return text_files(files, field=text_column, format=cast("FileFormat", file_format))


def make_source_or_stdin(
    files: list[str], text_column: str, file_format: str, separators: Sequence[str]
) -> TextFiles | Iterator[Text]:
    """Returns files as `make_source` does, or the texts of standard input for `-`.

    Args:
        files: paths and patterns, or `-` alone.
        text_column: the field of the text in records.
        file_format: the format of all files.
        separators: strings at which the text of standard input may be cut.
    """
    if files != [STDIN]:
        return make_source(files, text_column, file_format)
    if file_format not in ("auto", "text", "jsonl"):
        raise typer.BadParameter(
            f"standard input is text or jsonl, not {file_format}; save it as a file", param_hint="--format"
        )
    field = text_column if file_format == "jsonl" else None
    return iter_stream_texts(sys.stdin.buffer, STANDARD_INPUT, field, separators)


def load_tokenizer_with_eos(path: Path, eos_token: str | None = None) -> Any:
    """Loads a tokenizer, with another EOS token if one is named."""
    if eos_token is None:
        return tokjax.load_tokenizer(path)
    if detect_tokenizer_files(path).format == "tokjax":
        return with_roles(tokjax.load_tokenizer(path), {"eos": eos_token})
    return tokjax.load_tokenizer(path, eos_token=eos_token)


def unescape(separator: str) -> str:
    """A separator with the characters that a shell has no simple way to pass."""
    return re.sub(r"\\([ntr\\])", lambda found: _ESCAPES[found[1]], separator)
