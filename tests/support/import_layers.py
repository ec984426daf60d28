"""Layers of the package, and the imports of its modules. Used by their test and their drawing."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import tokjax

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(tokjax.__file__).parent
LAYERS = {
    "errors": 0,
    "_util": 1,
    "core": 2,
    "pretokenize": 3,
    "batching": 3,
    "masks": 3,
    "align": 3,
    "pipelines": 3,
    "objectives": 4,
    "packing": 4,
    "corpus": 4,
    "bpe": 4,
    "models": 5,
    "encoding": 5,
    "formats": 6,
    "device": 6,
    "datasets": 7,
    "trainer": 8,
    "reports": 9,
    "quick": 9,
    "testing": 9,
    "cli": 10,
    "__main__": 11,
    "__init__": 11,
}
"""Layer of each top-level package and module, from the lowest."""
PARTS_OF_CORE = {"offsets"}
"""Public modules that belong to `core`: they import modules of it, and are imported by others."""


def get_package(module: str) -> str:
    """Returns the package of a module: `core` for `core.ragged`."""
    first = module.split(".", maxsplit=1)[0]
    return "core" if first in PARTS_OF_CORE else first


def get_layer(module: str) -> int:
    """Returns the layer of a module."""
    return LAYERS[get_package(module)]


def iter_modules() -> dict[str, Path]:
    """Returns the path of each module by name, such as `core.ragged`."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted(ROOT.rglob("*.py"))
    }


def parse_imports(source: str, name: str, module_names: Mapping[str, object]) -> set[str]:
    """Returns the modules of tokjax that a source file imports, including imports inside functions."""
    imported: set[str] = set()
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
                imported.add(inner if inner in module_names else base if base in module_names else package)
        elif isinstance(node, ast.Import):
            imported |= {
                [*alias.name.split(".", 1), "__init__"][1]
                for alias in node.names
                if alias.name.split(".")[0] == "tokjax"
            }
    return imported


def read_imports() -> dict[str, set[str]]:
    """Returns the imports of each module of tokjax."""
    module_names = iter_modules()
    return {
        name: parse_imports(path.read_text("utf-8"), name, module_names)
        for name, path in module_names.items()
    }
