"""A file imports only from lower floors, or from its own folder without a circle."""

import ast

import pytest

from tests.floors import FLOORS, imports_of, modules, read_imports

EXTRAS = {"matplotlib", "jinja2"}


def violations(graph):
    """Imports that go up, or across to another folder of the same floor."""
    bad = []
    for name, targets in graph.items():
        room = name.split(".")[0]
        for target in targets:
            other = target.split(".")[0]
            if room == "cli" and other == "__init__":
                continue  # the front end uses the public names, as its users do
            same_place = room == other or (FLOORS[room] == FLOORS[other] <= 1)
            if FLOORS[other] > FLOORS[room] or (FLOORS[other] == FLOORS[room] and not same_place):
                bad.append(f"{name} (floor {FLOORS[room]}) imports {target} (floor {FLOORS[other]})")
    return bad


def circle(graph):
    """A circle of imports, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return None
        path.append(name)
        for target in sorted(graph.get(name, ())):
            if found := visit(target):
                return found
        done.add(path.pop())
        return None

    return next((found for name in sorted(graph) if (found := visit(name))), None)


@pytest.fixture(scope="module")
def graph():
    return read_imports()


def test_every_file_has_a_floor():
    assert {name.split(".")[0] for name in modules()} == set(FLOORS)


def test_no_import_goes_up(graph):
    assert violations(graph) == []


def test_no_import_goes_in_a_circle(graph):
    inner = {
        name: {t for t in targets if t != "__init__"} for name, targets in graph.items() if name != "__init__"
    }
    assert circle(inner) is None


def test_extras_are_imported_in_one_place():
    for name, path in modules().items():
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
        }
        assert not imported & EXTRAS, f"{name} imports an extra; it is for _optional.import_optional"


def test_the_check_sees_a_fault():
    known = {"offsets": None, "store.writer": None, "trainer.bpe": None, "loading.packed": None}
    source = "def f():\n    from tokjax.store import writer"
    assert imports_of(source, "offsets", known) == {"store.writer"}
    assert violations({"offsets": {"store.writer"}}) != []
    assert violations({"trainer.bpe": {"loading.packed"}}) != []
    assert circle({"a": {"b"}, "b": {"a"}}) == ["a", "b"]
