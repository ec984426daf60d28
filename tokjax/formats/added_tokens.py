"""Added tokens of a tokenizer's directory: tokens that its vocabulary file does not have.

They are in `added_tokens_decoder` of the `tokenizer_config.json`, with their options, or in an older file
`added_tokens.json`, with their ids only:

    tokenizer_config.json   {"added_tokens_decoder": {"32000": {"content": "<|im_end|>", "special": true}}}
    added_tokens.json       {"<|im_end|>": 32000}
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tokjax.core.vocabulary import AddedToken
from tokjax.errors import TokenizerFormatError
from tokjax.formats.tokenizer_files import ADDED_TOKENS_FILE, parse_token_ids, read_json_object
from tokjax.models.format_errors import check_vocab_size

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tokjax.formats.tokenizer_files import CompanionConfig

ADVICE = (
    "pass a tokenizer.json, which AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) of "
    "transformers writes"
)


class DeclaredToken(NamedTuple):
    """Added token, as the configuration files declare it.

    Attributes:
        id: its id.
        special: whether it is a special token.
        normalized: whether it is matched in normalized texts.
        single_word: whether it is matched only between characters that are not part of a word.
        whitespace: the adjacent whitespace that becomes part of it.
    """

    id: int
    special: bool
    normalized: bool
    single_word: bool = False
    whitespace: AddedToken = AddedToken()


def read_added_tokens(directory: Path, companion: CompanionConfig) -> dict[str, DeclaredToken]:
    """Reads the added tokens of a directory, also those that its vocabulary has.

    Args:
        directory: path of the directory.
        companion: settings from its configuration files.

    Raises:
        TokenizerFormatError: one of the files is damaged.
    """
    decoder = companion.config.get("added_tokens_decoder")
    if decoder is not None:
        return _parse_decoder(decoder, f"{directory}: 'added_tokens_decoder'")
    path = directory / ADDED_TOKENS_FILE
    contents = read_json_object(path) if path.is_file() else {}
    ids = parse_token_ids(contents, str(path)) if contents else {}
    special = companion.special
    return {name: DeclaredToken(id_, name in special, name not in special) for name, id_ in ids.items()}


def read_added_special_tokens(
    source: Path, forms: Collection[str], companion: CompanionConfig
) -> dict[str, DeclaredToken]:
    """Reads the added tokens of a directory, which the vocabulary must have, and which must be special.

    Args:
        source: path of the vocabulary.
        forms: tokens of the vocabulary.
        companion: settings from the configuration files.

    Raises:
        TokenizerFormatError: one of the files is damaged, or a token has to be added or is not special.
    """
    declared = read_added_tokens(source.parent, companion)
    for name in (*declared, *companion.special):
        if name not in forms:
            raise TokenizerFormatError(
                f"{source.parent} has an added token {name!r}, which is not in {source.name}; {ADVICE}"
            )
    if "added_tokens_decoder" not in companion.config:
        return declared  # from the older file, which does not say which tokens are special
    for name, token in declared.items():
        if not token.special or token.single_word:
            kind = "to be matched as a single word" if token.single_word else "not special"
            raise TokenizerFormatError(
                f"{source.parent}: the added token {name!r} is {kind}, which is not supported; {ADVICE}"
            )
    return declared


def select_new_tokens(
    source: Path,
    declared: Mapping[str, DeclaredToken],
    ids: Mapping[str, int],
    special: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, DeclaredToken]:
    """Returns the added tokens that a vocabulary does not have, in the order of their ids.

    Args:
        source: path of the vocabulary.
        declared: added tokens by name, from `read_added_tokens`.
        ids: ids by token of the vocabulary.
        special: other special tokens with their options, as in `CompanionConfig`. New ones get the next ids.

    Raises:
        TokenizerFormatError: the vocabulary has one of them with another id; their ids are not the next ones;
            or one has to be a separate word.
    """
    where = f"{source.parent}: the added token"
    for name, token in declared.items():
        if ids.get(name, token.id) != token.id:
            raise TokenizerFormatError(
                f"{where} {name!r} has the id {token.id}, but in {source.name} it has the id {ids[name]}, so "
                f"the ids of transformers are not those of {source.name}; {ADVICE}"
            )
    new_tokens = {name: token for name, token in declared.items() if name not in ids}
    for name, options in (special or {}).items():
        if name not in ids and name not in new_tokens:
            new_tokens[name] = _parse_token(len(ids) + len(new_tokens), {**options, "special": True})
    check_vocab_size(len(ids) + len(new_tokens), str(source))
    new_tokens = dict(sorted(new_tokens.items(), key=lambda item: item[1].id))
    for next_id, (name, token) in enumerate(new_tokens.items(), len(ids)):
        if token.id != next_id:
            raise TokenizerFormatError(
                f"{where} {name!r} has the id {token.id}, but the next id after those of {source.name} is "
                f"{next_id}; {ADVICE}"
            )
        if token.single_word:
            raise TokenizerFormatError(
                f"{where} {name!r} is to be matched as a single word, which is not supported; {ADVICE}"
            )
    return new_tokens


def get_whitespace_options(tokens: Mapping[str, DeclaredToken]) -> dict[str, AddedToken]:
    """Returns the tokens that are matched in any text, and those that include adjacent whitespace."""
    return {
        name: token.whitespace
        for name, token in tokens.items()
        if not token.special or token.whitespace != AddedToken()
    }


def _parse_decoder(decoder: Any, where: str) -> dict[str, DeclaredToken]:
    """Parses `added_tokens_decoder`, an object that maps ids to names and options."""
    if not isinstance(decoder, dict):
        raise TokenizerFormatError(f"{where}: expected a JSON object that maps ids to tokens")
    declared: dict[str, DeclaredToken] = {}
    for key, entry in decoder.items():
        name = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name or name in declared or not re.fullmatch("[0-9]{1,10}", key):
            raise TokenizerFormatError(
                f"{where}: expected an id and a token, each once, got {key[:20]!r}: {entry!r:.80}"
            )
        declared[name] = _parse_token(int(key), entry)
    return declared


def _parse_token(id_: int, options: Mapping[str, Any]) -> DeclaredToken:
    special, lstrip, rstrip = (bool(options.get(flag)) for flag in ("special", "lstrip", "rstrip"))
    normalized, single_word = bool(options.get("normalized", not special)), bool(options.get("single_word"))
    return DeclaredToken(id_, special, normalized, single_word, AddedToken(lstrip, rstrip))
