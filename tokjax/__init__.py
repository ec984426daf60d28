"""tokjax: text into arrays for JAX training loops, every token tied to the bytes it came from.

`import tokjax` is cheap: a name loads its module when it is first used, and neither JAX nor `regex` nor
SentencePiece before a name that needs them. The public names are listed in `__init__.pyi`; trainers are in
`tokjax.trainer`.
"""

from typing import Any

import lazy_loader

from tokjax._util.pickling import pickle_by_name

__version__ = "0.1.0"

pickle_by_name(__name__)
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__ and not name.startswith("_"):
        from tokjax.models.method_hints import advise  # noqa: PLC0415 (only for an error)

        raise AttributeError(f"tokjax has no attribute {name!r}{advise(name)}")
    value = _load(name)
    globals()[name] = value  # the next use does not come here
    return value
