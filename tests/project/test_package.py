"""Tests that versions and dependencies are the same in all files of the project."""

import re
import tomllib
from pathlib import Path

import tokjax
from tokjax.datasets import manifest
from tokjax.datasets.loaders import base
from tokjax.formats import tokjax_json
from tokjax.trainer import bundles

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
DEVELOPMENT_EXTRAS = {"test", "test-all", "dev", "benchmarks", "docs"}
PINNED_TEST_DEPENDENCIES = {"orbax-checkpoint"}


def get_lower_bounds():
    """Returns the lower bound of each library in the dependencies and the extras of users, by name."""
    extras = PROJECT["optional-dependencies"]
    requirements = [PROJECT["dependencies"], *(extras[name] for name in extras.keys() - DEVELOPMENT_EXTRAS)]
    return dict(re.match(r"([\w-]+)>=([\w.]+)", line).groups() for lines in requirements for line in lines)


def test_ci_pins_the_lower_bounds():
    lines = (ROOT / ".ci" / "oldest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {name: pinned[name] for name in pinned.keys() - PINNED_TEST_DEPENDENCIES} == get_lower_bounds()


def test_lower_bounds_of_test_extras():
    bounds, extras = get_lower_bounds(), PROJECT["optional-dependencies"]
    tested = dict(re.findall(r"([\w-]+)>=([\w.]+)", "\n".join(extras["test"] + extras["test-all"])))
    assert {name: tested[name] for name in tested.keys() & bounds} == {
        name: bounds[name] for name in tested.keys() & bounds
    }


def test_ci_tests_all_python_versions():
    declared = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    tested = set(re.findall(r"\n *test_with \w+ (3\.\d+)", (ROOT / ".ci" / "matrix").read_text()))
    assert declared == tested
    assert PROJECT["requires-python"] == f">={min(declared, key=lambda version: int(version[2:]))}"


def test_version_in_citation_and_changelog():
    citation_version = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert citation_version.group(1) == tokjax.__version__
    assert f"\n## [{tokjax.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def read_cells(page, heading):
    """Returns the second cell of each row of a table by the first cell, up to its parenthesis or comma."""
    table = page.split(heading)[1].split("\n\n")[0]
    rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|"))
    return {re.split(r" [(,]|, ", row[0])[0]: row[1] for row in rows if len(row) > 1}


def test_versions_in_docs():
    page = (ROOT / "docs" / "versioning.md").read_text("utf-8")
    assert read_cells(page, "| file | current version | field |\n|---|---|---|\n") == {
        "dataset": str(manifest.SCHEMA_VERSION),
        "tokenizer": str(tokjax_json.VERSION),
        "training bundle": str(bundles._VERSION),
        "state of a loader": str(base.STATE_VERSION),
    }
    bounds = get_lower_bounds()
    assert read_cells(page, "| | from |\n|---|---|\n") == {
        "Python": PROJECT["requires-python"].removeprefix(">="),
        "NumPy": bounds["numpy"],
        "JAX": bounds["jax"],
    }
