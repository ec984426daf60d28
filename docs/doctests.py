"""Examples in docstrings (`>>>`) as blocks of code: as text, Markdown takes them for quotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from griffe import Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """An extension of griffe, which reads the docstrings."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Put a fence around each example of an object's docstring."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(
                r"```pycon\n\g<0>\n```", obj.docstring.value
            )
