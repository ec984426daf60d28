"""The commands: `python -m benchmarks [SUITE ...]`, `python -m benchmarks corpus DIR`, `... render`."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from benchmarks.bench import QUICK_MEGABYTES, Bench
from benchmarks.corpus import fetch_corpus
from benchmarks.inputs import InputError, get_cache_directory
from benchmarks.record import RESULTS, RecordError, make_record, write_record
from benchmarks.render import get_tables, render_pages
from benchmarks.sources import OWN_MEGABYTES, Sources, find_sources
from benchmarks.suites import SUITES

if TYPE_CHECKING:
    from collections.abc import Callable

    from click import Context

console = Console(highlight=False)


class DefaultRunGroup(TyperGroup):
    """Commands, of which `run` need not be named."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Put `run` in front of what is no command."""
        named = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else ["run", *args])


app = typer.Typer(
    cls=DefaultRunGroup,
    help="Measure tokjax and its peers. `run` need not be named: python -m benchmarks encode --quick",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@dataclass(frozen=True)
class Options:
    """What the user wants of all suites."""

    sources: Sources
    quick: bool
    rounds: int | None
    megabytes: float | None
    threads: int
    install: bool
    out: Path


def exit_with_error(message: str) -> typer.Exit:
    """Say what is wrong, in a line."""
    console.print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    return typer.Exit(1)


@app.command()
def run(
    suites: Annotated[list[str] | None, typer.Argument(help="Which suites; all of them by default.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small inputs and one round: does it work at all?")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Name the suites, and measure nothing.")] = False,
    texts: Annotated[
        Path | None,
        typer.Option(help="A directory of *.txt files; by default this interpreter's Python code."),
    ] = None,
    ranks: Annotated[
        Path | None, typer.Option(help="Ranks in tiktoken's format; by default trained on the texts.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="How often each contender is measured.")] = None,
    megabytes: Annotated[float | None, typer.Option(help="Of each text at most.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Where several threads are measured.")] = 2,
    install: Annotated[
        bool, typer.Option(help="Install transformers 4 into an environment of its own, for one contender.")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where records go; by default benchmarks/results, of less than all benchmarks/cache."
        ),
    ] = None,
) -> None:
    """Run suites, and write a record of each."""
    if listed:
        for name, about in SUITES.items():
            console.print(f"{name:12} {about}", soft_wrap=True)
        return
    wanted = suites or list(SUITES)
    if unknown := [name for name in wanted if name not in SUITES]:
        raise exit_with_error(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    if megabytes is not None and megabytes <= 0:
        raise exit_with_error(f"--megabytes must be above 0, not {megabytes:g}")
    own = megabytes or (QUICK_MEGABYTES if quick else OWN_MEGABYTES)
    try:
        sources = find_sources(texts, ranks, own_megabytes=own)
    except InputError as error:
        raise exit_with_error(str(error)) from error
    if out is None:  # (what the pages show is not measured on less than all)
        part = "quick" if quick else "own" if rounds or megabytes else ""
        out = get_cache_directory() / part if part else RESULTS
    if out.exists() and not out.is_dir():
        raise exit_with_error(f"--out is no directory: {out}")
    options = Options(sources, quick, rounds, megabytes, threads, install, out)
    failed = run_all(wanted, options)
    if failed:
        raise typer.Exit(1)


def run_all(names: list[str], options: Options) -> list[str]:
    """Run suites one after the other; the names of those that failed."""
    outcomes = {}
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(names))
        for name in names:
            outcomes[name] = run_one(
                name, options, lambda doing, name=name: progress.update(bar, description=f"{name}: {doing}")
            )
            progress.advance(bar)
            progress.console.print(f"{name:12} {escape(outcomes[name] or 'done')}", soft_wrap=True)
    done = [name for name in names if not outcomes[name]]
    if options.quick:
        for name in done:
            console.print(f"\n{get_tables(name, options.out)}\n", markup=False, soft_wrap=True)
    console.print(f"{len(done)} of {len(names)} suites done; records are in {options.out}", soft_wrap=True)
    return [name for name in names if outcomes[name]]


def run_one(name: str, options: Options, say: Callable[[str], None]) -> str:
    """Run a suite and write its record; what went wrong, if anything."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as scratch:
        bench = Bench(
            options.sources,
            Path(scratch),
            say,
            quick=options.quick,
            num_rounds=options.rounds,
            max_megabytes=options.megabytes,
            threads=min(options.threads, os.cpu_count() or 1),
            install=options.install,
        )
        try:
            suite = import_module(f"benchmarks.suites.{name}")
            suite.measure(bench)
        except ImportError as error:
            return f"left out: {error.name} is not installed; pip install -e '.[benchmarks]'"
        except Exception as error:  # (the others go on)
            return f"failed: {type(error).__name__}: {error}"
    settings = {"quick": options.quick, "rounds": options.rounds or "as usual", **bench.settings}
    record = make_record(name, suite.PACKAGES, settings, bench.inputs.values(), bench.measurements)
    write_record(record, options.out)
    return ""


@app.command()
def corpus(
    directory: Annotated[
        Path, typer.Argument(help="Where to write en.txt, multi.txt, code.txt and large.txt.")
    ],
    megabytes: Annotated[
        float, typer.Option(help="Of each text at most, and five times that of large.txt.")
    ] = 100,
) -> None:
    """Fetch real text: documentation and manual pages from Debian packages, and Python code."""
    try:
        with console.status("") as status:
            written = fetch_corpus(directory, megabytes, status.update)
    except InputError as error:
        raise exit_with_error(str(error)) from error
    for path in written:
        console.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", soft_wrap=True)


@app.command()
def render() -> None:
    """Render all records as the tables and plots of the pages."""
    try:
        for path in render_pages():
            console.print(f"rendered {path}", soft_wrap=True)
    except RecordError as error:
        raise exit_with_error(str(error)) from error
