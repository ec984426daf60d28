"""The tokenizer of the page on extending passes the checks as that page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def files_of(page):
    """The blocks of code that begin with the name of a file."""
    return dict(re.findall(r"^```py(?:thon)?\n# (\w+\.py)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))


def test_the_tests_of_the_page_pass(tmp_path):
    files = files_of((ROOT / "docs" / "extending.md").read_text("utf-8"))
    assert set(files) == {"lowered.py", "test_lowered.py"}
    for name, source in files.items():
        (tmp_path / name).write_text(source, "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert re.search(r"\b1\d passed", ran.stdout), ran.stdout
