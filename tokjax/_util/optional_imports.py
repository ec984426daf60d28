"""The libraries that only an extra installs: imported here, and nowhere else."""

from __future__ import annotations

import importlib
from typing import Any

from tokjax.errors import MissingExtraError


def import_optional(module: str, *, extra: str, purpose: str) -> Any:
    """A module of an optional library.

    Args:
        module: its full name.
        extra: the extra of tokjax that installs it.
        purpose: what needs it, as the subject of a sentence.

    Raises:
        MissingExtraError: the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.split(".", 1)[0]
        if error.name != library:
            raise
        raise MissingExtraError(
            f"{purpose} needs {library}, which is not installed; pip install 'tokjax[{extra}]'"
        ) from error
