"""The command `tokjax report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax._util.atomic_files import reject_home, write_atomically
from tokjax.cli.options import (
    FILES_HELP,
    FormatOption,
    SeparatorOption,
    TextColumnOption,
    TokenizerOption,
    choose_separator,
    make_source,
)
from tokjax.reports.vocabulary_statistics import ONLY_KIND


def report(
    tokenizer: TokenizerOption,
    files: Annotated[list[str] | None, typer.Argument(help=FILES_HELP)] = None,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="Another tokenizer to compare; may be repeated."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="NAME=PATH",
            help="Name of a kind of text, and its file or pattern; may be repeated.",
        ),
    ] = None,
    separator: SeparatorOption = None,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers as JSON to this file.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress or tables.")] = False,
) -> None:
    """Measure tokenizers on text files. Special tokens in the text are encoded as ordinary text."""
    if json_file is not None:
        reject_home(json_file)
    sources = {
        name: make_source(paths, text_column, file_format)
        for name, paths in _group_files_by_kind(files or [], kind or []).items()
    }
    tokenizers = _load_tokenizers([tokenizer, *(against or [])])
    separator = choose_separator(separator, next(iter(tokenizers.values())), sources.values())
    (name, first), *others = tokenizers.items()
    measured = tokjax.reports.vocabulary_report(
        first,
        sources,
        name=name,
        against=dict(others),
        separator=separator,
        progress=not quiet,
    )
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        described = json.dumps(tokjax.reports.report_to_json(measured), indent=1).encode("ascii")
        write_atomically(json_file, lambda file: file.write(described))
    if not quiet:
        for table in tokjax.reports.report_tables(measured):
            Console().print(table, "")


def _group_files_by_kind(files: list[str], kinds: list[str]) -> dict[str, list[str]]:
    """Returns the files of each kind of text; those of no named kind come first."""
    sources = {ONLY_KIND: list(files)} if files else {}
    for argument in kinds:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise typer.BadParameter(f"{argument!r} is not NAME=PATH", param_hint="--kind")
        sources.setdefault(name, []).append(path)
    if not sources:
        raise typer.BadParameter("no text was passed; pass files, or kinds of text with --kind NAME=PATH")
    return sources


def _load_tokenizers(paths: list[str]) -> dict[str, Any]:
    """Loads tokenizers under the names of their files, or under their paths if two names are equal."""
    if len(set(paths)) < len(paths):
        raise typer.BadParameter("duplicate tokenizer", param_hint="--against")
    names = [Path(path).stem if Path(path).exists() else path for path in paths]
    if len(set(names)) < len(names):
        names = paths
    return {name: tokjax.load_tokenizer(path) for name, path in zip(names, paths, strict=True)}
