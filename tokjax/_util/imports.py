"""Imports of optional libraries, and modules that pickle by name."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from tokjax.errors import MissingExtraError


def import_optional(module: str, *, extra: str, purpose: str) -> Any:
    """Imports a module of an optional library. Other modules must not import such libraries directly.

    Args:
        module: full name of the module.
        extra: extra of tokjax that installs the library.
        purpose: feature that needs the library, as the subject of the error message: `"reading Parquet"`.

    Raises:
        MissingExtraError: the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.split(".", 1)[0]
        if error.name != library:
            raise  # the library is installed, but an import inside it fails
        raise MissingExtraError(
            f"{purpose} needs {library}, which is not installed; pip install 'tokjax[{extra}]'"
        ) from error


class _PickledByName(ModuleType):
    """Module that pickles as its name.

    dill pickles a module outside of `site-packages`, as in an editable install, with all its global
    variables. `datasets.map` uses the hash of such a pickle as the key of its cache. The variables change
    with each lazy import, so the cache would never be hit.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def pickle_by_name(name: str) -> None:
    """Makes an imported module pickle as its name. A module calls it with its `__name__`."""
    sys.modules[name].__class__ = _PickledByName
