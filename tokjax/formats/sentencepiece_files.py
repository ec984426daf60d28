"""SentencePiece models: `.model` files, with the roles that configuration files beside them declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokjax._util.atomic_files import check_path
from tokjax.core.vocabulary import TEMPLATE_ROLES, select_roles
from tokjax.formats.huggingface.tokenizer_json import convert_files
from tokjax.formats.tokenizer_files import read_companion_config, resolve_roles
from tokjax.formats.transformers_files import find_difference
from tokjax.models.sentencepiece import SentencePieceTokenizer, declare_roles, sentencepiece

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

_PLAIN = ("llama", "mistral")
"""Types of models for which transformers takes all settings from the `.model`; `LlamaTokenizer` does not."""


def read_sentencepiece(
    path: str | os.PathLike[str], roles: Mapping[Role, str | None]
) -> SentencePieceTokenizer | SegmentModel | HuggingFaceTokenizer:
    """Reads a SentencePiece model.

    The roles of special tokens are read from the `tokenizer_config.json` or `special_tokens_map.json` in the
    same directory, and otherwise from the model. If these files name a class with other ids, such as T5's or
    XLM-R's, or declare tokens that the model does not have, transformers reads the directory.

    Args:
        path: path of the `.model` file.
        roles: role to the name of a special token, or `"auto"` for the one with that role. BOS is inserted at
            the start of each text, and EOS at its end. `None` or no name inserts none, unless
            `tokenizer_config.json` in the same directory sets `add_bos_token` or `add_eos_token`. Without a
            name, padding is `"auto"`; `None` for none.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: there is no such special token.
        MissingExtraError: transformers has to read the directory, and is not installed.
        TokenizerFormatError: the file is not a SentencePiece model, or is truncated.
    """
    source = check_path(path)
    companion = read_companion_config(source.parent)
    has_padding = roles.get("pad", "auto") is not None
    tokenizer = sentencepiece(source, pad_token="auto" if has_padding else None)
    overrides = {role: None if name == "auto" else name for role, name in roles.items()}
    vocabulary = tokenizer.vocabulary
    ids = {name.decode("utf-8"): id_ for name, id_ in vocabulary.ordinary.items()}
    known = {name: ids[name] for name in tokenizer.symbols if name in ids} | dict(vocabulary.special)
    control = vocabulary.special.keys() - tokenizer.symbols
    reason = find_difference(source, known, companion, _PLAIN, control)
    if reason is not None:
        inserted_names = {f"{role}_token": "auto" for role in TEMPLATE_ROLES if roles.get(role) == "auto"}
        return convert_files({source.name: source}, reason, ids, overrides, **inserted_names)
    # The unknown piece is always that of the model.
    ignored = {"unk"} if has_padding else {"unk", "pad"}
    declared = {role: name for role, name in companion.declared_roles.items() if role not in ignored}
    all_roles = {
        **vocabulary.roles,
        **select_roles(declared, vocabulary.ordinary, vocabulary.special),
        **resolve_roles(vocabulary.special, overrides, {}),
    }
    inserted = [
        role for role in TEMPLATE_ROLES if roles.get(role) or companion.config.get(f"add_{role}_token")
    ]
    return declare_roles(tokenizer, all_roles, inserted)
