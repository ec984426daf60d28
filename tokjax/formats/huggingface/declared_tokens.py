"""Added tokens of a `tokenizer.json` that only the configuration files in its directory declare.

transformers adds them to the tokenizer, and assigns their ids. Those in the files have no effect, so that the
tokens of this example have the ids 2, 3 and 4:

    tokenizer.json          added_tokens: [], and the vocabulary {..., "</s>": 2}, of 3 tokens
    tokenizer_config.json   added_tokens_decoder: {"9": {"content": "<|im_end|>", "special": true}}
                            eos_token: "</s>", additional_special_tokens: ["<|im_start|>"]
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from tokjax.formats.added_tokens import read_added_tokens
from tokjax.formats.huggingface.definition import assign_added_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tokjax.formats.added_tokens import DeclaredToken
    from tokjax.formats.tokenizer_files import CompanionConfig

logger = logging.getLogger("tokjax")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_IN_BRACKETS = re.compile(r"<.+>|\[.+\]")


def merge_declared_tokens(
    contents: Mapping[str, Any], source: Path, companion: CompanionConfig
) -> list[dict[str, Any]] | None:
    """Merges the added tokens that the configuration files declare into those of a definition.

    A token of `added_tokens_decoder` replaces one with other flags, but a special token remains special.

    In contrast to transformers, a mere name without brackets does not make a token of the vocabulary special:
    it can be an ordinary word, or `!`. It is matched in texts, so the ids are the same.

    Args:
        contents: parsed `tokenizer.json`, not checked yet.
        source: its path.
        companion: settings from the configuration files in its directory.

    Returns:
        The new value of `added_tokens`, or `None` if it is unchanged.
    """
    entries = contents.get("added_tokens") or []
    declared = read_added_tokens(source.parent, companion)
    if not _have_names(entries):
        return None  # damaged; the error is raised where the definition is parsed
    old = {entry["content"]: entry for entry in entries}
    if "added_tokens_decoder" not in companion.config:  # declared by the older file, without flags
        old_ids = {entry["id"] for entry in entries if isinstance(entry.get("id"), int)}
        declared = {name: token for name, token in declared.items() if token.id not in old_ids}
    changed = _list_changed_tokens(old, declared, companion.declared_roles.values())
    names = [name for name in companion.special if name not in old and name not in changed]
    forms = _get_model_ids(contents) if changed or names else None
    if forms is None:
        return None
    for name in names:
        options = companion.special[name]
        is_special = bool(name not in forms or options or _IN_BRACKETS.fullmatch(name))
        flags = {flag: bool(options.get(flag)) for flag in _FLAGS}
        changed[name] = {"content": name, **flags, "special": is_special}
    merged = old | changed
    ids = assign_added_ids(merged, forms)
    _warn_about_ids(source, declared, ids)
    return [{"id": ids[name], **entry} for name, entry in merged.items()]


def _list_changed_tokens(
    old: Mapping[str, dict[str, Any]], declared: Mapping[str, DeclaredToken], role_names: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Returns the declared tokens that are new or have other flags, in the order of their declared ids.

    Args:
        old: name to entry of the added tokens of the definition.
        declared: name to added token of the configuration.
        role_names: names of tokens with a role, which are special if they are returned.
    """
    changed: dict[str, dict[str, Any]] = {}
    for name, token in sorted(declared.items(), key=lambda item: item[1].id):
        entry, flags = old.get(name, {}), _get_flags(token)
        if any(entry.get(flag) != value for flag, value in flags.items()):
            is_special = token.special or name in role_names or entry.get("special", False)
            changed[name] = {**entry, "content": name, **flags, "special": is_special}
    return changed


def _get_model_ids(contents: Mapping[str, Any]) -> Mapping[str, int] | None:
    """Returns the ids of the model's tokens; `None` if the definition is damaged."""
    model = contents.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list) and all(isinstance(piece, list) and piece for piece in vocab):
        return {str(piece[0]): i for i, piece in enumerate(vocab)}
    return vocab if isinstance(vocab, dict) and set(map(type, vocab.values())) <= {int} else None


def _have_names(entries: Any) -> bool:
    return isinstance(entries, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("content"), str) for entry in entries
    )


def _get_flags(token: DeclaredToken) -> dict[str, bool]:
    lstrip, rstrip = token.whitespace
    return dict(
        zip(_FLAGS, (token.single_word, lstrip, rstrip, token.normalized, token.special), strict=True)
    )


def _warn_about_ids(source: Path, declared: Mapping[str, DeclaredToken], ids: Mapping[str, int]) -> None:
    """Logs a warning if added tokens have other ids than in the configuration."""
    moved = [name for name, token in declared.items() if token.id != ids[name]]
    if moved:
        logger.warning(
            "%s: added tokens with other ids than in the configuration files of the directory: %d, such as "
            "%r, which has %d there, but gets %d, as in transformers, since that is its id in the vocabulary "
            "or the next one after it",
            source,
            len(moved),
            moved[0],
            declared[moved[0]].id,
            ids[moved[0]],
        )
