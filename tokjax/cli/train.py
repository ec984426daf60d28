"""The command `tokjax train`."""

from __future__ import annotations

import errno
import os
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console

import tokjax
from tokjax._util.atomic_files import reject_home
from tokjax._util.urls import reject_urls
from tokjax.cli.options import FILES_HELP, INTERRUPTED, FormatOption, TextColumnOption
from tokjax.cli.table_format import make_training_table
from tokjax.cli.training_sources import Reading, count_each, count_files, find_paths, read_files
from tokjax.models.byte_bpe import get_normalize
from tokjax.trainer import (
    PretokenCounts,
    Trained,
    continue_bpe,
    mix_counts,
    save_pretoken_counts,
    save_training_bundle,
    train_bpe,
    train_sentencepiece,
    train_word_level,
    train_wordpiece,
)
from tokjax.trainer.bpe.train_bpe import END_OF_TEXT
from tokjax.trainer.bundles import is_bundle
from tokjax.trainer.pretoken_counts import check_weights
from tokjax.trainer.words import WORD_LEVEL_TOKENS, WORDPIECE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokjax.corpus.sources import Source


class Model(StrEnum):
    """Type of the vocabulary."""

    bpe = "bpe"
    wordpiece = "wordpiece"
    word_level = "word-level"
    unigram = "unigram"
    sentencepiece_bpe = "sentencepiece-bpe"
    char = "char"
    word = "word"


_COUNTING_OPTIONS = {"min_frequency", "max_bytes", "seed", "save_counts", "weight"}
_SENTENCEPIECE_OPTIONS = {"character_coverage", "byte_fallback"}
_OPTIONS_BY_MODEL: Mapping[Model, set[str]] = {
    Model.bpe: _COUNTING_OPTIONS | {"pattern", "max_token_length", "tie_break", "continue_from"},
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
    continue_from: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENIZER",
            help="Byte-level BPE tokenizer whose vocabulary is extended by new merges. --vocab-size is the "
            "new size.",
        ),
    ] = None,
    weight: Annotated[
        list[float] | None,
        typer.Option(
            help="Share of the bytes of each of FILES, on any scale: repeat it for each, in the same order."
        ),
    ] = None,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    max_bytes: Annotated[
        int | None,
        typer.Option(
            help="Train on a random sample of about this many bytes; with --weight, of each of FILES."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the sample.")] = None,
    save_counts: Annotated[
        Path | None, typer.Option(help="Also write the pre-token counts to this file, for later training.")
    ] = None,
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
    passed: dict[str, Any] = {
        "pattern": pattern,
        "min_frequency": min_frequency,
        "max_token_length": max_token_length,
        "tie_break": tie_break,
        "limit_alphabet": limit_alphabet,
        "cased": cased,
        "character_coverage": character_coverage,
        "byte_fallback": byte_fallback,
        "continue_from": continue_from,
        "weight": weight,
        "max_bytes": max_bytes,
        "seed": seed,
        "save_counts": save_counts,
    }
    options = _select_options(model, {name: value for name, value in passed.items() if value is not None})
    special = tuple(special_token or ())
    if special and continue_from is not None:
        raise typer.BadParameter("--special-token can't be used with --continue-from")
    reject_urls(out)
    _check_output(Path(out), files, bundle=bundle, overwrite=overwrite)
    if save_counts is not None:
        _check_output_file(save_counts, files, overwrite=overwrite)
    shared: dict[str, Any] = {"progress": not quiet} | ({} if workers is None else {"workers": workers})
    try:
        training = _prepare_training(model, files, special, text_column, file_format, options, shared)
        trained = _train(training, vocab_size, options)
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


class _Training(NamedTuple):
    """A training: its files, and the options that do not belong to the trainer.

    Attributes:
        model: type of the vocabulary.
        files: paths and patterns of the sources.
        special: names of `--special-token`.
        continued: tokenizer of `--continue-from`.
        reading: how the files are read and counted.
        weights: share of each of the files.
        save_counts: file for the pre-token counts.
    """

    model: Model
    files: list[str]
    special: tuple[str, ...]
    continued: tokjax.models.ByteLevelBPE | None
    reading: Reading
    weights: list[float] | None
    save_counts: Path | None


def _prepare_training(
    model: Model,
    files: list[str],
    special: tuple[str, ...],
    text_column: str,
    file_format: str,
    options: dict[str, Any],
    shared: dict[str, Any],
) -> _Training:
    """Separates the options of a trainer from all others, which are removed from `options`."""
    sample: dict[str, Any] = {name: options.pop(name) for name in ("max_bytes", "seed") if name in options}
    continue_from, save_counts = options.pop("continue_from", None), options.pop("save_counts", None)
    continued = None if continue_from is None else _load_continued(continue_from)
    normalize: Any = "auto"
    if continued is not None:
        special_tokens: Sequence[str] = sorted(continued.vocabulary.split_token_names)
        pattern = options.get("pattern", continued.pattern)
        normalize = get_normalize(continued)
    else:
        special_tokens = _get_special_tokens(model, special)
        pattern = options.get("pattern", "gpt2") if model is Model.bpe else "whitespace"
    accepts_counts = model not in _SENTENCEPIECE_MODELS and save_counts is None
    reading = Reading(
        text_column, file_format, special_tokens, pattern, sample, shared, normalize, accepts_counts
    )
    weights = options.pop("weight", None)
    return _Training(model, files, special, continued, reading, weights, save_counts)


def _train(training: _Training, vocab_size: int, options: dict[str, Any]) -> Trained[Any]:
    """Runs the trainer of a model, with its options."""
    model, reading = training.model, training.reading
    source = _make_source(training)
    options = {"vocab_size": vocab_size, **options, **reading.shared}
    if training.continued is not None:
        trained, _ = continue_bpe(training.continued, source, **options)
        return trained
    if training.special or not isinstance(source, PretokenCounts) or model in _SPECIAL_TOKENS_BY_MODEL:
        options["special_tokens"] = reading.special_tokens
    return _TRAINERS[model](source, **options)


def _make_source(training: _Training) -> Source | PretokenCounts:
    """Returns the source files or their pre-token counts.

    Files are counted here instead of in the trainer if they have weights, or if `--max-bytes`, `--seed` or
    `--save-counts` is passed.
    """
    files, reading = training.files, training.reading
    if training.weights is not None:
        _check_one_for_each(files, training.weights, "--weight")
        weights = dict(zip(files, training.weights, strict=True))
        check_weights(files, weights)  # before the files are counted, which takes time
        counts = mix_counts(count_each(files, reading), weights)
    elif reading.sample or training.save_counts is not None:
        counts = count_files(files, reading)
    else:
        return read_files(files, reading)
    if training.save_counts is not None:
        save_pretoken_counts(counts, training.save_counts)
    return counts


def _check_one_for_each(files: list[str], values: Sequence[object], option: str) -> None:
    if len(values) != len(files):
        raise typer.BadParameter(
            f"there are {len(files)} FILES and {len(values)} values of {option}; pass one for each of FILES, "
            "in the same order, and quote patterns, such as 'en/*.txt'"
        )


def _load_continued(path: str) -> tokjax.models.ByteLevelBPE:
    """Loads the tokenizer of `--continue-from`."""
    tokenizer: Any = tokjax.load_tokenizer(path)
    if not isinstance(tokenizer, tokjax.models.ByteLevelBPE):
        raise typer.BadParameter(
            f"{path} is a {type(tokenizer).__name__}; only byte-level BPE can be continued",
            param_hint="--continue-from",
        )
    if tokenizer.add_prefix_space:
        raise typer.BadParameter(
            f"{path} adds a space before texts (add_prefix_space=True); count the changed texts in Python, "
            "and pass the counts to tokjax.trainer.continue_bpe",
            param_hint="--continue-from",
        )
    return tokenizer


def _check_output(out: Path, sources: list[str], *, bundle: bool, overwrite: bool) -> None:
    """Raises an error if the output can't or must not be written, before any source is read."""
    if not bundle and is_bundle(out):
        raise tokjax.errors.BundleExistsError(
            f"{out} is a training bundle; pass --bundle --overwrite to replace it"
        )
    _check_output_file(out, sources, overwrite=overwrite)


def _check_output_file(file: Path, sources: list[str], *, overwrite: bool) -> None:
    """Checks that a file can be written, and creates its directory."""
    reject_home(file)
    if file.exists() and not overwrite:
        raise tokjax.errors.InvalidArgumentError(f"{file} exists; to replace it, pass --overwrite")
    if file.is_file() and any(file.samefile(path) for path in find_paths(sources)):
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
