"""Frames that show saved HTML pages within a page of the documentation."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def embed_page(path: Path, title: str) -> str:
    """Returns a frame that shows a self-contained HTML page.

    Args:
        path: path of the page.
        title: title of the frame, for screen readers.
    """
    content = escape(path.read_text("utf-8"))
    style = "width: 100%; height: 36rem; border: 1px solid #8888; background: #fff"
    return (
        f'<iframe title="{escape(title)}" style="{style}" srcdoc="{content}"></iframe>'
    )
