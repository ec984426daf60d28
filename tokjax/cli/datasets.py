"""The commands for existing datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax._util.files import write_atomically
from tokjax.cli.options import EosTokenOption, exit_if_interrupted, load_tokenizer_with_eos, show_error
from tokjax.cli.tables import make_padding_table, make_stats_table

DatasetArgument = Annotated[str, typer.Argument(help="The directory of a dataset.", show_default=False)]
HtmlOption = Annotated[Path | None, typer.Option(help="Write a page with plots.")]
OutOption = Annotated[str, typer.Option("--out", "-o", help="The path of the result.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace what exists there.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")]


def stats(
    dataset: DatasetArgument,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also check all files against their checksums.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Documents per batch, to measure padding.")] = 32,
    html: HtmlOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the numbers as JSON.")] = None,
) -> None:
    """Show the contents of a dataset, and how much of its batches would be padding."""
    opened = tokjax.open_dataset(dataset)
    if verify:
        opened.verify()
    report = tokjax.reports.dataset_report(opened, batch_size=batch_size)
    if html is not None:
        tokjax.reports.save_dataset_report_html(report, html)
    if json_file is not None:
        described = json.dumps(tokjax.reports.dataset_report_to_json(report), indent=1).encode("ascii")
        write_atomically(json_file, lambda file: file.write(described))
    Console().print(make_stats_table(opened), make_padding_table(report))


def verify(datasets: Annotated[list[str], typer.Argument(help="Directories of datasets.")]) -> None:
    """Check all files of datasets against their checksums; exit with 1 if any has changed."""
    damaged = 0
    for path in datasets:
        try:
            opened = tokjax.open_dataset(path)
            opened.verify()
        except (tokjax.TokjaxError, OSError) as error:
            damaged += 1
            show_error(error)
        else:
            count = len(opened.manifest.all_files)
            Console().print(f"{path}: {count} files are as they were written", markup=False)
    if damaged:
        raise typer.Exit(1)


def merge(
    datasets: Annotated[list[str], typer.Argument(help="Directories of datasets, in order.")],
    out: OutOption,
    overwrite: OverwriteOption = False,
) -> None:
    """Join datasets that were written with the same field and tokenizer."""
    tokjax.datasets.merge_datasets(datasets, out, overwrite=overwrite)
    Console().print(make_stats_table(tokjax.open_dataset(out)))


def convert(
    source: Annotated[str, typer.Argument(help="A dataset's directory, or another program's file.")],
    out: OutOption,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", "-t", help="The tokenizer that made another program's file."),
    ] = None,
    format: Annotated[  # noqa: A002 (the word that everyone expects)
        str | None, typer.Option("--format", help="nanogpt, megatron, npy or torch. Default: by the name.")
    ] = None,
    eos_token: EosTokenOption = None,
    chunk_tokens: Annotated[int, typer.Option(help="Ids in each item that a loader reads.")] = 4096,
    overwrite: OverwriteOption = False,
) -> None:
    """Convert a token file of another program (.bin, .idx, .npy, .pt) to a dataset, or a dataset to one."""
    kind: Any = format
    if Path(source).is_dir():
        for path in tokjax.datasets.export_dataset(
            tokjax.open_dataset(source), out, kind, overwrite=overwrite
        ):
            Console().print(str(path), markup=False)
        return
    if tokenizer is None:
        raise tokjax.errors.InvalidArgumentError(
            f"{source} is a file of token ids: pass --tokenizer FILE, the tokenizer that made them"
        )
    loaded = load_tokenizer_with_eos(tokenizer, eos_token)
    tokjax.datasets.convert_dataset(
        source, loaded, out, format=kind, chunk_tokens=chunk_tokens, overwrite=overwrite
    )
    Console().print(make_stats_table(tokjax.open_dataset(out)))


def rebuild(
    dataset: DatasetArgument,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", "-t", help="Another tokenizer. Default: the dataset's own.")
    ] = None,
    eos_token: EosTokenOption = None,
    trust_source: Annotated[
        bool, typer.Option("--trust-source", help="Read the files that the dataset's manifest names.")
    ] = False,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a dataset again from its source files, because they or the tokenizer have changed."""
    if Path(dataset).exists() and not overwrite:
        raise tokjax.errors.InvalidArgumentError(f"{dataset} exists, and would be replaced; pass --overwrite")
    loaded = None if tokenizer is None else load_tokenizer_with_eos(tokenizer, eos_token)
    with exit_if_interrupted("run the same command again to resume after the last finished shard"):
        tokjax.datasets.rebuild_dataset(dataset, loaded, trust_source=trust_source, progress=not quiet)
    if not quiet:
        Console().print(make_stats_table(tokjax.open_dataset(dataset)))
