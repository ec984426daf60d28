"""Errors of the library, printed for a shell."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from tokjax.errors import TokjaxError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
