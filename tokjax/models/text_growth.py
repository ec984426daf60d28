"""Limits on how much longer the precompiled normalizer of a SentencePiece model makes a text."""

from __future__ import annotations

import unicodedata

from tokjax._util.limits import exceeds_limit
from tokjax.errors import TokenizerFormatError
from tokjax.pretokenize.unicode_classes import CHINESE, load_code_point_flags


def check_charsmap(charsmap: bytes) -> None:
    """Rejects a precompiled normalizer of SentencePiece that can make a text too long.

    Raises:
        TokenizerFormatError: it exceeds the limit `text_growth`.
    """
    growth = compute_longest_replacement(charsmap)
    check_text_growth(f"its normalizer can make {growth:,} characters of one", growth)


def compute_longest_replacement(charsmap: bytes, spaces: int = 0) -> int:
    """Returns the largest length of a replacement once it is decomposed.

    Args:
        charsmap: a trie, and the replacements, each ended by a zero.
        spaces: how many are put around each ideograph.
    """
    replacements = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
    texts = [unicodedata.normalize("NFKD", text.decode("utf-8", "replace")) for text in replacements]
    if not spaces:
        return max(1, *map(len, texts))
    bits = load_code_point_flags()
    return max(1, *(len(text) + spaces * sum(bool(bits[ord(c)] & CHINESE) for c in text) for text in texts))


def check_text_growth(about: str, value: float) -> None:
    """Raises `TokenizerFormatError` above the limit `text_growth`.

    Args:
        about: what grows a text, for the message.
        value: the number of characters.
    """
    exceeded = exceeds_limit("text_growth", value)
    if exceeded:
        raise TokenizerFormatError(f"{about}; {exceeded}")
