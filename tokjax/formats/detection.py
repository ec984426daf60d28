"""Detection of the tokenizer format of a file or directory, from file names and first bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tokjax._util.atomic_files import open_regular
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.formats.clip_files import is_clip_header
from tokjax.formats.tiktoken_files import describe_json_ranks, is_rank_file
from tokjax.formats.tokenizer_files import BYTE_ORDER_MARK, as_path, check_is_file, read_json_object
from tokjax.formats.tokjax_json import TOKENIZER_FILE

if TYPE_CHECKING:
    import os

Format = Literal["tokjax", "huggingface", "gpt2", "sentencepiece", "tiktoken", "wordpiece", "clip"]
FORMATS: tuple[Format, ...] = get_args(Format)

_SINGLE_FILES: tuple[tuple[Format, str], ...] = (
    ("tokjax", TOKENIZER_FILE),
    ("huggingface", "tokenizer.json"),
)
_GPT2_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
_SENTENCEPIECE_NAMES = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model.v3",
)
_JSON_RANKS_NAMES = ("tekken.json", "claude.json")
_CLIP_NAME = "bpe_simple_vocab_16e6.txt.gz"
_WORD_BPE_MERGES_NAMES = ("merges.txt", "bpe.codes")
_HEADER_BYTES = 1 << 12
_MODEL_FIELD = b"\x0a"  # field 1 of the protobuf message: the first piece of a SentencePiece model


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
    3. `vocab.json` with `merges.txt`
    4. `encoder.json` with `vocab.bpe`
    5. a SentencePiece model with a usual name (`tokenizer.model`, `spiece.model`, `sentencepiece.bpe.model`,
       `spm.model`, `tokenizer.model.v3`) or as a single `*.model`, or a rank file with such a name
    6. a single `*.tiktoken`, `tekken.json` or `claude.json`
    7. `bpe_simple_vocab_16e6.txt.gz`
    8. `vocab.txt`

    Args:
        path: path of a directory or a file, or a pair of file paths.

    Raises:
        FileNotFoundError: the path does not exist.
        InvalidArgumentError: `path` is not a path or a pair of paths.
        TokenizerFormatError: the path contains no tokenizer, or several tokenizers of one format.
    """
    if not isinstance(path, (str, Path)) and not hasattr(path, "__fspath__"):
        if not isinstance(path, Iterable):
            raise InvalidArgumentError(f"path must be a path or a pair of paths, not {path!r}")
        return _detect_pair(path)
    target = as_path(path)
    if not target.is_dir():
        return detect_tokenizer_format(target)
    return _detect_in_directory(target)


def detect_tokenizer_format(path: str | os.PathLike[str]) -> DetectedTokenizer:
    """Detects the tokenizer format of a file.

    Args:
        path: path of the file. For the two files of GPT-2's format, the path of either works, if the other
            file is in the same directory.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenizerFormatError: the file is not in a supported tokenizer format.
    """
    source = as_path(path)
    check_is_file(source)
    with open_regular(source) as file:
        header = file.read(_HEADER_BYTES).removeprefix(BYTE_ORDER_MARK)
    if header.lstrip().startswith(b"{") and source.suffix != ".txt":
        return _detect_json(source)
    if is_rank_file(header):
        return DetectedTokenizer("tiktoken", (source,), "its lines contain base64 tokens and ranks")
    if header.startswith(_MODEL_FIELD) and b"\0" in header:
        return DetectedTokenizer(
            "sentencepiece", (source,), "its first bytes are those of a serialized SentencePiece model"
        )
    if is_clip_header(header):
        return DetectedTokenizer("clip", (source,), "its first bytes are those of CLIP's merge file")
    if header.startswith(b"#version") or source.name in ("merges.txt", "vocab.bpe"):
        return _find_gpt2_partner(source, "it is a list of merges")
    if source.suffix == ".txt" and _is_text(header):
        return _detect_wordpiece(source, "it is text with one token per line")
    raise TokenizerFormatError(
        f"{source}: unknown tokenizer format; the file begins with {header[:30]!r}. If it is in one of the "
        f"formats {', '.join(FORMATS)}, pass format="
    )


def _detect_in_directory(directory: Path) -> DetectedTokenizer:
    present = {entry.name for entry in directory.iterdir()}
    for format_, name in _SINGLE_FILES:
        if name in present:
            return _detect_by_name(format_, directory, name)
    for names in _GPT2_PAIRS:
        if present.issuperset(names):
            return _detect_by_name("gpt2", directory, *names)
    models = [name for name in _SENTENCEPIECE_NAMES if name in present]
    models = models or sorted(name for name in present if name.endswith(".model"))
    if models:
        detected = detect_tokenizer_format(directory / _get_single(models, directory))
        return detected._replace(reason=f"{directory} has {detected.files[0].name}, and {detected.reason}")
    ranks = sorted(name for name in present if name.endswith(".tiktoken") or name in _JSON_RANKS_NAMES)
    if ranks:
        return _detect_by_name("tiktoken", directory, _get_single(ranks, directory))
    if _CLIP_NAME in present:
        return _detect_by_name("clip", directory, _CLIP_NAME)
    if "vocab.txt" in present:
        return _detect_wordpiece(directory / "vocab.txt", f"{directory} has vocab.txt")
    raise TokenizerFormatError(
        f"{directory}: contains no tokenizer in a supported format, only {sorted(present)[:20]}. Looked "
        f"for {TOKENIZER_FILE}, tokenizer.json, vocab.json with merges.txt, encoder.json with vocab.bpe, "
        f"{', '.join(_SENTENCEPIECE_NAMES)}, *.model, *.tiktoken, {', '.join(_JSON_RANKS_NAMES)}, "
        f"{_CLIP_NAME} and vocab.txt"
    )


def _detect_wordpiece(source: Path, reason: str) -> DetectedTokenizer:
    """Returns a `vocab.txt` as WordPiece; raises if a merge file in its directory makes it a word BPE."""
    merges = [name for name in _WORD_BPE_MERGES_NAMES if (source.parent / name).is_file()]
    if source.name == "vocab.txt" and merges and not (source.parent / "vocab.json").is_file():
        raise TokenizerFormatError(
            f"{source} and {merges[0]} are a word-based BPE, which is not supported; convert it to a "
            "tokenizer.json and load that. If vocab.txt is a WordPiece vocabulary, pass its path and "
            "format='wordpiece'"
        )
    return DetectedTokenizer("wordpiece", (source,), reason)


def _detect_by_name(format_: Format, directory: Path, *names: str) -> DetectedTokenizer:
    files = tuple(directory / name for name in names)
    return DetectedTokenizer(format_, files, f"{directory} has {' and '.join(names)}")


def _get_single(names: list[str], directory: Path) -> str:
    if len(names) > 1:
        raise TokenizerFormatError(
            f"{directory}: contains several tokenizers of one format, {', '.join(names)}; pass the path of "
            "one of them"
        )
    return names[0]


def _detect_json(source: Path) -> DetectedTokenizer:
    contents = read_json_object(source)
    if isinstance(contents.get("format"), str):
        return DetectedTokenizer("tokjax", (source,), f"its 'format' is {contents['format']!r}")
    if isinstance(contents.get("model"), dict):
        return DetectedTokenizer("huggingface", (source,), "it has a 'model', as a tokenizer.json does")
    if (reason := describe_json_ranks(contents)) is not None:
        return DetectedTokenizer("tiktoken", (source,), reason)
    if contents and all(isinstance(id_, int) for id_ in contents.values()):
        return _find_gpt2_partner(source, "it maps tokens to ids")
    raise TokenizerFormatError(
        f"{source}: a JSON object, but not a tokenizer; its keys are {list(contents)[:10]}"
    )


def _find_gpt2_partner(source: Path, reason: str) -> DetectedTokenizer:
    """Returns both files of GPT-2's format, given one of them."""
    for names in _GPT2_PAIRS:
        if source.name in names:
            files = tuple(source.parent / name for name in names)
            if all(file.is_file() for file in files):
                return DetectedTokenizer(
                    "gpt2", files, f"{reason}, and the other file is in the same directory"
                )
    raise TokenizerFormatError(
        f"{source}: {reason}, which is one of the two files of a tokenizer; pass both, "
        "[VOCAB_JSON, MERGES_TXT], or one of them under its usual name with the other in the same directory"
    )


def _detect_pair(paths: Iterable[Any]) -> DetectedTokenizer:
    files = [as_path(path) for path in paths]
    if len(files) != 2:
        raise InvalidArgumentError(f"a tokenizer is one file or a pair of files, got {len(files)}: {files}")
    vocab, merges = sorted(files, key=lambda file: file.suffix != ".json")
    if {"vocab.txt"} < {file.name for file in files} <= {"vocab.txt", *_WORD_BPE_MERGES_NAMES}:
        raise TokenizerFormatError(
            f"{files[0]} and {files[1]} are a word-based BPE, which is not supported; convert it to a "
            "tokenizer.json and load that"
        )
    if vocab.suffix != ".json" or merges.suffix == ".json":
        raise TokenizerFormatError(
            "a pair of files is a .json file that maps tokens to ids, and a list of merges; got "
            f"{vocab} and {merges}"
        )
    return DetectedTokenizer("gpt2", (vocab, merges), "they are a map of tokens to ids and a list of merges")


def _is_text(header: bytes) -> bool:
    """Returns whether the complete lines of a file header are UTF-8 text without NUL."""
    complete_lines = header.rpartition(b"\n")[0] or header
    try:
        return b"\0" not in complete_lines and bool(complete_lines.decode("utf-8").strip())
    except UnicodeDecodeError:
        return False
