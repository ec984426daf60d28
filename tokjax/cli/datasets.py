"""The commands for existing datasets: `stats`, `verify`, `merge` and `convert`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax._util.atomic_files import write_atomically
from tokjax.cli.options import (
    TOKENIZER_HELP,
    EosTokenOption,
    load_tokenizer_with_eos,
    print_rows,
    show_error,
)
from tokjax.datasets.manifest import MANIFEST_FILE
from tokjax.reports.dataset_statistics import compute_length_quantiles
from tokjax.reports.report_table import ReportTable, Share

if TYPE_CHECKING:
    from tokjax.datasets.dataset import Dataset

DatasetArgument = Annotated[str, typer.Argument(help="Directory of the dataset.", show_default=False)]
OutOption = Annotated[str, typer.Option("--out", "-o", help="Path of the result.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an existing result.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress or a summary.")]


def stats(
    dataset: DatasetArgument,
    verify: Annotated[bool, typer.Option("--verify", help="Verify the checksums of all files.")] = False,
    batch_size: Annotated[int, typer.Option(help="Documents per batch, for the padding table.")] = 32,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers as JSON to this file.")
    ] = None,
) -> None:
    """Show the properties of a dataset, and the share of padding in its batches."""
    opened = tokjax.open_dataset(dataset)
    if verify:
        opened.verify()
    report = tokjax.reports.dataset_report(opened, batch_size=batch_size)
    if json_file is not None:
        described = json.dumps(asdict(report), indent=1).encode("ascii")
        write_atomically(json_file, lambda file: file.write(described))
    print_stats(opened)
    rows = tuple((each.strategy, Share(each.share), each.shapes) for each in report.padding)
    title = f"padding with {report.batch_size} documents per batch"
    Console().print(ReportTable(title, ("batches", "padding", "shapes"), rows))


def print_stats(dataset: Dataset) -> None:
    """Prints the properties of a dataset."""
    manifest, plan = dataset.manifest, dataset.manifest.plan
    unit = "bytes" if plan.tokenizer_fingerprint is None else "tokens"
    quantiles = compute_length_quantiles(dataset.document_lengths)
    lengths = f"median {quantiles['median']:,}, longest {quantiles['longest']:,}"
    # Without bytes, the ids were converted, and their text is unknown.
    nbytes = manifest.num_bytes if manifest.num_bytes or not manifest.num_items else None
    rows: dict[str, object] = {
        "field": plan.field,
        unit: manifest.num_items,
        "documents": manifest.num_documents,
        "bytes of text": nbytes,
        "bytes per token": manifest.bytes_per_token,
        "truncated documents": manifest.num_cut or None,
        f"{unit} removed by truncation": manifest.num_dropped if manifest.num_cut else None,
        "documents left out, without targets": manifest.num_dropped_documents or None,
        "skipped bad records": manifest.num_skipped or None,
        f"{unit} per document": lengths if manifest.num_documents else None,
        "dtype": plan.data_dtype,
        **{f"column {column.name}": f"{column.dtype} per {column.per}" for column in dataset.columns},
        "shards": len(manifest.shards),
        "vocabulary": plan.vocab_size,
        "tokenizer": plan.tokenizer_fingerprint,
    }
    print_rows(dataset.location, rows)


def verify(datasets: Annotated[list[str], typer.Argument(help="Directories of the datasets.")]) -> None:
    """Verify the checksums of all files of datasets. The exit code is 1 if a file has changed."""
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
            Console().print(f"{path}: {count} files verified", markup=False)
    if damaged:
        raise typer.Exit(1)


def merge(
    datasets: Annotated[list[str], typer.Argument(help="Directories of the datasets, in order.")],
    out: OutOption,
    overwrite: OverwriteOption = False,
) -> None:
    """Concatenate datasets that were written with the same field and tokenizer."""
    tokjax.datasets.merge_datasets(datasets, out, overwrite=overwrite)
    print_stats(tokjax.open_dataset(out))


def convert(
    source: Annotated[str, typer.Argument(help="Directory of a dataset, or token file of another program.")],
    out: OutOption,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", "-t", help=f"Tokenizer that made the token file. {TOKENIZER_HELP}"),
    ] = None,
    format: Annotated[  # noqa: A002 (the usual name of this option)
        str | None,
        typer.Option(
            "--format",
            help="nanogpt, megatron, npy or array_record. Default: by file name and header.",
        ),
    ] = None,
    eos_token: EosTokenOption = None,
    chunk_tokens: Annotated[
        int | None, typer.Option(help="Ids per item that a loader of the dataset reads. Default: 4096.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum number of ids per record, to write an .array_record.")
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Convert a token file of another program, such as .bin, .idx or .npy, to a dataset, or the reverse."""
    kind: Any = format
    has_manifest = (Path(source) / MANIFEST_FILE).exists()
    if has_manifest or (tokenizer is None and Path(source).is_dir()):
        dataset = tokjax.open_dataset(source)
        options = {"--tokenizer": tokenizer, "--eos-token": eos_token, "--chunk-tokens": chunk_tokens}
        for option, value in options.items():
            if value is not None:
                raise tokjax.errors.InvalidArgumentError(
                    f"{source} is a dataset, and {option} is only for converting a file of token ids to one"
                )
        for path in tokjax.datasets.export_dataset(
            dataset, out, kind, max_tokens=max_tokens, overwrite=overwrite
        ):
            Console().print(str(path), markup=False)
        return
    if max_tokens is not None:
        raise tokjax.errors.InvalidArgumentError(
            f"{source} is not a dataset, and --max-tokens is for datasets that are written as .array_record"
        )
    if tokenizer is None:
        if not Path(source).exists():
            raise tokjax.errors.InvalidArgumentError(f"{source} does not exist")
        raise tokjax.errors.InvalidArgumentError(
            f"{source} is a file of token ids: pass --tokenizer FILE, the tokenizer that made them"
        )
    loaded = load_tokenizer_with_eos(tokenizer, eos_token)
    sizes = {} if chunk_tokens is None else {"chunk_tokens": chunk_tokens}
    tokjax.datasets.convert_dataset(source, loaded, out, format=kind, overwrite=overwrite, **sizes)
    print_stats(tokjax.open_dataset(out))
