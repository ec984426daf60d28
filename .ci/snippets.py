"""Runs the Python snippets of a documentation page in one process, as a reader of the page would.

python .ci/snippets.py --requirements PAGE   prints the requirements of the first `pip install` on the page
python .ci/snippets.py --print PAGE          prints the page's snippets
python .ci/snippets.py PAGE                  runs the page's snippets in order, in the project's root
"""

import re
import shlex
import sys
import textwrap
from pathlib import Path

# Snippets in content tabs are indented.
_SNIPPET = re.compile(r"^( *)```python([^\n]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_INSTALL = re.compile(r"\bpip install ([^\n`&]+)")


def iter_visible_snippets(page):
    """Yields `(line, code)` of the visible blocks. With `exec=` but no `source=`, only output is."""
    for match in _SNIPPET.finditer(page):
        _, options, code = match.groups()
        if "exec=" not in options or "source=" in options:
            yield page.count("\n", 0, match.start()) + 1, textwrap.dedent(code)


def find_requirements(page, name):
    """Returns the requirements in the page's install line. Every page with visible code must have one."""
    match = _INSTALL.search(page)
    if match is None:
        sys.exit(f"error: {name} shows Python code, but has no line with `pip install`")
    return [word for word in shlex.split(match[1]) if not word.startswith("-")]


def run_snippets(page, name):
    """Runs all visible snippets in one namespace. Tracebacks have the name and the line of the page."""
    sys.path[0] = str(Path.cwd())
    namespace = {"__name__": "__main__"}
    for line, code in iter_visible_snippets(page):
        exec(compile("\n" * line + code, name, "exec"), namespace)


if __name__ == "__main__":
    name = sys.argv[-1]
    page = Path(name).read_text("utf-8")
    if sys.argv[1] == "--print":
        print("\n".join(code for _, code in iter_visible_snippets(page)))
    elif sys.argv[1] != "--requirements":
        run_snippets(page, name)
    elif any(iter_visible_snippets(page)):
        print("\n".join(find_requirements(page, name)))
