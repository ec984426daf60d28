"""One door to tokenizers in files of every format."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from tokjax.errors import InvalidArgumentError
from tokjax.formats.clip_merges import read_clip
from tokjax.formats.detection import FORMATS, DetectedTokenizer, Format, detect_tokenizer_files
from tokjax.formats.gpt2_files import read_gpt2
from tokjax.formats.huggingface.tokenizer_json import read_huggingface
from tokjax.formats.tiktoken_ranks import read_tiktoken
from tokjax.formats.tokenizer_files import as_path, read_companion_config
from tokjax.formats.tokjax_json import read_tokjax
from tokjax.formats.wordpiece_vocab import read_wordpiece
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece
from tokjax.models.wordpiece import wordpiece

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal

    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel


def load_tokenizer(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    format: Format | Literal["auto"] = "auto",  # noqa: A002 (the word for it)
    **options: Any,
) -> SegmentModel | HuggingFaceTokenizer:
    """Read a tokenizer from a file, a directory or a pair of files.

    | format | files | read by |
    |---|---|---|
    | `"tokjax"` | `tokenizer.tokjax.json`, also of a training bundle | `read_tokjax` |
    | `"huggingface"` | `tokenizer.json` | `read_huggingface` |
    | `"gpt2"` | `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe` | `read_gpt2` |
    | `"sentencepiece"` | a `.model` | `read_sentencepiece` |
    | `"tiktoken"` | a file of ranks, `tekken.json`, `claude.json` | `read_tiktoken` |
    | `"wordpiece"` | `vocab.txt` | `read_wordpiece` |
    | `"clip"` | `bpe_simple_vocab_16e6.txt.gz` | `read_clip` |

    Which special tokens begin, end and pad texts is taken from the `tokenizer_config.json` and the
    `special_tokens_map.json` beside a file, where the format does not say.

    Files from untrusted sources are read within `tokjax.limits`, which bound their time and memory.

    Args:
        path: the file; a directory, of which `detect_tokenizer_files` says what is taken; or a pair of files.
        format: one of those above, or `"auto"` for what `detect_tokenizer_files` finds.
        **options: those of the format's reader: `pattern` and `special_tokens` of ranks, `lowercase` of a
            `vocab.txt`, `eos_token` of most.

    Raises:
        FileNotFoundError: there is no such path.
        InvalidArgumentError: the format is not known, or has no such option.
        MissingExtraError: a `tokenizer.json` needs the `tokenizers` library, which is not installed.
        TokenizerFormatError: there is no tokenizer, or several of one kind, or a file is damaged or makes no
            tokenizer.
    """
    if format not in ("auto", *FORMATS):
        raise InvalidArgumentError(f"format must be 'auto', {', '.join(map(repr, FORMATS))}, not {format!r}")
    found = detect_tokenizer_files(path) if format == "auto" else _resolve_format(path, format)
    reader = _READERS[found.format]
    _check_options(reader, options, found)
    return reader(*found.files, **options)


def read_sentencepiece(
    path: str | os.PathLike[str],
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
) -> SentencePieceTokenizer:
    """Read a SentencePiece model.

    Args:
        path: the `.model` file.
        bos_token: which control piece begins a text, `"auto"` for the model's own. `None` for none, unless
            the `tokenizer_config.json` beside the file says that one is put before texts (`add_bos_token`).
        eos_token: which control piece ends a text; likewise (`add_eos_token`).
        pad_token: which control piece pads a batch; `"auto"` for the model's own.

    Raises:
        FileNotFoundError: there is no such file.
        InvalidArgumentError: the model has no such control piece.
        TokenizerFormatError: the file is no SentencePiece model, or was cut short.
    """
    source = as_path(path)
    config = read_companion_config(source.parent).config
    if bos_token is None and config.get("add_bos_token"):
        bos_token = "auto"
    if eos_token is None and config.get("add_eos_token"):
        eos_token = "auto"
    return sentencepiece(source, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)


_READERS: Mapping[Format, Callable[..., SegmentModel | HuggingFaceTokenizer]] = {
    "tokjax": read_tokjax,
    "huggingface": read_huggingface,
    "gpt2": read_gpt2,
    "sentencepiece": read_sentencepiece,
    "tiktoken": read_tiktoken,
    "wordpiece": read_wordpiece,
    "clip": read_clip,
}


def _resolve_format(path: Any, format_: Format) -> DetectedTokenizer:
    """The files of a format that the caller names: those that are found, if they are of that format."""
    if not isinstance(path, (str, bytes)) and not hasattr(path, "__fspath__"):
        return DetectedTokenizer(format_, tuple(map(as_path, path)), "as the caller says")
    target = as_path(path)
    if format_ == "gpt2" or target.is_dir():
        found = detect_tokenizer_files(target)
        if found.format != format_:
            raise InvalidArgumentError(
                f"{target} holds a tokenizer of the format {found.format!r} ({found.reason}), not "
                f"{format_!r}; pass the path of the file that is to be read, or format='auto'"
            )
        return found
    return DetectedTokenizer(format_, (target,), "as the caller says")


def _check_options(reader: Callable[..., Any], options: Mapping[str, Any], found: DetectedTokenizer) -> None:
    allowed = {
        name
        for function in ((reader, wordpiece) if reader is read_wordpiece else (reader,))
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    unknown = sorted(set(options) - allowed)
    if unknown:
        raise InvalidArgumentError(
            f"the format {found.format!r} ({found.reason}) has no option {unknown[0]!r}; it has "
            f"{', '.join(sorted(allowed)) or 'none'}"
        )
