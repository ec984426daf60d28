"""Tests of the README and the docs: snippets run, links resolve, tables match the code."""

import re
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
SLOW_PAGES = {
    *("batching.md", "clusters.md", "datasets.md", "determinism.md", "extending.md", "on-device.md"),
    *("training.md", "training-libraries.md", "vocabulary-report.md"),
}
SNIPPETS = [
    pytest.param(
        block,
        id=f"{page.name}-{i}",
        marks=[pytest.mark.slow] if page.name in SLOW_PAGES else [],
    )
    for page in PAGES
    if page != ROOT / "README.md"  # `test_results_of_readme_snippet` runs it
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run(snippet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for library in re.findall(r"^(?:import|from) (flax|grain|orbax)\b", snippet, re.MULTILINE):
        pytest.importorskip(library)
    promotion = "standard" if "import optax" in snippet else "strict"  # Optax takes powers of floats and ints
    with jax.numpy_dtype_promotion(promotion):
        exec(compile(snippet, "snippet", "exec"), {"__name__": "snippet"})


def test_pages_have_snippets():
    assert len(SNIPPETS) >= 2


def test_results_of_readme_snippet():
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    names = {}
    exec(block, names)
    assert "".join(names["text"]) == "naïve café"
    assert names["labels"].shape == names["packed"].ids.shape
    assert names["packed"].ids.shape[1] == 64


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_readme_has_install_and_test_commands():
    readme = (ROOT / "README.md").read_text()
    assert "pip install '.[examples]' && python examples/train_lm.py" in readme
    assert "pip install -e '.[test]' && pytest" in readme
    ci = (ROOT / ".ci" / "run").read_text()
    headings = re.findall(r'^run_readme_command "(.+)"', ci, re.MULTILINE)
    assert len(headings) == 2
    assert all(f"\n## {heading}\n" in readme for heading in headings)


def test_layers_in_docs():
    from tests.support.import_layers import LAYERS

    rows = re.findall(
        r"^\| (\d+) \| ([^|]+) \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE
    )
    documented = {
        name.rstrip("/"): int(layer) for layer, names in rows for name in re.findall(r"`([^`]+)`", names)
    }
    undocumented = {"__main__", "__init__"}
    assert documented == {name: layer for name, layer in LAYERS.items() if name not in undocumented}


def test_benchmark_tables_match_the_records():
    from benchmarks.render import PAGES, render_page

    for page in PAGES:
        assert render_page(page.read_text()) == page.read_text()
