"""The commands. They compose the library and print; errors of the library become one line and exit code 1."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax.cli.advice import show_error
from tokjax.cli.datasets import convert, merge, rebuild, stats, verify
from tokjax.cli.report import report
from tokjax.cli.sources import SEPARATOR_HELP, FormatOption, TextColumnOption, source_of, unescaped
from tokjax.cli.tables import stats_table, token_table
from tokjax.cli.train import train

app = typer.Typer(
    help="Train tokenizers, turn text into packed token arrays, and look at both.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tokjax {tokjax.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version, and exit."),
    ] = False,
) -> None:
    """What goes before a command."""


TokenizerOption = Annotated[
    Path, typer.Option("--tokenizer", "-t", help="A tokenizer file, as `tokjax train` writes it.")
]


class InText(StrEnum):
    """What to do with special tokens that stand in a text."""

    refuse = "refuse"
    recognise = "recognise"
    text = "text"


class StoredField(StrEnum):
    """What a dataset stores of each document."""

    packed = "packed"
    tokenized = "tokenized"
    bucketed = "bucketed"
    raw = "raw"


_BUCKETS = (64, 128, 256, 512, 1024)
SpecialOption = Annotated[
    InText,
    typer.Option(
        "--special",
        help="Special tokens in the text: refuse it, recognise them, or take them for ordinary text.",
    ),
]
Files = Annotated[
    list[str],
    typer.Argument(
        help="Files of text, JSON lines or Parquet, gzipped or not, or patterns of them.", show_default=False
    ),
]


@app.command()
def pack(
    files: Files,
    out: Annotated[str, typer.Option("--out", "-o", help="The dataset's directory.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", "-t", help="A tokenizer file. (Needed for all fields but raw.)"),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(help=f"{SEPARATOR_HELP} Default: the tokenizer's EOS token; nothing without one."),
    ] = None,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    field: Annotated[StoredField, typer.Option(help="What is stored of each document.")] = StoredField.packed,
    chunk_tokens: Annotated[int, typer.Option(help="Packed: ids that a loader gives at once.")] = 4096,
    max_tokens: Annotated[int, typer.Option(help="Tokenized and bucketed: longer documents are cut.")] = 2048,
    bucket: Annotated[
        list[int] | None, typer.Option(help="Bucketed: the most ids of a bucket; may be repeated.")
    ] = None,
    shard_size: Annotated[int, typer.Option(help="Ids a shard; of raw text, bytes.")] = 30_000_000,
    special: SpecialOption = InText.refuse,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a dataset that is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")] = False,
) -> None:
    """Encode text files into a dataset: packed token arrays, or documents one by one."""
    if tokenizer is None and field is not StoredField.raw:
        raise tokjax.InvalidArgumentError("what shall make the ids? Pass --tokenizer FILE, or --field raw")
    loaded: Any = None if tokenizer is None else tokjax.load_tokenizer(tokenizer)
    if separator is not None:
        separator = unescaped(separator)
    elif loaded is not None:
        separator = loaded.vocabulary.roles.get("eos")
    options = _special_options(special)
    stored: tokjax.Field
    if field is StoredField.raw:
        stored = tokjax.RawTextField()
    elif field is StoredField.tokenized:
        stored = tokjax.TokenizedTextField(loaded, max_tokens, **options)
    elif field is StoredField.bucketed:
        boundaries = bucket or [size for size in _BUCKETS if size < max_tokens]
        stored = tokjax.BucketedTokenField(loaded, boundaries, max_tokens, **options)
    else:
        stored = tokjax.PackedTokenField(loaded, chunk_tokens, **options)
    tokjax.write_dataset(
        source_of(files, text_column, file_format),
        stored,
        out,
        separator=separator or None,
        shard_size=shard_size,
        overwrite=overwrite,
        progress=not quiet,
    )
    if not quiet:
        Console().print(stats_table(tokjax.open_dataset(out)))


@app.command()
def inspect(
    text: Annotated[str, typer.Argument(help="The text, or - to read standard input.")],
    tokenizer: TokenizerOption,
    special: SpecialOption = InText.refuse,
) -> None:
    """Show the tokens of a text, with ids and byte offsets."""
    loaded = tokjax.load_tokenizer(tokenizer)
    given = sys.stdin.buffer.read() if text == "-" else text
    result = tokjax.encode_result(loaded, given, **_special_options(special))
    Console().print(token_table(result))


for command in (stats, verify, merge, convert, rebuild):
    app.command()(command)
app.command()(train)
app.command()(report)


def _special_options(special: InText) -> dict[str, Any]:
    return {
        "allowed_special": "all" if special is InText.recognise else (),
        "disallowed_special": "all" if special is InText.refuse else (),
    }


def run() -> None:
    """Run a command; exit with 1 and one line on standard error where the library refuses."""
    try:
        app()
    except (tokjax.TokjaxError, OSError, UnicodeEncodeError) as error:
        show_error(error)
        sys.exit(1)
