"""Special tokens in a text: which are recognised, which are refused, and where the text splits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, overload

from tokjax._util.limits import exceeds_limit
from tokjax.core.errors import DisallowedSpecialTokenError, InvalidArgumentError, TokenizerFormatError
from tokjax.core.utf8 import is_encodable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import Strips

_DEEPEST = 40
"""Expressions of more groups in groups are not taken."""
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""All characters that Unicode calls white space. (Python's own notion has four more.)"""


def checked_special(special_tokens: Sequence[str], what: str = "special_tokens") -> list[str]:
    """The names of special tokens as a list; an error for a single string, for doubles and for no names."""
    if isinstance(special_tokens, (str, bytes)):
        raise InvalidArgumentError(
            f"{what} is a list of names, not {special_tokens!r}; pass [{special_tokens!r}]"
        )
    if not isinstance(special_tokens, Iterable):
        raise InvalidArgumentError(f"{what} is a list of names, not {special_tokens!r}; pass ()")
    special = list(special_tokens)
    seen: set[str] = set()
    for i, name in enumerate(special):
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"special token {i} must be a name, not {name!r}")
        if not is_encodable(name):
            raise InvalidArgumentError(f"special token {name!r} has a lone surrogate")
        if name in seen:
            raise InvalidArgumentError(f"special token {name!r} stands twice")
        seen.add(name)
    return special


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
    known = frozenset(names)  # (no copy of a frozenset)
    chosen = known if allowed == "all" else _names("allowed_special", allowed, known)
    if disallowed == "all":
        return chosen, known - chosen if chosen else known
    return chosen, _names("disallowed_special", disallowed, known)


def refuse_special(text: str, disallowed: frozenset[str], what: str = "the text") -> None:
    """Raise `DisallowedSpecialTokenError`, naming `what`, if it holds any of these special tokens."""
    if not disallowed:
        return
    found = _matcher(disallowed).search(text)
    if found:
        name = found.group()
        raise DisallowedSpecialTokenError(
            f"{what} holds the special token {name!r} at character {found.start()}, which is not allowed. "
            f"To recognise it, have it in allowed_special, as in allowed_special={{{name!r}}} (or pass "
            f"'all'); to encode it as ordinary text, pass disallowed_special=()"
        )


def refuse_special_in(texts: Sequence[str], disallowed: frozenset[str]) -> None:
    """The same for many texts."""
    if not disallowed:
        return
    beginnings = shared_beginnings(disallowed)
    for i, text in enumerate(texts):
        if any(beginning in text for beginning in beginnings):  # (quicker than the search, and seldom true)
            refuse_special(text, disallowed, "the text" if len(texts) == 1 else f"text {i}")


def holds_special(text: str, names: frozenset[str]) -> bool:
    """Returns whether a text has any of these special tokens in it."""
    if not any(beginning in text for beginning in shared_beginnings(names)):
        return False
    return _matcher(names).search(text) is not None


@lru_cache(maxsize=256)
def shared_beginnings(names: frozenset[str]) -> tuple[str, ...]:
    """What names begin with: for all that have their first character in common, what they share."""
    by_first: dict[str, list[str]] = {}
    for name in names:
        by_first.setdefault(name[0], []).append(name)
    return tuple(map(_shared_beginning, by_first.values()))


def _shared_beginning(names: list[str]) -> str:
    first, last = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length]


@overload
def split_at_special(text: str, special: frozenset[str]) -> list[str]: ...
@overload
def split_at_special(text: Text, special: frozenset[str]) -> list[Text]: ...
def split_at_special(text: Text, special: frozenset[str]) -> list[str] | list[Text]:
    """Ordinary text and special tokens in turn: even places are ordinary (perhaps empty), odd ones special.

    Tokens are found from the left; of two that start at one place, the longer is taken.

    >>> split_at_special("a<x>b", frozenset({"<x>"}))
    ['a', '<x>', 'b']
    """
    if not special:
        return [text]
    if isinstance(text, bytes):
        return list(_byte_matcher(special).split(text))
    return _matcher(special).split(text)


def with_white_space(pieces: list[str], strips: Mapping[str, Strips]) -> list[str]:
    """What `split_at_special` gave, white space moved to the tokens that take it with them.

    >>> from tokjax.core.vocabulary import Strips
    >>> with_white_space(["a ", "<x>", " b"], {"<x>": Strips(left=True)})
    ['a', ' <x>', ' b']
    """
    moved = list(pieces)
    for i in range(1, len(pieces), 2):
        left, right = strips.get(pieces[i], (False, False))
        if left:
            ordinary = moved[i - 1].rstrip(WHITE_SPACE)
            moved[i] = moved[i - 1][len(ordinary) :] + moved[i]
            moved[i - 1] = ordinary
        if right:
            ordinary = moved[i + 1].lstrip(WHITE_SPACE)
            moved[i] += moved[i + 1][: len(moved[i + 1]) - len(ordinary)]
            moved[i + 1] = ordinary
    return moved


def between_special(text: Text, special: frozenset[str]) -> list[Text]:
    """The ordinary text before, between and after special tokens, as `split_at_special` finds them.

    >>> between_special("a<x>b", frozenset({"<x>"}))
    ['a', 'b']
    """
    if len(special) != 1:
        return split_at_special(text, special)[::2]
    (name,) = special
    return [*text.split(name)] if isinstance(text, str) else [*text.split(name.encode("utf-8"))]


def check_comparisons(names: Collection[str]) -> None:
    """Rejects special tokens that take too long to find in a text.

    Args:
        names: special and added tokens.

    Raises:
        TokenizerFormatError: they exceed the limit `special_token_comparisons`.
    """
    comparisons = _comparisons(sorted(names), 0)
    exceeded = exceeds_limit("special_token_comparisons", comparisons)
    if exceeded:
        longest = max(names, key=len)
        raise TokenizerFormatError(
            f"to find special tokens, up to {comparisons:,} characters are compared at each position of a "
            f"text: they are too long, or too many begin alike (the longest is {longest[:20]!r}..., of "
            f"{len(longest):,} characters); {exceeded}"
        )


def _comparisons(names: list[str], depth: int) -> int:
    """Counts the characters that the expression of `_alternatives` compares at one position, at most."""
    if depth == _DEEPEST:
        return sum(map(len, names))
    most = groups = 0
    for _, same in groupby(filter(None, names), key=itemgetter(0)):
        groups += 1
        beginning = _shared_beginning(group := list(same))
        rests = [name[len(beginning) :] for name in group]
        most = max(most, len(beginning) + (_comparisons(rests, depth + 1) if len(rests) > 1 else 0))
    return most + (groups - 1 if depth and groups else 0)  # (first characters are found by a set)


@lru_cache(maxsize=256)
def _matcher(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile("(" + _alternatives(sorted(names), 0) + ")")


@lru_cache(maxsize=256)
def _byte_matcher(names: frozenset[str]) -> re.Pattern[bytes]:
    return re.compile(_matcher(names).pattern.encode("utf-8"))


def _alternatives(names: list[str], depth: int) -> str:
    """An expression for the longest of some names: what they begin with stands only once in it.

    Args:
        names: sorted, all different; one may be empty.
        depth: how many groups it stands in.
    """
    if depth == _DEEPEST:
        return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    parts = []
    for _, same in groupby(filter(None, names), key=itemgetter(0)):
        beginning = _shared_beginning(group := list(same))
        rests = [name[len(beginning) :] for name in group]
        inner = _alternatives(rests, depth + 1) if len(rests) > 1 else ""
        parts.append(re.escape(beginning) + (f"(?:{inner})" if inner else ""))
    return "|".join([*parts, *([""] if "" in names else [])])


def _names(argument: str, given: Collection[str], known: frozenset[str]) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Collection):
        raise InvalidArgumentError(f"{argument} is a collection of names or 'all', not {given!r}")
    names = frozenset(given)
    unknown = sorted(names - known)
    if unknown:
        raise InvalidArgumentError(
            f"{argument} names {unknown[0]!r}, which is not a special token of this tokenizer; "
            f"it has {sorted(known)}"
        )
    return names
