"""Render the records in `results/` as the tables of `benchmarks/README.md`: `python -m benchmarks.tables`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS

PAGE = Path(__file__).parent / "README.md"


def encode_table(record: dict[str, Any]) -> str:
    """Megabytes a second, warm and cold, times tiktoken's rate on one thread; a column a text."""
    results = record["results"]
    texts = list(results)
    rows = [
        "| | threads | " + " | ".join(f"{text}, warm | {text}, cold" for text in texts) + " | memory, MB |",
        "|---|---" + "|---" * (2 * len(texts) + 1) + "|",
    ]
    for run in results[texts[0]]["medians"]:
        name, threads = run.split("; ")
        cells = [
            _rate(results[text]["medians"], run, measure) for text in texts for measure in ("warm", "cold")
        ]
        memory = max(results[text]["medians"][run]["megabytes_over_documents"] for text in texts)
        rows.append(f"| {name} | {threads} | " + " | ".join(cells) + f" | {memory:.0f} |")
    machine, versions = record["machine"], record["versions"]
    named = ", ".join(f"{package} {number}" for package, number in versions.items())
    host = f"{machine['processor']}, {machine['cores']} cores, Python {record['python']}"
    sizes = ", ".join(f"{text} {results[text]['input']['bytes'] / 1e6:.0f} MB" for text in texts)
    note = f"MB/s, in brackets times tiktoken on one thread. {sizes}. {host}, {named}; {record['date']}."
    return "\n".join([*rows, "", note])


def _rate(medians: dict[str, dict[str, float]], run: str, measure: str) -> str:
    key = f"{measure}_megabytes_per_second"
    return f"{medians[run][key]:.1f} ({medians[run][key] / medians['tiktoken, ids; 1'][key]:.1f})"


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
