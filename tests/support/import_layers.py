"""Layers of the package, and the imports of its modules: for the test of the layers and for their drawing."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import tokjax

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(tokjax.__file__).parents[1]
LAYERS = {
    "_util": 0,
    "core": 1,
    "pretokenize": 2,
    "batching": 2,
    "pipelines": 2,
    "corpus": 3,
    "bpe": 3,
    "models": 4,
    "encoding": 4,
    "formats": 5,
    "datasets": 6,
    "trainer": 7,
    "reports": 8,
    "quick": 8,
    "testing": 8,
    "cli": 9,
    "__main__": 10,
    "__init__": 10,
}
ERRORS = "core.errors"
"""The module that every layer imports, `_util` included."""


def get_layer(module: str) -> int:
    """Returns the layer of a module."""
    return 0 if module == ERRORS else LAYERS[module.split(".", maxsplit=1)[0]]


def iter_modules() -> dict[str, Path]:
    """Returns the path of each module by its name, such as `core.offsets`."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))
    }


def parse_imports(source: str, name: str, module_names: Mapping[str, object]) -> set[str]:
    """Returns the modules of tokjax that a source file imports, at any place in it."""
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
                found.add(inner if inner in module_names else base if base in module_names else package)
        elif isinstance(node, ast.Import):
            found |= {
                [*alias.name.split(".", 1), "__init__"][1]
                for alias in node.names
                if alias.name.split(".")[0] == "tokjax"
            }
    return found


def read_imports() -> dict[str, set[str]]:
    """Returns the imports of each module of tokjax."""
    module_names = iter_modules()
    return {
        name: parse_imports(path.read_text("utf-8"), name, module_names)
        for name, path in module_names.items()
    }
