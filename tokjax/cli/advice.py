"""Errors of the library, and what they advise, in the words of a shell."""

from __future__ import annotations

import re

from rich.console import Console
from rich.markup import escape

# What the library says, as a regular expression, and what does the same here; longer ones first.
IN_A_SHELL = (
    (
        r"call write_dataset\(SOURCE, FIELD, PATH, overwrite=True\)",
        "run tokjax pack FILES --out PATH --overwrite",
    ),
    (r"(run|make it with) write_dataset", r"\1 tokjax pack"),
    (r"text_files\(PATH, field=NAME\)", "--text-column NAME"),
    (r"text_files\(PATH, format='text'\)|(?<=pass )format='text'", "--format text"),
    (r"; for (a|one) text in memory pass \[text\]", ""),
    (r"have it in allowed_special, as in .*? \(or pass 'all'\)", "pass --special recognise"),
    (r"disallowed_special=\(\)", "--special text"),
    (r"pass lowercase=False \(or True\)", "put a tokenizer_config.json with do_lower_case beside it"),
    (r"\boverwrite=True", "--overwrite"),
    (r"\btrust_source=True", "--trust-source"),
    (r"'\S+' codec can't encode .*", r"\g<0>; to show it all the same, set PYTHONIOENCODING=utf-8"),
)


def show_error(error: Exception) -> None:
    """Print an error on standard error, as one line."""
    message = escape(in_shell_words(str(error)))
    Console(stderr=True).print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)


def in_shell_words(message: str) -> str:
    """A message, its Python calls and keywords replaced by commands and options."""
    for said, meant in IN_A_SHELL:
        message = re.sub(said, meant, message)
    return message
