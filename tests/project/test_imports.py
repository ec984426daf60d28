"""Tests of `import tokjax`: it is cheap, loads names lazily, and has all documented names."""

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tokjax
from tokjax.models.method_hints import suggest_function

SLOW_MODULES = {"jax", "sentencepiece", "regex", "rich", "typer", "matplotlib", "jinja2"}


STATEMENTS = [
    "import tokjax",
    "import tokjax.datasets, tokjax.reports",
    "tokjax.TokenizationResult; tokjax.pack_blocks; tokjax.sentencepiece; tokjax.models.sample_encode",
    "tokjax.reports.vocabulary_report; tokjax.reports.report_tables",
    "tokjax.pack_blocks(tokjax.ragged_from_rows([[1, 2]]), block_size=2, pad_id=0)",
    "tokjax.show_batch(tokjax.ragged_from_rows([[97]]), tokjax.byte_level())",
    "import tokjax.trainer, tokjax.trainer.counting, tokjax.datasets.writer",  # as in workers
    "import tokjax.cli.commands",
    "import regex",
]


def find_loaded_modules(statement):
    """Returns the slow modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*({SLOW_MODULES!r} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_modules_are_loaded_when_they_are_needed():
    """One interpreter runs statements, and prints the loaded modules after each of them."""
    code = "\n".join(["import sys", *(f"{statement}\nprint(*sys.modules)" for statement in STATEMENTS)])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *libraries, workers, command, check = (set(line.split()) for line in run.stdout.splitlines())
    for statement, modules in zip(STATEMENTS, libraries, strict=False):
        assert not modules & SLOW_MODULES, statement
    assert {"tokjax.datasets", "tokjax.reports"} <= libraries[1]
    lazy = {"tokjax.datasets.writer", "tokjax.reports.vocabulary_statistics", "tokjax.core.protocol"}
    assert not libraries[1] & lazy
    assert "jax" not in workers | command
    assert "regex" in check


def test_extras_in_errors_exist():
    root = Path(tokjax.__file__).parent
    extras_in_errors = {
        extra
        for path in root.rglob("*.py")
        for extra in re.findall(r'import_optional\([^)]*extra="([^"]+)"', path.read_text())
    }
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert {"chat", "grain"} <= extras_in_errors <= extras.keys()


def find_namespaces():
    return [value for name in tokjax.__all__ if inspect.ismodule(value := getattr(tokjax, name))]


def test_all_names_resolve():
    for module in (tokjax, *find_namespaces()):
        for name in module.__all__:
            assert getattr(module, name) is not None
        assert dir(module) == sorted(module.__all__)


def test_loaders_and_fields_are_in_the_namespace_of_datasets():
    top = {name for name in tokjax.__all__ if name.endswith(("Loader", "Field"))}
    assert top <= set(tokjax.datasets.__all__)
    assert all(getattr(tokjax, name) is getattr(tokjax.datasets, name) for name in top)


def test_unknown_name():
    with pytest.raises(AttributeError, match="^tokjax has no attribute 'encode_everything'$"):
        importlib.import_module("tokjax").encode_everything  # noqa: B018


def test_unknown_name_that_a_namespace_has():
    with pytest.raises(AttributeError, match=r"no attribute 'align_spans'; use tokjax.align.align_spans$"):
        importlib.import_module("tokjax").align_spans  # noqa: B018


def test_suggestions_search_all_namespaces():
    for module in find_namespaces():
        name = next(name for name in module.__all__ if name not in tokjax.__all__)
        assert suggest_function(name, tokjax) == f"; use {module.__name__}.{name}"


def test_namespaces_export_no_modules():
    for module in find_namespaces():
        assert not [name for name in module.__all__ if inspect.ismodule(getattr(module, name))]
