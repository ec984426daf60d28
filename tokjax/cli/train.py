"""The command `tokjax train`."""

from __future__ import annotations

import errno
import os
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax._util.urls import reject_urls
from tokjax.cli.options import (
    FILES_HELP,
    INTERRUPTED,
    STDIN,
    FormatOption,
    TextColumnOption,
    make_source_or_stdin,
)
from tokjax.cli.table_format import make_training_table
from tokjax.corpus.files import text_files
from tokjax.trainer import (
    PretokenCounts,
    Trained,
    count_pretokens,
    load_pretoken_counts,
    save_pretoken_counts,
    save_training_bundle,
    train_bpe,
    train_sentencepiece,
    train_word_level,
    train_wordpiece,
)
from tokjax.trainer.bpe.train_bpe import END_OF_TEXT
from tokjax.trainer.bundles import is_bundle
from tokjax.trainer.word_level import SPECIAL_TOKENS as WORD_LEVEL_TOKENS
from tokjax.trainer.wordpiece import SPECIAL_TOKENS as WORDPIECE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokjax.corpus.sources import Source

_ZIP_MAGIC = b"PK\x03\x04"
"""First bytes of `.npz` files, which contain pre-token counts."""


class Model(StrEnum):
    """Type of the vocabulary."""

    bpe = "bpe"
    wordpiece = "wordpiece"
    word_level = "word-level"
    unigram = "unigram"
    sentencepiece_bpe = "sentencepiece-bpe"
    char = "char"
    word = "word"


_COUNTING_OPTIONS = {"min_frequency", "max_bytes", "seed", "save_counts"}
_SENTENCEPIECE_OPTIONS = {"character_coverage", "byte_fallback"}
_OPTIONS_BY_MODEL: Mapping[Model, set[str]] = {
    Model.bpe: _COUNTING_OPTIONS | {"pattern", "max_token_length", "tie_break", "checkpoint"},
    Model.wordpiece: _COUNTING_OPTIONS | {"limit_alphabet", "cased"},
    Model.word_level: _COUNTING_OPTIONS | {"cased"},
    Model.unigram: _SENTENCEPIECE_OPTIONS,
    Model.sentencepiece_bpe: _SENTENCEPIECE_OPTIONS,
    Model.char: _SENTENCEPIECE_OPTIONS,
    Model.word: _SENTENCEPIECE_OPTIONS,
}
_SENTENCEPIECE_MODELS = {
    model for model, options in _OPTIONS_BY_MODEL.items() if options == _SENTENCEPIECE_OPTIONS
}
_TRAINERS: Mapping[Model, Callable[..., Trained]] = {
    Model.bpe: train_bpe,
    Model.wordpiece: train_wordpiece,
    Model.word_level: train_word_level,
    Model.unigram: partial(train_sentencepiece, model_type="unigram"),
    Model.sentencepiece_bpe: partial(train_sentencepiece, model_type="bpe"),
    Model.char: partial(train_sentencepiece, model_type="char"),
    Model.word: partial(train_sentencepiece, model_type="word"),
}
_SPECIAL_TOKENS_BY_MODEL = {Model.wordpiece: WORDPIECE_TOKENS, Model.word_level: WORD_LEVEL_TOKENS}


def train(
    files: Annotated[
        list[str],
        typer.Argument(
            help=f"{FILES_HELP} Or files that --save-counts wrote; or - for standard input.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", help="Tokenizer file to write; with --bundle, a directory.")
    ],
    model: Annotated[Model, typer.Option("--model", "-m", help="Type of the vocabulary.")] = Model.bpe,
    vocab_size: Annotated[int, typer.Option(help="Number of ids, including special tokens.")] = 32_000,
    special_token: Annotated[
        list[str] | None,
        typer.Option(
            help="Special token; may be repeated. Added to the defaults of wordpiece and word-level; "
            f"replaces the default of the others, {END_OF_TEXT}."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="gpt2 (default), cl100k, o200k, llama3, qwen2, tekken, or a regular expression."),
    ] = None,
    min_frequency: Annotated[
        int | None, typer.Option(help="Minimum count of a merged pair, or of a word.")
    ] = None,
    max_token_length: Annotated[int | None, typer.Option(help="Maximum length of a token, in bytes.")] = None,
    tie_break: Annotated[
        str | None,
        typer.Option(help="Order of equally frequent pairs: lexicographic (default) or huggingface."),
    ] = None,
    limit_alphabet: Annotated[int | None, typer.Option(help="Maximum number of distinct characters.")] = None,
    cased: Annotated[bool | None, typer.Option("--cased", help="Keep upper case and accents.")] = None,
    character_coverage: Annotated[
        float | None, typer.Option(help="Fraction of the characters of the text that pieces must cover.")
    ] = None,
    byte_fallback: Annotated[
        bool | None,
        typer.Option("--byte-fallback", help="Encode characters without a piece as bytes instead of UNK."),
    ] = None,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    max_bytes: Annotated[
        int | None, typer.Option(help="Train on a random sample of about this many bytes.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sample.")] = None,
    save_counts: Annotated[
        Path | None, typer.Option(help="Also write the pre-token counts to this file, for later training.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="File for the state of training, from which an interrupted command resumes."),
    ] = None,
    bundle: Annotated[
        bool,
        typer.Option("--bundle", help="Write a directory with tokenizer, statistics, sources and report."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Number of threads. Default: number of processors.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress or a summary.")] = False,
) -> None:
    """Train a tokenizer on text files: byte-level BPE, WordPiece, word-level or SentencePiece."""
    passed: dict[str, Any] = {
        "pattern": pattern,
        "min_frequency": min_frequency,
        "max_token_length": max_token_length,
        "tie_break": tie_break,
        "limit_alphabet": limit_alphabet,
        "cased": cased,
        "character_coverage": character_coverage,
        "byte_fallback": byte_fallback,
        "max_bytes": max_bytes,
        "seed": seed,
        "save_counts": save_counts,
        "checkpoint": checkpoint,
    }
    options = _select_options(model, {name: value for name, value in passed.items() if value is not None})
    reject_urls(out)
    _check_output(Path(out), files, bundle=bundle, overwrite=overwrite)
    if save_counts is not None:
        _check_output_file(save_counts, files, overwrite=overwrite)
    shared: dict[str, Any] = {"progress": not quiet} | ({} if workers is None else {"workers": workers})
    special = tuple(special_token or ())
    try:
        source = _make_training_source(files, text_column, file_format, model, special, options, shared)
        if special or not isinstance(source, PretokenCounts) or model in _SPECIAL_TOKENS_BY_MODEL:
            options["special_tokens"] = _get_special_tokens(model, special)
        trained = _TRAINERS[model](source, vocab_size=vocab_size, **options, **shared)
    except KeyboardInterrupt as error:
        message = str(error) or "interrupted"
        Console(stderr=True).print(message, style="bold red", markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    if bundle:
        file = save_training_bundle(trained, out, overwrite=overwrite).path
    else:
        file = tokjax.save_tokenizer(trained.tokenizer, out)
    if not quiet:
        Console().print(make_training_table(trained, file))


def _select_options(model: Model, passed: dict[str, Any]) -> dict[str, Any]:
    """Returns the options for the trainer and for counting; rejects options of other models."""
    for name in passed:
        if name not in _OPTIONS_BY_MODEL[model]:
            accepted = ", ".join(sorted(_to_option_name(option) for option in _OPTIONS_BY_MODEL[model]))
            raise typer.BadParameter(
                f"{_to_option_name(name)} can't be used with --model {model}, which accepts {accepted}"
            )
    if passed.pop("cased", False):
        passed["lowercase"] = False
    return passed


def _make_training_source(
    files: list[str],
    text_column: str,
    file_format: str,
    model: Model,
    special: tuple[str, ...],
    options: dict[str, Any],
    shared: dict[str, Any],
) -> Source | PretokenCounts:
    """Returns the source files or their pre-token counts.

    Files are counted here instead of in the trainer if `--max-bytes`, `--seed` or `--save-counts` is passed.
    """
    counting = {name: options.pop(name) for name in ("max_bytes", "seed") if name in options}
    counts_path = options.pop("save_counts", None)
    counts_files = [path for path in _find_paths(files) if _is_counts_file(path)]
    if counts_files:
        if (
            model in _SENTENCEPIECE_MODELS
            or counting
            or counts_path
            or (text_column, file_format) != ("text", "auto")
        ):
            raise typer.BadParameter(
                f"{counts_files[0]} contains pre-token counts, which can't be used with --max-bytes, --seed, "
                "--save-counts, --text-column, --format or a SentencePiece model"
            )
        return _load_counts(files, counts_files)
    separators = _get_special_tokens(model, special)
    source = make_source_or_stdin(files, text_column, file_format, separators)
    if not counting and counts_path is None:
        return source
    pattern = options.pop("pattern", "gpt2") if model is Model.bpe else "whitespace"
    counts = count_pretokens(source, special_tokens=separators, pattern=pattern, **counting, **shared)
    if counts_path is not None:
        save_pretoken_counts(counts, counts_path)
    return counts


def _find_paths(files: list[str]) -> tuple[Path, ...]:
    """Returns the source files, including files of pre-token counts; none for standard input."""
    return () if files == [STDIN] else text_files(files, format="text").paths


def _is_counts_file(path: Path) -> bool:
    """Returns whether a file is a ZIP archive, as `.npz` files are."""
    with path.open("rb") as file:
        return file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC


def _load_counts(files: list[str], counts_files: list[Path]) -> PretokenCounts:
    """Loads the counts of several files, and adds them."""
    paths = _find_paths(files)
    if len(counts_files) < len(paths):
        other = next(path for path in paths if path not in counts_files)
        raise typer.BadParameter(
            f"{counts_files[0]} contains pre-token counts, but {other} does not; count it first with "
            "--save-counts"
        )
    return sum(map(load_pretoken_counts, paths[1:]), load_pretoken_counts(paths[0]))


def _check_output(out: Path, files: list[str], *, bundle: bool, overwrite: bool) -> None:
    """Raises an error if the output can't or must not be written, before any source is read."""
    if not bundle and is_bundle(out):
        raise tokjax.errors.BundleExistsError(
            f"{out} is a training bundle; pass --bundle --overwrite to replace it"
        )
    _check_output_file(out, files, overwrite=overwrite)


def _check_output_file(file: Path, sources: list[str], *, overwrite: bool) -> None:
    """Checks that a file can be written, and creates its directory."""
    if file.exists() and not overwrite:
        raise tokjax.errors.InvalidArgumentError(f"{file} exists; to replace it, pass --overwrite")
    if file.is_file() and any(file.samefile(path) for path in _find_paths(sources)):
        raise tokjax.errors.InvalidArgumentError(
            f"{file} is one of the source files; pass another output file"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(file.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "this directory is not writable", str(file.parent))


def _get_special_tokens(model: Model, passed: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the special tokens to train with: those of `--special-token` and the defaults of the model."""
    if model in _SPECIAL_TOKENS_BY_MODEL:
        return tuple(dict.fromkeys([*_SPECIAL_TOKENS_BY_MODEL[model], *passed]))
    return passed or (END_OF_TEXT,)


def _to_option_name(name: str) -> str:
    return "--" + name.replace("_", "-")
