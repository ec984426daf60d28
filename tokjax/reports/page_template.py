"""Pages of one look: one file each, without scripts, that load nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokjax._util.display import visible
from tokjax._util.optional_imports import import_optional
from tokjax.reports.numbers import shown


def check_libraries() -> None:
    """Raise `MissingExtraError` where a page can't be made."""
    for library in ("matplotlib", "jinja2"):
        import_optional(library, extra="report", purpose="the page of a report")


def render_page(template: str, **values: Any) -> str:
    """A page.

    Args:
        template: the name of its template, beside this file.
        **values: what stands in it.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    jinja2 = import_optional("jinja2", extra="report", purpose="the page of a report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"visible": visible, "shown": shown}
    page: str = environment.get_template(template).render(values)
    return page
