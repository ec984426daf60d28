"""The command line application: its options, and the commands `pack`, `inspect`, `export` and `report`.

Commands compose functions of the library and print tables. An error of the library is printed as one line,
and the exit code is 1.
"""

from __future__ import annotations

import codecs
import itertools
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console

import tokjax
from tokjax._util.atomic_files import reject_home, write_atomically
from tokjax._util.display import make_visible
from tokjax.cli.datasets import convert, merge, print_stats, stats, verify
from tokjax.cli.options import (
    FILES_HELP,
    STDIN,
    TOKENIZER_HELP,
    EosTokenOption,
    FormatOption,
    SeparatorOption,
    TextColumnOption,
    TokenizerOption,
    choose_separator,
    exit_if_interrupted,
    load_tokenizer_with_eos,
    make_source,
    show_error,
)
from tokjax.cli.train import train
from tokjax.corpus.decompression import open_decompressed, report_damage
from tokjax.formats.exporting import resolve_target
from tokjax.offsets import has_span
from tokjax.reports.report_table import ReportTable
from tokjax.reports.vocabulary_statistics import ONLY_KIND

if TYPE_CHECKING:
    from tokjax.formats.file_formats import Format

app = typer.Typer(
    help="Train tokenizers, encode text into packed token arrays, and inspect both.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tokjax {tokjax.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options of `tokjax` itself, before the name of a command."""


class SpecialHandling(StrEnum):
    """Handling of special tokens in a text: reject, encode to their ids, or encode as ordinary text."""

    reject = "reject"
    recognize = "recognize"
    text = "text"


class FieldKind(StrEnum):
    """Type of the dataset's field."""

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
        help="Special tokens in the text: reject raises an error, recognize encodes them to their ids, text "
        "encodes them as ordinary text.",
    ),
]
Files = Annotated[
    list[str],
    typer.Argument(help=f"{FILES_HELP} Or - for standard input.", show_default=False),
]


@app.command()
def pack(
    files: Files,
    out: Annotated[str, typer.Option("--out", "-o", help="Directory of the dataset.")],
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", "-t", help=f"{TOKENIZER_HELP} Required unless --field raw."),
    ] = None,
    eos_token: EosTokenOption = None,
    no_eos: Annotated[
        bool, typer.Option("--no-eos", help="packed: do not add an EOS token after each document.")
    ] = False,
    separator: SeparatorOption = None,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    field: Annotated[FieldKind, typer.Option(help="Type of the dataset.")] = FieldKind.packed,
    chunk_tokens: Annotated[int, typer.Option(help="packed: ids per item that a loader reads.")] = 4096,
    max_tokens: Annotated[
        int, typer.Option(help="tokenized, bucketed: maximum ids per document; longer ones are truncated.")
    ] = 2048,
    bucket: Annotated[
        list[int] | None,
        typer.Option(help="bucketed: maximum length of a bucket, in ids; may be repeated."),
    ] = None,
    shard_size: Annotated[int, typer.Option(help="Ids per shard; for raw, bytes per shard.")] = 30_000_000,
    skip_bad_records: Annotated[
        bool, typer.Option("--skip-bad-records", help="Skip and count records that can't be read.")
    ] = False,
    special: SpecialOption = SpecialHandling.reject,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress or a summary.")] = False,
) -> None:
    """Encode text files into a dataset: packed token arrays, or separate documents.

    To resume an interrupted command after the last finished shard, run it again.
    """
    if tokenizer is None and field is not FieldKind.raw:
        raise tokjax.errors.InvalidArgumentError("--tokenizer FILE is required unless --field raw is passed")
    loaded: Any = None if tokenizer is None else load_tokenizer_with_eos(tokenizer, eos_token)
    source = make_source(files, text_column, file_format)
    separator = choose_separator(separator, loaded, [source])
    options = _get_special_options(special)
    dataset_field: tokjax.datasets.Field
    if field is FieldKind.raw:
        dataset_field = tokjax.RawTextField()
    elif field is FieldKind.tokenized:
        dataset_field = tokjax.TokenizedTextField(loaded, max_tokens, **options)
    elif field is FieldKind.bucketed:
        boundaries = bucket or [size for size in _BUCKETS if size < max_tokens]
        dataset_field = tokjax.datasets.BucketedTokenField(loaded, boundaries, max_tokens, **options)
    else:
        dataset_field = _make_packed_field(loaded, chunk_tokens, add_eos_between_docs=not no_eos, **options)
    with exit_if_interrupted("run the same command again to resume after the last finished shard"):
        tokjax.write_dataset(
            source,
            dataset_field,
            out,
            separator=separator,
            shard_size=shard_size,
            skip_bad_records=skip_bad_records,
            overwrite=overwrite,
            progress=not quiet,
        )
    if not quiet:
        print_stats(tokjax.open_dataset(out))


@app.command()
def inspect(
    tokenizer: TokenizerOption,
    text: Annotated[str | None, typer.Argument(help="Text, or - for standard input.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="File with the text.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Maximum number of tokens to show.")
    ] = _DEFAULT_TOKEN_LIMIT,
    special: SpecialOption = SpecialHandling.reject,
) -> None:
    """Show the tokens of a text with their ids and byte offsets."""
    if (text is None) == (file is None):
        raise typer.BadParameter("pass TEXT, - for standard input, or --file FILE", param_hint="TEXT")
    nbytes = max(limit * _MAX_BYTES_PER_TOKEN, 1 << 16)
    loaded = tokjax.load_tokenizer(tokenizer)
    content: str | bytes
    if file is not None:
        with open_decompressed(file) as (_, stream), report_damage(file):
            content = stream.read(nbytes).removeprefix(codecs.BOM_UTF8)
    else:
        content = sys.stdin.buffer.read(nbytes) if text == STDIN else text or ""
    result = tokjax.encode_result(loaded, content, **_get_special_options(special))
    rows = zip(result.tokens, result.ids, result.offsets, result.special_tokens_mask, strict=True)
    shown = tuple(
        (
            str(i),
            make_visible(token),
            str(id_),
            f"[{span[0]}, {span[1]})" if has_span(span) else "none",
            "yes" if special else "",
        )
        for i, (token, id_, span, special) in enumerate(itertools.islice(rows, limit))
    )
    count = f"{len(result):,} tokens"
    if len(result) > limit:
        is_complete = len(content) < nbytes or isinstance(content, str)
        count = f"{limit:,} of {count if is_complete else 'more tokens'} (see --limit)"
    table = ReportTable("tokens", ("#", "token", "id", "bytes", "special"), shown)
    Console().print(table, f"{count}; bytes are 1-based and half-open", sep="\n", markup=False)


@app.command()
def export(
    tokenizer: TokenizerOption,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            help="Directory, or a file with the suffix of the format: .json, .tiktoken, .txt or .model.",
        ),
    ],
    to_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="huggingface (tokenizer.json), tiktoken, gpt2, wordpiece, sentencepiece or tokjax.",
        ),
    ] = "huggingface",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Write a tokenizer in the format of another library, with the same ids."""
    loaded: Any = tokjax.load_tokenizer(tokenizer)
    target = resolve_target(out, cast("Format", to_format))
    if target.exists() and not overwrite:
        raise tokjax.errors.InvalidArgumentError(f"{target} exists; to replace it, pass --overwrite")
    for file in tokjax.formats.export_tokenizer(loaded, out, cast("Format", to_format)):
        typer.echo(file)


@app.command()
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


for command in (stats, verify, merge, convert, train):
    app.command()(command)


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


def _make_packed_field(loaded: Any, chunk_tokens: int, **options: Any) -> tokjax.PackedTokenField:
    """Makes a packed field; names `--no-eos` in the error for a tokenizer without an EOS token."""
    try:
        return tokjax.PackedTokenField(loaded, chunk_tokens, **options)
    except tokjax.errors.MissingSpecialTokenError as error:
        raise tokjax.errors.MissingSpecialTokenError(
            "an EOS token is added after each document unless --no-eos is passed, and the tokenizer "
            "declares no eos token",
            hint=error.hint,
        ) from error


def _get_special_options(special: SpecialHandling) -> dict[str, Any]:
    return {
        "allowed_special": "all" if special is SpecialHandling.recognize else (),
        "disallowed_special": "all" if special is SpecialHandling.reject else (),
    }


def _get_option_names() -> set[str]:
    """Returns the options of all commands, such as `"--vocab-size"`."""
    group = typer.main.get_group(app)
    return {name for command in group.commands.values() for param in command.params for name in param.opts}


def run() -> None:
    """Runs a command. On an error of the library, prints one line on standard error and exits with code 1."""
    try:
        app()
    except (tokjax.TokjaxError, OSError, UnicodeEncodeError) as error:
        show_error(error, _get_option_names())
        sys.exit(1)
