"""Griffe extension that renders examples in docstrings (`>>>`) as code; Markdown would render quotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from griffe import Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Extension that adds code fences around the examples of all docstrings."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Adds a code fence around each example in the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(
                r"```pycon\n\g<0>\n```", obj.docstring.value
            )
