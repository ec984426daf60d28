"""Tests of the layers: a module imports only from lower layers, or from its package without a cycle."""

import ast

import pytest

from tests.support.import_layers import (
    LAYERS,
    get_layer,
    get_package,
    iter_modules,
    parse_imports,
    read_imports,
)

EXTRAS = {"jinja2"}


def find_violations(graph):
    """Returns imports from a higher layer, or from another package of the same layer."""
    violations = []
    for name, targets in graph.items():
        package = get_package(name)
        for target in targets:
            other = get_package(target)
            if package == "cli" and other == "__init__":
                continue  # commands use the public names, as users do
            if get_layer(target) > get_layer(name) or (
                get_layer(target) == get_layer(name) and package != other
            ):
                layers = f"layer {get_layer(name)} imports layer {get_layer(target)}"
                violations.append(f"{name} imports {target}: {layers}")
    return violations


def find_cycle(graph):
    """Returns a cycle of imports, or `None`."""
    visited, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :]
        if name in visited:
            return None
        path.append(name)
        for target in sorted(graph.get(name, ())):
            if cycle := visit(target):
                return cycle
        visited.add(path.pop())
        return None

    return next((cycle for name in sorted(graph) if (cycle := visit(name))), None)


@pytest.fixture(scope="module")
def graph():
    return read_imports()


def test_every_package_has_a_layer():
    assert {get_package(name) for name in iter_modules()} == set(LAYERS)


def test_no_import_from_a_higher_layer(graph):
    assert find_violations(graph) == []


def test_imports_have_no_cycles(graph):
    inner = {
        name: {t for t in targets if t != "__init__"} for name, targets in graph.items() if name != "__init__"
    }
    assert find_cycle(inner) is None


def test_extras_are_only_imported_by_import_optional():
    for name, path in iter_modules().items():
        source = path.read_text("utf-8")
        if not any(extra in source for extra in EXTRAS):
            continue
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse(source))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
        }
        assert not imported & EXTRAS, f"{name} imports an extra; use _util.imports.import_optional"


def test_check_finds_violations():
    modules = {"core.ragged": None, "datasets.writer": None, "models.wordpiece": None, "encoding.bulk": None}
    source = "def f():\n    from tokjax.datasets import writer"
    assert parse_imports(source, "core.ragged", modules) == {"datasets.writer"}
    assert find_violations({"core.ragged": {"datasets.writer"}}) != []
    assert find_violations({"models.wordpiece": {"encoding.bulk"}}) != []
    assert find_violations({"_util.files": {"errors"}}) == []
    assert find_cycle({"a": {"b"}, "b": {"a"}}) == ["a", "b"]
