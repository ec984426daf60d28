"""The floors of the code, and what its files import: for the test of them, and for their drawing."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import tokjax

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(tokjax.__file__).parent
FLOORS = {
    "errors": 0,
    "_arrays": 0,
    "_namespace": 0,
    "_compiling": 0,
    "_files": 0,
    "_locks": 0,
    "_directories": 0,
    "_checks": 0,
    "_limits": 0,
    "_modules": 0,
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
    "windows": 1,
    "_bare": 1,
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


def modules() -> dict[str, Path]:
    """The files of tokjax, by their names."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))
    }


def imports_of(source: str, name: str, known: Mapping[str, object]) -> set[str]:
    """The modules of tokjax that a file imports, wherever in the file."""
    found: set[str] = set()
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


def read_imports() -> dict[str, set[str]]:
    """Each module of tokjax, by its name without the package's, and the modules that it imports."""
    known = modules()
    return {name: imports_of(path.read_text("utf-8"), name, known) for name, path in known.items()}
