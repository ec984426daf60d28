"""Which special tokens begin, end and pad texts: as the caller says, or the files beside a tokenizer's."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tokjax.core.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.core.vocabulary import make_vocabulary
from tokjax.formats.reading import read_json_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tokjax.core.vocabulary import Role

_ROLE_OF: dict[str, Role] = {
    "cls_token": "bos",
    "sep_token": "eos",
    "bos_token": "bos",
    "eos_token": "eos",
    "pad_token": "pad",
    "unk_token": "unk",
}
"""Of two fields for one role the later counts."""
Tokenizer = TypeVar("Tokenizer", bound=Any)
CONFIG_FILE = "tokenizer_config.json"
SPECIAL_FILE = "special_tokens_map.json"


class Companions(NamedTuple):
    """What the files beside a tokenizer's say of it.

    Attributes:
        roles: the names of tokens with a role.
        more_special: the names of other special tokens.
        config: all of `tokenizer_config.json`.
    """

    roles: Mapping[Role, str]
    more_special: tuple[str, ...]
    config: Mapping[str, Any]


def companions_of(directory: Path) -> Companions:
    """What `tokenizer_config.json` and `special_tokens_map.json` say, if they are there.

    Raises:
        TokenizerFormatError: one of them is damaged.
    """
    said = [
        read_json_object(directory / name) if (directory / name).is_file() else {}
        for name in (SPECIAL_FILE, CONFIG_FILE)
    ]
    roles: dict[Role, str] = {}
    more: list[str | None] = []
    for contents in said:
        for field, role in _ROLE_OF.items():
            name = _name_of(contents.get(field), directory)
            if name is not None:
                roles[role] = name
        more.append(_name_of(contents.get("mask_token"), directory))
        listed = contents.get("additional_special_tokens") or contents.get("extra_special_tokens") or []
        more += [_name_of(token, directory) for token in listed] if isinstance(listed, list) else []
    return Companions(roles, tuple(dict.fromkeys(filter(None, more))), said[1])


def roles_of(
    special: Collection[str], given: Mapping[Role, str | None], otherwise: Mapping[Role, str]
) -> dict[Role, str | None]:
    """The special tokens with a role.

    Args:
        special: the names of all special tokens.
        given: what the caller says.
        otherwise: what holds where the caller says nothing, if there is a special token of that name.

    Raises:
        InvalidArgumentError: the caller names a token that is no special one.
    """
    roles: dict[Role, str | None] = {role: name for role, name in otherwise.items() if name in special}
    for role, name in given.items():
        if name is None:
            continue
        if name not in special:
            raise InvalidArgumentError(
                f"{role}_token is {name!r}, which is not among the special tokens {list(special)[:20]}"
            )
        roles[role] = name
    return roles


def with_roles(tokenizer: Tokenizer, given: Mapping[Role, str | None]) -> Tokenizer:
    """The tokenizer, with other special tokens in some roles.

    Args:
        tokenizer: any with a `vocabulary`.
        given: what the caller says; `None` for what holds already.

    Raises:
        InvalidArgumentError: the caller names a token that is no special one.
    """
    if not any(given.values()):
        return tokenizer
    table = tokenizer.vocabulary
    roles = roles_of(table.special, given, table.roles)
    template = table.template  # (what is put around texts does not change with the roles)
    changed = make_vocabulary(table.ordinary, table.special, roles, template, table.added, table.twins)
    return dataclasses.replace(tokenizer, vocabulary=changed)


def _name_of(token: object, directory: Path) -> str | None:
    name = token.get("content") if isinstance(token, dict) else token
    if name is not None and not isinstance(name, str):
        raise TokenizerFormatError(f"{directory}: a special token's name is a string, not {name!r}")
    return name
