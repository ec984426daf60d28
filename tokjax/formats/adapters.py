"""Conversion of in-memory tokenizers of tiktoken and SentencePiece, and tiktoken's encodings by name."""

from __future__ import annotations

from typing import Any

from tokjax._util.imports import import_optional
from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import (
    Hint,
    InvalidArgumentError,
    TokenizerFormatError,
    TokenizerNotFoundError,
    UnsupportedTokenizerError,
)
from tokjax.formats.tiktoken_files import ENCODINGS, describe_missing_ranks
from tokjax.formats.tokenizer_files import resolve_roles
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.models.sentencepiece import SentencePieceTokenizer, sentencepiece
from tokjax.pretokenize.patterns import find_pattern_name

_END_OF_TEXT = "<|endoftext|>"


def from_tiktoken(
    encoding: Any,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
) -> ByteLevelBPE:
    """Converts a `tiktoken.Encoding` to a built-in tokenizer with the same ids.

    Args:
        encoding: a `tiktoken.Encoding`. If an id has several names, such as `<|endofprompt|>` and
            `<|reserved_200018|>` in `o200k_harmony`, all are recognized in texts, and decoding gives the
            first.
        bos_token: special token in the role of BOS, or `None`.
        eos_token: special token in the role of EOS. `None` uses `<|endoftext|>` if the encoding has it.
        pad_token: special token that pads a batch, or `None`.

    Returns:
        A tokenizer that inserts no special tokens into texts, like tiktoken. Use `with_template` to insert
        some.

    Raises:
        InvalidArgumentError: the ranks do not define a byte-level BPE, or a role names a token that is not
            special.
        UnsupportedTokenizerError: `encoding` is not a `tiktoken.Encoding`.
    """
    try:
        ranks, pattern = encoding._mergeable_ranks, encoding._pat_str
        special: dict[str, int] = dict(encoding._special_tokens)
    except AttributeError:
        raise UnsupportedTokenizerError(
            f"from_tiktoken takes a tiktoken.Encoding, not {type(encoding).__name__}"
        ) from None
    roles = resolve_roles(
        special, {"bos": bos_token, "eos": eos_token, "pad": pad_token}, {"eos": _END_OF_TEXT}
    )
    vocabulary = make_vocabulary(ranks, special, roles, EMPTY_TEMPLATE)
    return ByteLevelBPE(vocabulary, find_pattern_name(pattern) or pattern, None)


def get_tiktoken_encoding(name: str) -> Any:
    """Returns a `tiktoken.Encoding`, whose ranks the library reads from its cache or downloads.

    Args:
        name: name of the encoding.

    Raises:
        InvalidArgumentError: `tiktoken` has no such encoding.
        MissingExtraError: `tiktoken` is not installed.
        TokenizerFormatError: the downloaded ranks are damaged.
        TokenizerNotFoundError: the ranks are not in the cache, and can't be downloaded.
    """
    tiktoken = import_optional("tiktoken", extra="tiktoken", purpose=f"loading the encoding {name!r}")
    names = tiktoken.list_encoding_names()
    if name not in names:
        advice = f"; {describe_missing_ranks(name)}" if name in ENCODINGS else ""
        raise InvalidArgumentError(
            f"tiktoken {tiktoken.__version__} has no encoding {name!r}, only {', '.join(sorted(names))}"
            f"{advice}"
        )
    try:
        return tiktoken.get_encoding(name)
    except ValueError as error:  # (not for an error of the network, which is an OSError)
        raise TokenizerFormatError(f"the encoding {name!r}: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise  # an error of a disk, not of the network
        advice = (
            "set TIKTOKEN_CACHE_DIR to a directory in which tiktoken has stored them, or pass the path of a "
            "rank file"
        )
        raise TokenizerNotFoundError(
            f"the ranks of the encoding {name!r} are not in the cache of tiktoken, and can't be downloaded: "
            f"{type(error).__name__}: {error}",
            hint=Hint(advice, advice),
        ) from error


def from_sentencepiece(
    processor: Any,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
) -> SentencePieceTokenizer:
    """Converts a `SentencePieceProcessor` of the `sentencepiece` library to a tokjax tokenizer.

    Settings that were changed on the processor after it was loaded (extra options for encoding, a restricted
    vocabulary) are not converted.

    Args:
        processor: a processor that has loaded a model.
        bos_token: control piece in the role of BOS, as in `sentencepiece`.
        eos_token: control piece in the role of EOS, as in `sentencepiece`.
        pad_token: control piece that pads a batch, as in `sentencepiece`.

    Raises:
        InvalidArgumentError: the model does not have such a control piece.
        UnsupportedTokenizerError: `processor` is not a `SentencePieceProcessor`, or has not loaded a model.
    """
    serialize = getattr(processor, "serialized_model_proto", None)
    model = serialize() if callable(serialize) else None
    if not model:
        raise UnsupportedTokenizerError(
            "from_sentencepiece takes a SentencePieceProcessor that has loaded a model, not "
            f"{type(processor).__name__}"
        )
    return sentencepiece(model, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)
