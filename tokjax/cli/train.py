"""The commands `tokjax train` and `tokjax estimate-mixture`, whose files are texts or pre-token counts."""

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
from tokjax._util.checks import check_int
from tokjax._util.urls import is_url, reject_urls
from tokjax.cli.options import (
    FILES_HELP,
    INTERRUPTED,
    STDIN,
    FormatOption,
    TextColumnOption,
    TokenizerOption,
    make_source,
    open_stdin,
    print_rows,
)
from tokjax.corpus.decompression import open_source
from tokjax.corpus.files import text_files
from tokjax.models.byte_bpe import get_normalize
from tokjax.reports.mixture import explain_normalizer
from tokjax.trainer import (
    PretokenCounts,
    Trained,
    continue_bpe,
    count_pretokens,
    load_pretoken_counts,
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


_ZIP_MAGIC = b"PK\x03\x04"
"""First bytes of `.npz` files, which contain pre-token counts."""
_COUNTING_OPTIONS = {"min_frequency", "max_bytes", "seed", "save_counts", "weight"}
_SENTENCEPIECE_OPTIONS = {"character_coverage", "byte_fallback"}
_OPTIONS_BY_MODEL: Mapping[Model, set[str]] = {
    **dict.fromkeys(Model, _SENTENCEPIECE_OPTIONS),
    Model.bpe: _COUNTING_OPTIONS | {"pattern", "tie_break", "continue_from"},
    Model.wordpiece: _COUNTING_OPTIONS | {"limit_alphabet", "cased"},
    Model.word_level: _COUNTING_OPTIONS | {"cased"},
}
_NOT_FOR_TRAINERS = {"max_bytes", "seed", "save_counts", "weight", "continue_from", "cased"}
"""Options that trainers do not have."""
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
    passed = dict(locals())
    options = _select_options(model, passed)
    if special_token and continue_from is not None:
        raise typer.BadParameter("--special-token can't be used with --continue-from")
    reject_urls(out)
    _check_output(Path(out), files, bundle=bundle, overwrite=overwrite)
    if save_counts is not None:
        _check_output_file(save_counts, files, overwrite=overwrite)
    shared: dict[str, Any] = {"progress": not quiet} | ({} if workers is None else {"workers": workers})
    sample = {name: passed[name] for name in ("max_bytes", "seed") if passed[name] is not None}
    accepts_counts = _OPTIONS_BY_MODEL[model] is not _SENTENCEPIECE_OPTIONS and save_counts is None
    try:
        continued = None if continue_from is None else _load_continued(continue_from)
        counting = _choose_counting(model, continued, special_token or (), pattern) | sample | shared
        reading = Reading(text_column, file_format, counting, accepts_counts)
        source = _make_source(files, reading, weight, save_counts)
        options |= {"vocab_size": vocab_size, **shared}
        if continued is not None:
            trained, _ = continue_bpe(continued, source, **options)
        else:
            if special_token or not isinstance(source, PretokenCounts) or model in _SPECIAL_TOKENS_BY_MODEL:
                options["special_tokens"] = counting["special_tokens"]
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


def estimate_mixture(
    files: Annotated[
        list[str],
        typer.Argument(
            help=f"{FILES_HELP} Each is one of the candidate sources. Or files that tokjax train "
            "--save-counts wrote.",
            show_default=False,
        ),
    ],
    tokenizer: TokenizerOption,
    max_merges: Annotated[
        int, typer.Option(help="Number of merges to use. More are more precise, and take longer.")
    ] = 1000,
    text_column: TextColumnOption = "text",
    file_format: FormatOption = "auto",
    max_bytes: Annotated[
        int | None, typer.Option(help="Use a random sample of about this many bytes of each source.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")] = False,
) -> None:
    """Estimate the shares of sources in the training data of a byte-level BPE tokenizer."""
    loaded: Any = tokjax.load_tokenizer(tokenizer)
    if not isinstance(loaded, tokjax.models.ByteLevelBPE):
        raise typer.BadParameter(
            f"{tokenizer} is a {type(loaded).__name__}; the estimate needs the merges of a byte-level BPE"
            f"{explain_normalizer(loaded)}",
            param_hint="--tokenizer",
        )
    check_int("max_merges", max_merges, minimum=1)  # before the files are counted, which takes time
    counting: dict[str, Any] = {
        "special_tokens": sorted(loaded.vocabulary.split_token_names),
        "pattern": loaded.pattern,
        "normalize": get_normalize(loaded),
        "progress": not quiet,
    } | ({} if max_bytes is None else {"max_bytes": max_bytes})
    sources = _count_each(files, Reading(text_column, file_format, counting))
    estimate = tokjax.reports.estimate_mixture(loaded, sources, max_merges=max_merges, progress=not quiet)
    rows: dict[str, Any] = {
        source: "{:.1%} ({:.1%} to {:.1%})".format(share, *estimate.ranges[source])
        for source, share in estimate.shares.items()
    }
    print_rows(tokenizer, rows | {"merges": estimate.num_merges, "shortfall": f"{estimate.shortfall:.1f}"})


def _select_options(model: Model, passed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options for the trainer; rejects options of other models.

    Args:
        model: type of the vocabulary.
        passed: all arguments of the command by name, `None` for options that were not passed.
    """
    for name in set().union(*_OPTIONS_BY_MODEL.values()) - _OPTIONS_BY_MODEL[model]:
        if passed[name] is not None:
            accepted = ", ".join(sorted(map(_to_option_name, _OPTIONS_BY_MODEL[model])))
            raise typer.BadParameter(
                f"{_to_option_name(name)} can't be used with --model {model}, which accepts {accepted}"
            )
    names = _OPTIONS_BY_MODEL[model] - _NOT_FOR_TRAINERS
    lowercase = {"lowercase": False} if passed["cased"] else {}
    return {name: passed[name] for name in sorted(names) if passed[name] is not None} | lowercase


def _choose_counting(
    model: Model,
    continued: tokjax.models.ByteLevelBPE | None,
    special_tokens: Sequence[str],
    pattern: str | None,
) -> dict[str, Any]:
    """Returns how texts are normalized and split, as options of `count_pretokens`."""
    if continued is not None:
        return {
            "special_tokens": sorted(continued.vocabulary.split_token_names),
            "pattern": continued.pattern if pattern is None else pattern,
            "normalize": get_normalize(continued),
        }
    names = [*_SPECIAL_TOKENS_BY_MODEL.get(model, ()), *special_tokens] or [END_OF_TEXT]
    default = "gpt2" if model is Model.bpe else "whitespace"
    return {"special_tokens": list(dict.fromkeys(names)), "pattern": default if pattern is None else pattern}


def _make_source(
    files: list[str], reading: Reading, weights: list[float] | None, save_counts: Path | None
) -> Source | PretokenCounts:
    """Returns the source files or their pre-token counts.

    Files are counted here instead of in the trainer if they have weights, or if `--max-bytes`, `--seed` or
    `--save-counts` is passed.
    """
    if weights is not None:
        if len(weights) != len(files):
            raise typer.BadParameter(
                f"there are {len(files)} FILES and {len(weights)} values of --weight; pass one for each of "
                "FILES, in the same order, and quote patterns, such as 'en/*.txt'"
            )
        shares = dict(zip(files, weights, strict=True))
        check_weights(files, shares)  # before the files are counted, which takes time
        counts = mix_counts(_count_each(files, reading), shares)
    elif reading.has_sample or save_counts is not None:
        counts = _count_files(files, reading)
    else:
        return _read_files(files, reading)
    if save_counts is not None:
        save_pretoken_counts(counts, save_counts)
    return counts


class Reading(NamedTuple):
    """How files are read and counted.

    Attributes:
        text_column: field or column with the text of each record.
        file_format: format of all files, or `"auto"`.
        counting: options of `count_pretokens`.
        accepts_counts: whether files of pre-token counts can be read, too.
    """

    text_column: str
    file_format: str
    counting: dict[str, Any]
    accepts_counts: bool = True

    @property
    def has_sample(self) -> bool:
        """Whether a sample of the texts is counted, with options that were passed."""
        return not self.counting.keys().isdisjoint(("max_bytes", "seed"))


def _read_files(files: list[str], reading: Reading) -> Source | PretokenCounts:
    """Returns files as one source, or the sum of their pre-token counts.

    Args:
        files: paths and patterns, or `-` alone.
        reading: how they are read.

    Raises:
        typer.BadParameter: some of the files have pre-token counts, and others do not, or an option is for
            texts.
    """
    counts_files = [path for path in _find_paths(files) if _is_counts_file(path)]
    if not counts_files:
        source = make_source(files, reading.text_column, reading.file_format, takes_stdin=True)
        return open_stdin(source, reading.counting["special_tokens"])
    is_default = (reading.text_column, reading.file_format) == ("text", "auto")
    if not reading.accepts_counts or reading.has_sample or not is_default:
        raise typer.BadParameter(
            f"{counts_files[0]} contains pre-token counts, which can't be used with --max-bytes, --seed, "
            "--save-counts, --text-column, --format or a SentencePiece model"
        )
    paths = _find_paths(files)
    if len(counts_files) < len(paths):
        other = next(path for path in paths if path not in counts_files)
        raise typer.BadParameter(
            f"{counts_files[0]} contains pre-token counts, but {other} does not; count it first with "
            "--save-counts"
        )
    return sum(map(load_pretoken_counts, paths[1:]), load_pretoken_counts(paths[0]))


def _count_files(files: list[str], reading: Reading) -> PretokenCounts:
    """Returns the pre-token counts of all files together."""
    source = _read_files(files, reading)
    if isinstance(source, PretokenCounts):
        return source
    return count_pretokens(source, **reading.counting)


def _count_each(files: list[str], reading: Reading) -> dict[str, PretokenCounts]:
    """Returns the pre-token counts of each path or pattern.

    Raises:
        typer.BadParameter: a path is passed twice.
    """
    duplicate = next((file for i, file in enumerate(files) if file in files[:i]), None)
    if duplicate is not None:
        raise typer.BadParameter(f"{duplicate} is passed twice; each of FILES is a separate source")
    local_files = [file for file in files if file != STDIN and not is_url(file)]
    if local_files:
        _find_paths(local_files)  # raises if one is missing, before another is counted
    return {file: _count_files([file], reading) for file in files}


def _find_paths(files: list[str]) -> tuple[Path, ...]:
    """Returns the source files, including files of pre-token counts; none for standard input."""
    return () if files == [STDIN] else text_files(files, format="text").paths


def _is_counts_file(path: Path) -> bool:
    """Returns whether a file is a ZIP archive, as `.npz` files are."""
    with open_source(path) as file:
        return file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC


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
    if file.is_file() and any(file.samefile(path) for path in _find_paths(sources)):
        raise tokjax.errors.InvalidArgumentError(
            f"{file} is one of the source files; pass another output file"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(file.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "this directory is not writable", str(file.parent))


def _to_option_name(name: str) -> str:
    return "--" + name.replace("_", "-")
