"""Definitions of byte-level BPE: parsed and written.

Merges from ranks
-----------------
A tokenizer of tiktoken has ranks instead of merges: of all adjacent pairs of tokens, it merges the one whose
concatenation has the lowest rank. A `tokenizer.json` needs a list of pairs in order of priority.
`iter_merges` lists every way to split a token into two tokens, ordered by the rank of the token:

    token   rank   splits          merges
    "a"     0      -               -
    "b"     1      -               -
    "ab"    2      a|b             (a, b)
    "aa"    3      a|a             (a, a)
    "aab"   4      a|ab, aa|b      (a, ab), (aa, b)

All splits are listed, because the ranks of the other tokens and the surrounding text decide which of them
occurs. Here the text "aab" becomes a|ab first, since (a, b) has a higher priority than (a, a). With the ranks
of "ab" and "aa" exchanged, it becomes aa|b.

A token without a split, such as "xyz" if neither "xy" nor "yz" is a token, has no merge. It needs
`ignore_merges`, which the rule of tiktoken implies: a pre-token that is a token becomes that token.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tokjax.errors import UnsupportedTokenizerError
from tokjax.formats.huggingface import parts
from tokjax.models.byte_bpe import ByteLevelBPE
from tokjax.pretokenize.bytes_to_unicode import (
    ALPHABET,
    BYTES,
    map_all_unicode_to_bytes,
    map_bytes_to_unicode,
    map_unicode_to_bytes,
)
from tokjax.pretokenize.patterns import (
    DIGIT,
    PATTERNS,
    Pattern,
    find_pattern_name,
    make_pattern_splitter,
    make_split_step,
)
from tokjax.pretokenize.split_expressions import make_range
from tokjax.pretokenize.unicode_classes import make_punctuation_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokjax.core.vocabulary import Role
    from tokjax.models.byte_bpe import Normalizer

_VISIBLE_ASCII = make_range(ord("!"), ord("~"))
_DIGIT_BYTES = frozenset(byte for byte, form in zip(BYTES, ALPHABET, strict=True) if form.isnumeric())
"""Bytes that are written as digits: those of ASCII digits, and for example 0xB2, which is written `²`."""
_RAW_BYTE = re.compile(r"\\x[89A-Fa-f]")
"""An escape that is a byte for Oniguruma, and a character elsewhere."""


def parse_byte_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE:
    """Builds the built-in tokenizer of a definition of byte-level BPE."""
    model, ignore_merges = contents["model"], parts.get_flag(contents["model"], "ignore_merges")
    parts.select_steps(contents, "decoder", ["ByteLevel"])
    normalizer: Normalizer | None = "nfc" if parts.select_steps(contents, "normalizer", [], ["NFC"]) else None
    pattern, add_prefix_space = _parse_pattern(contents)
    forms, added = parts.parse_tokens(contents, "NFC" if normalizer else None)
    names = added.special | added.ordinary
    if any(map_unicode_to_bytes(name) not in (None, name.encode("utf-8")) for name in names):
        raise parts.RequiresLibraryError(
            "its decoder decodes an added token to bytes that differ from its text"
        )
    model_forms = {form: id_ for form, id_ in forms.items() if form not in names}
    if ignore_merges and None in map_all_unicode_to_bytes(model_forms):
        raise parts.RequiresLibraryError("it has ignore_merges, and a token that is not written as bytes")
    vocabulary = parts.build_vocabulary(contents, roles, model_forms, added, byte_level=True)
    return ByteLevelBPE(
        vocabulary,
        pattern,
        normalizer,
        merges=_select_byte_merges(contents, _parse_byte_merges(model["merges"], forms)),
        ignore_merges=ignore_merges,
        add_prefix_space=add_prefix_space,
        trim_offsets=parts.parse_trim_offsets(contents),
    )


def _parse_pattern(contents: Mapping[str, Any]) -> tuple[Pattern, bool]:
    """Returns the split pattern, and the value of `add_prefix_space`."""
    steps = parts.get_steps(contents, "pre_tokenizer")
    types = parts.list_types(steps)
    if types == ["ByteLevel"] and parts.get_flag(steps[0], "use_regex", True):
        return "gpt2", parts.get_flag(steps[0], "add_prefix_space", True)
    if types.count("ByteLevel") != 1 or len(types) == 1:
        parts.reject_steps(contents, "pre_tokenizer")
    index = types.index("ByteLevel")
    expressions = list(map(_parse_split_step, steps[:index]))
    if parts.get_flag(steps[index], "add_prefix_space", True):
        raise parts.RequiresLibraryError("its pre-tokenizer adds spaces between pre-tokens")
    if parts.get_flag(steps[index], "use_regex", True):
        expressions.append("gpt2")
    expressions += map(_parse_byte_split_step, steps[index + 1 :])
    pattern: Pattern = expressions[0] if len(expressions) == 1 else tuple(expressions)
    return find_pattern_name(pattern) or pattern, False


def _parse_split_step(step: Mapping[str, Any]) -> str:
    """Returns the regular expression of a step of the pre-tokenizer, whose matches become pre-tokens."""
    step_type = step.get("type")
    if step_type == "Digits":
        return DIGIT if parts.get_flag(step, "individual_digits") else f"{DIGIT}+"
    behavior = step.get("behavior"), parts.get_flag(step, "invert")
    if step_type == "Punctuation" and behavior[0] in (None, "Isolated", "Contiguous"):
        return make_punctuation_set() + "+" * (behavior[0] == "Contiguous")
    if step_type != "Split":
        raise parts.RequiresLibraryError(f"its pre-tokenizer has the step {step_type}")
    pattern = step.get("pattern", {})
    expression = pattern.get("Regex", re.escape(pattern.get("String", "")))
    if not isinstance(expression, str) or not expression or expression in PATTERNS:  # a name as a text
        raise parts.RequiresLibraryError(f"its pre-tokenizer splits at {pattern!r}")
    if expression.endswith("$"):  # for Oniguruma, the end of a line
        expression = expression[:-1] + r"(?![^\n])"
    name = find_pattern_name(expression)
    if name is None and (_RAW_BYTE.search(expression) or make_split_step(expression).tables is None):
        raise parts.RequiresLibraryError("its split pattern has parts that the built-in patterns lack")
    splitter = make_pattern_splitter(name or expression)
    # If the matches cover every text, removing the text between them ("Removed" with invert) is the same as
    # isolating the matches.
    if behavior != ("Isolated", False) and not (behavior == ("Removed", True) and splitter.covers_any_text):
        raise parts.RequiresLibraryError(
            f"its pre-tokenizer splits with the behavior {behavior[0]!r} and invert={behavior[1]}"
        )
    return name or expression


def _parse_byte_split_step(step: Mapping[str, Any]) -> str:
    """Returns the regular expression of a step after `ByteLevel`, which splits written bytes.

    It splits texts in the same way if it matches only ASCII characters, which are written as themselves.
    `_select_byte_merges` handles the other characters that `Digits` splits at.
    """
    if step.get("type") == "Digits":
        return "[0-9]" if parts.get_flag(step, "individual_digits") else "[0-9]+"
    expression = _parse_split_step(step)
    if find_pattern_name(expression) or not make_split_step(expression).names_only(_VISIBLE_ASCII):
        raise parts.RequiresLibraryError("its pre-tokenizer splits bytes by characters that are not ASCII")
    return expression


def _select_byte_merges(
    contents: Mapping[str, Any], merges: list[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """Returns the merges that are possible if a step `Digits` after `ByteLevel` splits written bytes.

    The step splits between digits and other characters. Some bytes are written as digits, such as `²` for
    0xB2. A pre-token that ends there could end inside of a character. Instead, no merge crosses these places:

        text      written   pre-tokens of the step   merges that are left out
        "ò1"      Ã²1       Ã  ²1                    Ã ², Ġ Ã², ...
    """
    steps = parts.get_steps(contents, "pre_tokenizer")
    index = parts.list_types(steps).index("ByteLevel")
    digits = [step for step in steps[index + 1 :] if step.get("type") == "Digits"]
    if not digits:
        return merges
    if parts.get_flag(contents["model"], "ignore_merges"):
        raise parts.RequiresLibraryError("its pre-tokenizer splits bytes, and its model has ignore_merges")
    separates_digits = any(parts.get_flag(step, "individual_digits") for step in digits)
    possible = []
    for left, right in merges:
        sides = left[-1] in _DIGIT_BYTES, right[0] in _DIGIT_BYTES
        if sides == (True, True) and not separates_digits:
            if not left[-1:].isdigit() and right[:1].isdigit():
                raise parts.RequiresLibraryError(
                    f"its merge of {left!r} and {right!r} joins bytes and digits"
                )
            possible.append((left, right))
        elif sides == (False, False):
            possible.append((left, right))
    return possible


def _parse_byte_merges(merges: Any, forms: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
    """Parses a list of merges, and converts its tokens to bytes."""
    all_tokens = zip(forms, map_all_unicode_to_bytes(forms), strict=True)
    tokens = {form: token for form, token in all_tokens if token is not None}
    pairs = parts.parse_merges(merges, forms)
    try:
        lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), pairs))) for side in (0, 1))
    except KeyError:
        left, right = next(pair for pair in pairs if not tokens.keys() >= {*pair})
        raise parts.RequiresLibraryError(
            f"the merge of {left!r} and {right!r} has tokens that are not bytes"
        ) from None
    return list(zip(lefts, rights, strict=True))


def build_byte_level(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    """Builds the parts of a definition."""
    byte_level = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}
    trim = {
        **byte_level,
        "trim_offsets": tokenizer.trim_offsets is not None,
        "add_prefix_space": tokenizer.trim_offsets == "but_first",
    }
    template = parts.build_template(tokenizer.vocabulary)
    return {
        "normalizer": {"type": "NFC"} if tokenizer.normalizer else None,
        "pre_tokenizer": _build_pre_tokenizer(tokenizer),
        "post_processor": {"type": "Sequence", "processors": [trim, template]} if template else trim,
        "decoder": {**byte_level, "add_prefix_space": tokenizer.add_prefix_space},
        "model": build_byte_level_model(tokenizer),
    }


def build_byte_level_model(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    """Builds the model of a `tokenizer.json`."""
    ranks = tokenizer.vocabulary.mergeable
    pairs = iter_merges(ranks) if tokenizer.merges is None else tokenizer.merges
    forms = {map_bytes_to_unicode(token): id_ for token, id_ in ranks.items()}
    return parts.build_bpe_model(
        parts.build_forms(tokenizer.vocabulary, forms),
        [list(map(map_bytes_to_unicode, pair)) for pair in pairs],
        ignore_merges=tokenizer.ignore_merges,
    )


def iter_merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yields every pair of tokens whose concatenation is a token, ordered by the rank of the concatenation.

    Pairs with the same concatenation are ordered by the length of their first token. The head of the module
    explains why this list merges texts as the ranks do.

    Args:
        ranks: token bytes to id; the id is the rank.

    >>> list(iter_merges({b"a": 0, b"b": 1, b"aab": 4, b"ab": 2, b"aa": 3}))
    [(b'a', b'b'), (b'a', b'a'), (b'a', b'ab'), (b'aa', b'b')]
    """
    for token in sorted(ranks, key=ranks.__getitem__):
        for index in range(1, len(token)):
            if token[:index] in ranks and token[index:] in ranks:
                yield token[:index], token[index:]


def _build_pre_tokenizer(tokenizer: ByteLevelBPE) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": tokenizer.add_prefix_space, "trim_offsets": False}
    splitter = make_pattern_splitter(tokenizer.pattern)
    if splitter.name == "gpt2":
        return {**byte_level, "use_regex": True}
    if not splitter.has_tables or splitter.name == "whitespace":
        raise UnsupportedTokenizerError(
            f"a tokenizer.json can't be written with the pattern {tokenizer.pattern!r}: the tokenizers "
            "library has another engine for regular expressions, which may split differently; supported are "
            f"{', '.join(supported for supported in PATTERNS if supported != 'whitespace')}, and expressions "
            "of sets, alternatives, repetitions and lookaheads of one character"
        )
    if tokenizer.add_prefix_space:
        raise UnsupportedTokenizerError(
            "a tokenizer.json supports add_prefix_space=True with the pattern 'gpt2', not with "
            f"{tokenizer.pattern!r}"
        )
    expression = splitter.expression
    steps = [
        {"type": "Split", "pattern": {"Regex": part}, "behavior": "Isolated", "invert": False}
        for part in ([expression] if isinstance(expression, str) else expression)
    ]
    return {"type": "Sequence", "pretokenizers": [*steps, {**byte_level, "use_regex": False}]}
