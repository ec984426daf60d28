"""Tables of training vocabularies, and of training and encoding many texts."""

from __future__ import annotations

from math import nan
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.names import IDS, OURS, THEIRS, TRAINING, format_run_name
from benchmarks.tables.common import (
    compute_megabytes_per_second,
    format_count,
    format_host,
    format_markdown_table,
    format_skipped,
    get_label,
    get_measurement,
    get_median,
    get_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.record import Record

OTHER_TOKENIZERS = (f"tokie, {IDS}", f"gigatoken, {IDS}", THEIRS)


def make_train_table(record: Record) -> str:
    """Renders seconds from file to vocabulary, the ratio to tokjax, and the peak memory."""
    columns = list(dict.fromkeys((one.task, one.at) for one in record.select()))
    header = ["trainer", *(f"{task}, {format_count(size)}" for task, size in columns), "memory, MB"]
    rows = []
    for name in get_names(record.select(), "contender"):
        measurements = [get_measurement(record, task=task, at=size, contender=name) for task, size in columns]
        cells = ["" if one is None else f"{one.median:.1f} ({one.ratio:.2f})" for one in measurements]
        rows.append(
            [name, *cells, format_count(max(one.median for one in record.select("memory", contender=name)))]
        )
    workers = record.settings["workers"]
    details = f"{format_host(record)}{format_skipped(record)}"
    note = f"Seconds; in brackets the ratio to tokjax. {workers} workers. {details}"
    return format_markdown_table(header, rows, note)


def make_texts_table(record: Record) -> str:
    """Renders training and encoding of each text, and the median and the worst of each ratio."""
    texts = list(dict.fromkeys(one.task for one in record.select("cold")))
    threads = record.settings["workers"]
    rows, ratios = [], []
    for text in texts:
        training = {one.contender: one for one in record.select("time", task=f"{text}, {TRAINING}")}
        ours = training["tokjax"]
        fastest = min((one.median for name, one in training.items() if name != "tokjax"), default=nan)
        cells, text_ratios = [f"{ours.median:.2f} s"], [ours.median / fastest]
        for measure in ("cold", "warm"):
            rates = {
                name: compute_megabytes_per_second(one)
                for name in (OURS, *OTHER_TOKENIZERS)
                if (one := get_measurement(record, measure, task=text, contender=format_run_name(name, 1)))
            }
            cells.append(f"{rates[OURS]:.0f}")
            text_ratios += [rates[OURS] / rates.get(name, nan) for name in OTHER_TOKENIZERS]
            several = get_measurement(record, measure, task=text, contender=format_run_name(OURS, threads))
            text_ratios.append(compute_megabytes_per_second(several) / rates[OURS] if several else nan)
        rows.append([text, f"{ours.extra['bytes'] / 1e6:.0f}", *_join_cells(cells, text_ratios)])
        ratios.append(text_ratios)
    columns = list(zip(*ratios, strict=True))
    worst = [max(columns[0]), *map(min, columns[1:])]
    for name, values in (("median", list(map(median, columns))), ("worst", worst)):
        rows.append([f"**{name}**", "", *_join_cells(["", "", ""], values)])
    others = [name.removesuffix(f", {IDS}") for name in OTHER_TOKENIZERS]
    header = ["text", "MB", "training", "/ fastest other"]
    for measure in ("cold", "warm"):
        header += [f"{measure}, MB/s", *(f"x {other}" for other in others), f"x{threads} threads"]
    note = (
        f"Training of {format_count(record.settings['vocab_size'])} tokens, {threads} workers, in seconds, "
        "and the ratio to the faster of gigatoken and rustbpe (below 1: tokjax is faster). Encoding with one "
        f"thread, and its ratios to other libraries (above 1: tokjax is faster). {format_host(record)}"
        f"{format_skipped(record)}"
    )
    return format_markdown_table(header, rows, note)


def _join_cells(cells: list[str], ratios: Sequence[float]) -> list[str]:
    """Returns the cells of a row: one of training, then its ratio, then each rate and its ratios."""
    training, *rates = cells
    first, *others = (f"{ratio:.2f}" for ratio in ratios)
    size = len(others) // len(rates)
    groups = [[rate, *others[i * size : (i + 1) * size]] for i, rate in enumerate(rates)]
    return [training, first, *(cell for group in groups for cell in group)]


def make_phases_table(record: Record) -> str:
    """Renders the phases of training in tokjax: seconds of counting and merging, and memory."""
    rows = []
    for one in record.select("counting"):
        where = {"task": one.task, "at": one.at, "contender": one.contender}
        merging, memory = (
            get_median(record, "merging", **where),
            get_median(record, "memory", **where),
        )
        rows.append(
            [one.task, format_count(one.at), f"{one.median:.2f} s", f"{merging:.2f} s", format_count(memory)]
        )
    return format_markdown_table(["text", "vocabulary", "counting", "merging", "memory, MB"], rows)


def make_algorithms_table(record: Record) -> str:
    """Renders seconds of the merge algorithms, with one row per text and vocabulary."""
    algorithms = get_names(record.measurements, "contender")
    rows = []
    for task, size in dict.fromkeys((one.task, one.at) for one in record.measurements):
        measurements = [
            next(
                one for one in record.measurements if (one.task, one.at, one.contender) == (task, size, name)
            )
            for name in algorithms
        ]
        counts = measurements[0].extra
        text = f"{counts['bytes'] / 1e6:.3g} MB, {format_count(counts['words'])} distinct pre-tokens"
        cells = [one.left_out or f"{one.median:.3g} s" for one in measurements]
        rows.append([text, format_count(size), *cells])
    header = ["text", "vocabulary", *map(get_label, algorithms)]
    return format_markdown_table(header, rows, format_host(record))
