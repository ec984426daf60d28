"""Command line: `python -m benchmarks [SUITE ...]`, `... corpus DIR`, `... render`."""

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
from benchmarks.sources import CODE_MEGABYTES, Sources, find_sources
from benchmarks.suites import SUITES

if TYPE_CHECKING:
    from collections.abc import Callable

    from click import Context

console = Console(highlight=False)


class DefaultRunGroup(TyperGroup):
    """Group of commands in which `run` is the default."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Inserts `run` unless the first argument is a command or `--help`."""
        is_command = args and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if is_command else ["run", *args])


app = typer.Typer(
    cls=DefaultRunGroup,
    help="Benchmarks of tokjax and other libraries. `run` is the default command: "
    "python -m benchmarks encode --quick",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@dataclass(frozen=True)
class Options:
    """Options of a run that apply to all suites.

    Attributes:
        sources: the texts and the ranks.
        quick: whether to use small inputs and one round.
        rounds: number of rounds; `None` for the default of each suite.
        megabytes: maximum size of each text, in MB; `None` for no limit.
        threads: number of threads, in suites that measure more than one.
        install: whether to create a virtual environment for transformers 4.
        out: directory of the records.
    """

    sources: Sources
    quick: bool
    rounds: int | None
    megabytes: float | None
    threads: int
    install: bool
    out: Path


def exit_with_error(message: str) -> typer.Exit:
    """Prints an error on one line, and returns the exception that ends the program with status 1."""
    console.print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    return typer.Exit(1)


@app.command()
def run(
    suites: Annotated[list[str] | None, typer.Argument(help="Suites to run. Default: all.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small inputs and one round, to check that everything runs.")
    ] = False,
    list_suites: Annotated[bool, typer.Option("--list", help="List the suites and exit.")] = False,
    texts: Annotated[
        Path | None,
        typer.Option(help="Directory of *.txt files. Default: the Python files of this interpreter."),
    ] = None,
    ranks: Annotated[
        Path | None, typer.Option(help="Vocabulary in tiktoken's format. Default: trained on the texts.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds per contender.")] = None,
    megabytes: Annotated[float | None, typer.Option(help="Maximum size of each text, in MB.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Number of threads in multi-threaded runs.")] = 2,
    install: Annotated[
        bool,
        typer.Option(help="Install transformers 4, which one contender needs, into a separate environment."),
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory of the records. Default: benchmarks/results; for partial runs benchmarks/cache."
        ),
    ] = None,
) -> None:
    """Run suites, and write one record per suite."""
    if list_suites:
        for name, about in SUITES.items():
            console.print(f"{name:12} {about}", soft_wrap=True)
        return
    names = suites or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        raise exit_with_error(f"unknown suite {unknown[0]!r}; the suites are {', '.join(SUITES)}")
    if megabytes is not None and megabytes <= 0:
        raise exit_with_error(f"--megabytes must be above 0, not {megabytes:g}")
    code_megabytes = megabytes or (QUICK_MEGABYTES if quick else CODE_MEGABYTES)
    try:
        sources = find_sources(texts, ranks, code_megabytes=code_megabytes)
    except InputError as error:
        raise exit_with_error(str(error)) from error
    if out is None:  # only full runs overwrite the records that the pages are rendered from
        subdirectory = "quick" if quick else "own" if rounds or megabytes else ""
        out = get_cache_directory() / subdirectory if subdirectory else RESULTS
    if out.exists() and not out.is_dir():
        raise exit_with_error(f"--out is not a directory: {out}")
    options = Options(sources, quick, rounds, megabytes, threads, install, out)
    failed = run_all(names, options)
    if failed:
        raise typer.Exit(1)


def run_all(names: list[str], options: Options) -> list[str]:
    """Runs suites sequentially, and returns the names of those that failed."""
    outcomes = {}
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=len(names))
        for name in names:
            outcomes[name] = run_one(
                name, options, lambda step, name=name: progress.update(bar, description=f"{name}: {step}")
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
    """Runs a suite and writes its record; returns the reason if it failed, and `""` otherwise."""
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
            return f"skipped: {error.name} is not installed; pip install -e '.[benchmarks]'"
        except Exception as error:  # the other suites still run
            return f"failed: {type(error).__name__}: {error}"
    settings = {"quick": options.quick, "rounds": options.rounds or "as usual", **bench.settings}
    record = make_record(name, suite.PACKAGES, settings, bench.inputs.values(), bench.measurements)
    write_record(record, options.out)
    return ""


@app.command()
def corpus(
    directory: Annotated[
        Path, typer.Argument(help="Directory for en.txt, multi.txt, code.txt and large.txt.")
    ],
    megabytes: Annotated[
        float, typer.Option(help="Maximum size of each text, in MB; five times as much for large.txt.")
    ] = 100,
) -> None:
    """Download real text: documentation and manual pages from Debian packages, and Python code."""
    try:
        with console.status("") as status:
            written = fetch_corpus(directory, megabytes, status.update)
    except InputError as error:
        raise exit_with_error(str(error)) from error
    for path in written:
        console.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", soft_wrap=True)


@app.command()
def render() -> None:
    """Render the records as the tables and plots of the pages."""
    try:
        for path in render_pages():
            console.print(f"rendered {path}", soft_wrap=True)
    except RecordError as error:
        raise exit_with_error(str(error)) from error
