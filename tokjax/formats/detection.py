"""Detection of the tokenizer format of a file or directory, by the names and contents of `file_formats`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax._util.atomic_files import check_path
from tokjax.core import protocol
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.file_formats import FORMATS, VOCAB_TXT, FileStart, Format, has_name
from tokjax.formats.tokenizer_files import (
    ADDED_TOKENS_FILE,
    CHAT_TEMPLATE_FILE,
    CONFIG_FILE,
    MODEL_CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence

_COMPANIONS = (CONFIG_FILE, SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE, CHAT_TEMPLATE_FILE)
"""Files that are read with a tokenizer if they are in its directory."""
_PAIRS = [layout for row in FORMATS.values() for layout in row.layouts if len(layout) > 1]


class DetectedTokenizer(NamedTuple):
    """Format and files of a detected tokenizer.

    Attributes:
        format: tokenizer format.
        files: files of the tokenizer, in the order of the parameters of their reader.
        reason: evidence for the format, as a phrase for error messages.
    """

    format: Format
    files: tuple[Path, ...]
    reason: str


def detect_tokenizer_files(path: str | os.PathLike[str] | Iterable[Any]) -> DetectedTokenizer:
    """Finds the files of a tokenizer and their format.

    A directory is searched in this order, and the first format found is returned:

    1. `tokenizer.tokjax.json`
    2. `tokenizer.json`
    3. `vocab.json` with `merges.txt`, like GPT-2's, or `encoder.json` with `vocab.bpe`
    4. a SentencePiece model with a usual name (`tokenizer.model`, `spiece.model`, `sentencepiece.bpe.model`,
       `spm.model`, `tokenizer.model.v3`) or as a single `*.model`, or a rank file with such a name
    5. a single `*.tiktoken`, or `tekken.json`, `tekken_240718.json` or other date
    6. `vocab.txt` with `merges.txt`: a classic BPE
    7. `vocab.txt` alone: WordPiece

    Args:
        path: path of a directory or a file, or a pair of file paths.

    Raises:
        FileNotFoundError: the path does not exist.
        InvalidArgumentError: `path` is not a path or a pair of paths.
        TokenizerFormatError: the path contains no tokenizer, or several tokenizers of one format.
    """
    if not isinstance(path, (str, Path)) and not hasattr(path, "__fspath__"):
        if not isinstance(path, Iterable) or isinstance(path, bytes):
            raise InvalidArgumentError(
                f"path must be a path, a pair of paths, a name or a tokenizer, not {path!r:.80}"
                f"{protocol.suggest_tokenizer(path)}"
            )
        return _detect_pair(path)
    target = check_path(path)
    if not target.is_dir():
        return detect_tokenizer_format(target)
    names = select_names({entry.name for entry in target.iterdir()}, str(target))
    reason = f"{target} has {' and '.join(names)}"
    if names[0].endswith(".json"):  # (parsing a large file takes time, and its reader does it again)
        format_ = next(format_ for format_, layout in _iter_layouts() if _fits(names, layout))
        return DetectedTokenizer(format_, tuple(target / name for name in names), reason)
    detected = detect_tokenizer_format(target / names[0])
    return detected._replace(reason=f"{reason}, and {detected.reason}")


def detect_tokenizer_format(path: str | os.PathLike[str]) -> DetectedTokenizer:
    """Detects the tokenizer format of a file.

    Args:
        path: path of the file. For a format of two files, the path of either works, if the other file is in
            the same directory.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenizerFormatError: the file is not in a supported tokenizer format.
    """
    start = FileStart(check_path(path))
    reasons = []
    for format_, row in FORMATS.items():
        if (reason := row.sniff(start)) is not None:
            reasons.append(reason)
            for files in _find_files(format_, start.path):
                others = ", and the other file is in the same directory" if len(files) > 1 else ""
                return DetectedTokenizer(format_, files, reason + others)
    raise TokenizerFormatError(f"{start.path}: {_explain_failure(start, reasons)}")


def _find_files(format_: Format, path: Path) -> Iterable[tuple[Path, ...]]:
    """Yields the files of a tokenizer of a format, of which one is given, if they all exist."""
    if FORMATS[format_].num_files == 1:
        yield (path,)
    for layout in FORMATS[format_].layouts:
        files = tuple(path.with_name(name) for name in layout)
        if len(files) > 1 and path in files and all(file.is_file() for file in files):
            yield files


def _explain_failure(start: FileStart, reasons: Sequence[str]) -> str:
    """Returns why a file is not a tokenizer, and what to do.

    Args:
        start: the file.
        reasons: why it may be one of two files.
    """
    if reasons:
        return (
            f"{reasons[0]}, which is one of the two files of a tokenizer; pass both, [VOCAB, MERGES], or one "
            "of them under its usual name with the other in the same directory"
        )
    if start.has_scores:
        return (
            "a list of the pieces and scores of a SentencePiece model, without its normalization; pass the "
            "path of the .model, which the trainer writes beside it; from KeemenaSubwords.jl, export the "
            "tokenizer with format=:hf_tokenizer_json and load that"
        )
    if start.json:
        return (
            f"a JSON object, but not a tokenizer; its keys are {list(start.json)[:10]}. If it has ranks, "
            "pass them to tokjax.byte_level_bpe(RANKS, pattern=..., special_tokens=...)"
        )
    return (
        f"unknown tokenizer format; the file begins with {start.header[:30]!r}. If it is in one of the "
        f"formats {', '.join(FORMATS)}, pass format="
    )


def _iter_layouts() -> Iterable[tuple[Format, tuple[str, ...]]]:
    return ((format_, layout) for format_, row in FORMATS.items() for layout in row.layouts)


def _fits(names: Sequence[str], layout: Sequence[str]) -> bool:
    return len(names) == len(layout) and all(map(has_name, names, layout))


def find_tokenizer_names(present: Collection[str]) -> list[tuple[str, ...]]:
    """Finds the files of a tokenizer by their names, in the order of `detect_tokenizer_files`.

    Args:
        present: names of the files in a directory.

    Returns:
        The names of the files of the first format, as one group; several groups of one file if the files of
        several tokenizers of one format are present; an empty list if there is no tokenizer.
    """
    for _, layout in _iter_layouts():
        columns = [[name for name in sorted(present) if has_name(name, part)] for part in layout]
        if all(columns):
            return list(itertools.product(*columns))
    return []


def list_candidates(name: str) -> list[str]:
    """Returns the names of the files that can be needed to load a file: itself, a pair's, and settings.

    Args:
        name: name of the file.
    """
    pair_names = [*dict.fromkeys(itertools.chain(*_PAIRS))]
    related = pair_names if name in pair_names else [name]
    return [*_COMPANIONS, *_list_model_configs(related), *related]


def select_files(present: Collection[str], file: str | None, where: str) -> list[str]:
    """Selects the files that are needed to load a tokenizer, the tokenizer itself last.

    Args:
        present: names of all files in a directory.
        file: name of the file to load, or `None` for that of `detect_tokenizer_files`.
        where: path of the directory, for errors.

    Raises:
        TokenizerFormatError: `file` is `None`, and there is no tokenizer, or several of one format.
    """
    names = (file,) if file else select_names(present, where)
    related = list_candidates(file) if file else [*_COMPANIONS, *_list_model_configs(names)]
    return [*(name for name in related if name in present and name not in names), *names]


def _list_model_configs(names: Sequence[str]) -> list[str]:
    """Returns the name of the model's configuration file, unless it can't matter how the files are read."""
    return [] if len(names) == 1 and names[0].endswith((".json", ".tiktoken")) else [MODEL_CONFIG_FILE]


def select_names(present: Collection[str], directory: str) -> tuple[str, ...]:
    """Returns the names of the files of the only tokenizer of the first format.

    Args:
        present: names of all files in the directory.
        directory: path of the directory, for errors.

    Raises:
        TokenizerFormatError: there is no tokenizer, or more than one.
    """
    groups = find_tokenizer_names(present)
    if not groups:
        layouts = " or ".join(" with ".join(layout) for _, layout in _iter_layouts())
        raise TokenizerFormatError(
            f"{directory}: contains no tokenizer in a supported format, only {sorted(present)[:20]}. Looked "
            f"for {layouts.replace('|', ' or ')}"
        )
    if len(groups) > 1:
        names = [name for (name,) in groups]
        raise TokenizerFormatError(
            f"{directory}: contains several tokenizers of one format, {', '.join(names)}; pass the path of "
            f"one of them: load_tokenizer({f'{directory}/{names[0]}'!r})"
        )
    return groups[0]


def _detect_pair(paths: Iterable[Any]) -> DetectedTokenizer:
    files = [check_path(path) for path in paths]
    if len(files) != 2:
        raise InvalidArgumentError(
            f"a tokenizer is one file or a pair of files, got {len(files)}: {', '.join(map(str, files))}"
        )
    vocab, merges = sorted(files, key=lambda file: (file.suffix != ".json", file.name != VOCAB_TXT))
    if vocab.name == VOCAB_TXT:
        return DetectedTokenizer("word_bpe", (vocab, merges), "they are vocab.txt and a list of merges")
    if vocab.suffix != ".json" or merges.suffix == ".json":
        raise TokenizerFormatError(
            "a pair of files is a .json file that maps tokens to ids, and a list of merges; got "
            f"{vocab} and {merges}. For a vocabulary with one token per line, pass [VOCAB, MERGES] and "
            "format='word_bpe'"
        )
    return DetectedTokenizer("gpt2", (vocab, merges), "they are a map of tokens to ids and a list of merges")
