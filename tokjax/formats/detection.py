"""Detection of the tokenizer format of a file or directory, from file names and first bytes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tokjax._util.atomic_files import check_path, open_regular
from tokjax.core import protocol
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.tiktoken_files import describe_json_ranks, is_rank_file
from tokjax.formats.tokenizer_files import (
    ADDED_TOKENS_FILE,
    BYTE_ORDER_MARK,
    CHAT_TEMPLATE_FILE,
    CONFIG_FILE,
    GZIP_HEADER,
    MODEL_CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
    check_is_file,
    read_json_object,
)
from tokjax.formats.tokjax_json import TOKENIZER_FILE
from tokjax.models.format_errors import check_is_not_pointer

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence

Format = Literal[
    "tokjax",
    "huggingface",
    "gpt2",
    "sentencepiece",
    "tiktoken",
    "wordpiece",
    "word_bpe",
]
FORMATS: tuple[Format, ...] = get_args(Format)

_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_VOCAB_TXT = "vocab.txt"
_TXT_MERGES = ("merges.txt", "bpe.codes")
"""Lists of merges of a `vocab.txt`."""
_SENTENCEPIECE_NAMES = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model.v3",
)
_JSON_RANKS_NAME = re.compile(r"tekken(_[0-9]+)?\.json|claude\.json")
_RANKS_SUFFIXES = (".tiktoken", ".tiktoken.gz")
_FORMATS_BY_NAME: Mapping[str, Format] = {
    TOKENIZER_FILE: "tokjax",
    "tokenizer.json": "huggingface",
}
_COMPANIONS = (CONFIG_FILE, SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE, CHAT_TEMPLATE_FILE)
"""Files that are read with a tokenizer if they are in its directory."""
_MODEL_NAME = re.compile(r"(?i)[^.].*\.model(\.v[0-9]\w*)?")
"""Names of SentencePiece models. A name that begins with a dot is that of a hidden file."""
_HEADER_BYTES = 1 << 12
_HUGGINGFACE_HEADER = re.compile(rb'\s*\{\s*"version"\s*:\s*"[^"]*"\s*,\s*"truncation"\s*:')
_SCORED_PIECE = re.compile(rb"[^\t]+\t-?[0-9][0-9.e+-]*(\t.*)?")
_ZERO_SCORE = re.compile(rb".+\t0(\.0+)?")
_NEGATIVE_SCORE = re.compile(rb".+\t(0(\.0+)?|-[0-9][0-9.e+-]*)")
_TEXT_MODEL = re.compile(rb"(?m)^piece\t[^\t]+\t-?[0-9]")
_TEXT_MODEL_ADVICE = (
    "Load the .model that the trainer of SentencePiece wrote with it; from KeemenaSubwords.jl, export the "
    "tokenizer with format=:hf_tokenizer_json and load that"
)
_MODEL_FIELDS = (b"\x0a", b"\x12", b"\x1a")
"""First bytes of a SentencePiece model. Its fields 1 to 3, pieces and settings, can be in any order."""


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
    3. `vocab.json` with `merges.txt`, like GPT-2's
    4. `encoder.json` with `vocab.bpe`
    5. a SentencePiece model with a usual name (`tokenizer.model`, `spiece.model`, `sentencepiece.bpe.model`,
       `spm.model`, `tokenizer.model.v3`) or as a single `*.model`, or a rank file with such a name
    6. a single `*.tiktoken`, `*.tiktoken.gz`, `tekken.json`, `tekken_240718.json` or other date, or
       `claude.json`
    7. `vocab.txt` with `merges.txt` or `bpe.codes`: a classic BPE
    8. `vocab.txt` alone: WordPiece
    9. a single `*.vocab`, for the `.model` of the same name

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
    return _detect_in_directory(target)


def detect_tokenizer_format(path: str | os.PathLike[str]) -> DetectedTokenizer:
    """Detects the tokenizer format of a file.

    Args:
        path: path of the file. For a format of two files, the path of either works, if the other file is in
            the same directory.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenizerFormatError: the file is not in a supported tokenizer format.
    """
    source = check_path(path)
    header = _read_header(source)
    if not header:
        raise TokenizerFormatError(f"{source}: is empty")
    if header.lstrip().startswith(b"{") and source.suffix != ".txt":
        return _detect_json(source, header)
    if source.suffix == ".vocab" or not is_rank_file(header):
        if _is_scored_vocabulary(header):
            return _detect_scored_vocabulary(source)
        _reject_text_vocabulary(source, header)
    if is_rank_file(header):
        return DetectedTokenizer("tiktoken", (source,), "its lines contain base64 tokens and ranks")
    if header.startswith(_MODEL_FIELDS) and b"\0" in header:
        return DetectedTokenizer(
            "sentencepiece", (source,), "its first bytes are those of a serialized SentencePiece model"
        )
    return _detect_text_file(source, header)


def _detect_text_file(source: Path, header: bytes) -> DetectedTokenizer:
    if b"#version" in header.partition(b"\n")[0] or source.name in ("merges.txt", "vocab.bpe", "bpe.codes"):
        return _find_partner(source, "it is a list of merges")
    if source.suffix == ".txt" and _is_text(header):
        return _detect_vocab_txt(source, "it is text with one token per line")
    if header.startswith(GZIP_HEADER):
        raise TokenizerFormatError(
            f"{source}: is compressed with gzip; decompress it first (only rank files are read as they are)"
        )
    raise TokenizerFormatError(
        f"{source}: unknown tokenizer format; the file begins with {header[:30]!r}. If it is in one of the "
        f"formats {', '.join(FORMATS)}, pass format="
    )


def _read_header(source: Path) -> bytes:
    check_is_file(source)
    with open_regular(source) as file:
        header = file.read(_HEADER_BYTES).removeprefix(BYTE_ORDER_MARK)
    check_is_not_pointer(header, str(source))
    return header


def find_tokenizer_names(present: Collection[str]) -> list[tuple[str, ...]]:
    """Finds the files of a tokenizer by their names, in the order of `detect_tokenizer_files`.

    Args:
        present: names of the files in a directory.

    Returns:
        The names of the files of the first format, as one group; several groups of one file if the files of
        several tokenizers of one format are present; an empty list if there is no tokenizer.
    """
    for names in ((TOKENIZER_FILE,), ("tokenizer.json",), *_PAIRS):
        if all(name in present for name in names):
            return [names]
    usual_models = [name for name in _SENTENCEPIECE_NAMES if name in present]
    ranks = filter(_is_ranks_name, present)
    for found in (usual_models or sorted(filter(_MODEL_NAME.fullmatch, present)), sorted(ranks)):
        if found:
            return [(name,) for name in found]
    if _VOCAB_TXT in present:
        codes = [name for name in _TXT_MERGES if name in present and "vocab.json" not in present]
        return [(_VOCAB_TXT, *codes[:1])]
    pieces = sorted(name for name in present if name.endswith(".vocab"))
    return [(name,) for name in pieces or sorted(name for name in present if name.endswith(".tsv"))]


def _is_ranks_name(name: str) -> bool:
    return name.endswith(_RANKS_SUFFIXES) or _JSON_RANKS_NAME.fullmatch(name) is not None


def list_candidates(name: str) -> list[str]:
    """Returns the names of the files that can be needed to load a file.

    They are the file itself, the other file of a pair, the model of a list of pieces, and settings.

    Args:
        name: name of the file.
    """
    pair_names = [*dict.fromkeys(itertools.chain(*_PAIRS, [_VOCAB_TXT], _TXT_MERGES))]
    stem, _, suffix = name.rpartition(".")
    models = [f"{stem}.model"] if suffix in ("vocab", "txt") else []
    related = pair_names if name in pair_names else [name]
    return [*_COMPANIONS, *models, *related, *_list_model_configs(related)]


def select_files(present: Collection[str], file: str | None, where: str) -> list[str]:
    """Selects the files that are needed to load a tokenizer, the tokenizer itself last.

    Args:
        present: names of all files in a directory.
        file: name of the file to load, or `None` for that of `detect_tokenizer_files`.
        where: path of the directory, for errors.

    Raises:
        TokenizerFormatError: `file` is `None`, and there is no tokenizer, or several of one format.
    """
    names = (file,) if file else _get_single(find_tokenizer_names(present), where, present)
    related = list_candidates(file) if file else [*_COMPANIONS, *_list_model_configs(names)]
    return [*(name for name in related if name in present and name not in names), *names]


def _list_model_configs(names: Sequence[str]) -> list[str]:
    """Returns the name of the model's configuration file, if it can determine how the files are read."""
    is_read = len(names) > 1 or names[0] == _VOCAB_TXT or _MODEL_NAME.fullmatch(names[0])
    return [MODEL_CONFIG_FILE] if is_read else []


def _get_single(
    groups: Sequence[tuple[str, ...]], directory: str, present: Collection[str]
) -> tuple[str, ...]:
    """Returns the only group of files of `find_tokenizer_names`.

    Args:
        groups: groups of names.
        directory: path of the directory, for errors.
        present: names of all files in the directory, for errors.

    Raises:
        TokenizerFormatError: there is no group, or more than one.
    """
    if not groups:
        raise TokenizerFormatError(
            f"{directory}: contains no tokenizer in a supported format, only {sorted(present)[:20]}. Looked "
            f"for {TOKENIZER_FILE}, tokenizer.json, vocab.json with merges.txt, encoder.json with vocab.bpe, "
            f"{', '.join(_SENTENCEPIECE_NAMES)}, *.model, *.tiktoken, tekken.json, claude.json, "
            "and vocab.txt, alone or with merges.txt or bpe.codes"
        )
    if len(groups) > 1:
        names = [name for (name,) in groups]
        raise TokenizerFormatError(
            f"{directory}: contains several tokenizers of one format, {', '.join(names)}; pass the path of "
            f"one of them: load_tokenizer({f'{directory}/{names[0]}'!r})"
        )
    return groups[0]


def _detect_in_directory(directory: Path) -> DetectedTokenizer:
    present = {entry.name for entry in directory.iterdir()}
    names = _get_single(find_tokenizer_names(present), str(directory), present)
    paths = tuple(directory / name for name in names)
    reason = f"{directory} has {' and '.join(names)}"
    if names in _PAIRS:
        return DetectedTokenizer("gpt2", paths, reason)
    if names[0] == _VOCAB_TXT:
        return _detect_vocab_txt(paths[0], f"{directory} has {_VOCAB_TXT}")
    format_ = _FORMATS_BY_NAME.get(names[0], "tiktoken" if _is_ranks_name(names[0]) else None)
    if format_ is not None:
        return DetectedTokenizer(format_, paths, reason)
    detected = detect_tokenizer_format(paths[0])
    return detected._replace(reason=f"{reason}, and {detected.reason}")


def _detect_vocab_txt(source: Path, reason: str) -> DetectedTokenizer:
    """Returns a `vocab.txt` as classic BPE if a list of merges is beside it, otherwise as WordPiece."""
    header = _read_header(source)
    if _is_scored_vocabulary(header):
        return _detect_scored_vocabulary(source)
    _reject_text_vocabulary(source, header)
    directory = source.parent
    if source.name == _VOCAB_TXT and not (directory / "vocab.json").is_file():
        for name in _TXT_MERGES:
            if (directory / name).is_file():
                files = source, directory / name
                return DetectedTokenizer("word_bpe", files, f"{reason}, and {name} is in the same directory")
    return DetectedTokenizer("wordpiece", (source,), reason)


def _is_scored_vocabulary(header: bytes) -> bool:
    """Returns whether a text consists of pieces and scores, as SentencePiece's trainer writes them."""
    lines = _split_header(header)
    has_unknown = any(map(_ZERO_SCORE.fullmatch, lines))
    return has_unknown and all(map(_NEGATIVE_SCORE.fullmatch, filter(None, lines)))


def _split_header(header: bytes) -> list[bytes]:
    """Returns the complete lines of a file header."""
    return [line.removesuffix(b"\r") for line in (header.rpartition(b"\n")[0] or header).split(b"\n")]


def _detect_scored_vocabulary(source: Path) -> DetectedTokenizer:
    """Returns the model that a list of pieces belongs to; raises if it is not in the same directory."""
    model = source.with_suffix(".model")
    if model.is_file():
        detected = detect_tokenizer_format(model)
        return detected._replace(reason=f"it is the model of {source.name}, and {detected.reason}")
    raise TokenizerFormatError(
        f"{source}: a list of the pieces of a SentencePiece model, without normalization and exact scores; "
        "pass the path of the .model, which the trainer writes beside it"
    )


def _reject_text_vocabulary(source: Path, header: bytes) -> None:
    """Raises `TokenizerFormatError` for other texts with pieces and scores."""
    lines = _split_header(header)
    if all(map(_SCORED_PIECE.fullmatch, filter(None, lines))) and any(lines):
        raise TokenizerFormatError(
            f"{source}: a list of pieces and scores, but not one of SentencePiece's trainer, in which the "
            f"piece for unknown text has the score 0 and no score is positive. {_TEXT_MODEL_ADVICE}"
        )
    if _is_text(header) and _TEXT_MODEL.search(header):
        raise TokenizerFormatError(
            f"{source}: a SentencePiece model as text, which is not supported. {_TEXT_MODEL_ADVICE}"
        )


def _detect_json(source: Path, header: bytes) -> DetectedTokenizer:
    if _HUGGINGFACE_HEADER.match(header):  # parsing a large file takes time, and its reader does it again
        return DetectedTokenizer("huggingface", (source,), "it begins like a tokenizer.json")
    contents = read_json_object(source)
    if isinstance(contents.get("format"), str):
        return DetectedTokenizer("tokjax", (source,), f"its 'format' is {contents['format']!r}")
    if isinstance(contents.get("model"), dict):
        return DetectedTokenizer("huggingface", (source,), "it has a 'model', as a tokenizer.json does")
    if (reason := describe_json_ranks(contents)) is not None:
        return DetectedTokenizer("tiktoken", (source,), reason)
    if contents and all(isinstance(id_, int) for id_ in contents.values()):
        return _find_partner(source, "it maps tokens to ids")
    raise TokenizerFormatError(
        f"{source}: a JSON object, but not a tokenizer; its keys are {list(contents)[:10]}"
    )


def _find_partner(source: Path, reason: str) -> DetectedTokenizer:
    """Returns both files of a format of two files, given one of them."""
    reason = f"{reason}, and the other file is in the same directory"
    for names in (*_PAIRS, *((_VOCAB_TXT, merges) for merges in _TXT_MERGES)):
        if source.name in names:
            vocab, merges = (source.parent / name for name in names)
            if vocab.is_file() and merges.is_file():
                if vocab.suffix == ".json":
                    return DetectedTokenizer("gpt2", (vocab, merges), reason)
                return _detect_vocab_txt(vocab, reason)
    raise TokenizerFormatError(
        f"{source}: {reason.partition(',')[0]}, which is one of the two files of a tokenizer; pass both, "
        "[VOCAB, MERGES], or one of them under its usual name with the other in the same directory"
    )


def _detect_pair(paths: Iterable[Any]) -> DetectedTokenizer:
    files = [check_path(path) for path in paths]
    if len(files) != 2:
        raise InvalidArgumentError(
            f"a tokenizer is one file or a pair of files, got {len(files)}: {', '.join(map(str, files))}"
        )
    vocab, merges = sorted(files, key=lambda file: (file.suffix != ".json", file.name != _VOCAB_TXT))
    if vocab.name == _VOCAB_TXT and merges.name in _TXT_MERGES:
        return DetectedTokenizer("word_bpe", (vocab, merges), f"they are vocab.txt and {merges.name}")
    if vocab.suffix != ".json" or merges.suffix == ".json":
        raise TokenizerFormatError(
            "a pair of files is a .json file that maps tokens to ids, and a list of merges; got "
            f"{vocab} and {merges}. For a vocabulary with one token per line, pass [VOCAB, MERGES] and "
            "format='word_bpe'"
        )
    return DetectedTokenizer("gpt2", (vocab, merges), "they are a map of tokens to ids and a list of merges")


def _is_text(header: bytes) -> bool:
    """Returns whether the complete lines of a file header are UTF-8 text without NUL."""
    complete_lines = header.rpartition(b"\n")[0] or header
    try:
        return b"\0" not in complete_lines and bool(complete_lines.decode("utf-8").strip())
    except UnicodeDecodeError:
        return False
