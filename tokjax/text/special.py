"""Special tokens in a text: which are recognised, which are refused, and where the text splits."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from tokjax.errors import DisallowedSpecialTokenError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Special: TypeAlias = "Literal['all'] | Collection[str]"
"""Names of special tokens, or `"all"` of them."""


def resolve_special(
    names: Iterable[str], allowed: Special, disallowed: Special
) -> tuple[frozenset[str], frozenset[str]]:
    """The special tokens to recognise, and those to refuse.

    Args:
        names: the tokenizer's special tokens.
        allowed: names to recognise, or `"all"`.
        disallowed: names to refuse, or `"all"` for every one that is not allowed.

    Raises:
        InvalidArgumentError: a bare string other than `"all"`, or a name that is no special token.
    """
    known = frozenset(names)
    chosen = known if allowed == "all" else _names("allowed_special", allowed, known)
    if disallowed == "all":
        return chosen, known - chosen
    return chosen, _names("disallowed_special", disallowed, known)


def refuse_special(text: str, disallowed: frozenset[str]) -> None:
    """Raise `DisallowedSpecialTokenError` if the text holds any of these special tokens."""
    if not disallowed:
        return
    found = _matcher(disallowed).search(text)
    if found:
        name = found.group()
        raise DisallowedSpecialTokenError(
            f"the text holds the special token {name!r} at character {found.start()}, which is not "
            f"allowed. To recognise it, pass allowed_special={{{name!r}}} (or 'all'); to encode it as "
            f"ordinary text, pass disallowed_special=()"
        )


def split_at_special(text: str, special: frozenset[str]) -> list[str]:
    """Ordinary text and special tokens in turn: even places are ordinary (perhaps empty), odd ones special.

    Tokens are found from the left; of two that start at one place, the longer is taken.

    >>> split_at_special("a<x>b", frozenset({"<x>"}))
    ['a', '<x>', 'b']
    """
    return _matcher(special).split(text) if special else [text]


@lru_cache(maxsize=256)
def _matcher(names: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")


def _names(argument: str, given: Collection[str], known: frozenset[str]) -> frozenset[str]:
    if isinstance(given, str):
        raise InvalidArgumentError(f"{argument} is a collection of names or 'all', not {given!r}")
    names = frozenset(given)
    unknown = sorted(names - known)
    if unknown:
        raise InvalidArgumentError(
            f"{argument} names {unknown[0]!r}, which is not a special token of this tokenizer; "
            f"it has {sorted(known)}"
        )
    return names
