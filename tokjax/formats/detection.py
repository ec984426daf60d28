"""What kind of tokenizer a file or a directory holds: by its name, and by how it begins."""

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
_SENTENCE_PIECE_NAMES = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "tokenizer.model.v3",
)
_JSON_RANKS_NAMES = ("tekken.json", "claude.json")
_CLIP_NAME = "bpe_simple_vocab_16e6.txt.gz"
_CLASSIC_MERGES = ("merges.txt", "bpe.codes")
_HEADER_BYTES = 1 << 12
_MODEL_FIELD = b"\x0a"  # a serialized SentencePiece model begins with its first piece


class DetectedTokenizer(NamedTuple):
    """What was found.

    Attributes:
        format: what kind of tokenizer it is.
        files: the files that hold it, in the order in which its reader takes them.
        reason: what tells.
    """

    format: Format
    files: tuple[Path, ...]
    reason: str


def detect_tokenizer_files(path: str | os.PathLike[str] | Iterable[Any]) -> DetectedTokenizer:
    """Which files of a directory hold a tokenizer, and of which kind.

    Of several kinds the first of these is taken: `tokenizer.tokjax.json`; `tokenizer.json`; `vocab.json` with
    `merges.txt`; `encoder.json` with `vocab.bpe`; a SentencePiece model of a usual name (`tokenizer.model`,
    `spiece.model`, `sentencepiece.bpe.model`, `spm.model`, `tokenizer.model.v3`), or a file of ranks under
    such a name; a single `*.tiktoken`, `tekken.json` or
    `claude.json`; `bpe_simple_vocab_16e6.txt.gz`; `vocab.txt`.

    Args:
        path: a directory, a file, or a pair of files.

    Raises:
        FileNotFoundError: there is no such path.
        TokenizerFormatError: there is no tokenizer, or several of one kind.
    """
    if not isinstance(path, (str, Path)) and not hasattr(path, "__fspath__"):
        if not isinstance(path, Iterable):
            raise InvalidArgumentError(f"a path, or a pair of them, is expected, not {path!r}")
        return _detect_pair(path)
    target = as_path(path)
    if not target.is_dir():
        return detect_tokenizer_format(target)
    return _detect_in_directory(target)


def detect_tokenizer_format(path: str | os.PathLike[str]) -> DetectedTokenizer:
    """What kind of tokenizer a file holds.

    Args:
        path: the file. Of the two files that make up GPT-2's format either will do, if the other stands
            beside it.

    Raises:
        FileNotFoundError: there is no such file.
        TokenizerFormatError: it holds no tokenizer of a kind that is known.
    """
    source = as_path(path)
    check_is_file(source)
    with open_regular(source) as file:
        beginning = file.read(_HEADER_BYTES).removeprefix(BYTE_ORDER_MARK)
    if beginning.lstrip().startswith(b"{") and source.suffix != ".txt":
        return _detect_json(source)
    if is_rank_file(beginning):
        return DetectedTokenizer("tiktoken", (source,), "its lines are tokens in base64 and ranks")
    if beginning.startswith(_MODEL_FIELD) and b"\0" in beginning:
        return DetectedTokenizer("sentencepiece", (source,), "it begins as a serialized SentencePiece model")
    if is_clip_header(beginning):
        return DetectedTokenizer("clip", (source,), "it begins as CLIP's list of merges")
    if beginning.startswith(b"#version") or source.name in ("merges.txt", "vocab.bpe"):
        return _find_gpt2_partner(source, "it is a list of merges")
    if source.suffix == ".txt" and _is_text(beginning):
        return _detect_wordpiece(source, "it is text, a token in each line")
    raise TokenizerFormatError(
        f"{source}: holds no tokenizer that is known: it begins with {beginning[:30]!r}; known are "
        f"{', '.join(FORMATS)}: if it is one of them, pass format="
    )


def _detect_in_directory(directory: Path) -> DetectedTokenizer:
    present = {entry.name for entry in directory.iterdir()}
    for format_, name in _SINGLE_FILES:
        if name in present:
            return _detect_by_name(format_, directory, name)
    for names in _GPT2_PAIRS:
        if present.issuperset(names):
            return _detect_by_name("gpt2", directory, *names)
    models = [name for name in _SENTENCE_PIECE_NAMES if name in present]
    if models:
        found = detect_tokenizer_format(directory / _get_single(models, directory))
        return found._replace(reason=f"{directory} has {found.files[0].name}, and {found.reason}")
    ranks = sorted(name for name in present if name.endswith(".tiktoken") or name in _JSON_RANKS_NAMES)
    if ranks:
        return _detect_by_name("tiktoken", directory, _get_single(ranks, directory))
    if _CLIP_NAME in present:
        return _detect_by_name("clip", directory, _CLIP_NAME)
    if "vocab.txt" in present:
        return _detect_wordpiece(directory / "vocab.txt", f"{directory} has vocab.txt")
    raise TokenizerFormatError(
        f"{directory}: holds no tokenizer that is known; it has {sorted(present)[:20]}. Looked for "
        f"{TOKENIZER_FILE}, tokenizer.json, vocab.json with merges.txt, encoder.json with vocab.bpe, "
        f"{', '.join(_SENTENCE_PIECE_NAMES)}, *.tiktoken, {', '.join(_JSON_RANKS_NAMES)}, {_CLIP_NAME} and "
        "vocab.txt"
    )


def _detect_wordpiece(source: Path, reason: str) -> DetectedTokenizer:
    """Returns a `vocab.txt` as WordPiece, unless merges beside it make it a BPE."""
    merges = [name for name in _CLASSIC_MERGES if (source.parent / name).is_file()]
    if source.name == "vocab.txt" and merges and not (source.parent / "vocab.json").is_file():
        raise TokenizerFormatError(
            f"{source} with {merges[0]} beside it is a BPE of words, which is not supported; convert it to a "
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
            f"{directory}: holds several tokenizers of one kind, {', '.join(names)}; pass the path of one"
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
        return _find_gpt2_partner(source, "it is a table of tokens and ids")
    raise TokenizerFormatError(
        f"{source}: a JSON object that is no tokenizer; its keys are {list(contents)[:10]}"
    )


def _find_gpt2_partner(source: Path, what: str) -> DetectedTokenizer:
    """The two files of GPT-2's format, of which one was given."""
    for names in _GPT2_PAIRS:
        if source.name in names:
            files = tuple(source.parent / name for name in names)
            if all(file.is_file() for file in files):
                return DetectedTokenizer("gpt2", files, f"{what}, and the other file stands beside it")
    raise TokenizerFormatError(
        f"{source}: {what}, which is half a tokenizer; pass both files, [VOCAB_JSON, MERGES_TXT], or one of "
        "them under its usual name with the other beside it"
    )


def _detect_pair(paths: Iterable[Any]) -> DetectedTokenizer:
    files = [as_path(path) for path in paths]
    if len(files) != 2:
        raise InvalidArgumentError(f"two files make up a tokenizer at most, not {len(files)}: {files}")
    vocab, merges = sorted(files, key=lambda file: file.suffix != ".json")
    if {"vocab.txt"} < {file.name for file in files} <= {"vocab.txt", *_CLASSIC_MERGES}:
        raise TokenizerFormatError(
            f"{files[0]} and {files[1]} are a BPE of words, which is not supported; convert them to a "
            "tokenizer.json and load that"
        )
    if vocab.suffix != ".json" or merges.suffix == ".json":
        raise TokenizerFormatError(
            f"of two files one is a table of tokens and ids (.json), the other a list of merges; got {vocab} "
            f"and {merges}"
        )
    return DetectedTokenizer("gpt2", (vocab, merges), "they are a table of tokens and ids, and merges")


def _is_text(beginning: bytes) -> bool:
    complete_lines = beginning.rpartition(b"\n")[0] or beginning
    try:
        return b"\0" not in complete_lines and bool(complete_lines.decode("utf-8").strip())
    except UnicodeDecodeError:
        return False
