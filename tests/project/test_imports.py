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

SLOW_MODULES = ("jax", "sentencepiece", "regex", "rich", "typer", "matplotlib", "jinja2")


def find_loaded_modules(statement):
    """Returns the slow modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*[m for m in {SLOW_MODULES!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_import_loads_no_slow_modules():
    assert find_loaded_modules("import tokjax") == []


def test_extras_in_errors_exist():
    root = Path(tokjax.__file__).parent
    extras_in_errors = {
        extra
        for path in root.rglob("*.py")
        for extra in re.findall(r'import_optional\([^)]*extra="([^"]+)"', path.read_text())
    }
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert {"report", "grain"} <= extras_in_errors <= extras.keys()


def test_check_finds_slow_modules():
    assert "regex" in find_loaded_modules("import tokjax, regex")


def test_names_without_jax_do_not_load_it():
    assert find_loaded_modules("import tokjax; tokjax.TokenizationResult; tokjax.pack_blocks") == []


@pytest.mark.parametrize("module", ["tokjax.trainer", "tokjax.trainer.counting", "tokjax.datasets.writer"])
def test_workers_never_load_jax(module):
    assert "jax" not in find_loaded_modules(f"import {module}")


def test_batching_on_numpy_never_loads_jax():
    code = "import tokjax; tokjax.pack_blocks(tokjax.ragged_from_rows([[1, 2]]), block_size=2, pad_id=0)"
    assert "jax" not in find_loaded_modules(code)


def test_command_starts_without_jax():
    assert "jax" not in find_loaded_modules("import tokjax.cli.commands")


def test_report_functions_load_no_slow_modules():
    names = ("vocabulary_report", "report_tables", "save_report_html")
    code = "\n".join(["import tokjax", *(f"tokjax.reports.{name}" for name in names)])
    assert find_loaded_modules(code) == []


def find_namespaces():
    return [value for name in tokjax.__all__ if inspect.ismodule(value := getattr(tokjax, name))]


def test_namespaces_load_modules_on_first_use():
    code = "import sys, tokjax.datasets, tokjax.reports; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert {"tokjax.datasets", "tokjax.reports"} <= loaded
    assert not loaded & {"tokjax.datasets.writer", "tokjax.reports.html_report", "tokjax.core.protocol"}


def test_all_names_resolve():
    for module in (tokjax, *find_namespaces()):
        for name in module.__all__:
            assert getattr(module, name) is not None
        assert dir(module) == sorted(module.__all__)


def test_public_objects_have_docstrings():
    for module in (tokjax, *find_namespaces()):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                assert value.__doc__, f"{module.__name__}.{name}"


def test_loaders_and_fields_are_in_both_namespaces():
    both = set(tokjax.__all__) & set(tokjax.datasets.__all__)
    assert not [
        name
        for name in {*tokjax.__all__, *tokjax.datasets.__all__} - both
        if name.endswith(("Loader", "Field"))
    ]


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
