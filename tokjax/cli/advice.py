"""Error messages of the library in terms of the command line: commands and options instead of calls."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED = 130
_SAVED = "save its texts as JSON lines, CSV or Parquet"
# Advice of the library, as regular expressions, and its equivalent in a shell; longer ones first.
IN_A_SHELL = (
    (
        r"call write_dataset\(SOURCE, FIELD, PATH, overwrite=True\)",
        "run tokjax pack FILES --out PATH --overwrite",
    ),
    (r"(run|make it with|make one with) write_dataset", r"\1 tokjax pack"),
    (r"text_files\(PATH, field=NAME\)", "--text-column NAME"),
    (r"text_files\(PATH, format='(text|parquet)'\)", r"--format \1"),
    (r"; for (a|one) text in memory pass \[text\]", ""),
    (r"; to encode its bytes as they are, pass \[path\.read_bytes\(\)\]", ""),
    (r"(is not a text file, by its name); pass .*", rf"\1; {_SAVED}, or, of token ids, run tokjax convert"),
    (r"load it with (datasets\.Dataset\.from_file|pandas\.read_feather)\(PATH\)", _SAVED),
    (r"of Arrow files; pass datasets\.load_from_disk\(.*", f"of Arrow files; {_SAVED}"),
    (r"a dataset of tokjax is read by open_dataset", "if it is a dataset already, see tokjax stats"),
    (r"use convert_dataset", "run tokjax convert"),
    (r"or pass an iterable of texts", "or pipe it to the command, with - in place of the file's name"),
    (
        r"\w+\(add_eos_between_docs=True\)",
        "putting an EOS token after each document (--no-eos puts none there)",
    ),
    (r"make it with \{?(eos|role)\}?_token=NAME", "pass --eos-token NAME"),
    (r"pass format, one of", "pass --format, one of"),
    (r"have it in allowed_special, as in .*? \(or pass 'all'\)", "pass --special recognise"),
    (r"disallowed_special=\(\)", "--special text"),
    (r"pass lowercase=False \(or True\)", "put a tokenizer_config.json with do_lower_case beside it"),
    (r"pass checkpoint=PATH", "pass --checkpoint FILE"),
    (r"make the same call again", "run the same command again"),
    (r"\boverwrite=True", "--overwrite"),
    (r"\btrust_source=True", "--trust-source"),
    (r"'\S+' codec can't encode .*", r"\g<0>; to show it all the same, set PYTHONIOENCODING=utf-8"),
)
_OPTION = re.compile(r"^([a-z]+(_[a-z]+)+|format|pattern|seed|workers)(?= (must be|is) )")


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


def show_error(error: Exception) -> None:
    """Prints an error on standard error, as one line."""
    said = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        said = f"{error.filename}: {error.strerror}"
    message = escape(in_shell_words(said))
    Console(stderr=True).print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)


def in_shell_words(message: str) -> str:
    """Returns a message whose Python calls and keywords are replaced by commands and options."""
    for said, meant in IN_A_SHELL:
        message = re.sub(said, meant, message)
    return _OPTION.sub(lambda found: "--" + found[0].replace("_", "-"), message)
