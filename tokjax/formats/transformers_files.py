"""Files that transformers reads: those whose ids depend on its classes, or on configuration files.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokjax._util.imports import import_optional
from tokjax.errors import TokenizerFormatError
from tokjax.formats.tokenizer_files import (
    ADDED_TOKENS_FILE,
    COMPANION_FILES,
    MODEL_CONFIG_FILE,
    parse_token_ids,
    read_bytes,
    read_json_object,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tokjax.formats.tokenizer_files import CompanionConfig

_OPTIONS = ("lstrip", "rstrip", "single_word", "normalized")
"""Options of an added token that a vocabulary file can't have."""
_FLAGS = (*_OPTIONS, "special")
_GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes without rules of their own."""
_IN_BRACKETS = re.compile(r"<.+>|\[.+\]")
_SETTINGS = ("extra_ids", "add_prefix_space")
"""Settings of a configuration that change ids, whatever the class."""


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
