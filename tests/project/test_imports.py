"""`import tokjax` is cheap, and its names are what they say."""

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tokjax
from tokjax.models import method_hints

HEAVY = ("jax", "sentencepiece", "regex", "rich", "typer", "matplotlib", "jinja2")


def find_loaded_modules(statement):
    """Which of the heavy modules a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_import_loads_nothing_heavy():
    assert find_loaded_modules("import tokjax") == []


def test_extras_in_errors_exist():
    root = Path(tokjax.__file__).parent
    named = {
        extra
        for path in root.rglob("*.py")
        for extra in re.findall(r'import_optional\([^)]*extra="([^"]+)"', path.read_text())
    }
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"]
    assert {"report", "grain", "torch"} <= named <= extras.keys()


def test_the_check_can_fail():
    assert "regex" in find_loaded_modules("import tokjax, regex")


def test_a_name_loads_what_it_needs():
    assert find_loaded_modules("import tokjax; tokjax.TokenizationResult; tokjax.pack_blocks") == []


@pytest.mark.parametrize("module", ["tokjax.trainer", "tokjax.trainer.counting", "tokjax.datasets.writer"])
def test_workers_never_load_jax(module):
    assert "jax" not in find_loaded_modules(f"import {module}")


def test_batching_on_numpy_never_loads_jax():
    code = "import tokjax; tokjax.pack_blocks(tokjax.ragged_from_rows([[1, 2]]), block_size=2, pad_id=0)"
    assert "jax" not in find_loaded_modules(code)


def test_the_command_starts_without_jax():
    assert "jax" not in find_loaded_modules("import tokjax.cli.commands")


def test_reports_load_what_shows_them_only_when_they_are_shown():
    code = "import tokjax; tokjax.reports.vocabulary_report; tokjax.reports.report_tables; tokjax.reports.save_report_html"
    assert find_loaded_modules(code) == []


def test_all_names_resolve():
    for name in tokjax.__all__:
        assert getattr(tokjax, name) is not None
    assert set(tokjax.__all__) <= set(dir(tokjax))


def test_public_objects_have_docstrings():
    for name in tokjax.__all__:
        value = getattr(tokjax, name)
        if callable(value):
            assert value.__doc__, name


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="^tokjax has no attribute 'encode_everything'$"):
        importlib.import_module("tokjax").encode_everything  # noqa: B018


def test_a_name_of_a_namespace():
    with pytest.raises(AttributeError, match=r"no attribute 'align_spans'; use tokjax.align.align_spans$"):
        importlib.import_module("tokjax").align_spans  # noqa: B018


def test_all_namespaces_are_searched_for_names():
    modules = {name for name in tokjax.__all__ if inspect.ismodule(getattr(tokjax, name))}
    assert modules == set(method_hints._NAMESPACES)


def test_names_of_namespaces_are_not_modules():
    for namespace in method_hints._NAMESPACES:
        module = getattr(tokjax, namespace)
        assert not [name for name in module.__all__ if inspect.ismodule(getattr(module, name))]
