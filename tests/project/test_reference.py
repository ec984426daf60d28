"""The reference is complete: each public name has a page, and each array that it takes or gives a shape."""

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
    """Public objects by name. An object of a namespace that is also at the top level has the shorter name."""
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
    """The value, and what a class has under public names, of its own or from classes of tokjax above it."""
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


def lacks_shape(value):
    """Whether arrays are named in the signature or the attributes, and no shape in the docstring."""
    named = " ".join(map(str, inspect.get_annotations(value).values()))
    return bool(ARRAY.search(named)) and not SHAPE.search(inspect.getdoc(value) or "")


@pytest.mark.parametrize("name", MEMBERS)
def test_docstrings(name):
    doc = inspect.getdoc(MEMBERS[name]) or ""
    assert doc, "no docstring"
    assert not lacks_shape(MEMBERS[name]), "its docstring gives no shape of the arrays in its signature"


def test_the_check_sees_a_missing_shape():
    def without(ids: NDArray[np.int32]) -> None:
        """Take some ids."""

    def with_shapes(ids: NDArray[np.int32]) -> None:
        """Take some ids of shape `(n,)`."""

    def without_arrays(name: str) -> None:
        """Take a name."""

    assert [lacks_shape(function) for function in (without, with_shapes, without_arrays)] == [
        True,
        False,
        False,
    ]
