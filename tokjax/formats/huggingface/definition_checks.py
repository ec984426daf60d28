"""Checks of a `tokenizer.json`, before the `tokenizers` library reads it: limits, and files that abort it.

A definition from an untrusted source can have ten steps that each replace "a" by "aaaaaaaaaa". Together they
turn one character into 10^10 characters. `check_growth` rejects such a definition before any text is encoded;
SECURITY.md, section "Limits", has the default.

The bound is the product of the factors of all steps:

    Replace "½" -> "1/2"              3   (one character becomes at most three)
    Replace " {2,}" -> " "            1   (a match has at least one character)
    Replace "x*" -> "-"               2   (one is inserted before each character)
    NFKD, StripAccents, Lowercase    18   (not the product; see `_compute_unicode_growth`)
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tokjax.errors import TokenizerFormatError
from tokjax.formats.huggingface.parts import get_steps
from tokjax.models.format_errors import check_piece_comparisons, check_vocab_size, check_work_per_position
from tokjax.models.sentencepiece_files import check_text_growth, compute_longest_replacement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokjax.formats.huggingface.parts import PipelineSlot


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


def check_loaded(library: Any, model: Mapping[str, Any]) -> None:
    """Raises `TokenizerFormatError` for duplicate pieces, or a definition that exceeds `tokjax.limits`.

    The steps are those that the library writes: it also reads lists and objects of an unknown type as steps.

    Args:
        library: tokenizer that the library made of the definition.
        model: model of the parsed `tokenizer.json`.
    """
    slots = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    parts = {slot: part for slot in slots if (part := getattr(library, slot)) is not None}
    check_growth({slot: json.loads(part.__getstate__()) for slot, part in parts.items()})
    if isinstance(model["vocab"], list):
        check_pieces([piece for piece, _ in model["vocab"]])
    elif type(library.model).__name__ == "WordPiece":
        # The library compares every substring of a word with the vocabulary.
        longest = library.model.max_input_chars_per_word
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

    Args:
        steps: steps of a `tokenizer.json`, in order.
    """
    growth, inserted = 1.0, 0.0
    for is_unicode, group in groupby(steps, lambda step: step.get("type") in _UNICODE_GROWTH):
        members = list(group)
        factors = list(map(_compute_step_growth, members))
        if is_unicode:
            factors = [(_compute_unicode_growth([step["type"] for step in members]), 0)]
        for factor, size in factors:
            growth, inserted = growth * factor, inserted * factor + size
    return max(growth, inserted)


def _compute_step_growth(step: Mapping[str, Any]) -> tuple[float, int]:
    """Returns the factor by which a step can grow a text, and the characters that it adds to any text."""
    step_type = step.get("type")
    if step_type == "Replace":
        size, literal = len(step["content"]), step["pattern"].get("String")
        if literal:
            return max(1.0, size / len(literal)), 0
        if literal is None and _is_never_empty(step["pattern"]["Regex"]):
            return max(1.0, size), 0
        return 1.0 + size, size  # may match the empty string before each character and at the end
    if step_type == "Precompiled":
        return compute_longest_replacement(base64.b64decode(step["precompiled_charsmap"])), 0
    prefix = {"Prepend": step.get("prepend"), "Metaspace": step.get("replacement")}.get(str(step_type), "")
    return _OTHER_GROWTH.get(str(step_type), 1.0), len(prefix or "")


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
