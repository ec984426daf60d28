"""Namespaces, lazy imports of their names, and imports of optional libraries."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import lazy_loader  # type: ignore[import-untyped]

from tokjax.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable


_NAMESPACES = ("backports", "google")
"""Packages that several libraries share."""


def attach_names(package: str, init_file: str) -> tuple[Callable[[str], Any], list[str]]:
    """Makes the public names of a namespace lazy: each imports its module when it is first used.

    Args:
        package: `__name__` of the package.
        init_file: `__file__` of the package. The names are those that the `__init__.pyi` beside it imports.

    Returns:
        `__getattr__` and `__all__` of the package.
    """
    load, _, names = lazy_loader.attach_stub(package, init_file)
    mark_namespace(package)

    def get_name(name: str) -> Any:
        value = load(name)
        setattr(sys.modules[package], name, value)  # so that later uses do not call this function
        return value

    return get_name, names


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
        names = module.split(".")
        library = ".".join(names[: 2 if names[0] in _NAMESPACES else 1])
        if error.name not in (library, names[0]):
            raise  # the library is installed, but an import inside it fails
        raise MissingExtraError(
            f"{purpose} needs {library}, which is not installed; pip install 'tokjax[{extra}]'"
        ) from error


class _Namespace(ModuleType):
    """Module with public names: `dir`, and so completion in editors and notebooks, lists no other names.

    It pickles as its name. dill pickles a module outside of `site-packages`, as in an editable install, with
    all its global variables. `datasets.map` uses the hash of such a pickle as the key of its cache. The
    variables change with each lazy import, so the cache would never be hit.
    """

    def __dir__(self) -> list[str]:
        return list(vars(self).get("__all__", ()))

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def mark_namespace(name: str) -> None:
    """Makes a module that is being imported a namespace. It calls this function with its `__name__`."""
    sys.modules[name].__class__ = _Namespace


mark_namespace("tokjax.errors")  # it is in a lower layer, and can't do so itself
