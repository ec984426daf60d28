"""A file imports only from lower floors, or from its own folder without a circle."""

import ast
from pathlib import Path

import pytest

import tokjax

ROOT = Path(tokjax.__file__).parent
FLOORS = {
    "errors": 0,
    "_arrays": 0,
    "_namespace": 0,
    "_files": 0,
    "_directories": 0,
    "_checks": 0,
    "_progress": 0,
    "_threads": 0,
    "_workers": 0,
    "_optional": 0,
    "_permutation": 0,
    "_urls": 0,
    "utf8": 1,
    "offsets": 1,
    "ragged": 1,
    "records": 1,
    "_display": 1,
    "_shapes": 1,
    "vocabulary": 1,
    "protocol": 1,
    "templates": 1,
    "encoding": 1,
    "_arranging": 1,
    "_presplit": 1,
    "lookup": 1,
    "text": 2,
    "batching": 2,
    "pipelines": 2,
    "models": 3,
    "bulk": 3,
    "chat": 3,
    "formats": 4,
    "store": 5,
    "trainer": 6,
    "loading": 6,
    "quick": 7,
    "report": 7,
    "show": 7,
    "testing": 7,
    "cli": 8,
    "__main__": 9,
    "__init__": 9,
}

EXTRAS = {"matplotlib", "jinja2"}


def modules():
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))
    }


def imports_of(source, name, known):
    """The modules of tokjax that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            parts = (node.module or "").split(".")
            if parts[0] != "tokjax":
                continue
            base = ".".join(parts[1:])
            for alias in node.names:
                inner = f"{base}.{alias.name}" if base else alias.name
                package = f"{base}.__init__" if base else "__init__"
                found.add(inner if inner in known else base if base in known else package)
        elif isinstance(node, ast.Import):
            found |= {
                [*alias.name.split(".", 1), "__init__"][1]
                for alias in node.names
                if alias.name.split(".")[0] == "tokjax"
            }
    return found


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
    known = modules()
    return {name: imports_of(path.read_text(), name, known) for name, path in known.items()}


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
