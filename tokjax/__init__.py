"""Tokenization for JAX training loops: turns text into arrays, and maps every token back to its bytes.

The top level has the names that most programs use, as listed in `__init__.pyi`. Other names are in
namespaces, such as `tokjax.align` and `tokjax.packing`. `import tokjax` is cheap: a module is loaded when one
of its names is first used, and JAX, `regex` and SentencePiece only for names that need them.
"""

from types import ModuleType
from typing import Any

import lazy_loader

from tokjax._util.imports import pickle_by_name

__version__ = "0.1.0"

pickle_by_name(__name__)
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__ and not name.startswith("_"):
        from tokjax.models.method_hints import suggest_function  # noqa: PLC0415 (only for an error)

        raise AttributeError(f"tokjax has no attribute {name!r}{suggest_function(name)}")
    value = _load(name)
    if isinstance(value, ModuleType):
        pickle_by_name(value.__name__)
    globals()[name] = value  # later uses do not call this function
    return value
