"""Render the records in `results/` as the tables of `benchmarks/README.md`: `python -m benchmarks.tables`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS

PAGE = Path(__file__).parent / "README.md"


def encode_table(record: dict[str, Any]) -> str:
    """Megabytes a second, and how many times tiktoken's rate that is; a column a text."""
    texts = list(record["results"])
    rows = ["| MB/s (times tiktoken) | " + " | ".join(texts) + " |", "|---" * (len(texts) + 1) + "|"]
    for name in record["results"][texts[0]]["times_tiktoken"]:
        cells = [
            f"{result['median_megabytes_per_second'][name]:.1f} ({result['times_tiktoken'][name]:.2f})"
            for result in record["results"].values()
        ]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    machine, versions = record["machine"], record["versions"]
    named = ", ".join(f"{package} {number}" for package, number in versions.items())
    host = f"{machine['processor']}, {machine['cores']} cores, Python {record['python']}"
    note = f"{host}, {named}; {record['date']}."
    return "\n".join([*rows, "", note])


TABLES = {"encode": encode_table}


def render(page: str) -> str:
    """The page with each table between its markers replaced."""
    for name, table_of in TABLES.items():
        table = table_of(json.loads((RESULTS / f"{name}.json").read_text()))
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = f"{before}{start}{table}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
