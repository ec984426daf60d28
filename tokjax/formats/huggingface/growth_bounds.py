"""Bounds on how much longer the steps of a `tokenizer.json` can make a text.

Ten steps that each replace "a" by "aaaaaaaaaa" turn one character into 10^10. The bound is computed
from the last step to the first: the weight of a character is the number of characters that all later steps
can make of it.

    Replace "a" -> "bb"      weight of "a": 2 x 3 = 6
    Replace "b" -> "ccc"     weight of "b": 3
    (end)                    every weight: 1

Consecutive Unicode steps (`_UNICODE`) grow a text by the largest of their factors, not by the product. Let
w be the length of a text once it is decomposed (NFKD):

    - The length of a text is at most w, and w is at most 18 for one character.
    - Normal forms keep w, since they keep the decomposition.
    - `Lowercase`, `StripAccents`, `Nmt` and `Strip` do not increase w.
    - `BertNormalizer` puts 2 spaces around each ideograph, and does not increase w otherwise. NFKD makes at
      most 4 ideographs of one character (U+337F), and 2 other characters beside them; NFC and NFD make 1.

So a row with n `BertNormalizer` makes at most max(18, 4 x (1 + 2 n)) characters of one. Without NFKC and NFKD
the same argument with NFD, whose largest w is 4, gives max(4, 1 + 2 n).

`Precompiled` has a table of replacements, which comes from the file. Unicode steps after it make of a
replacement at most its own w, and spaces. Steps before it are multiplied: a table can replace each part of
a decomposition.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from tokjax.formats.huggingface.definition import PipelineSlot, get_steps
from tokjax.models.text_growth import check_text_growth, compute_longest_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNICODE = {
    "NFC": 3,
    "NFD": 4,
    "NFKC": 18,
    "NFKD": 18,
    "BertNormalizer": 4,
    "Lowercase": 2,
    "StripAccents": 1,
    "Nmt": 1,
    "Strip": 1,
}
_FACTORS = {"ByteLevel": 4, "WordPiece": 2, "BPEDecoder": 2}
# An expression that surely matches at least one character: atoms in sequence, one of them not optional.
_ATOM = r"(?:\[\^?\]?[^\[\]]+\]|\\[pP]\{\^?\w+\}|\\[sSdDwWnrt]|\\[^\w\s]|[^\\\[\](){}*+?|^$])"
_OPTIONAL, _REQUIRED = rf"(?:{_ATOM}[*+?]{{0,2}})*", rf"{_ATOM}(?:\+|\{{[1-9]\d*(?:,\d*)?\}})?(?![*?{{])"
_NOT_EMPTY = re.compile(f"{_OPTIONAL}{_REQUIRED}{_OPTIONAL}")
_MAX_CHECKED_LENGTH = 200


def check_growth(parts: Mapping[str, Any]) -> None:
    """Rejects a definition whose steps or template can make a text too long.

    Args:
        parts: a `tokenizer.json`, parsed.

    Raises:
        TokenizerFormatError: it exceeds the limit `text_growth`.
    """
    slot_groups: tuple[tuple[PipelineSlot, ...], ...] = (("normalizer", "pre_tokenizer"), ("decoder",))
    for named in slot_groups:
        steps = [step for slot in named for step in get_steps(parts, slot)]
        check_text_growth(f"its {named[0]} has {len(steps):,} steps", len(steps))
        growth = compute_steps_growth(steps)
        check_text_growth(f"its {named[0]} can make {growth:,.0f} characters of one", growth)
    for part in get_steps(parts, "post_processor"):
        if part.get("type") == "TemplateProcessing":
            inserted = [len(token["ids"]) for token in part["special_tokens"].values()]
            size = max(len(part["single"]), len(part["pair"])) * max(inserted, default=1)
            check_text_growth(f"its template has {size:,} tokens", size)


def compute_steps_growth(steps: Iterable[Mapping[str, Any]]) -> float:
    """Computes an upper bound on the characters that steps make of one character, or put before a text.

    Args:
        steps: the steps of a `tokenizer.json`, in order.
    """
    weights: dict[str, float] = {}
    other, prepended = 1.0, 0.0
    unicode_steps: list[str] = []  # in a row after the current step

    def compute_weight(text: str) -> float:
        return sum(weights.get(character, other) for character in text)

    for step in reversed(list(steps)):
        kind = str(step.get("type"))
        if kind == "Replace":
            pattern, after = step["pattern"], compute_weight(step["content"])
            literal = pattern.get("String")
            if literal:
                leftover = 0.0 if len(literal) == 1 else 1.0
                for character in literal:
                    weight = weights.get(character, other)
                    weights[character] = max(leftover * weight, after / len(literal))
            elif literal is None and _is_never_empty(pattern["Regex"]):
                weights = {character: max(weight, after) for character, weight in weights.items()}
                other = max(other, after)
            else:  # an empty match inserts the content before each character and at the end
                weights = {character: weight + after for character, weight in weights.items()}
                other, prepended = other + after, prepended + after
        elif kind == "Prepend":
            prepended += compute_weight(step["prepend"])
        else:
            if kind == "Metaspace":
                prepended += compute_weight(step["replacement"])
            after, factor = _compute_unicode_growth(unicode_steps), _FACTORS.get(kind, 1.0)
            if kind == "Precompiled":
                charsmap = base64.b64decode(step["precompiled_charsmap"])
                spaces = 2 * unicode_steps.count("BertNormalizer")
                factor = max(1.0, compute_longest_replacement(charsmap, spaces) / after)
            unicode_steps = [*unicode_steps, kind] if kind in _UNICODE else []
            if unicode_steps:
                factor = _compute_unicode_growth(unicode_steps) / after
            other, weights = factor * max(other, *weights.values(), 0.0), {}
            continue
        unicode_steps = []
    return max(other, prepended, *weights.values())


def _is_never_empty(expression: str) -> bool:
    return len(expression) <= _MAX_CHECKED_LENGTH and _NOT_EMPTY.fullmatch(expression) is not None


def _compute_unicode_growth(steps: list[str]) -> int:
    """Returns how many characters consecutive Unicode steps make of one, at most (see the module)."""
    ideographs = 4 if "NFKC" in steps or "NFKD" in steps else 1
    return max(ideographs * (1 + 2 * steps.count("BertNormalizer")), *map(_UNICODE.__getitem__, steps), 1)
