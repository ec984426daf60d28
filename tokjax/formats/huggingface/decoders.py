"""Analysis of the decoder of a `tokenizer.json`: after which tokens later ones no longer change the text.

`find_decode_context` of tokenizers that run on the library needs it. Most decoders convert tokens one by one.
Three change the text of several tokens together:

    decoder        tokens                     text            final after
    ByteFallback   "a", "<0xC3>", "<0xA9>"    "aé"            a token that is not a byte
                   "<0xC3>", "<0x41>"         two U+FFFD      ("A" is valid, but the run is not)
    BPEDecoder     "lo", "w</w>", "is</w>"    "low is"        any token
    CLIP's         "lo", "w</w>", "<", "is"   "low <is"       "lo", "w</w>", "is"

CLIP's decoder joins the bytes of all tokens, then replaces `</w>` by a space, also across tokens, and strips
the text. So `<` is not final, and a token that may end inside a character is not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIKE_BYTE = re.compile(r"<0x[0-9A-Fa-f+]{2}>")
"""Tokens that the library's `ByteFallback` decodes to a byte: it also accepts lower case and a sign."""
OUTER_WHITESPACE = r"\A[\s\x1c-\x1f]+|[\s\x1c-\x1f]+\z"
"""Expression of whitespace at both ends of a text: the characters that Python's `str.strip()` removes."""
_STRIP_TEXT = {"type": "Replace", "pattern": {"Regex": OUTER_WHITESPACE}, "content": ""}
_END_WORDS = {"type": "Replace", "pattern": {"String": "</w>"}, "content": " "}
_METASPACE_TO_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
_PER_TOKEN = {"Metaspace", "WordPiece", "CTC", "Replace", "Strip"}
"""Decoders that convert each token separately, or with the token before it."""


def make_finality_test(steps: Sequence[dict[str, Any]]) -> Callable[[str], bool] | None:
    """Returns a test of tokens: whether the text up to a token is final, whatever tokens follow.

    Args:
        steps: steps of the decoder.

    Returns:
        Function of the written form of a token; `None` if later tokens can change any text, or if that is
        not known.
    """
    types = [step.get("type") for step in steps]
    if types == ["BPEDecoder"]:
        suffix = steps[0]["suffix"]
        # The suffix becomes a space, but nothing in the last token.
        return lambda form: form.replace(suffix, " ").startswith(form.replace(suffix, ""))
    if types[:1] == ["ByteLevel"]:
        return _is_final_in_clip if steps[1:] == [_END_WORDS, _STRIP_TEXT] else None
    has_byte_fallback = types[:1] == ["ByteFallback"] or (
        types[1:2] == ["ByteFallback"] and steps[0] == _METASPACE_TO_SPACE
    )
    if has_byte_fallback:
        types.remove("ByteFallback")
    fuse = types.index("Fuse") if "Fuse" in types else len(types)
    strips_start_only = types[fuse + 1 :] in ([], ["Strip"]) and not (types[fuse + 1 :] and steps[-1]["stop"])
    if not strips_start_only or not _PER_TOKEN.issuperset(types[:fuse]) or "CTC" in types[1:]:
        return None  # CTC after a decoder that converts the first token otherwise compares other texts
    return (lambda form: not LIKE_BYTE.fullmatch(form)) if has_byte_fallback else (lambda _: True)


def _is_final_in_clip(form: str) -> bool:
    """Returns whether the text up to a token is final: no character or `</w>` can be incomplete there."""
    if form.endswith("</w>"):
        return True
    starts = ("<", "</", "</w")
    return form.isascii() and not any(start.endswith(form) or form.endswith(start) for start in starts)
