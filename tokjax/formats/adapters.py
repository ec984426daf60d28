"""Tokenizers of other libraries that are in memory, as ones of tokjax."""

from __future__ import annotations

from typing import Any

from tokjax.core.template import EMPTY_TEMPLATE
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.tokenizer_files import resolve_roles
from tokjax.models.byte_bpe import ByteLevelBPE, make_byte_level_bpe
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
    """An encoding of `tiktoken` as a tokenizer of tokjax's own, with the same ids.

    Args:
        encoding: a `tiktoken.Encoding`.
        bos_token: which special token begins a text, if any.
        eos_token: which special token ends a text; `<|endoftext|>` unless said otherwise, if there is one.
        pad_token: which special token pads a batch, if any.

    Returns:
        A tokenizer that puts nothing around texts, as tiktoken does; `with_template` changes that.

    Raises:
        InvalidArgumentError: its ranks make no byte-level BPE.
        UnsupportedTokenizerError: it is no encoding of tiktoken.
    """
    try:
        ranks, pattern = encoding._mergeable_ranks, encoding._pat_str
        special: dict[str, int] = dict(encoding._special_tokens)
    except AttributeError:
        raise UnsupportedTokenizerError(
            f"from_tiktoken takes a tiktoken.Encoding, not {type(encoding).__name__}"
        ) from None
    owner = {id_: name for name, id_ in reversed(special.items())}  # (two names of one id: the first counts)
    special = {name: id_ for id_, name in owner.items()}
    roles = resolve_roles(
        special, {"bos": bos_token, "eos": eos_token, "pad": pad_token}, {"eos": _END_OF_TEXT}
    )
    table = make_vocabulary(ranks, special, roles, EMPTY_TEMPLATE)
    return make_byte_level_bpe(table, find_pattern_name(pattern) or pattern, None)


def from_sentencepiece(
    processor: Any,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
) -> SentencePieceTokenizer:
    """A `SentencePieceProcessor` of the `sentencepiece` library as a tokenizer of tokjax.

    What was set on it since it was loaded (extra options of encoding, a restricted vocabulary) is not kept.

    Args:
        processor: the processor.
        bos_token: as in `sentencepiece`.
        eos_token: as in `sentencepiece`.
        pad_token: as in `sentencepiece`.

    Raises:
        InvalidArgumentError: the model has no such control piece.
        UnsupportedTokenizerError: it is no `SentencePieceProcessor`, or has no model.
    """
    serialized = getattr(processor, "serialized_model_proto", None)
    model = serialized() if callable(serialized) else None
    if not model:
        raise UnsupportedTokenizerError(
            "from_sentencepiece takes a SentencePieceProcessor that has loaded a model, not "
            f"{type(processor).__name__}"
        )
    return sentencepiece(model, bos_token=bos_token, eos_token=eos_token, pad_token=pad_token)
