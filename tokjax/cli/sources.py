"""What commands are told of the text that they read: where it is in files, and where documents end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tokjax.text.files import text_files

if TYPE_CHECKING:
    from tokjax.text.files import FileFormat, TextFiles

SEPARATOR_HELP = (
    r"What stands between the documents of a file; \n, \t, \r and \\ are a line feed, a tab, a carriage "
    "return and a backslash."
)
TextColumnOption = Annotated[
    str, typer.Option("--text-column", help="The field, or column, of the text in records.")
]
FormatOption = Annotated[
    str, typer.Option("--format", help="text, jsonl, parquet, or auto: by the files' names.")
]
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def source_of(files: list[str], text_column: str, file_format: str) -> TextFiles:
    """Files, as the options say that they are to be read."""
    return text_files(files, field=text_column, format=cast("FileFormat", file_format))


def unescaped(separator: str) -> str:
    """A separator with the characters that a shell has no simple way to pass."""
    return re.sub(r"\\([ntr\\])", lambda found: _ESCAPES[found[1]], separator)
