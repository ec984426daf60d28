"""What the project's files say of it in several places, they say alike."""

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
FOR_DEVELOPERS = {"test", "test-all", "dev", "benchmarks", "docs"}
TESTED_WITH_OLDEST = {"orbax-checkpoint", "pyparsing"}


def lower_bounds():
    """The oldest version of each library that users get, by name."""
    extras = PROJECT["optional-dependencies"]
    lists = [PROJECT["dependencies"], *(extras[name] for name in extras.keys() - FOR_DEVELOPERS)]
    return dict(re.match(r"([\w-]+)>=([\w.]+)", wanted).groups() for some in lists for wanted in some)


def test_the_oldest_versions_are_tested():
    lines = (ROOT / ".ci" / "oldest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert {name: pinned[name] for name in pinned.keys() - TESTED_WITH_OLDEST} == lower_bounds()


def test_extras_and_tests_ask_for_the_same():
    bounds, extras = lower_bounds(), PROJECT["optional-dependencies"]
    tested = dict(re.findall(r"([\w-]+)>=([\w.]+)", "\n".join(extras["test"] + extras["test-all"])))
    assert {name: tested[name] for name in tested.keys() & bounds} == {
        name: bounds[name] for name in tested.keys() & bounds
    }


def test_every_python_is_tested():
    named = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    tested = set(re.findall(r"^test_with \w+ (3\.\d+)", (ROOT / ".ci" / "matrix").read_text(), re.MULTILINE))
    assert named == tested
    assert PROJECT["requires-python"] == f">={min(named, key=lambda version: int(version[2:]))}"


def test_one_version():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited.group(1) == tokjax.__version__
    assert f"\n## [{tokjax.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def read_cells(page, heading):
    """The second cell of each row of a table, by the first, as far as that has plain words."""
    table = page.split(heading)[1].split("\n\n")[0]
    rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|"))
    return {re.split(r" [(,]|, ", row[0])[0]: row[1] for row in rows if len(row) > 1}


def test_versions_in_the_docs_are_those_of_the_code():
    page = (ROOT / "docs" / "versioning.md").read_text("utf-8")
    assert read_cells(page, "| file | current version | field |\n|---|---|---|\n") == {
        "dataset": str(manifest.SCHEMA_VERSION),
        "tokenizer": str(tokjax_json.VERSION),
        "training bundle": str(bundles._VERSION),
        "state of a loader": str(base.STATE_VERSION),
    }
    bounds = lower_bounds()
    assert read_cells(page, "| | from |\n|---|---|\n") == {
        "Python": PROJECT["requires-python"].removeprefix(">="),
        "NumPy": bounds["numpy"],
        "JAX": bounds["jax"],
    }
