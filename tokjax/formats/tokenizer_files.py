"""Reading of files from a tokenizer's directory: bytes, lines, JSON, and special tokens with their roles.

Files may come from untrusted sources. They are read within `tokjax.limits`, and each error names the file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tokjax._util.atomic_files import NotRegularFileError, get_identity, open_regular
from tokjax._util.limits import exceeds_limit
from tokjax.core.vocabulary import ROLES
from tokjax.errors import TokenizerFormatError
from tokjax.models.format_errors import check_is_not_pointer, check_vocab_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from tokjax.core.vocabulary import Role


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Byte order mark in UTF-8, which `read_lines` removes from the start of a file."""
_GZIP_HEADER = b"\x1f\x8b"
_MERGES_HEADER = "#version"
CONFIG_FILE = "tokenizer_config.json"
"""Configuration file of a tokenizer in Hugging Face's format."""
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
"""Older file for special tokens; see `read_companion_config`."""
MODEL_CONFIG_FILE = "config.json"
"""Configuration file of a model, which names the type of the model."""
ADDED_TOKENS_FILE = "added_tokens.json"
"""Older file for added tokens, with their ids only."""
CHAT_TEMPLATE_FILE = "chat_template.jinja"
"""File of the default chat template."""
COMPANION_FILES = (CONFIG_FILE, SPECIAL_TOKENS_FILE, ADDED_TOKENS_FILE, CHAT_TEMPLATE_FILE)
"""Files that are read with a tokenizer if they are in its directory."""
CHAT_TEMPLATES_DIRECTORY = "additional_chat_templates"
"""Directory of the other chat templates, one file `NAME.jinja` each."""
_ROLE_FIELDS: Mapping[Role, str] = {role: f"{role}_token" for role in ROLES}
_NEW_TOKENS_ORDER: tuple[Role, ...] = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""Roles in the order in which transformers adds tokens that are not in the vocabulary."""
BERT_ROLES: Mapping[Role, Role] = {"bos": "cls", "eos": "sep"}
"""Roles that BERT's files do not declare, and the role whose token begins or ends each text instead."""


def read_bytes(path: Path, maximum: int = -1) -> bytes:
    """Reads a file.

    Args:
        path: path of the file.
        maximum: number of bytes to read; by default all.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenizerFormatError: it is not a regular file, is empty, compressed, or a pointer of Git LFS, or
            exceeds the limit `file_bytes`.
    """
    try:
        with open_regular(path) as file:
            size = get_identity(file).nbytes
            if exceeded := exceeds_limit("file_bytes", size):
                raise TokenizerFormatError(f"{path}: has {size:,} bytes; {exceeded}")
            data = file.read(maximum)
    except NotRegularFileError:
        raise TokenizerFormatError(f"{path}: is not a regular file") from None
    if not data:
        raise TokenizerFormatError(f"{path}: is empty")
    check_is_not_pointer(data, str(path))
    if data.startswith(_GZIP_HEADER):
        raise TokenizerFormatError(f"{path}: is compressed with gzip; decompress it first")
    return data


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yields the lines of a text file with their numbers, from 1. Lines may end in `\r\n`.

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


def read_merges(path: Path, tokens: Collection[str]) -> dict[tuple[str, str], int]:
    """Reads a list of merges: pairs of tokens in order of priority, and the numbers of their lines.

    Lines that begin with `#` before the first merge are comments. Empty lines are ignored.

    Args:
        path: path of the file.
        tokens: tokens of the vocabulary, which distinguish merges that begin with `#` from comments.

    Raises:
        TokenizerFormatError: a line is not a pair of tokens, or is a duplicate.
    """
    line_numbers: dict[tuple[str, str], int] = {}
    for number, line in read_lines(path):
        parts = re.split("[ \t]+", line.strip(" \t"))
        if parts == [""] or (not line_numbers and _is_comment(parts, tokens)):
            continue
        if len(parts) != 2:
            raise TokenizerFormatError(
                f"{path}, line {number}: expected two tokens; remove counts after them; got {line[:60]!r}"
            )
        pair = parts[0], parts[1]
        if pair in line_numbers:
            raise TokenizerFormatError(
                f"{path}, line {number}: duplicate of {line!r} in line {line_numbers[pair]}"
            )
        line_numbers[pair] = number
    return line_numbers


def _is_comment(parts: Sequence[str], tokens: Collection[str]) -> bool:
    """Returns whether a line before the first merge is a comment. Some merges begin with `#`, too."""
    if parts[0].startswith(_MERGES_HEADER):
        return True
    return parts[0].startswith("#") and (len(parts) == 1 or "".join(parts[:2]) not in tokens)


def read_json_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object from a file.

    Raises:
        TokenizerFormatError: the file is not JSON, is not an object, or has a duplicate key.
    """
    return parse_json_object(read_bytes(path), str(path))


def parse_json_object(data: bytes | str, where: str) -> dict[str, Any]:
    """Parses a JSON object.

    Args:
        data: JSON text, or its UTF-8 bytes.
        where: name of the file, for errors.

    Raises:
        TokenizerFormatError: `data` is not JSON, is not an object, or has a duplicate key.
    """

    def check_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise TokenizerFormatError(f"{where}: duplicate key {key!r} in one object")
        return entries

    try:
        contents = json.loads(data, object_pairs_hook=check_unique_keys, parse_constant=_reject_constant)
    except TokenizerFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise TokenizerFormatError(f"{where}: not JSON, or truncated: {error}") from error
    if not isinstance(contents, dict):
        raise TokenizerFormatError(f"{where}: expected a JSON object, got a {type(contents).__name__}")
    return contents


def parse_token_ids(contents: object, where: str) -> dict[str, int]:
    """Checks a JSON object that maps tokens to ids, and returns it.

    Args:
        contents: parsed JSON value.
        where: name of the file, for errors.

    Raises:
        TokenizerFormatError: the value is not an object, is empty, or has an invalid or a duplicate id.
    """
    if not isinstance(contents, dict) or not contents:
        raise TokenizerFormatError(f"{where}: expected a JSON object that maps tokens to ids")
    check_vocab_size(len(contents), where)
    ids = list(contents.values())
    if set(map(type, ids)) == {int} and len(set(ids)) == len(ids) and min(ids) >= 0 and max(ids) < 1 << 31:
        return contents
    owner: dict[int, str] = {}
    for form, id_ in contents.items():  # finds the first id that is invalid, or a duplicate
        if type(id_) is not int or not 0 <= id_ < 1 << 31:
            raise TokenizerFormatError(
                f"{where}: the id of {form!r} is {id_!r}; ids are integers from 0 to 2**31 - 1"
            )
        if owner.setdefault(id_, form) != form:
            raise TokenizerFormatError(f"{where}: id {id_} is given to both {owner[id_]!r} and {form!r}")
    return contents


class CompanionConfig(NamedTuple):
    """Settings from the configuration files in a tokenizer's directory.

    Attributes:
        roles: role to the name of the special token; BOS and EOS can be the CLS and SEP tokens.
        declared_roles: the same, of the roles that the files declare.
        special: names of all special tokens, those with a role first, each with the object that declares its
            options; the object is empty if the files contain only the name.
        config: contents of `tokenizer_config.json`; empty if the file does not exist.
    """

    roles: Mapping[Role, str]
    declared_roles: Mapping[Role, str]
    special: Mapping[str, Mapping[str, Any]]
    config: Mapping[str, Any]


def read_companion_config(directory: Path) -> CompanionConfig:
    """Reads `tokenizer_config.json` and the older `special_tokens_map.json`, if they exist.

    As in transformers, the older file has no effect if the other has `added_tokens_decoder`; without it, the
    roles in the older file take precedence. If none defines BOS or EOS, the CLS or SEP token also has that
    role: BERT's `[CLS]` and `[SEP]` begin and end each text.

    Raises:
        TokenizerFormatError: one of the files is damaged.
    """
    config, older = (
        read_json_object(directory / name) if (directory / name).is_file() else {}
        for name in (CONFIG_FILE, SPECIAL_TOKENS_FILE)
    )
    older_roles = {field: older[field] for field in _ROLE_FIELDS.values() if field in older}
    contents = config if "added_tokens_decoder" in config else older | config | older_roles
    names = {role: _parse_token_name(contents.get(field), directory) for role, field in _ROLE_FIELDS.items()}
    roles = {role: name for role, name in names.items() if name is not None}
    all_roles = {role: roles[other] for role, other in BERT_ROLES.items() if other in roles} | roles
    special = {
        name: token if isinstance(token, dict) else {}
        for token in _list_special_tokens(contents)
        if (name := _parse_token_name(token, directory))
    }
    return CompanionConfig(all_roles, roles, special, config)


def _list_special_tokens(contents: Mapping[str, Any]) -> list[Any]:
    """Returns the values of a configuration that declare special tokens: names, objects and `None`.

    They are in the order in which transformers adds those that are new.
    """
    fields = [_ROLE_FIELDS[role] for role in _NEW_TOKENS_ORDER]
    # Other fields declare tokens without a role, such as "image_token"; "add_bos_token" is a flag.
    others = [name for name in contents if name.endswith("_token") and name not in fields]
    named = [value for name in others if isinstance(value := contents[name], (str, dict))]
    listed = contents.get("extra_special_tokens") or contents.get("additional_special_tokens") or []
    if isinstance(listed, dict):
        listed = list(listed.values())
    return [*map(contents.get, fields), *named, *(listed if isinstance(listed, list) else [])]


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


def _parse_token_name(token: object, directory: Path) -> str | None:
    """Returns the name of a special token in a configuration file: a string, or the field `content`."""
    name = token.get("content") if isinstance(token, dict) else token
    if name is not None and not isinstance(name, str):
        raise TokenizerFormatError(f"{directory}: the name of a special token must be a string, not {name!r}")
    return name
