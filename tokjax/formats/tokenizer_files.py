"""Files of tokenizers, from anywhere: read whole, and with an error for what is no such file."""

from __future__ import annotations

import dataclasses
import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from tokjax._util.atomic_files import get_identity, open_regular
from tokjax._util.limits import exceeds_limit
from tokjax.core.vocabulary import make_vocabulary
from tokjax.errors import InvalidArgumentError, TokenizerFormatError
from tokjax.models.format_errors import check_vocab_size

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator, Mapping

    from tokjax.core.vocabulary import Role


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_bytes(path: Path) -> bytes:
    """The contents of a file.

    Raises:
        FileNotFoundError: there is no such file.
        TokenizerFormatError: it is empty, or larger than any tokenizer.
    """
    check_is_file(path)
    with open_regular(path) as file:
        size = get_identity(file).nbytes
        exceeded = exceeds_limit("file_bytes", size)
        if exceeded:
            raise TokenizerFormatError(f"{path}: has {size:,} bytes; {exceeded}")
        data = file.read()
    if not data:
        raise TokenizerFormatError(f"{path}: is empty")
    return data


def check_is_file(path: Path) -> None:
    """Raise an error for what is not there, or is there and is no file: a directory, a pipe, a device."""
    if not path.exists():
        why = "No such file (nothing is downloaded: give the path of a tokenizer's file or directory)"
        raise FileNotFoundError(errno.ENOENT, why, str(path))
    if not path.is_file():
        raise TokenizerFormatError(f"{path}: is no regular file")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""The lines of a text file, with their numbers from 1 on. They may end in `\r\n`.

    Raises:
        TokenizerFormatError: the file is not UTF-8.
    """
    lines = read_bytes(path).removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            yield number, line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerFormatError(f"{path}, line {number}: not UTF-8: {error}") from error


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        TokenizerFormatError: it holds no JSON, no object, or an object that has a key twice.
    """
    return parse_json_object(read_bytes(path), str(path))


def parse_json_object(data: bytes | str, where: str) -> dict[str, Any]:
    """The JSON object in some text; `where` it is, for errors."""

    def check_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise TokenizerFormatError(f"{where}: the key {key!r} stands twice in one object")
                seen.add(key)
        return entries

    try:
        contents = json.loads(data, object_pairs_hook=check_unique_keys, parse_constant=_reject_constant)
    except TokenizerFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise TokenizerFormatError(f"{where}: not JSON, or cut short: {error}") from error
    if not isinstance(contents, dict):
        raise TokenizerFormatError(f"{where}: a JSON object is expected, not a {type(contents).__name__}")
    return contents


def parse_token_ids(contents: object, where: str) -> dict[str, int]:
    """A checked table of tokens and ids.

    Raises:
        TokenizerFormatError: it is no table, or an id is none, or stands twice.
    """
    if not isinstance(contents, dict) or not contents:
        raise TokenizerFormatError(f"{where}: an object of tokens and ids is expected")
    check_vocab_size(len(contents), where)
    ids = list(contents.values())
    if set(map(type, ids)) == {int} and len(set(ids)) == len(ids) and min(ids) >= 0 and max(ids) < 1 << 31:
        return contents
    owner: dict[int, str] = {}  # (one of them is wrong)
    for form, id_ in contents.items():
        if isinstance(id_, bool) or not isinstance(id_, int) or not 0 <= id_ < 1 << 31:
            raise TokenizerFormatError(
                f"{where}: the id of {form!r} is {id_!r}; ids are integers from 0 to 2**31 - 1"
            )
        if id_ in owner:
            raise TokenizerFormatError(f"{where}: id {id_} is given to both {owner[id_]!r} and {form!r}")
        owner[id_] = form
    return contents


def as_path(path: Any) -> Path:
    """A path of what was given.

    Raises:
        InvalidArgumentError: it is none.
    """
    try:
        return Path(path)
    except TypeError as error:
        raise InvalidArgumentError(f"a path is expected, not {path!r}") from error


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


_CONFIG_ROLES: dict[str, Role] = {
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
SPECIAL_TOKENS_FILE = "special_tokens_map.json"


class CompanionConfig(NamedTuple):
    """What the files beside a tokenizer's say of it.

    Attributes:
        roles: the names of tokens with a role.
        additional_special: the names of other special tokens.
        config: all of `tokenizer_config.json`.
    """

    roles: Mapping[Role, str]
    additional_special: tuple[str, ...]
    config: Mapping[str, Any]


def read_companion_config(directory: Path) -> CompanionConfig:
    """What `tokenizer_config.json` and `special_tokens_map.json` say, if they are there.

    Raises:
        TokenizerFormatError: one of them is damaged.
    """
    configs = [
        read_json_object(directory / name) if (directory / name).is_file() else {}
        for name in (SPECIAL_TOKENS_FILE, CONFIG_FILE)
    ]
    roles: dict[Role, str] = {}
    more: list[str | None] = []
    for contents in configs:
        for field, role in _CONFIG_ROLES.items():
            name = _parse_token_name(contents.get(field), directory)
            if name is not None:
                roles[role] = name
        more.append(_parse_token_name(contents.get("mask_token"), directory))
        listed = contents.get("additional_special_tokens") or contents.get("extra_special_tokens") or []
        more += [_parse_token_name(token, directory) for token in listed] if isinstance(listed, list) else []
    return CompanionConfig(roles, tuple(dict.fromkeys(filter(None, more))), configs[1])


def resolve_roles(
    special: Collection[str], overrides: Mapping[Role, str | None], defaults: Mapping[Role, str]
) -> dict[Role, str | None]:
    """The special tokens with a role.

    Args:
        special: the names of all special tokens.
        overrides: what the caller says.
        defaults: what holds where the caller says nothing, if there is a special token of that name.

    Raises:
        InvalidArgumentError: the caller names a token that is no special one.
    """
    roles: dict[Role, str | None] = {role: name for role, name in defaults.items() if name in special}
    for role, name in overrides.items():
        if name is None:
            continue
        if name not in special:
            raise InvalidArgumentError(
                f"{role}_token is {name!r}, which is not among the special tokens {list(special)[:20]}"
            )
        roles[role] = name
    return roles


def with_roles(tokenizer: Tokenizer, overrides: Mapping[Role, str | None]) -> Tokenizer:
    """The tokenizer, with other special tokens in some roles.

    Args:
        tokenizer: any with a `vocabulary`.
        overrides: what the caller says; `None` for what holds already.

    Raises:
        InvalidArgumentError: the caller names a token that is no special one.
    """
    if not any(overrides.values()):
        return tokenizer
    table = tokenizer.vocabulary
    roles = resolve_roles(table.special, overrides, table.roles)
    template = table.template  # (what is put around texts does not change with the roles)
    changed = make_vocabulary(
        table.ordinary, table.special, roles, template, table.added_tokens, table.duplicate_token_ids
    )
    return dataclasses.replace(tokenizer, vocabulary=changed)


def _parse_token_name(token: object, directory: Path) -> str | None:
    name = token.get("content") if isinstance(token, dict) else token
    if name is not None and not isinstance(name, str):
        raise TokenizerFormatError(f"{directory}: a special token's name is a string, not {name!r}")
    return name


_TEMPLATE_FILE = "chat_template.jinja"
_MORE_TEMPLATES = "additional_chat_templates"
_DEFAULT = "default"


def load_chat_template(path: str | os.PathLike[str], name: str = _DEFAULT) -> str:
    """The Jinja template of a model's conversations, for `encode_chat`.

    It is `chat_template.jinja` (others than the default one in `additional_chat_templates/`), or what
    `tokenizer_config.json` says.

    Args:
        path: the model's directory.
        name: which template, where there are several.

    Raises:
        FileNotFoundError: there is no such directory.
        TokenizerFormatError: there is no such template.
    """
    directory = as_path(path)
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: there is no such directory")
    template_path = (
        directory / _TEMPLATE_FILE if name == _DEFAULT else directory / _MORE_TEMPLATES / f"{name}.jinja"
    )
    if template_path.is_file():
        return read_bytes(template_path).decode("utf-8", "replace")
    config_value = read_companion_config(directory).config.get("chat_template")
    templates = (
        {_DEFAULT: config_value} if isinstance(config_value, str) else _parse_named_templates(config_value)
    )
    if not isinstance(templates.get(name), str):
        raise TokenizerFormatError(
            f"{directory}: holds no chat template {name!r}: there is no {template_path.name}, and {CONFIG_FILE} has "
            f"{sorted(templates) or 'none'}"
        )
    return templates[name]


def _parse_named_templates(config_value: object) -> dict[str, str]:
    entries = config_value if isinstance(config_value, list) else []
    entries_with_name = [
        entry for entry in entries if isinstance(entry, dict) and {"name", "template"} <= set(entry)
    ]
    return {str(entry["name"]): entry["template"] for entry in entries_with_name}
