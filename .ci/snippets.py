"""Run the Python that a documentation page shows, in one fresh process, as a reader of the page would.

python .ci/snippets.py --requirements PAGE   print what the first `pip install` on the page installs
python .ci/snippets.py PAGE                  run the page's snippets in their order, from the project's root
"""

import re
import shlex
import sys
import textwrap
from pathlib import Path

_SNIPPET = re.compile(r"^( *)```python([^\n]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)  # (indented in tabs)
_INSTALL = re.compile(r"\bpip install ([^\n`&]+)")


def shown_snippets(page):
    """Yields `(line, code)` of the blocks that readers see. Without `source=`, only the output is shown."""
    for found in _SNIPPET.finditer(page):
        _, options, code = found.groups()
        if "exec=" not in options or "source=" in options:
            yield page.count("\n", 0, found.start()) + 1, textwrap.dedent(code)


def requirements(page, name):
    """Returns what the page's install line installs. A page that shows code has to have one."""
    found = _INSTALL.search(page)
    if found is None:
        sys.exit(f"error: {name} shows Python code, but has no line with `pip install`")
    return [word for word in shlex.split(found[1]) if not word.startswith("-")]


def run(page, name):
    """Runs all shown snippets in one namespace. A traceback names the page and the line in it."""
    sys.path[0] = str(Path.cwd())
    namespace = {"__name__": "__main__"}
    for line, code in shown_snippets(page):
        exec(compile("\n" * line + code, name, "exec"), namespace)


if __name__ == "__main__":
    name = sys.argv[-1]
    page = Path(name).read_text("utf-8")
    if sys.argv[1] != "--requirements":
        run(page, name)
    elif any(shown_snippets(page)):
        print("\n".join(requirements(page, name)))
