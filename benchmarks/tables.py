"""Render the records in `results/` as the tables of two READMEs: `python -m benchmarks.tables`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.contenders import IDS, OFFSETS
from benchmarks.record import RESULTS

PAGES = [Path(__file__).parent / "README.md", Path(__file__).parent.parent / "README.md"]


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
    sizes = ", ".join(f"{text} {results[text]['input']['bytes'] / 1e6:.0f} MB" for text in texts)
    note = f"MB/s, in brackets times tiktoken on one thread. {sizes}. {_host(record)}"
    return "\n".join([*rows, "", note])


def _rate(medians: dict[str, dict[str, float]], run: str, measure: str) -> str:
    key = f"{measure}_megabytes_per_second"
    return f"{medians[run][key]:.1f} ({medians[run][key] / medians['tiktoken, ids; 1'][key]:.1f})"


def summary_table(record: dict[str, Any]) -> str:
    """One row a library: warm rates on one thread, of ids and of ids with offsets and masks."""
    results = record["results"]
    texts = list(results)
    rows = [
        "| MB/s, one thread | "
        + " | ".join(f"ids, {text}" for text in texts)
        + " | with offsets and masks |",
        "|---" * (len(texts) + 2) + "|",
    ]
    runs = results[texts[0]]["medians"]
    for library in dict.fromkeys(run.split(",")[0] for run in runs):
        ids = [_warm(results[text]["medians"], f"{library}, {IDS}; 1") for text in texts]
        offsets = _warm(results[texts[0]]["medians"], f"{library}, {OFFSETS}; 1")
        rows.append(f"| {library} | " + " | ".join([*ids, offsets]) + " |")
    return "\n".join(rows)


def growth_table(record: dict[str, Any]) -> str:
    """Seconds by size, what the last doubling multiplies them with, memory, and tiktoken's seconds."""
    sizes = record["sizes"]
    rows = [
        "| input | "
        + " | ".join(f"{size / 1e6:g} MB" for size in sizes)
        + " | last doubling | memory, MB | tiktoken, the largest |",
        "|---" * (len(sizes) + 4) + "|",
    ]
    for name, medians in record["medians"].items():
        ours = [medians[f"tokjax, {IDS}; {size}"] for size in sizes]
        seconds = [row["cold_seconds"] for row in ours]
        theirs = medians.get(f"tiktoken, {IDS}; {sizes[-1]}")
        cells = [
            *(f"{value:.3f} s" for value in seconds),
            f"{seconds[-1] / seconds[-2]:.1f} times",
            f"{ours[-1]['megabytes_over_documents']:.0f}",
            f"{theirs['cold_seconds']:.3f} s" if theirs else "crashes, or takes no bytes",
        ]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*rows, "", _host(record)])


def short_table(record: dict[str, Any]) -> str:
    """Microseconds a call, in brackets times tiktoken's."""
    by_text = record["microseconds"]
    libraries = list(next(iter(by_text.values())))
    rows = ["| one text | " + " | ".join(libraries) + " |", "|---" * (len(libraries) + 1) + "|"]
    for name, taken in by_text.items():
        cells = [f"{taken[one]:.1f} ({taken[one] / taken['tiktoken']:.1f})" for one in libraries]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*rows, "", f"Microseconds, in brackets times tiktoken. {_host(record)}"])


def train_table(record: dict[str, Any]) -> str:
    """Seconds from file to vocabulary, in brackets times tokjax's, and the most memory; a column a size."""
    columns = [
        (megabytes, size)
        for megabytes, result in record["results"].items()
        for size in dict.fromkeys(int(run.split("; ")[0]) for run in result["medians"])
    ]
    names = dict.fromkeys(
        run.split("; ")[1] for result in record["results"].values() for run in result["medians"]
    )
    rows = [
        "| | " + " | ".join(f"{megabytes} MB, {size:,}" for megabytes, size in columns) + " | memory, MB |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for name in names:
        cells = [_seconds(record["results"][megabytes]["medians"], size, name) for megabytes, size in columns]
        memory = max(
            row["megabytes"]
            for result in record["results"].values()
            for run, row in result["medians"].items()
            if run.endswith(f"; {name}")
        )
        rows.append(f"| {name} | " + " | ".join(cells) + f" | {memory:,.0f} |")
    note = f"Seconds, in brackets times tokjax; {record['workers']} workers. {_host(record)}"
    return "\n".join([*rows, "", note])


def train_summary(record: dict[str, Any]) -> str:
    """Seconds for 32,000 tokens, a row a library and a column a text."""
    results = record["results"]
    rows = [
        "| seconds, 32,000 tokens | " + " | ".join(f"{megabytes} MB" for megabytes in results) + " |",
        "|---" * (len(results) + 1) + "|",
    ]
    for name in [run.split("; ")[1] for run in results["120"]["medians"] if run.startswith("32000; ")]:
        cells = [f"{result['medians'][f'32000; {name}']['seconds']:.1f}" for result in results.values()]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _seconds(medians: dict[str, dict[str, float]], size: int, name: str) -> str:
    row, ours = medians.get(f"{size}; {name}"), medians[f"{size}; tokjax"]["seconds"]
    return "" if row is None else f"{row['seconds']:.1f} ({row['seconds'] / ours:.2f})"


def phases_table(record: dict[str, Any]) -> str:
    """Where tokjax's time goes."""
    rows = ["| text | vocabulary | counting | merging | memory, MB |", "|---" * 5 + "|"]
    for megabytes, result in record["results"].items():
        for run, row in result["medians"].items():
            size, name = run.split("; ")
            if name == "tokjax":
                cells = [f"{row[phase]:.2f} s" for phase in ("counting", "merging")]
                shown = " | ".join([f"{megabytes} MB", f"{int(size):,}", *cells, f"{row['megabytes']:,.0f}"])
                rows.append(f"| {shown} |")
    return "\n".join(rows)


def ladder_table(record: dict[str, Any]) -> str:
    """Seconds to merge, one row a text and vocabulary."""
    ways = list(record["rungs"][0]["medians"])
    rows = ["| text | vocabulary | " + " | ".join(ways) + " |", "|---" * (len(ways) + 2) + "|"]
    for rung in record["rungs"]:
        about = rung["input"]
        cells = [
            "too long to wait for" if rung["medians"][way] is None else f"{rung['medians'][way]:.3g} s"
            for way in ways
        ]
        text = f"{about['bytes'] / 1e6:.3g} MB, {about['unique_words']:,} words"
        rows.append(f"| {text} | {about['vocab_size']:,} | " + " | ".join(cells) + " |")
    return "\n".join([*rows, "", _host(record)])


def kinds_table(record: dict[str, Any]) -> str:
    """Megabytes a second of tokjax and of each library, and how often the one is the other."""
    rows = ["| ids with offsets and masks | tokjax | the library | times |", "|---|---|---|---|"]
    for name, result in record["results"].items():
        ours, theirs = (result["megabytes_per_second"][who] for who in ("tokjax", "library"))
        rows.append(f"| {name} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.1f} |")
    note = f"MB/s, {record['input']['bytes'] / 1e6:.0f} MB, all cores. {_host(record)}"
    return "\n".join([*rows, "", note])


def loading_table(record: dict[str, Any]) -> str:
    """Tokens a second of each contender, and what they are of the roofline."""
    rates = record["batches"]["million_tokens_per_second"]
    roofline = rates["sequential roofline"]
    rows = ["| batches of 64 × 2,048, shuffled | million tokens a second | of the roofline |"]
    rows.append("|---|---|---|")
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        rows.append(f"| {name} | {rate:,.0f} | {rate / roofline:.3f} |")
    starting, writing = record["starting"], record["writing"]
    speed = writing["megabytes_per_second"]
    jumps = ", ".join(
        f"{1e3 * near:.2f} ms and {1e3 * far:.2f} ms ({kind})"
        for kind, (near, far) in ((kind, each.values()) for kind, each in record["far_away"].items())
    )
    checked, plain = (starting[name]["seconds_to_first_batch"] for name in ("with checksums", "without"))
    size = record["ids"] * 2 / 1e9
    more = (
        f"{record['ids'] / 1e6:,.0f} million ids, {size:.1f} GB, in the memory of the system. The "
        f"first batch of a fresh loader, and that of step 10^9: {jumps}. From opening to the first batch: "
        f"{checked:.2f} s with the checksums of all that it touches, {plain:.2f} s without; "
        f"{starting['without']['peak_megabytes']:.0f} MB at most after 200 batches, mapped pages among them. "
        f"Writing {writing['megabytes']:.0f} MB of text: {speed['writing']:.0f} MB/s, encoding alone "
        f"{speed['encoding']:.0f} ({speed['writing'] / speed['encoding']:.2f}); "
        f"{writing['bytes_per_token']:.4f} bytes a token on disk. {_host(record)}"
    )
    return "\n".join([*rows, "", more])


def batching_table(record: dict[str, Any]) -> str:
    """Milliseconds of each contender of each task, and how often the time of tokjax the others take."""
    rows = ["| task | | ms | times tokjax |", "|---|---|---|---|"]
    results = record["results"]
    tasks = {name: result for name, result in results.items() if name != "jitted"}
    tasks |= {f"{name}, jitted": result for name, result in results["jitted"].items()}
    for task, result in tasks.items():
        told = result["milliseconds"]
        own = next(iter(told.values()))
        for i, (name, milliseconds) in enumerate(told.items()):
            full = f", {result['fill'][name]:.2%} full" if name in result.get("fill", {}) else ""
            ratio = "" if i == 0 else f"{milliseconds / own:.2f}"
            rows.append(f"| {task if i == 0 else ''} | {name}{full} | {milliseconds:,.2f} | {ratio} |")
    return "\n".join([*rows, "", _host(record)])


def strategies_table(record: dict[str, Any]) -> str:
    """What each way to store costs, on disk and when it is loaded."""
    rows = ["| strategy | storage, of the text | 32 rows of up to 512 | padding |", "|---|---|---|---|"]
    for name, told in record["strategies"].items():
        rows.append(
            f"| {name} | {told['of_the_text']:.2f} | {told['milliseconds']:.2f} ms | {told['padding']:.0%} |"
        )
    return "\n".join(rows)


def _warm(medians: dict[str, dict[str, float]], run: str) -> str:
    return f"{medians[run]['warm_megabytes_per_second']:.1f}" if run in medians else ""


def _host(record: dict[str, Any]) -> str:
    machine = record["machine"]
    named = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
    where = f"{machine['processor']}, {machine['cores']} cores"
    return f"{where}, Python {record['python']}, {named}; {record['date']}."


TABLES = {
    "encode": ("encode", encode_table),
    "encode-summary": ("encode", summary_table),
    "growth": ("growth", growth_table),
    "short": ("short", short_table),
    "train": ("train", train_table),
    "train-phases": ("train", phases_table),
    "train-summary": ("train", train_summary),
    "ladder": ("ladder", ladder_table),
    "kinds": ("kinds", kinds_table),
    "loading": ("loading", loading_table),
    "strategies": ("loading", strategies_table),
    "batching": ("batching", batching_table),
}


def render(page: str) -> str:
    """The page with each table between its markers replaced."""
    for name, (benchmark, table_of) in TABLES.items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, found, rest = page.partition(start)
        if found:
            table = table_of(json.loads((RESULTS / f"{benchmark}.json").read_text()))
            _, _, after = rest.partition(end)
            page = f"{before}{start}{table}\n{end}{after}"
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render(path.read_text()))
