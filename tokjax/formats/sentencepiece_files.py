"""SentencePiece models: `.model` files, with the roles of configuration files beside them, and processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokjax._util.atomic_files import check_path
from tokjax.core.vocabulary import TEMPLATE_ROLES, select_roles
from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.tokenizer_files import read_companion_config
from tokjax.formats.transformers_files import check_is_plain
from tokjax.models.roles_and_templates import replace_roles
from tokjax.models.sentencepiece import SentencePieceTokenizer, declare_roles, sentencepiece

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tokjax.core.vocabulary import Role

_PLAIN = ("llama", "mistral")
"""Types of models for which transformers takes all settings from the `.model`; `LlamaTokenizer` does not."""


def read_sentencepiece(
    path: str | os.PathLike[str], roles: Mapping[Role, str | None]
) -> SentencePieceTokenizer:
    """Reads a SentencePiece model.

    The roles of special tokens are read from the `tokenizer_config.json` or `special_tokens_map.json` in the
    same directory, and otherwise from the model.

    Args:
        path: path of the `.model` file.
        roles: role to the name of a special token, or `"auto"` for the one with that role. BOS is inserted at
            the start of each text, and EOS at its end. `None` or no name inserts none, unless
            `tokenizer_config.json` in the same directory sets `add_bos_token` or `add_eos_token`. Without a
            name, padding is `"auto"`; `None` for none.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: there is no such special token.
        RequiresTransformersError: these files name a class with other ids, such as T5's or XLM-R's, or
            declare tokens that the model does not have.
        TokenizerFormatError: the file is not a SentencePiece model, or is truncated.
    """
    source = check_path(path)
    companion = read_companion_config(source.parent)
    has_padding = roles.get("pad", "auto") is not None
    tokenizer = sentencepiece(source, pad_token="auto" if has_padding else None)
    vocabulary = tokenizer.vocabulary
    ids = {name.decode("utf-8"): id_ for name, id_ in vocabulary.ordinary.items()}
    known = {name: ids[name] for name in tokenizer.symbols if name in ids} | dict(vocabulary.special)
    control = vocabulary.special.keys() - tokenizer.symbols
    check_is_plain(source, ids, companion, _PLAIN, control, known=known)
    # The unknown piece is always that of the model.
    ignored = {"unk"} if has_padding else {"unk", "pad"}
    declared = {role: name for role, name in companion.declared_roles.items() if role not in ignored}
    known_roles = select_roles(declared, vocabulary.ordinary, vocabulary.special)
    overrides = {role: name for role, name in roles.items() if name not in ("auto", None)}
    tokenizer = replace_roles(tokenizer, known_roles | overrides)
    inserted = [
        role for role in TEMPLATE_ROLES if roles.get(role) or companion.config.get(f"add_{role}_token")
    ]
    return declare_roles(tokenizer, tokenizer.vocabulary.roles, inserted)


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
