"""The only importer of optional extras: where one is missing, the error says how to install it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tokjax.errors import MissingExtraError

_EXTRA_OF = {"pyarrow": "parquet"}


def optional(module: str, purpose: str) -> Any:
    """A module of an optional extra, imported.

    Args:
        module: its name, dots and all.
        purpose: what needs it, to begin the error's text.

    Raises:
        MissingExtraError: it is not installed.
    """
    package = module.split(".", maxsplit=1)[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise MissingExtraError(
            f"{purpose} needs {package}; install it with: pip install 'tokjax[{_EXTRA_OF[package]}]'"
        ) from error
