"""The libraries that only an extra installs: imported here, and nowhere else."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
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


class _PickledByName(ModuleType):
    """Module that pickles as its name.

    dill pickles a module outside of `site-packages`, as in an editable install, with all its global
    variables. `datasets.map` hashes such pickles, and would never find its cache: the variables change with
    each lazy import.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def pickle_by_name(name: str) -> None:
    """Makes an imported module pickle as its name; a module calls it with its own `__name__`."""
    sys.modules[name].__class__ = _PickledByName
