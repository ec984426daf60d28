"""Reading of files from a tokenizer's directory: lines, JSON, special tokens, and files for transformers.

Files may come from untrusted sources. They are read within `tokjax.limits`, and each error names the file.

A vocabulary file has the ids of its own tokens. Many classes of transformers put other tokens before or after
them, or split texts by their own rules, and configuration files can declare tokens that the vocabulary does
not have:

    sentencepiece.bpe.model   ▁the 3, ...      tokenizer_config.json   {"tokenizer_class": "NllbTokenizer"}
    vocab.json, merges.txt    Ġthe 262, ...    tokenizer_config.json   {"pad_token": "<pad>"}
    tokenizer.json            ▁the 278, ...    added_tokens.json       {"<pad>": 32000}

Such files are not read by rules of tokjax: transformers reads copies of them, and its fast tokenizer is
converted. So no text gets other ids than in transformers.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tokjax._util.imports import import_optional
from tokjax._util.limits import parse_json
from tokjax.core.vocabulary import ROLES
from tokjax.errors import TokenizerFormatError
from tokjax.models.format_errors import check_vocab_size, read_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tokjax.core.vocabulary import Role


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Byte order mark in UTF-8, which `read_lines` removes from the start of a file."""
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
_OPTIONS = ("lstrip", "rstrip", "single_word", "normalized")
"""Options of an added token that a vocabulary file can't have."""
_FLAGS = (*_OPTIONS, "special")
_GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes without rules of their own."""
_IN_BRACKETS = re.compile(r"<.+>|\[.+\]")
_SETTINGS = ("extra_ids", "add_prefix_space")
"""Settings of a configuration that change ids, whatever the class."""


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
        contents = parse_json(data, object_pairs_hook=check_unique_keys, parse_constant=_reject_constant)
    except TokenizerFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise TokenizerFormatError(f"{where}: not JSON, or truncated or too large: {error}") from error
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


class RequiresTransformersError(Exception):
    """Raised if transformers has to read files. The message is the reason, as a clause.

    Args:
        reason: the reason.
        tokens: tokens of the vocabulary.
    """

    def __init__(self, reason: str, tokens: Collection[str]) -> None:
        super().__init__(reason)
        self.tokens = tokens


def check_is_plain(
    source: Path,
    ids: Mapping[str, int],
    companion: CompanionConfig,
    plain: Collection[str] = (),
    special: Collection[str] = (),
    *,
    known: Mapping[str, int] | None = None,
    normalizes: bool = True,
) -> None:
    """Raises `RequiresTransformersError` unless the ids are those of a vocabulary file alone.

    Args:
        source: path of the file.
        ids: ids by token.
        companion: settings from the configuration files in its directory.
        plain: classes and types of models whose ids are those of the file.
        special: special tokens of the file itself.
        known: ids of those tokens that can be special; by default all.
        normalizes: whether special tokens in normalized texts can differ from those in texts.
    """
    options = _OPTIONS if normalizes else _OPTIONS[:-1]
    differences = _iter_differences(source, known or ids, companion, plain, special, options)
    for difference in differences:
        raise RequiresTransformersError(f"its configuration files {difference}", ids)


def _iter_differences(
    source: Path,
    ids: Mapping[str, int],
    companion: CompanionConfig,
    plain: Collection[str],
    special: Collection[str],
    options_of_tokens: Collection[str],
) -> Iterator[str]:
    """Iterates over what makes other ids than those of a file, as ends of a clause."""
    path = source.parent / MODEL_CONFIG_FILE
    model_config = read_json_object(path) if path.is_file() else {}
    # The class does not decide alone: for some types of models, transformers reads files by another one.
    names = (
        companion.config.get("tokenizer_class"),
        *map(model_config.get, ("tokenizer_class", "model_type")),
    )
    for name in filter(None, names):
        if str(name).removesuffix("Fast") not in (*plain, *_GENERIC):
            yield f"name {name}"
    for setting in filter(companion.config.get, _SETTINGS):
        yield f"set {setting}"
    for token, id_, options in _iter_declared(source, companion):
        if token not in ids or id_ not in (ids[token], None):
            with_id = " with this id" if token in ids else ""
            yield f"declare the token {token!r}, which {source.name} does not have{with_id}"
        if any(map(options.get, options_of_tokens)) or not options.get("special", True):
            yield f"declare options of the token {token!r}"
        if token not in companion.special and token not in special:
            yield f"declare the added token {token!r}"


def find_undeclared_token(
    contents: Mapping[str, Any], source: Path, companion: CompanionConfig
) -> str | None:
    """Returns an added token that only the configuration files declare, or declare otherwise.

    Args:
        contents: parsed `tokenizer.json`, not checked yet.
        source: its path.
        companion: settings from the configuration files in its directory.
    """
    entries = contents.get("added_tokens") or []
    if not all(isinstance(entry, dict) and "content" in entry for entry in entries):
        return None  # damaged; the error is raised where the definition is parsed
    added = {entry["content"]: entry for entry in entries}
    added_ids = {entry.get("id") for entry in entries}
    for token, id_, options in _iter_declared(source, companion):
        entry = added.get(token)
        if entry is None:
            if options or id_ is None or id_ not in added_ids:
                return token
        elif "special" in options and any(
            bool(entry.get(flag)) != bool(options.get(flag))
            for flag in _FLAGS
            if flag != "special" or not entry.get(flag)  # a special token remains special
        ):
            return token
    return None


def mark_words_as_text(
    contents: Mapping[str, Any], old: Mapping[str, Any], companion: CompanionConfig
) -> None:
    """Makes new added tokens that are words of the model tokens that are not special.

    In contrast to transformers, a mere name without brackets does not make a token of the model special: it
    can be an ordinary word, or `!`. It is matched in texts, so the ids are the same.

    Args:
        contents: parsed definition that transformers has written, which is changed.
        old: parsed `tokenizer.json`.
        companion: settings from the configuration files.
    """
    declared = companion.config.get("added_tokens_decoder", {}).values()
    known = {token["content"] for token in (*declared, *(old.get("added_tokens") or []))}
    for entry in contents["added_tokens"]:
        name, is_new = entry["content"], entry["id"] >= len(contents["model"]["vocab"])
        is_mere_name = companion.special.get(name) == {} and name not in known
        if is_mere_name and not is_new and not _IN_BRACKETS.fullmatch(name):
            entry["special"] = False


def load_by_transformers(files: Mapping[str, Path], reason: RequiresTransformersError) -> Any:
    """Returns the tokenizer that transformers makes of files, without a network and without code.

    It reads copies of these files and of the configuration files beside the first, so that other files in the
    directory have no effect. No class changes a `tokenizer.json`.

    Args:
        files: name that transformers looks for, to the path of the file.
        reason: why transformers has to read them.

    Raises:
        MissingExtraError: transformers is not installed.
        TokenizerFormatError: transformers can't read the files.
    """
    source = next(iter(files.values()))
    directory = source.parent
    purpose = f"reading {directory}, since {reason},"
    transformers = import_optional("transformers", extra="transformers", purpose=purpose)
    is_definition = "tokenizer.json" in files
    load = transformers.PreTrainedTokenizerFast if is_definition else transformers.AutoTokenizer
    names = COMPANION_FILES if is_definition else (*COMPANION_FILES, MODEL_CONFIG_FILE)
    configs = {name: path for name in names if (path := directory / name).is_file()}
    with tempfile.TemporaryDirectory() as copies:
        for name, path in {**configs, **files}.items():
            (Path(copies) / name).write_bytes(read_bytes(path))
        try:
            tokenizer = load.from_pretrained(copies, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            raise TokenizerFormatError(
                f"{directory}: {reason}, and transformers can't read it: {type(error).__name__}: "
                f"{error!s:.300}"
            ) from error
    # A class that looks for a file of another name makes a tokenizer without its tokens.
    known = tokenizer.get_vocab()
    if sum(token in known for token in reason.tokens) * 2 < len(reason.tokens):
        raise TokenizerFormatError(
            f"{directory}: {reason}, and {type(tokenizer).__name__} of transformers did not read "
            f"{source.name}: it has {len(known)} other tokens. Give the file the name that the class looks "
            "for, or name the class that wrote it"
        )
    return tokenizer


def _iter_declared(
    source: Path, companion: CompanionConfig
) -> Iterator[tuple[str, int | None, Mapping[str, Any]]]:
    """Iterates over the name, the id if there is one, and the options of each token of a configuration."""
    decoder = companion.config.get("added_tokens_decoder")
    path = source.parent / ADDED_TOKENS_FILE
    if decoder is not None:
        for key, entry in decoder.items() if isinstance(decoder, dict) else [("", None)]:
            name = entry.get("content") if isinstance(entry, dict) else None
            if not (isinstance(name, str) and name and re.fullmatch("[0-9]{1,10}", key)):
                raise TokenizerFormatError(
                    f"{source.parent}: 'added_tokens_decoder': expected ids and tokens, got {key[:20]!r}: "
                    f"{entry!r:.80}"
                )
            yield name, int(key), {"special": False} | entry  # type: ignore[operator]
    elif path.is_file() and (contents := read_json_object(path)):
        for name, id_ in parse_token_ids(contents, str(path)).items():
            yield name, id_, {}
    for name, options in companion.special.items():
        yield name, None, dict(options, special=True) if options else {}
