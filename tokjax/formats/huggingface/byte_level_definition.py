"""Byte-level BPE from a `tokenizer.json`: its split pattern, vocabulary and merges."""

from __future__ import annotations

import re
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tokjax.errors import InvalidArgumentError
from tokjax.formats.huggingface.definition import (
    RequiresLibraryError,
    build_definition_vocabulary,
    check_added_ids,
    check_decoder,
    decode_byte_level_forms,
    get_flag,
    get_single_type,
    get_steps,
    merge_added_tokens,
    parse_added_tokens,
    parse_merges,
    parse_trim_offsets,
)
from tokjax.formats.tokenizer_files import parse_token_ids
from tokjax.models.byte_bpe import ByteLevelBPE, make_byte_level_bpe
from tokjax.pretokenize.bytes_to_unicode import (
    ALPHABET,
    BYTES,
    map_all_unicode_to_bytes,
    map_unicode_to_bytes,
)
from tokjax.pretokenize.patterns import (
    DIGIT,
    PATTERNS,
    Pattern,
    find_pattern_name,
    make_pattern_splitter,
    make_punctuation_set,
)
from tokjax.pretokenize.split_expressions import make_range
from tokjax.pretokenize.split_steps import make_split_step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokjax.core.vocabulary import Role

_VISIBLE_ASCII = make_range(ord("!"), ord("~"))
_DIGIT_BYTES = frozenset(byte for byte, form in zip(BYTES, ALPHABET, strict=True) if form.isnumeric())
"""Bytes that are written as digits: those of ASCII digits, and for example 0xB2, which is written `²`."""
_RAW_BYTE = re.compile(r"\\x[89A-Fa-f]")
"""An escape that is a byte for Oniguruma, and a character elsewhere."""


def parse_byte_level(contents: Mapping[str, Any], roles: Mapping[Role, str]) -> ByteLevelBPE:
    """Builds the built-in tokenizer of a definition of byte-level BPE.

    Raises:
        RequiresLibraryError: the tokenizer has to run on the library.
        TokenizerFormatError: the definition is invalid.
    """
    model = contents["model"]
    check_decoder(contents, "ByteLevel")
    normalizer = get_single_type(contents, "normalizer")
    if normalizer not in (None, "NFC"):
        raise RequiresLibraryError(f"its normalizer is {normalizer}")
    pattern, add_prefix_space = _parse_pattern(contents)
    added_tokens = parse_added_tokens(contents, normalizer=normalizer)
    forms = parse_token_ids(model["vocab"], "the model's vocab")
    added_names = {**added_tokens.special, **added_tokens.ordinary}
    if any(map_unicode_to_bytes(name) not in (None, name.encode("utf-8")) for name in added_names):
        raise RequiresLibraryError("its decoder decodes an added token to bytes that differ from its text")
    check_added_ids(contents.get("added_tokens") or [], forms)
    model_forms = {form: id_ for form, id_ in forms.items() if form not in added_names}
    if get_flag(model, "ignore_merges") and None in map_all_unicode_to_bytes(model_forms):
        raise RequiresLibraryError("it has ignore_merges, and a token that is not written as bytes")
    model_tokens, unreachable_ids = decode_byte_level_forms(model_forms)
    ordinary, added_ids = merge_added_tokens(model_tokens, added_tokens.ordinary)
    if not all(bytes([i]) in ordinary for i in range(256)):
        raise RequiresLibraryError("its vocabulary does not contain every single byte")
    vocabulary = build_definition_vocabulary(
        contents, ordinary, added_tokens, roles, added_ids, unreachable_ids
    )
    merges = _parse_byte_merges(model["merges"], forms)
    # `parse_merges` has checked that all parts and results are in the model's vocabulary.
    if len(model_forms) < len(forms):
        in_merges = chain(chain.from_iterable(merges), map(b"".join, merges))
        if not all(map(ordinary.__contains__, in_merges)):
            raise RequiresLibraryError("a special token is a part or the result of a merge")
    merges = _select_byte_merges(contents, merges)
    return make_byte_level_bpe(
        vocabulary,
        pattern,
        "nfc" if normalizer else None,
        merges=merges,
        ignore_merges=get_flag(model, "ignore_merges"),
        add_prefix_space=add_prefix_space,
        trim_offsets=parse_trim_offsets(contents),
    )


def _parse_pattern(contents: Mapping[str, Any]) -> tuple[Pattern, bool]:
    """Returns the split pattern, and the value of `add_prefix_space`."""
    steps = get_steps(contents, "pre_tokenizer")
    types = [step.get("type") for step in steps]
    if types == ["ByteLevel"] and get_flag(steps[0], "use_regex", True):
        return "gpt2", get_flag(steps[0], "add_prefix_space", True)
    if types.count("ByteLevel") != 1 or len(types) == 1:
        raise RequiresLibraryError(f"its pre-tokenizer is {' and '.join(map(str, types)) or 'none'}")
    index = types.index("ByteLevel")
    expressions = list(map(_parse_split_step, steps[:index]))
    if get_flag(steps[index], "add_prefix_space", True):
        raise RequiresLibraryError("its pre-tokenizer adds spaces between pre-tokens")
    if get_flag(steps[index], "use_regex", True):
        expressions.append("gpt2")
    expressions += map(_parse_byte_split_step, steps[index + 1 :])
    pattern: Pattern = expressions[0] if len(expressions) == 1 else tuple(expressions)
    return find_pattern_name(pattern) or pattern, False


def _parse_split_step(step: Mapping[str, Any]) -> str:
    """Returns the regular expression of a step of the pre-tokenizer, whose matches become pre-tokens."""
    step_type = step.get("type")
    if step_type == "Digits":
        return DIGIT if get_flag(step, "individual_digits") else f"{DIGIT}+"
    behavior = step.get("behavior"), get_flag(step, "invert")
    if step_type == "Punctuation" and behavior[0] in (None, "Isolated", "Contiguous"):
        return make_punctuation_set() + "+" * (behavior[0] == "Contiguous")
    if step_type != "Split":
        raise RequiresLibraryError(f"its pre-tokenizer has the step {step_type}")
    pattern = step.get("pattern", {})
    expression = pattern.get("Regex", re.escape(pattern.get("String", "")))
    if not isinstance(expression, str) or not expression or expression in PATTERNS:  # a name as a text
        raise RequiresLibraryError(f"its pre-tokenizer splits at {pattern!r}")
    if expression.endswith("$"):  # for Oniguruma, the end of a line
        expression = expression[:-1] + r"(?![^\n])"
    name = find_pattern_name(expression)
    try:
        if name is None and (_RAW_BYTE.search(expression) or make_split_step(expression).tables is None):
            raise RequiresLibraryError("its split pattern has parts that the built-in patterns lack")
        splitter = make_pattern_splitter(name or expression)
    except InvalidArgumentError as error:
        raise RequiresLibraryError(str(error)) from error
    # If the matches cover every text, removing the text between them ("Removed" with invert) is the same as
    # isolating the matches.
    if behavior != ("Isolated", False) and not (behavior == ("Removed", True) and splitter.covers_any_text):
        raise RequiresLibraryError(
            f"its pre-tokenizer splits with the behavior {behavior[0]!r} and invert={behavior[1]}"
        )
    return name or expression


def _parse_byte_split_step(step: Mapping[str, Any]) -> str:
    """Returns the regular expression of a step after `ByteLevel`, which splits written bytes.

    It splits texts in the same way if it matches only ASCII characters, which are written as themselves.
    `_select_byte_merges` handles the other characters that `Digits` splits at.
    """
    if step.get("type") == "Digits":
        return "[0-9]" if get_flag(step, "individual_digits") else "[0-9]+"
    expression = _parse_split_step(step)
    if find_pattern_name(expression) or not make_split_step(expression).names_only(_VISIBLE_ASCII):
        raise RequiresLibraryError("its pre-tokenizer splits bytes by characters that are not ASCII")
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
    steps = get_steps(contents, "pre_tokenizer")
    index = [step.get("type") for step in steps].index("ByteLevel")
    digits = [step for step in steps[index + 1 :] if step.get("type") == "Digits"]
    if not digits:
        return merges
    if get_flag(contents["model"], "ignore_merges"):
        raise RequiresLibraryError("its pre-tokenizer splits bytes, and its model has ignore_merges")
    separates_digits = any(get_flag(step, "individual_digits") for step in digits)
    possible = []
    for left, right in merges:
        sides = left[-1] in _DIGIT_BYTES, right[0] in _DIGIT_BYTES
        if sides == (True, True) and not separates_digits:
            if not left[-1:].isdigit() and right[:1].isdigit():
                raise RequiresLibraryError(f"its merge of {left!r} and {right!r} joins bytes and digits")
            possible.append((left, right))
        elif sides == (False, False):
            possible.append((left, right))
    return possible


def build_split_steps(pattern: Pattern) -> list[dict[str, Any]]:
    """Builds the steps of a pre-tokenizer that split by a pattern, for export."""
    expressions = make_pattern_splitter(pattern).expression
    return [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in ([expressions] if isinstance(expressions, str) else expressions)
    ]


def _parse_byte_merges(merges: Any, forms: Mapping[str, int]) -> list[tuple[bytes, bytes]]:
    """Parses a list of merges, and converts its tokens to bytes."""
    all_tokens = zip(forms, map_all_unicode_to_bytes(forms), strict=True)
    tokens = {form: token for form, token in all_tokens if token is not None}
    pairs = parse_merges(merges, forms)
    try:
        lefts, rights = (list(map(tokens.__getitem__, map(itemgetter(side), pairs))) for side in (0, 1))
    except KeyError:
        left, right = next(pair for pair in pairs if not tokens.keys() >= {*pair})
        raise RequiresLibraryError(
            f"the merge of {left!r} and {right!r} has tokens that are not bytes"
        ) from None
    return list(zip(lefts, rights, strict=True))
