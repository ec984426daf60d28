"""The commands. They compose the library and print; an error of the library is one line and exit code 1."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax.cli.datasets import convert, merge, rebuild, stats, verify
from tokjax.cli.options import (
    FILES_HELP,
    SEPARATOR_HELP,
    STDIN,
    EosTokenOption,
    FormatOption,
    TextColumnOption,
    exit_if_interrupted,
    load_tokenizer_with_eos,
    make_source_or_stdin,
    show_error,
    unescape,
)
from tokjax.cli.report import report
from tokjax.cli.tables import make_stats_table, make_token_table
from tokjax.cli.train import train
from tokjax.corpus.opening import open_decompressed, report_damage

app = typer.Typer(
    help="Train tokenizers, encode text into packed token arrays, and inspect both.",
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
    Path,
    typer.Option("--tokenizer", "-t", help="A tokenizer's file or directory, of any format that is read."),
]


class SpecialHandling(StrEnum):
    """How special tokens in a text are encoded."""

    refuse = "refuse"
    recognise = "recognise"
    text = "text"


class FieldKind(StrEnum):
    """What a dataset stores of each document."""

    packed = "packed"
    tokenized = "tokenized"
    bucketed = "bucketed"
    raw = "raw"


_BUCKETS = (64, 128, 256, 512, 1024)
_DEFAULT_TOKEN_LIMIT = 200
_MAX_BYTES_PER_TOKEN = 64
SpecialOption = Annotated[
    SpecialHandling,
    typer.Option(
        "--special",
        help="Special tokens in the text: refuse is an error, recognise encodes them, text splits them.",
    ),
]
Files = Annotated[
    list[str],
    typer.Argument(help=f"{FILES_HELP} Or - to read text from standard input.", show_default=False),
]


@app.command()
def pack(
    files: Files,
    out: Annotated[str, typer.Option("--out", "-o", help="The dataset's directory.")],
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", "-t", help="A tokenizer file. Required unless --field is raw."),
    ] = None,
    eos_token: EosTokenOption = None,
    no_eos: Annotated[
        bool, typer.Option("--no-eos", help="Packed: put no EOS token after each document.")
    ] = False,
    separator: Annotated[
        str | None,
        typer.Option(help=f"{SEPARATOR_HELP} Default: the tokenizer's EOS token, or none without one."),
    ] = None,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    field: Annotated[FieldKind, typer.Option(help="What is stored of each document.")] = FieldKind.packed,
    chunk_tokens: Annotated[int, typer.Option(help="Packed: ids in each item that a loader reads.")] = 4096,
    max_tokens: Annotated[
        int, typer.Option(help="Tokenized and bucketed: longer documents are cut to so many ids.")
    ] = 2048,
    bucket: Annotated[
        list[int] | None,
        typer.Option(help="Bucketed: the greatest length of a bucket, in ids; may be repeated."),
    ] = None,
    shard_size: Annotated[int, typer.Option(help="Ids per shard; bytes of raw text.")] = 30_000_000,
    special: SpecialOption = SpecialHandling.refuse,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, no summary.")] = False,
) -> None:
    """Encode text files into a dataset: packed token arrays, or separate documents.

    A command that was stopped resumes after the last finished shard when it is run again.
    """
    if tokenizer is None and field is not FieldKind.raw:
        raise tokjax.errors.InvalidArgumentError("--tokenizer FILE is required unless --field raw is passed")
    loaded: Any = None if tokenizer is None else load_tokenizer_with_eos(tokenizer, eos_token)
    if separator is not None:
        separator = unescape(separator)
    elif loaded is not None:
        separator = loaded.vocabulary.roles.get("eos")
    options = _get_special_options(special)
    stored: tokjax.Field
    if field is FieldKind.raw:
        stored = tokjax.RawTextField()
    elif field is FieldKind.tokenized:
        stored = tokjax.TokenizedTextField(loaded, max_tokens, **options)
    elif field is FieldKind.bucketed:
        boundaries = bucket or [size for size in _BUCKETS if size < max_tokens]
        stored = tokjax.BucketedTokenField(loaded, boundaries, max_tokens, **options)
    else:
        stored = _packed_field(loaded, chunk_tokens, add_eos_between_docs=not no_eos, **options)
    separators = [separator] if separator else []
    with exit_if_interrupted("run the same command again to resume after the last finished shard"):
        tokjax.write_dataset(
            make_source_or_stdin(files, text_column, file_format, separators),
            stored,
            out,
            separator=separator or None,
            shard_size=shard_size,
            overwrite=overwrite,
            progress=not quiet,
        )
    if not quiet:
        Console().print(make_stats_table(tokjax.open_dataset(out)))


@app.command()
def inspect(
    tokenizer: TokenizerOption,
    text: Annotated[str | None, typer.Argument(help="The text, or - to read standard input.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A file to read the text from.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Tokens to show.")
    ] = _DEFAULT_TOKEN_LIMIT,
    special: SpecialOption = SpecialHandling.refuse,
) -> None:
    """Show the tokens of a text, with ids and byte offsets."""
    if (text is None) == (file is None):
        raise typer.BadParameter("pass a text, - for standard input, or --file FILE", param_hint="TEXT")
    nbytes = max(limit * _MAX_BYTES_PER_TOKEN, 1 << 16)
    loaded = tokjax.load_tokenizer(tokenizer)
    content: str | bytes
    if file is not None:
        with open_decompressed(file) as (_, stream), report_damage(file):
            content = stream.read(nbytes)
    else:
        content = sys.stdin.buffer.read(nbytes) if text == STDIN else text or ""
    result = tokjax.encode_result(loaded, content, **_get_special_options(special))
    Console().print(
        make_token_table(result, limit, is_complete=len(content) < nbytes or isinstance(content, str))
    )


for command in (stats, verify, merge, convert, rebuild):
    app.command()(command)
app.command()(train)
app.command()(report)


def _packed_field(loaded: Any, chunk_tokens: int, **options: Any) -> tokjax.PackedTokenField:
    try:
        return tokjax.PackedTokenField(loaded, chunk_tokens, **options)
    except tokjax.errors.MissingSpecialTokenError as error:
        raise tokjax.errors.MissingSpecialTokenError(
            "putting an EOS token after each document (--no-eos puts none there) needs the tokenizer's eos "
            "token, and it declares none",
            hint=error.hint,
        ) from error


def _get_special_options(special: SpecialHandling) -> dict[str, Any]:
    return {
        "allowed_special": "all" if special is SpecialHandling.recognise else (),
        "disallowed_special": "all" if special is SpecialHandling.refuse else (),
    }


def _option_names() -> set[str]:
    group = typer.main.get_group(app)
    return {name for command in group.commands.values() for each in command.params for name in each.opts}


def run() -> None:
    """Runs a command; on an error of the library exits with 1 and one line on standard error."""
    try:
        app()
    except (tokjax.TokjaxError, OSError, UnicodeEncodeError) as error:
        show_error(error, _option_names())
        sys.exit(1)
