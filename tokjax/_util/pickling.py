"""Modules that pickle by name, so that functions that use them have the same hash in every process."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


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
