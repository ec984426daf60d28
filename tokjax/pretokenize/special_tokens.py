"""Special tokens in text: which are recognized, which are rejected, and how the text is split at them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from typing import TYPE_CHECKING, overload

from tokjax._util.checks import check_names
from tokjax._util.limits import exceeds_limit
from tokjax.core.utf8 import is_encodable
from tokjax.errors import DisallowedSpecialTokenError, Hint, InvalidArgumentError, TokenizerFormatError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tokjax.core.encode_options import Special
    from tokjax.core.utf8 import Text
    from tokjax.core.vocabulary import AddedToken

_IN_BRACKETS = re.compile(r"<[^<>\s]+>")
_HTML = re.compile(
    "</?(?:[abiup]|[bh]r|[ou]l|li|em|strong|su[bp]|code|pre|div|span|h[1-6]|table|caption|t[dhr]"
    "|thead|tbody|tfoot|blockquote)/?>"
)
_MAX_DEPTH = 40
"""The maximum depth of nested groups in the regular expression; names are not factored below it."""
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""All characters with Unicode's White_Space property. `str.isspace` is true for four more characters."""


def check_special_names(special_tokens: Sequence[str], argument: str = "special_tokens") -> list[str]:
    """Returns the names of special tokens as a list.

    Args:
        special_tokens: the names.
        argument: the name of the argument in errors.

    Raises:
        InvalidArgumentError: the argument is a single string or not iterable, or a name is empty, not a
            string, duplicate, or has a lone surrogate.
    """
    special = check_names(argument, special_tokens)
    seen: set[str] = set()
    for i, name in enumerate(special):
        if not name:
            raise InvalidArgumentError(f"special token {i} must be a name, not {name!r}")
        if not is_encodable(name):
            raise InvalidArgumentError(f"special token {name!r} has a lone surrogate")
        if name in seen:
            raise InvalidArgumentError(f"duplicate special token {name!r}")
        seen.add(name)
    return special


@lru_cache(maxsize=16)
def select_control_names(names: frozenset[str], template: str = "") -> frozenset[str]:
    """Returns the control tokens among tokens that are matched in plain text, although they are not special.

    A control token looks like a marker, enclosed in symbols or with a part in angle brackets, or the chat
    template writes it. Whitespace, single ASCII characters, and HTML tags that the template does not write
    are text: Gemma's vocabulary has them as user-defined symbols.

    Args:
        names: added tokens, and user-defined symbols of a SentencePiece model.
        template: the chat template.

    >>> names = frozenset({"<think>", "[INST]", "<h1>", "C++", "   ", "/no"})
    >>> sorted(select_control_names(names, "{{ '/no' }}"))
    ['/no', '<think>', '[INST]']
    """
    return frozenset(name for name in names if _is_control_name(name, template))


def _is_control_name(name: str, template: str) -> bool:
    text = name.replace("\u2581", " ").strip()
    if not text or (len(text) == 1 and text.isascii()):
        return False
    if text in template:
        return True
    is_enclosed = not any(character.isalnum() or character == "_" for character in (text[0], text[-1]))
    is_marker = is_enclosed and any(map(str.isalnum, text))
    return (is_marker or _IN_BRACKETS.search(text) is not None) and not _HTML.fullmatch(text)


def resolve_special(
    names: Iterable[str], allowed_special: Special = (), disallowed_special: Special = "all"
) -> tuple[frozenset[str], frozenset[str]]:
    """Returns `(allowed, disallowed)`: the special tokens to recognize, and those to reject.

    Args:
        names: the special tokens of the tokenizer.
        allowed_special: the names to recognize, or `"all"`.
        disallowed_special: the names to reject, or `"all"` for every special token that is not allowed.

    Raises:
        InvalidArgumentError: an argument is a single string other than `"all"`, or contains a name that is
            not a special token.
    """
    available = frozenset(names)  # does not copy a frozenset
    allowed = (
        available if allowed_special == "all" else _check_names("allowed_special", allowed_special, available)
    )
    if disallowed_special == "all":
        return allowed, available - allowed if allowed else available
    return allowed, _check_names("disallowed_special", disallowed_special, available)


def reject_special(text: str, disallowed: frozenset[str], subject: str = "the text") -> None:
    """Raises `DisallowedSpecialTokenError` if a text holds one of these special tokens.

    Args:
        text: the text to search.
        disallowed: the special tokens to reject.
        subject: the name of the text in the error.
    """
    if not disallowed:
        return
    match = compile_matcher(disallowed).search(text)
    if match:
        name = match.group()
        raise DisallowedSpecialTokenError(
            f"{subject} holds the special token {name!r} at character {match.start()}, which is not allowed",
            hint=Hint(
                f"to recognize it, add it to allowed_special, as in allowed_special={{{name!r}}} (or pass "
                "'all'); to encode it as ordinary text, pass disallowed_special=()",
                "to recognize it, pass --special recognize; "
                "to encode it as ordinary text, pass --special text",
            ),
        )


def reject_special_in_texts(texts: Sequence[str], disallowed: frozenset[str]) -> None:
    """Raises `DisallowedSpecialTokenError` if one of many texts holds one of these special tokens."""
    if not disallowed:
        return
    prefixes = find_shared_prefixes(disallowed)
    for i, text in enumerate(texts):
        if any(prefix in text for prefix in prefixes):  # faster than the search, and rarely true
            reject_special(text, disallowed, "the text" if len(texts) == 1 else f"text {i}")


def has_special(text: str, names: frozenset[str]) -> bool:
    """Returns whether a text holds one of these special tokens."""
    if not any(prefix in text for prefix in find_shared_prefixes(names)):
        return False
    return compile_matcher(names).search(text) is not None


@lru_cache(maxsize=256)
def find_shared_prefixes(names: frozenset[str]) -> tuple[str, ...]:
    """Returns the longest common prefix of the names that start with each character.

    A text that contains none of the prefixes contains none of the names. The result for `<s>`, `<sep>` and
    `[X]` is `<s` and `[X]`.
    """
    by_first_character: dict[str, list[str]] = {}
    for name in names:
        by_first_character.setdefault(name[0], []).append(name)
    return tuple(map(commonprefix, by_first_character.values()))


@overload
def split_at_special(text: str, special: frozenset[str]) -> list[str]: ...
@overload
def split_at_special(text: Text, special: frozenset[str]) -> list[Text]: ...
def split_at_special(text: Text, special: frozenset[str]) -> list[str] | list[Text]:
    """Splits a text at special tokens.

    Even indices of the result are ordinary text, possibly empty; odd indices are special tokens. Tokens are
    matched from left to right. If two tokens match at the same position, the longer one is used.

    >>> split_at_special("a<x>b", frozenset({"<x>"}))
    ['a', '<x>', 'b']
    """
    if not special:
        return [text]
    if isinstance(text, bytes):
        return list(compile_byte_matcher(special).split(text))
    return compile_matcher(special).split(text)


def move_whitespace(pieces: list[str], added_tokens: Mapping[str, AddedToken]) -> list[str]:
    """Moves whitespace from ordinary text to the tokens with `lstrip` or `rstrip`.

    Args:
        pieces: the result of `split_at_special`.
        added_tokens: the options of each special token.

    >>> from tokjax.core.vocabulary import AddedToken
    >>> move_whitespace(["a ", "<x>", " b"], {"<x>": AddedToken(lstrip=True)})
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
    """Returns the ordinary text before, between and after the special tokens that `split_at_special` finds.

    >>> split_ordinary_text("a<x>b", frozenset({"<x>"}))
    ['a', 'b']
    """
    if len(special) != 1:
        return split_at_special(text, special)[::2]
    (name,) = special
    return [*text.split(name)] if isinstance(text, str) else [*text.split(name.encode("utf-8"))]


def check_comparisons(names: Collection[str]) -> None:
    """Rejects special tokens whose search in a text would be too slow.

    Args:
        names: the names of special and added tokens.

    Raises:
        TokenizerFormatError: the number of comparisons exceeds the limit `special_token_comparisons`.
    """
    comparisons = _count_comparisons(sorted(names), 0)
    exceeded = exceeds_limit("special_token_comparisons", comparisons)
    if exceeded:
        longest = max(names, key=len)
        raise TokenizerFormatError(
            f"to find special tokens, up to {comparisons:,} characters are compared at each position of a "
            f"text: they are too long, or too many share a prefix (the longest is {longest[:20]!r}..., of "
            f"{len(longest):,} characters); {exceeded}"
        )


def _count_comparisons(names: list[str], depth: int) -> int:
    """Returns the maximum number of characters that the expression of `_build_alternatives` compares.

    The maximum is over all positions of all texts. At depth 0, `re` selects the first character with a set,
    so the number of alternatives does not count.
    """
    if depth == _MAX_DEPTH:
        return sum(map(len, names))
    groups = _group_by_prefix(names)
    maximum = max((len(prefix) + _count_comparisons(rest, depth + 1) for prefix, rest in groups), default=0)
    return maximum + (len(groups) - 1 if depth and groups else 0)


def _group_by_prefix(names: list[str]) -> list[tuple[str, list[str]]]:
    """Returns the shared prefix and the rests of sorted names, by first character; no rests for one name."""
    groups = [list(group) for _, group in groupby(filter(None, names), key=itemgetter(0))]
    prefixes = map(commonprefix, groups)
    return [
        (prefix, [name[len(prefix) :] for name in group] if len(group) > 1 else [])
        for prefix, group in zip(prefixes, groups, strict=True)
    ]


@lru_cache(maxsize=256)
def compile_matcher(names: frozenset[str]) -> re.Pattern[str]:
    """Compiles the expression of the longest of several names, in one group."""
    return re.compile("(" + _build_alternatives(sorted(names), 0) + ")")


@lru_cache(maxsize=256)
def compile_byte_matcher(names: frozenset[str]) -> re.Pattern[bytes]:
    """Compiles the expression of the longest of several names in UTF-8, in one group."""
    return re.compile(compile_matcher(names).pattern.encode("utf-8"))


def _build_alternatives(names: list[str], depth: int) -> str:
    r"""Builds an expression that matches the longest of several names, with shared prefixes factored out.

    For `<s>`, `<sep>` and `[X]` it is `<s(?:>|ep>)|\[X\]`.

    Args:
        names: sorted, distinct names; one may be empty.
        depth: the number of groups around the expression.
    """
    if depth == _MAX_DEPTH:
        return "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    parts = [
        re.escape(prefix) + (f"(?:{_build_alternatives(rest, depth + 1)})" if rest else "")
        for prefix, rest in _group_by_prefix(names)
    ]
    return "|".join([*parts, *([""] if "" in names else [])])


def _check_names(argument: str, requested: Collection[str], available: frozenset[str]) -> frozenset[str]:
    if isinstance(requested, tuple) and not requested:  # the most frequent case
        return frozenset()
    if isinstance(requested, Iterator):  # one call reads the names several times
        raise InvalidArgumentError(f"{argument} must be a list of names, not {requested!r}; pass list(...)")
    names = frozenset(check_names(f"{argument}, if it is not 'all',", requested))
    unknown = sorted(names - available)
    if unknown:
        raise InvalidArgumentError(
            f"{argument} names {unknown[0]!r}, which is not a special token of this tokenizer; "
            f"it has {sorted(available)}"
        )
    return names
