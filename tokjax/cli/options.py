"""Arguments and options that several commands have: source files, standard input, tokenizers."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape

import tokjax
from tokjax.corpus.files import text_files
from tokjax.corpus.opening import STANDARD_INPUT
from tokjax.corpus.readers import iter_stream_texts
from tokjax.errors import TokjaxError
from tokjax.formats.detection import detect_tokenizer_files
from tokjax.formats.tokenizer_files import with_roles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from tokjax.core.utf8 import Text
    from tokjax.corpus.files import FileFormat, TextFiles


INTERRUPTED = 130


@contextmanager
def exit_if_interrupted(hint: str) -> Iterator[None]:
    """Exits with code 130 and one line on standard error if the user presses Ctrl-C.

    Args:
        hint: what to do next.
    """
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print(f"[bold red]interrupted:[/] {escape(hint)}", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


def show_error(error: Exception, options: Collection[str] = ()) -> None:
    """Prints an error on standard error, as one line.

    Args:
        error: an error of the library or of the operating system.
        options: options of the commands, such as `"--vocab-size"`.
    """
    message = escape(describe_error(error, options))
    Console(stderr=True).print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)


def describe_error(error: Exception, options: Collection[str] = ()) -> str:
    """Returns the cause and the hint for a shell; a cause that begins with an argument names its option."""
    if isinstance(error, TokjaxError):
        name, _, rest = error.message.partition(" ")
        option = "--" + name.replace("_", "-")
        is_option = option in options and rest.startswith(("must be ", "is "))
        cause = f"{option} {rest}" if is_option else error.message
        return f"{cause}; {error.hint.shell}" if error.hint and error.hint.shell else cause
    if isinstance(error, UnicodeEncodeError):
        return f"{error}; to show it all the same, set PYTHONIOENCODING=utf-8"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


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
