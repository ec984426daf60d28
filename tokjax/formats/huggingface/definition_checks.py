"""Checks of a `tokenizer.json`, before the `tokenizers` library reads it: limits, and files that abort it.

A definition from an untrusted source can have ten steps that each replace "a" by "aaaaaaaaaa". Together they
turn one character into 10^10 characters. `check_growth` rejects such a definition before any text is encoded;
SECURITY.md, section "Limits", has the default.

The bound is computed from the last step to the first. The weight of a character is a bound on the number of
characters that the current step and all later ones make of it:

    Replace "a" -> "bb"     "a": 2 * 3 = 6, "b": 3, others: 1
    Replace "b" -> "ccc"    "b": 3 * 1 = 3, others: 1
    (after the last step)   all: 1

    bound: 6, since "a" becomes "bb" and then "cccccc"
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.definition import get_steps
from tokjax.models.format_errors import check_piece_comparisons, check_vocab_size, check_work_per_position
from tokjax.models.sentencepiece_files import check_text_growth, compute_longest_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokjax.formats.huggingface.definition import PipelineSlot


_UNICODE_GROWTH = {
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
"""Maximum number of characters that a Unicode step makes of one character, when it is the only step."""
_OTHER_GROWTH = {"ByteLevel": 4, "WordPiece": 2, "BPEDecoder": 2}
"""The same number for other steps that make a text longer, except those that the file parametrizes."""
# `_NOT_EMPTY` accepts a simple subset of regular expressions that cannot match the empty string: a sequence
# of atoms (a class, an escape or a character), at least one of which is not optional.
_ATOM = r"(?:\[\^?\]?[^\[\]]+\]|\\[pP]\{\^?\w+\}|\\[sSdDwWnrt]|\\[^\w\s]|[^\\\[\](){}*+?|^$])"
_OPTIONAL, _REQUIRED = rf"(?:{_ATOM}[*+?]{{0,2}})*", rf"{_ATOM}(?:\+|\{{[1-9]\d*(?:,\d*)?\}})?(?![*?{{])"
_NOT_EMPTY = re.compile(f"{_OPTIONAL}{_REQUIRED}{_OPTIONAL}")
_MAX_CHECKED_LENGTH = 200
"""Longer expressions are assumed to match the empty string, so that the check takes little time."""


def check_before_loading(contents: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for a definition that the library must not read.

    That is one that exceeds `tokjax.limits`, or aborts the process.

    Args:
        contents: parsed `tokenizer.json`.
    """
    model = contents.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, (dict, list)):
        check_vocab_size(len(vocab), "the model's vocab")
    check_growth(contents)
    _check_merges(contents["model"])


def check_loaded_model(library_model: Any, model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for duplicate pieces, or a model with which encoding takes too long.

    Args:
        library_model: model that the library made of the definition.
        model: model of the parsed `tokenizer.json`.
    """
    if isinstance(model["vocab"], list):
        check_pieces([piece for piece, _ in model["vocab"]])
    elif type(library_model).__name__ == "WordPiece":
        # The library compares every substring of a word with the vocabulary.
        longest = library_model.max_input_chars_per_word
        check_work_per_position(longest * longest // 2, f"max_input_chars_per_word is {longest:,}")


def check_pieces(pieces: list[str]) -> None:
    """Raises `TokenizerFormatError` for duplicate pieces, or pieces with which encoding takes too long."""
    if len(set(pieces)) < len(pieces):
        piece = next(piece for piece, count in Counter(pieces).items() if count > 1)
        raise TokenizerFormatError(
            f"the model's vocab has the duplicate piece {piece!r}, so that two ids have the same token; "
            "remove the later one (the library's trainer creates it from text that contains a special "
            "token)"
        )
    check_piece_comparisons(pieces)


def _check_merges(model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for merges that abort the process when the library reads them.

    With a `continuing_subword_prefix`, the library removes as many bytes from the second token as the prefix
    has characters. If the token does not begin with the prefix, that can split a character.
    """
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges") or [] if prefix else []:
        second = merge.partition(" ")[2] if isinstance(merge, str) else merge[-1]
        if not second.startswith(prefix):
            raise TokenizerFormatError(
                f"the merge {merge!r}: the second token does not begin with the continuing_subword_prefix "
                f"{prefix!r} of the model"
            )


def check_growth(contents: Mapping[str, Any]) -> None:
    """Rejects a definition whose steps or template can make a text too long.

    Args:
        contents: parsed `tokenizer.json`.

    Raises:
        TokenizerFormatError: the definition exceeds the limit `text_growth`.
    """
    # Encoding runs the normalizer and the pre-tokenizer, decoding only the decoder.
    slot_groups: tuple[tuple[PipelineSlot, ...], ...] = (("normalizer", "pre_tokenizer"), ("decoder",))
    for slots in slot_groups:
        steps = [step for slot in slots for step in get_steps(contents, slot)]
        check_text_growth(f"its {slots[0]} has {len(steps):,} steps", len(steps))
        growth = compute_steps_growth(steps)
        check_text_growth(f"its {slots[0]} can make {growth:,.0f} characters of one", growth)
    for step in get_steps(contents, "post_processor"):
        if step.get("type") == "TemplateProcessing":
            id_counts = [len(token["ids"]) for token in step["special_tokens"].values()]
            size = max(len(step["single"]), len(step["pair"])) * max(id_counts, default=1)
            check_text_growth(f"its template has {size:,} tokens", size)


def compute_steps_growth(steps: Iterable[Mapping[str, Any]]) -> float:
    """Computes an upper bound on the characters that steps make of one character, or of an empty text.

    The bound is computed from the last step to the first, as in the example at the head of the module.
    `Replace` changes the weights of the characters in its pattern:

    - A literal of n characters: each of them contributes 1/n of the weight of the replacement. It may also
      occur outside of a match and then keeps its weight, except for n = 1.
    - An expression that never matches the empty string: any character may be replaced, by no more than one
      replacement.
    - Any other expression, or an empty literal: it may match the empty string, and then inserts a replacement
      before each character and at the end of the text.

    Consecutive Unicode steps (`_UNICODE_GROWTH`) grow a text by the largest of their factors, not by the
    product; see `_compute_unicode_growth`. `Precompiled` has a table of replacements, which comes from the
    file. Unicode steps after it make of a replacement at most its length after NFKD, and spaces, so their
    factor is not multiplied. The factor of steps before it is multiplied, because the table can replace each
    character that they produce.

    Args:
        steps: steps of a `tokenizer.json`, in order.
    """
    weights: dict[str, float] = {}  # of characters in literals
    other, prepended = 1.0, 0.0  # weight of all other characters; characters added to any text
    unicode_steps: list[str] = []  # consecutive Unicode steps that follow the current step

    def compute_weight(text: str) -> float:
        return sum(weights.get(character, other) for character in text)

    for step in reversed(list(steps)):
        step_type = str(step.get("type"))
        if step_type == "Replace":
            pattern, replacement_weight = step["pattern"], compute_weight(step["content"])
            literal = pattern.get("String")
            if literal:
                leftover = 0.0 if len(literal) == 1 else 1.0
                for character in literal:
                    weight = weights.get(character, other)
                    weights[character] = max(leftover * weight, replacement_weight / len(literal))
            elif literal is None and _is_never_empty(pattern["Regex"]):
                weights = {
                    character: max(weight, replacement_weight) for character, weight in weights.items()
                }
                other = max(other, replacement_weight)
            else:
                weights = {character: weight + replacement_weight for character, weight in weights.items()}
                other, prepended = other + replacement_weight, prepended + replacement_weight
        elif step_type == "Prepend":
            prepended += compute_weight(step["prepend"])
        else:
            if step_type == "Metaspace":
                prepended += compute_weight(step["replacement"])
            # `other` already contains the factor of the Unicode steps that follow, so it is divided out.
            later_growth, factor = _compute_unicode_growth(unicode_steps), _OTHER_GROWTH.get(step_type, 1.0)
            if step_type == "Precompiled":
                charsmap = base64.b64decode(step["precompiled_charsmap"])
                spaces = 2 * unicode_steps.count("BertNormalizer")
                factor = max(1.0, compute_longest_replacement(charsmap, spaces) / later_growth)
            unicode_steps = [*unicode_steps, step_type] if step_type in _UNICODE_GROWTH else []
            if unicode_steps:
                factor = _compute_unicode_growth(unicode_steps) / later_growth
            # These steps can turn any character into any other, so all characters get the largest weight.
            other, weights = factor * max(other, *weights.values(), 0.0), {}
            continue
        unicode_steps = []
    return max(other, prepended, *weights.values())


def _is_never_empty(expression: str) -> bool:
    """Returns `True` only if a regular expression surely does not match the empty string."""
    return len(expression) <= _MAX_CHECKED_LENGTH and _NOT_EMPTY.fullmatch(expression) is not None


def _compute_unicode_growth(steps: list[str]) -> int:
    """Returns an upper bound on the characters that consecutive Unicode steps make of one character.

    Let w be the length of a text after NFKD.

    - The length of a text is at most w, and w is at most 18 for one character.
    - Normal forms do not change w, because they do not change the decomposition.
    - `Lowercase`, `StripAccents`, `Nmt` and `Strip` do not increase w.
    - `BertNormalizer` adds 2 spaces around each ideograph, and does not increase w otherwise. NFKD makes at
      most 4 ideographs of one character (U+337F), in addition to 2 other characters; NFC and NFD make 1.

    So steps with n `BertNormalizer` make at most max(18, 4 * (1 + 2 * n)) characters of one. Without NFKC and
    NFKD, the same argument with NFD, where w is at most 4, gives max(4, 1 + 2 * n).

    Args:
        steps: types of the steps.
    """
    ideographs = 4 if "NFKC" in steps or "NFKD" in steps else 1
    return max(
        ideographs * (1 + 2 * steps.count("BertNormalizer")), *map(_UNICODE_GROWTH.__getitem__, steps), 1
    )
