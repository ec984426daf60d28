"""What commands are told of the text that they read: where it is in files, and where documents end."""

from __future__ import annotations

import re
from typing import Annotated

import typer

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


def unescaped(separator: str) -> str:
    """A separator with the characters that a shell has no simple way to pass."""
    return re.sub(r"\\([ntr\\])", lambda found: _ESCAPES[found[1]], separator)
