"""The command `tokjax train`. Counts, weights and continued training are in `tokjax.trainer` alone."""

from __future__ import annotations

import errno
import inspect
import os
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import tokjax
from tokjax._util.atomic_files import reject_home
from tokjax._util.urls import reject_urls
from tokjax.cli.options import (
    FILES_HELP,
    INTERRUPTED,
    FormatOption,
    TextColumnOption,
    make_source,
    print_rows,
)
from tokjax.trainer import (
    Trained,
    save_training_bundle,
    train_bpe,
    train_sentencepiece,
    train_word_level,
    train_wordpiece,
)
from tokjax.trainer.bpe.train_bpe import END_OF_TEXT
from tokjax.trainer.bundles import is_bundle
from tokjax.trainer.words import WORD_LEVEL_TOKENS, WORDPIECE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokjax.corpus.files import TextFiles


class Model(StrEnum):
    """Type of the vocabulary."""

    bpe = "bpe"
    wordpiece = "wordpiece"
    word_level = "word-level"
    unigram = "unigram"
    sentencepiece_bpe = "sentencepiece-bpe"
    char = "char"
    word = "word"


_OPTIONS = (
    "pattern",
    "min_frequency",
    "tie_break",
    "limit_alphabet",
    "lowercase",
    "character_coverage",
    "byte_fallback",
)
"""Options that some of the trainers have."""
_TRAINERS: Mapping[Model, Callable[..., Trained[Any]]] = {
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
        typer.Argument(help=f"{FILES_HELP} Or - for standard input.", show_default=False),
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
    tie_break: Annotated[
        str | None,
        typer.Option(help="Order of equally frequent pairs: lexicographic (default) or huggingface."),
    ] = None,
    limit_alphabet: Annotated[int | None, typer.Option(help="Maximum number of distinct characters.")] = None,
    lowercase: Annotated[
        bool | None,
        typer.Option("--lowercase/--cased", help="Lower case without accents, or as in the text."),
    ] = None,
    character_coverage: Annotated[
        float | None, typer.Option(help="Fraction of the characters of the text that pieces must cover.")
    ] = None,
    byte_fallback: Annotated[
        bool | None,
        typer.Option("--byte-fallback", help="Encode characters without a piece as bytes instead of UNK."),
    ] = None,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    bundle: Annotated[
        bool,
        typer.Option("--bundle", help="Write a directory with tokenizer, statistics and sources."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Number of threads. Default: number of processors.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress or a summary.")] = False,
) -> None:
    """Train a tokenizer on text files: byte-level BPE, WordPiece, word-level or SentencePiece."""
    passed = dict(locals())
    names = [*_SPECIAL_TOKENS_BY_MODEL.get(model, ()), *(special_token or ())] or [END_OF_TEXT]
    options = _select_options(model, passed) | {
        "vocab_size": vocab_size,
        "special_tokens": list(dict.fromkeys(names)),
        "workers": workers,
        "progress": not quiet,
    }
    reject_urls(out)
    source = make_source(files, text_column, file_format)
    _check_output(Path(out), source, bundle=bundle, overwrite=overwrite)
    try:
        trained = _TRAINERS[model](source, **options)
    except KeyboardInterrupt as error:
        message = str(error) or "interrupted"
        Console(stderr=True).print(message, style="bold red", markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    if bundle:
        file = save_training_bundle(trained, out, overwrite=overwrite).path
    else:
        file = tokjax.save_tokenizer(trained.tokenizer, out)
    if not quiet:
        stats = trained.stats
        rows: dict[str, object] = {
            "vocabulary": trained.tokenizer.vocabulary.size,
            "documents": stats.documents,
            "bytes of text": stats.bytes,
            "unique pre-tokens": stats.num_unique_pretokens,
            "bytes per token": stats.bytes_per_token,
        }
        durations = {phase: f"{seconds:.1f} s" for phase, seconds in stats.seconds.items()}
        print_rows(str(file), {**rows, **durations}, stats.notes)


def _select_options(model: Model, passed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options for the trainer; rejects options that it does not have.

    Args:
        model: type of the vocabulary.
        passed: all arguments of the command by name, `None` for options that were not passed.
    """
    parameters = inspect.signature(_TRAINERS[model]).parameters
    options = {name: passed[name] for name in _OPTIONS if passed[name] is not None}
    for name in options.keys() - parameters:
        accepted = ", ".join(sorted(_to_option_name(each) for each in _OPTIONS if each in parameters))
        raise typer.BadParameter(
            f"{_to_option_name(name)} can't be used with --model {model}, which accepts {accepted}"
        )
    return options


def _check_output(out: Path, source: TextFiles, *, bundle: bool, overwrite: bool) -> None:
    """Raises if the output can't or must not be written, before any source is read; creates its directory."""
    if not bundle and is_bundle(out):
        raise tokjax.errors.BundleExistsError(
            f"{out} is a training bundle; pass --bundle --overwrite to replace it"
        )
    reject_home(out)
    if out.exists() and not overwrite:
        raise tokjax.errors.InvalidArgumentError(f"{out} exists; to replace it, pass --overwrite")
    if out.is_file() and any(out.samefile(path) for path in source.paths):
        raise tokjax.errors.InvalidArgumentError(
            f"{out} is one of the source files; pass another output file"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "this directory is not writable", str(out.parent))


def _to_option_name(name: str) -> str:
    return "--lowercase/--cased" if name == "lowercase" else "--" + name.replace("_", "-")
