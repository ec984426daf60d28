"""What stands between documents, as a shell passes it."""

from __future__ import annotations

import re

SEPARATOR_HELP = (
    r"What stands between the documents of a file; \n, \t, \r and \\ are a line feed, a tab, a carriage "
    "return and a backslash."
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def unescaped(separator: str) -> str:
    """A separator with the characters that a shell has no simple way to pass."""
    return re.sub(r"\\([ntr\\])", lambda found: _ESCAPES[found[1]], separator)
