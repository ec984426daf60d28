"""Directories that transformers reads: those whose ids depend on its classes, or on configuration files.

A vocabulary file has the ids of its own tokens. Many classes of transformers put other tokens before or after
them, or split texts by their own rules, and configuration files can declare tokens that the vocabulary does
not have:

    sentencepiece.bpe.model   ▁the 3, ...      tokenizer_config.json   {"tokenizer_class": "NllbTokenizer"}
    vocab.json, merges.txt    Ġthe 262, ...    tokenizer_config.json   {"pad_token": "<pad>"}
    tokenizer.json            ▁the 278, ...    added_tokens.json       {"<pad>": 32000}

Such files are not read by rules of tokjax: transformers converts the directory, and its fast tokenizer is
converted. So no text gets other ids than in transformers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tokjax._util.imports import import_optional
from tokjax.errors import InvalidArgumentError, MissingExtraError, TokenizerFormatError
from tokjax.formats.tokenizer_files import (
    ADDED_TOKENS_FILE,
    MODEL_CONFIG_FILE,
    parse_token_ids,
    read_json_object,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from tokjax.formats.tokenizer_files import CompanionConfig

_OPTIONS = ("lstrip", "rstrip", "single_word")
"""Options of an added token that a vocabulary file can't have."""
_FLAGS = (*_OPTIONS, "normalized", "special")
_IN_BRACKETS = re.compile(r"<.+>|\[.+\]")
_SETTINGS = ("extra_ids", "add_prefix_space")
"""Settings of a configuration that change ids, whatever the class."""


def find_class(source: Path, config: Mapping[str, Any]) -> str | None:
    """Returns the class of transformers, or else the type of the model, that configuration files name.

    Args:
        source: path of the vocabulary or the model.
        config: contents of the `tokenizer_config.json` in its directory.
    """
    path = source.parent / MODEL_CONFIG_FILE
    model_config = read_json_object(path) if path.is_file() else {}
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    name = name or model_config.get("model_type")
    return name.removesuffix("Fast") if isinstance(name, str) else None


def find_difference(
    source: Path, ids: Mapping[str, int], companion: CompanionConfig, plain: Collection[str]
) -> str | None:
    """Returns why the ids are not those of a vocabulary file alone, as a clause; `None` if they are.

    Args:
        source: path of the file.
        ids: ids by token.
        companion: settings from the configuration files in its directory.
        plain: classes and types of models whose ids are those of the file.
    """
    name = find_class(source, companion.config)
    if name is not None and name not in plain:
        return f"its configuration files name {name}"
    for setting in _SETTINGS:
        if companion.config.get(setting):
            return f"its configuration files set {setting}"
    for token, id_, options in _iter_declared(source, companion):
        if token not in ids or id_ not in (ids[token], None):
            return f"its configuration files declare the token {token!r}, which {source.name} has not" + (
                " with this id" if token in ids else ""
            )
        if any(map(options.get, _OPTIONS)) or not options.get("special", True):
            return f"its configuration files declare options of the token {token!r}"
    return None


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


def load_by_transformers(directory: Path, reason: str, *, is_definition: bool = False) -> Any:
    """Returns the fast tokenizer that transformers makes of a directory, without a network and without code.

    Args:
        directory: path of the directory.
        reason: why transformers has to read it, as a clause.
        is_definition: whether it has a `tokenizer.json`, which no class changes.

    Raises:
        MissingExtraError: transformers is not installed.
        TokenizerFormatError: transformers can't read the directory, or has no fast tokenizer for it.
    """
    try:
        transformers = import_optional(
            "transformers", extra="transformers", purpose=f"reading {directory}, since {reason},"
        )
    except MissingExtraError as error:
        raise MissingExtraError(
            f"{error.message}, or let it write a tokenizer.json elsewhere: transformers.AutoTokenizer"
            f".from_pretrained({str(directory)!r}).save_pretrained(OUT), then load_tokenizer(OUT)"
        ) from error
    load = transformers.PreTrainedTokenizerFast if is_definition else transformers.AutoTokenizer
    try:
        tokenizer = load.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise TokenizerFormatError(
            f"{directory}: {reason}, and transformers can't read it: {type(error).__name__}: {error!s:.300}"
        ) from error
    if not getattr(tokenizer, "is_fast", False):
        raise TokenizerFormatError(
            f"{directory}: {reason}, and transformers has no tokenizer.json for it; register a custom type "
            "that wraps the tokenizer of transformers (docs/extending.md)"
        )
    return tokenizer


def reject_options(directory: Path, reason: str, options: Mapping[str, object]) -> None:
    """Raises `InvalidArgumentError` for options of a reader that transformers takes the place of."""
    for name, value in options.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{name} is {value!r:.80}, and transformers reads {directory}, since {reason}; leave it out, "
                "or copy the vocabulary to a directory without configuration files"
            )


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
