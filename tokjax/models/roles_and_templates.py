"""Copies of tokenizers with other roles of special tokens, or with another template."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeVar

from tokjax.core.template import make_template
from tokjax.core.vocabulary import TEMPLATE_ROLES, can_have_role, check_role_names, make_vocabulary
from tokjax.errors import InvalidArgumentError, UnsupportedTokenizerError
from tokjax.models.base import SegmentModel, TokenizerRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.vocabulary import Role

Model = TypeVar("Model", bound=SegmentModel)
Record = TypeVar("Record", bound=TokenizerRecord)


def with_template(
    tokenizer: Model, single: str | Sequence[str], pair: str | Sequence[str] | None = None
) -> Model:
    """Returns a copy of a tokenizer with another template, which inserts special tokens around texts.

    Args:
        tokenizer: one of the built-in tokenizers.
        single: template of one text, as in `make_template`.
        pair: template of a pair of texts; `None` derives it from `single`.

    Raises:
        InvalidArgumentError: the template has a token that is neither a special nor an added token of the
            tokenizer, or lacks a text.
        UnsupportedTokenizerError: the tokenizer is not one of the built-in types.

    >>> from tokjax import encode_result, wordpiece
    >>> bert = wordpiece(["[UNK]", "[CLS]", "[SEP]", "me"])
    >>> encode_result(with_template(bert, "$A [SEP]"), "me").tokens
    ('me', '[SEP]')
    """
    if not isinstance(tokenizer, SegmentModel):
        raise UnsupportedTokenizerError(
            f"with_template needs one of the built-in tokenizers, not a {type(tokenizer).__name__}"
        )
    template = make_template(single, pair)
    template.check_tokens(tokenizer.vocabulary.special, tokenizer.vocabulary.added_tokens)
    vocabulary = dataclasses.replace(tokenizer.vocabulary, explicit_template=template)
    return tokenizer.replace_vocabulary(vocabulary)


def with_roles(
    tokenizer: Record,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    pad_token: str | None = None,
    cls_token: str | None = None,
    sep_token: str | None = None,
    mask_token: str | None = None,
) -> Record:
    """Returns a copy of a tokenizer with other tokens in some roles. Its template stays the same.

    Args:
        tokenizer: one of the built-in tokenizers, or one that runs on the `tokenizers` library.
        bos_token: special token in the role of BOS. `None` keeps the present token; this also applies to the
            next arguments.
        eos_token: special token in the role of EOS.
        pad_token: special token that pads a batch.
        cls_token: token whose output represents the text. This token and the next two can also be ordinary
            tokens, such as user-defined symbols of a SentencePiece model.
        sep_token: token that ends each text of a pair.
        mask_token: token that replaces masked tokens.

    Raises:
        InvalidArgumentError: a role names a token that does not exist, or has to be special.
        UnsupportedTokenizerError: the tokenizer is of another type.

    >>> from tokjax import byte_level, mask_id
    >>> tokenizer = with_roles(byte_level(["</s>", "<mask>"], eos_token="</s>"), mask_token="<mask>")
    >>> mask_id(tokenizer)
    1
    """
    if not isinstance(tokenizer, TokenizerRecord):
        raise UnsupportedTokenizerError(
            f"with_roles needs a tokenizer that tokjax loads or makes, not a {type(tokenizer).__name__}"
        )
    overrides: dict[Role, str | None] = {
        "bos": bos_token,
        "eos": eos_token,
        "pad": pad_token,
        "cls": cls_token,
        "sep": sep_token,
        "mask": mask_token,
    }
    return replace_roles(tokenizer, overrides)


def replace_roles(tokenizer: Record, overrides: Mapping[Role, str | None]) -> Record:
    """Returns a copy of a tokenizer with other tokens in some roles. Its template stays the same.

    Args:
        tokenizer: the tokenizer.
        overrides: role to the name of a token, or `None` to keep the present one.

    Raises:
        InvalidArgumentError: a role names a token that does not exist, or has to be special.
    """
    old = tokenizer.vocabulary
    for role, name in check_role_names(overrides).items():
        if name is not None and not can_have_role(name, role, old.ordinary, old.special):
            raise InvalidArgumentError(
                f"{role}_token is {name!r}, which is not among the special tokens {list(old.special)}; add "
                f"it with extend_vocabulary(tokenizer, [{name!r}], special=True)"
            )
    roles = {**old.roles, **{role: name for role, name in overrides.items() if name is not None}}
    if roles == old.roles:
        return tokenizer
    # A template that follows from BOS and EOS would change with them, so it becomes explicit.
    changes_template = any(roles.get(role) != old.roles.get(role) for role in TEMPLATE_ROLES)
    template = old.template if changes_template else old.explicit_template
    vocabulary = make_vocabulary(
        old.ordinary,
        old.special,
        roles,
        template,
        old.added_tokens,
        old.duplicate_token_ids,
        old.unreachable_ids,
    )
    return tokenizer.replace_vocabulary(vocabulary)
