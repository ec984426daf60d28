"""Tokenization for JAX training loops: turns text into arrays, and maps every token back to its bytes.

The top level has the names that most programs use, as listed in `__init__.pyi`. Other names are in
namespaces, such as `tokjax.align` and `tokjax.packing`. `import tokjax` is cheap: a module is loaded when one
of its names is first used, and JAX, `regex` and SentencePiece only for names that need them.
"""

import sys
from typing import Any

from tokjax._util.imports import attach_names

__version__ = "0.1.0"

_load, __all__ = attach_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__ and not name.startswith("_"):
        from tokjax.models.method_hints import suggest_function  # noqa: PLC0415 (only for an error)

        raise AttributeError(
            f"tokjax has no attribute {name!r}{suggest_function(name, sys.modules[__name__])}"
        )
    return _load(name)
