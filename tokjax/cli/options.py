"""Shared parts of the commands: options, source files, tokenizers, and errors on standard error.

Commands declare shared options with the annotated types below (`TextColumnOption`, `FormatOption`,
`EosTokenOption`). `make_source` and `load_tokenizer_with_eos` convert the values to arguments of the
library. `show_error` and `exit_if_interrupted` print one line. Errors name options of the command instead of
arguments of the library.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape

import tokjax
from tokjax._util.urls import save_stream
from tokjax.corpus.files import has_plain_text, text_files
from tokjax.errors import TokjaxError
from tokjax.reports.report_table import ReportTable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tokjax.corpus.files import FileFormat, TextFiles


INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT (2)."""


@contextmanager
def exit_if_interrupted(hint: str) -> Iterator[None]:
    """Exits with code 130 and one line on standard error if the user presses Ctrl-C.

    Args:
        hint: advice on how to continue.
    """
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True).print(f"[bold red]interrupted:[/] {escape(hint)}", highlight=False)
        raise typer.Exit(INTERRUPTED) from None


def show_error(error: Exception, options: Collection[str] = ()) -> None:
    """Prints an error on standard error, as one line.

    Args:
        error: error of the library or of the operating system.
        options: names of the options of all commands, such as `"--vocab-size"`.
    """
    message = escape(describe_error(error, options))
    Console(stderr=True).print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)


def describe_error(error: Exception, options: Collection[str] = ()) -> str:
    """Returns the cause of an error and its hint for a shell.

    A cause that begins with the name of an argument names the option instead: `vocab_size is 5` becomes
    `--vocab-size is 5`.
    """
    if isinstance(error, TokjaxError):
        name, _, rest = error.message.partition(" ")
        option = "--" + name.replace("_", "-")
        is_option = option in options and rest.startswith(("must be ", "is "))
        cause = f"{option} {rest}" if is_option else error.message
        return f"{cause}; {error.hint.shell}" if error.hint and error.hint.shell else cause
    if isinstance(error, UnicodeEncodeError):
        return f"{error}; set PYTHONIOENCODING=utf-8 to print it"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return ", ".join([str(error), *getattr(error, "__notes__", ())])  # notes name URLs


def print_rows(title: str, rows: Mapping[str, object], notes: Sequence[str] = ()) -> None:
    """Prints a table of names and values.

    Args:
        title: title of the table.
        rows: name to value. Rows whose value is `None` are left out.
        notes: lines below the table.
    """
    shown = tuple((name, value) for name, value in rows.items() if value is not None)
    Console().print(ReportTable(title, ("", ""), shown), *notes, sep="\n", markup=False)


FILES_HELP = (
    "Files or patterns of files: UTF-8 text, JSON lines, CSV, TSV, Parquet, Arrow, ArrayRecord or tar "
    "archives, optionally compressed with gzip, bzip2, xz or zstd; or directories of Parquet files, or of "
    "save_to_disk."
)
STDIN = "-"
TOKENIZER_HELP = (
    "Tokenizer file or directory, in any supported format; or a name, such as OWNER/NAME for a repository of "
    "the Hugging Face hub."
)
TokenizerOption = Annotated[str, typer.Option("--tokenizer", "-t", help=TOKENIZER_HELP)]
TextColumnOption = Annotated[
    str, typer.Option("--text-column", help="Field or column with the text of each record.")
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format", help="text, jsonl, csv, tsv, parquet, arrow, tar, array_record or auto (by file name)."
    ),
]
SeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--separator",
        help=r"Text between the documents of a file; \n, \t, \r and \\ are a line feed, a tab, a carriage "
        "return and a backslash. Default: in plain text, the EOS token of the (first) tokenizer; a record is "
        "one document.",
    ),
]
EosTokenOption = Annotated[
    str | None,
    typer.Option(
        "--eos-token", metavar="NAME", help="EOS token of the tokenizer, if its files do not name it."
    ),
]
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def make_source(files: list[str], text_column: str, file_format: str) -> TextFiles:
    """Returns the source files, with the text column and the format of the options.

    Args:
        files: paths and patterns; `-` is standard input, which is saved to a temporary file first.
        text_column: field or column with the text of each record.
        file_format: format of all files, or `"auto"`.
    """
    saved = [save_stream(sys.stdin.buffer, "standard input")] if STDIN in files else []
    copies = [str(path) for each in saved for path in each.urls]
    paths = [path for file in files for path in (copies if file == STDIN else [file])]
    found = text_files(paths, field=text_column, format=cast("FileFormat", file_format))
    return replace(found, fetched=(*found.fetched, *saved))


def choose_separator(option: str | None, tokenizer: Any, sources: Iterable[TextFiles]) -> str | None:
    """Returns the text between documents, `None` if each file or record is one document.

    Args:
        option: value of the option `--separator`, which may be empty; `None` for the default: the EOS token
            if one of the sources has plain text.
        tokenizer: tokenizer whose EOS token is the default, or `None`.
        sources: files to read.
    """
    if option is not None:
        return unescape(option) or None
    return tokenizer.vocabulary.roles.get("eos") if tokenizer and any(map(has_plain_text, sources)) else None


def load_tokenizer_with_eos(path: str, eos_token: str | None = None) -> Any:
    """Loads a tokenizer by path or name, and replaces its EOS token if `eos_token` is not `None`."""
    if eos_token is None:
        return tokjax.load_tokenizer(path)
    return tokjax.load_tokenizer(path, eos_token=eos_token)


def unescape(separator: str) -> str:
    r"""Replaces the escape sequences `\n`, `\t`, `\r` and `\\` by the characters that they denote."""
    return re.sub(r"\\([ntr\\])", lambda match: _ESCAPES[match[1]], separator)
