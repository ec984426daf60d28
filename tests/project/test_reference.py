"""Tests that the reference is complete: all public names are on a page, and all arrays have a shape."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import tokjax

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
NAMESPACES = [value for name in tokjax.__all__ if inspect.ismodule(value := getattr(tokjax, name))]


def list_public_names():
    """Returns the public objects by name. Objects that are also at the top level have the shorter name."""
    top = {f"tokjax.{name}": getattr(tokjax, name) for name in tokjax.__all__}
    names = {name: value for name, value in top.items() if not inspect.ismodule(value)}
    ids = {id(value) for value in names.values()}
    for module in NAMESPACES:
        values = {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
        names |= {name: value for name, value in values.items() if id(value) not in ids}
    return names


PUBLIC = list_public_names()
ARRAY = re.compile(r"\b(NDArray|ndarray|ArrayLike|Array)\b")
SHAPE = re.compile(r"`\([^`]*\)`|\bshapes?\b|\b(one|same) (dimension|shape)|\bscalar")


def iter_public_members(name, value):
    """Yields a public object and, for a class, its public methods and properties, also inherited ones."""
    yield name, value
    if inspect.isclass(value):
        for member in dir(value):
            defined = inspect.getattr_static(value, member)
            inner = getattr(defined, "fget", None) or getattr(defined, "func", None) or defined
            inner = getattr(inner, "__func__", inner)
            if not member.startswith("_") and inspect.isfunction(inner):
                yield f"{name}.{member}", inner


MEMBERS = {
    member: value
    for name, owner in PUBLIC.items()
    if inspect.isclass(owner) or inspect.isfunction(owner)
    for member, value in iter_public_members(name, owner)
    if value.__module__.startswith("tokjax")
}


def test_every_public_name_is_on_one_page():
    pages = "".join(page.read_text() for page in REFERENCE.glob("*.md"))
    shown = re.findall(r"^::: (\S+)$", pages, re.MULTILINE)
    assert sorted(shown) == sorted(PUBLIC)


def test_table_of_types_can_be_rendered(capsys):
    (code,) = re.findall(
        r"^```python exec[^\n]*\n(.*?)^```", (REFERENCE / "index.md").read_text(), re.MULTILINE | re.DOTALL
    )
    exec(code, {})
    assert "TokenFormat" in capsys.readouterr().out


def lacks_shape(value):
    """Returns whether a signature or the attributes have arrays, but the docstring has no shape."""
    annotations = " ".join(map(str, inspect.get_annotations(value).values()))
    return bool(ARRAY.search(annotations)) and not SHAPE.search(inspect.getdoc(value) or "")


@pytest.mark.parametrize("name", MEMBERS)
def test_docstring_has_shapes(name):
    doc = inspect.getdoc(MEMBERS[name]) or ""
    assert doc, "no docstring"
    assert not lacks_shape(MEMBERS[name]), "the docstring has no shape for the arrays in the signature"


def test_check_finds_missing_shapes():
    def without_shapes(ids: NDArray[np.int32]) -> None:
        """Takes ids."""

    def with_shapes(ids: NDArray[np.int32]) -> None:
        """Takes ids, shape `(n,)`."""

    def without_arrays(name: str) -> None:
        """Takes a name."""

    assert [lacks_shape(function) for function in (without_shapes, with_shapes, without_arrays)] == [
        True,
        False,
        False,
    ]
