"""What a value is made of: kinds, shapes and dtypes, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tokjax._namespace import is_jax
from tokjax.records import TokenizationBatch


def shapes_in(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The name and the form of a value, then those of what is in it, indented."""
    yield name, _form(value)
    for inner, part in _parts(value):
        for line, form in shapes_in(inner, part):
            yield f"  {line}", form


def _parts(value: Any) -> list[tuple[str, Any]]:
    """What is in a value, and worth a line of its own."""
    if isinstance(value, TokenizationBatch):
        return _parts(value.ragged)
    if _is_named(value):
        named = value._asdict().items()
    elif isinstance(value, Mapping):
        named = value.items()
    elif is_dataclass(value) and not isinstance(value, type):
        named = {field.name: getattr(value, field.name) for field in fields(value)}.items()
        return [(name, part) for name, part in named if _is_array(part)]
    elif isinstance(value, (list, tuple)):
        return [("[0]", value[0])] if value else []
    else:
        return []
    return [(str(name), part) for name, part in named if part is not None]


def _form(value: Any) -> str:
    kind = type(value).__name__
    if _is_array(value):
        return f"{'jax ' if is_jax(value) else ''}{value.dtype} {value.shape}"
    if isinstance(value, str):
        return f"str of {len(value)} characters"
    return f"{kind} of {len(value)}" if isinstance(value, Sequence) and not _is_named(value) else kind


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) or is_jax(value)


def _is_named(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")
