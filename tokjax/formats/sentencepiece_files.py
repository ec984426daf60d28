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

    from tokjax.core.vocabulary import Role
    from tokjax.formats.huggingface.adapter import HuggingFaceTokenizer
    from tokjax.models.base import SegmentModel

_PLAIN = ("llama", "mistral")
"""Types of models for which transformers takes all settings from the `.model`; `LlamaTokenizer` does not."""


def read_sentencepiece(
    path: str | os.PathLike[str],
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = "auto",
) -> SentencePieceTokenizer | SegmentModel | HuggingFaceTokenizer:
    """Reads a SentencePiece model.

    The roles of special tokens are read from the `tokenizer_config.json` or `special_tokens_map.json` in the
    same directory, and otherwise from the model. If these files name a class with other ids, such as T5's or
    XLM-R's, or declare tokens that the model does not have, transformers reads the directory.

    Args:
        path: path of the `.model` file.
        bos_token: special token to insert at the start of a text; `"auto"` for the one with the role BOS.
            `None` inserts none, unless `tokenizer_config.json` in the same directory sets `add_bos_token`.
        eos_token: special token to insert at the end of a text; likewise with `add_eos_token`.
        pad_token: special token that pads a batch; `"auto"` for the one with that role, `None` for none.

    Raises:
        FileNotFoundError: the file does not exist.
        InvalidArgumentError: there is no such special token.
        MissingExtraError: transformers has to read the directory, and is not installed.
        TokenizerFormatError: the file is not a SentencePiece model, or is truncated.
    """
    source = check_path(path)
    companion = read_companion_config(source.parent)
    passed: dict[Role, str | None] = {"bos": bos_token, "eos": eos_token, "pad": pad_token}
    tokenizer = sentencepiece(source, pad_token=None if pad_token is None else "auto")
    overrides = {role: None if name == "auto" else name for role, name in passed.items()}
    vocabulary = tokenizer.vocabulary
    ids = {name.decode("utf-8"): id_ for name, id_ in vocabulary.ordinary.items()}
    known = {name: ids[name] for name in tokenizer.symbols if name in ids} | dict(vocabulary.special)
    control = vocabulary.special.keys() - tokenizer.symbols
    reason = find_difference(source, known, companion, _PLAIN, control)
    if reason is not None:
        inserted_names = {f"{role}_token": passed[role] for role in TEMPLATE_ROLES if passed[role] == "auto"}
        return convert_files({source.name: source}, reason, ids, overrides, **inserted_names)
    # The unknown piece is always that of the model.
    ignored = {"unk"} if pad_token is not None else {"unk", "pad"}
    declared = {role: name for role, name in companion.declared_roles.items() if role not in ignored}
    roles = {
        **vocabulary.roles,
        **select_roles(declared, vocabulary.ordinary, vocabulary.special),
        **resolve_roles(vocabulary.special, overrides, {}),
    }
    inserted = [role for role in TEMPLATE_ROLES if passed[role] or companion.config.get(f"add_{role}_token")]
    return declare_roles(tokenizer, roles, inserted)
