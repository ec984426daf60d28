"""Special tokens in a text: which are recognised, which are refused, and where the text splits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, overload

from tokjax._util.limits import exceeds_limit
from tokjax.core.utf8 import is_encodable
from tokjax.errors import DisallowedSpecialTokenError, Hint, InvalidArgumentError, TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokjax.core.protocol import Special
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import AddedToken

_MAX_DEPTH = 40
"""Expressions of more groups in groups are not taken."""
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""All characters that Unicode calls white space. (Python's own notion has four more.)"""


def check_special_names(special_tokens: Sequence[str], what: str = "special_tokens") -> list[str]:
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
    names: Iterable[str], allowed_special: Special = (), disallowed_special: Special = "all"
) -> tuple[frozenset[str], frozenset[str]]:
    """The special tokens to recognise, and those to refuse.

    Args:
        names: the tokenizer's special tokens.
        allowed_special: names to recognise, or `"all"`.
        disallowed_special: names to refuse, or `"all"` for every one that is not allowed.

    Raises:
        InvalidArgumentError: a bare string other than `"all"`, or a name that is no special token.
    """
    available = frozenset(names)  # (no copy of a frozenset)
    chosen = (
        available if allowed_special == "all" else _check_names("allowed_special", allowed_special, available)
    )
    if disallowed_special == "all":
        return chosen, available - chosen if chosen else available
    return chosen, _check_names("disallowed_special", disallowed_special, available)


def reject_special(text: str, disallowed: frozenset[str], what: str = "the text") -> None:
    """Raise `DisallowedSpecialTokenError`, naming `what`, if it holds any of these special tokens."""
    if not disallowed:
        return
    found = _compile_matcher(disallowed).search(text)
    if found:
        name = found.group()
        raise DisallowedSpecialTokenError(
            f"{what} holds the special token {name!r} at character {found.start()}, which is not allowed",
            hint=Hint(
                f"to recognise it, have it in allowed_special, as in allowed_special={{{name!r}}} (or pass "
                "'all'); to encode it as ordinary text, pass disallowed_special=()",
                "to recognise it, pass --special recognise; "
                "to encode it as ordinary text, pass --special text",
            ),
        )


def reject_special_in_texts(texts: Sequence[str], disallowed: frozenset[str]) -> None:
    """The same for many texts."""
    if not disallowed:
        return
    beginnings = find_shared_prefixes(disallowed)
    for i, text in enumerate(texts):
        if any(beginning in text for beginning in beginnings):  # (quicker than the search, and seldom true)
            reject_special(text, disallowed, "the text" if len(texts) == 1 else f"text {i}")


def has_special(text: str, names: frozenset[str]) -> bool:
    """Returns whether a text has any of these special tokens in it."""
    if not any(beginning in text for beginning in find_shared_prefixes(names)):
        return False
    return _compile_matcher(names).search(text) is not None


@lru_cache(maxsize=256)
def find_shared_prefixes(names: frozenset[str]) -> tuple[str, ...]:
    """What names begin with: for all that have their first character in common, what they share."""
    by_first: dict[str, list[str]] = {}
    for name in names:
        by_first.setdefault(name[0], []).append(name)
    return tuple(map(_compute_shared_prefix, by_first.values()))


def _compute_shared_prefix(names: list[str]) -> str:
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
        return list(_compile_byte_matcher(special).split(text))
    return _compile_matcher(special).split(text)


def move_white_space(pieces: list[str], added_tokens: Mapping[str, AddedToken]) -> list[str]:
    """What `split_at_special` gave, white space moved to the tokens that take it with them.

    >>> from tokjax.core.vocabulary import AddedToken
    >>> move_white_space(["a ", "<x>", " b"], {"<x>": AddedToken(lstrip=True)})
    ['a', ' <x>', ' b']
    """
    moved = list(pieces)
    for i in range(1, len(pieces), 2):
        lstrip, rstrip = added_tokens.get(pieces[i], (False, False))
        if lstrip:
            ordinary = moved[i - 1].rstrip(WHITE_SPACE)
            moved[i] = moved[i - 1][len(ordinary) :] + moved[i]
            moved[i - 1] = ordinary
        if rstrip:
            ordinary = moved[i + 1].lstrip(WHITE_SPACE)
            moved[i] += moved[i + 1][: len(moved[i + 1]) - len(ordinary)]
            moved[i + 1] = ordinary
    return moved


def split_ordinary_text(text: Text, special: frozenset[str]) -> list[Text]:
    """The ordinary text before, between and after special tokens, as `split_at_special` finds them.

    >>> split_ordinary_text("a<x>b", frozenset({"<x>"}))
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
    comparisons = _count_comparisons(sorted(names), 0)
    exceeded = exceeds_limit("special_token_comparisons", comparisons)
    if exceeded:
        longest = max(names, key=len)
        raise TokenizerFormatError(
            f"to find special tokens, up to {comparisons:,} characters are compared at each position of a "
            f"text: they are too long, or too many begin alike (the longest is {longest[:20]!r}..., of "
            f"{len(longest):,} characters); {exceeded}"
        )


def _count_comparisons(names: list[str], depth: int) -> int:
    """Counts the characters that the expression of `_build_alternatives` compares at one position, at most."""
    if depth == _MAX_DEPTH:
        return sum(map(len, names))
    maximum = groups = 0
    for _, same in groupby(filter(None, names), key=itemgetter(0)):
        groups += 1
        beginning = _compute_shared_prefix(group := list(same))
        rests = [name[len(beginning) :] for name in group]
        maximum = max(
            maximum, len(beginning) + (_count_comparisons(rests, depth + 1) if len(rests) > 1 else 0)
        )
    return maximum + (groups - 1 if depth and groups else 0)  # (first characters are found by a set)


@lru_cache(maxsize=256)
def _compile_matcher(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile("(" + _build_alternatives(sorted(names), 0) + ")")


@lru_cache(maxsize=256)
def _compile_byte_matcher(names: frozenset[str]) -> re.Pattern[bytes]:
    return re.compile(_compile_matcher(names).pattern.encode("utf-8"))


def _build_alternatives(names: list[str], depth: int) -> str:
    """An expression for the longest of some names: what they begin with stands only once in it.

    Args:
        names: sorted, all different; one may be empty.
        depth: how many groups it stands in.
    """
    if depth == _MAX_DEPTH:
        return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    parts = []
    for _, same in groupby(filter(None, names), key=itemgetter(0)):
        beginning = _compute_shared_prefix(group := list(same))
        rests = [name[len(beginning) :] for name in group]
        inner = _build_alternatives(rests, depth + 1) if len(rests) > 1 else ""
        parts.append(re.escape(beginning) + (f"(?:{inner})" if inner else ""))
    return "|".join([*parts, *([""] if "" in names else [])])


def _check_names(argument: str, requested: Collection[str], available: frozenset[str]) -> frozenset[str]:
    if isinstance(requested, str) or not isinstance(requested, Collection):
        raise InvalidArgumentError(f"{argument} is a collection of names or 'all', not {requested!r}")
    names = frozenset(requested)
    unknown = sorted(names - available)
    if unknown:
        raise InvalidArgumentError(
            f"{argument} names {unknown[0]!r}, which is not a special token of this tokenizer; "
            f"it has {sorted(available)}"
        )
    return names
