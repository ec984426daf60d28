"""Loading of tokenizer files of every format."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tokjax.errors import InvalidArgumentError
from tokjax.formats.clip_files import read_clip
from tokjax.formats.detection import FORMATS, DetectedTokenizer, Format, detect_tokenizer_files
from tokjax.formats.gpt2_files import read_gpt2
from tokjax.formats.huggingface.tokenizer_json import read_huggingface
from tokjax.formats.tiktoken_files import read_tiktoken
from tokjax.formats.tokenizer_files import as_path, read_companion_config
from tokjax.formats.tokjax_json import read_tokjax
from tokjax.formats.wordpiece_files import read_wordpiece
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece
from tokjax.models.wordpiece import wordpiece

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import Literal, Unpack

    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel
    from tokjax.models.byte_bpe import Normalizer


class LoadOptions(TypedDict, total=False):
    """Options of `load_tokenizer`; each format has some of them.

    Attributes:
        bos_token: which special token begins a text.
        eos_token: which special token ends a text.
        pad_token: which special token pads a batch.
        unk_token: which special token stands for the unknown.
        mask_token: as in `wordpiece`.
        special_tokens: the special tokens: name to id for `"tiktoken"`, names for other formats.
        encoding: the name of a published encoding of tiktoken.
        pattern: how text is split, as in `byte_level_bpe`.
        normalizer: as in `byte_level_bpe`.
        add_prefix_space: whether a space is put before text that does not begin with one.
        lowercase: as in `wordpiece`; `None` for what the files say.
        strip_accents: as in `wordpiece`.
        clean_text: as in `wordpiece`.
        handle_chinese_chars: as in `wordpiece`.
        continuing_prefix: as in `wordpiece`.
        max_word_characters: as in `wordpiece`.
        cleanup: as in `wordpiece`.
    """

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    mask_token: str | None
    special_tokens: Mapping[str, int] | Sequence[str] | None
    encoding: str | None
    pattern: str | None
    normalizer: Normalizer | Literal["auto"] | None
    add_prefix_space: bool
    lowercase: bool | None
    strip_accents: bool | None
    clean_text: bool
    handle_chinese_chars: bool | None
    continuing_prefix: str
    max_word_characters: int
    cleanup: bool


def load_tokenizer(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    format: Format | Literal["auto"] = "auto",  # noqa: A002 (the word for it)
    **options: Unpack[LoadOptions],
) -> SegmentModel | HuggingFaceTokenizer:
    """Loads a tokenizer from a file, a directory or a pair of files.

    | format | files |
    |---|---|
    | `"tokjax"` | `tokenizer.tokjax.json`, also of a training bundle |
    | `"huggingface"` | `tokenizer.json` |
    | `"gpt2"` | `vocab.json` and `merges.txt`, or `encoder.json` and `vocab.bpe` |
    | `"sentencepiece"` | a `.model` |
    | `"tiktoken"` | a file of ranks, `tekken.json`, `claude.json` |
    | `"wordpiece"` | `vocab.txt` |
    | `"clip"` | `bpe_simple_vocab_16e6.txt.gz` |

    Which special tokens begin, end and pad texts is taken from the `tokenizer_config.json` and the
    `special_tokens_map.json` beside a file, where the format does not say. The options `bos_token`,
    `eos_token` and `pad_token` replace that in every format except `"tokjax"`, which has no options.

    - `"huggingface"` also has `unk_token`. A byte-level BPE with a published split pattern, a BPE with byte
      fallback, a WordPiece as BERT's and a word-level tokenizer become built-in types with the same ids.
      Other definitions run on the `tokenizers` library (the extra `tokjax[huggingface]`), which is logged.
      Truncation and padding of the file are not applied.
    - `"gpt2"` also has `unk_token`, `pattern`, `special_tokens` (names; by default those with a role in the
      files beside it, and `<|endoftext|>`), `normalizer` and `add_prefix_space`.
    - `"sentencepiece"`: a role of `"auto"` is the model's own token.
    - `"tiktoken"` also has `encoding`, `pattern`, `special_tokens` (name to id) and `normalizer`. A file of
      ranks has neither a split pattern nor special tokens. They are those of the published encoding that the
      file is named after (`cl100k_base.tiktoken`), or of `encoding`, or `pattern` and `special_tokens`.
      `tekken.json` and `claude.json` have both.
    - `"wordpiece"` also has the options of `wordpiece`. Without a `tokenizer_config.json`, `lowercase` is
      needed if there are tokens in upper case.
    - `"clip"`: texts are normalized to NFC and lower case, without ftfy. It runs on the `tokenizers` library.

    Files from untrusted sources are read within `tokjax.limits`, which bound their time and memory.

    Args:
        path: the file; a directory, of which `detect_tokenizer_files` says what is taken; or a pair of files.
        format: one of those above, or `"auto"` for what `detect_tokenizer_files` finds.
        **options: options of the format, as `LoadOptions` describes them.

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
    tokenizer: SegmentModel | HuggingFaceTokenizer = reader(*found.files, **options)
    return tokenizer


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


_TEXT = ((str, type(None)), "a string or None")
_SWITCH = ((bool, np.bool_), "True or False")
_OPTIONAL_SWITCH = ((*_SWITCH[0], type(None)), "True, False or None")
_SPECIAL_TOKENS = ((Mapping, type(None)), "a dict of names and ids, or None")
_SPECIAL_NAMES = ((Iterable, type(None)), "a list of names")
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "add_prefix_space": _SWITCH,
    "lowercase": _OPTIONAL_SWITCH,
    "strip_accents": _OPTIONAL_SWITCH,
    "clean_text": _SWITCH,
    "handle_chinese_chars": _OPTIONAL_SWITCH,
    "cleanup": _SWITCH,
    "continuing_prefix": ((str,), "a string"),
    "max_word_characters": ((int, np.integer), "an integer"),
}
"""Types of options, and their names in errors; other options are strings or None."""
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
    for name, value in options.items():
        types, expected = (
            (_SPECIAL_TOKENS if found.format == "tiktoken" else _SPECIAL_NAMES)
            if name == "special_tokens"
            else _TYPES.get(name, _TEXT)
        )
        if not isinstance(value, types) or (name == "special_tokens" and isinstance(value, str)):
            raise InvalidArgumentError(f"{name} must be {expected}, not {value!r:.80}")
