"""The files of the page on extending do what that page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture
def files(tmp_path):
    """A folder with the blocks of code that begin with the name of a file."""
    blocks = re.findall(
        r"^```py(?:thon)?\n# (\w+\.py)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    for name, source in blocks:
        (tmp_path / name).write_text(source, "utf-8")
    assert {name for name, _ in blocks} == {"lowered.py", "test_lowered.py", "tagged.py"}
    return tmp_path


def run(folder, *command):
    return subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_tests_of_the_tokenizer_pass(files):
    ran = run(files, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_lowered.py")
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"\b1\d passed", ran.stdout), ran.stdout


@pytest.mark.slow
def test_the_field_keeps_its_contract(files):
    ran = run(files, "tagged.py")
    assert ran.returncode == 0, ran.stderr
