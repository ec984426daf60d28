"""Limits on how much longer the precompiled normalizer of a SentencePiece model can make a text."""

from __future__ import annotations

import unicodedata

from tokjax._util.limits import exceeds_limit
from tokjax.errors import TokenizerFormatError
from tokjax.pretokenize.unicode_classes import CHINESE, load_code_point_flags


def check_charsmap(charsmap: bytes) -> None:
    """Rejects a precompiled SentencePiece normalizer that can make a text too long.

    Args:
        charsmap: field `precompiled_charsmap` of the model; empty for none.

    Raises:
        TokenizerFormatError: the normalizer exceeds the limit `text_growth`.
    """
    growth = compute_longest_replacement(charsmap)
    check_text_growth(f"its normalizer can make {growth:,} characters of one", growth)


def compute_longest_replacement(charsmap: bytes, spaces: int = 0) -> int:
    """Returns the length in characters of the longest replacement, after NFKD.

    Args:
        charsmap: size of a trie (4 bytes), the trie, and the replacements, each followed by a zero byte.
        spaces: number of spaces that a later step adds around each ideograph.
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
        about: reason for the growth, for the error message.
        value: number of characters, or another measure of the growth.
    """
    exceeded = exceeds_limit("text_growth", value)
    if exceeded:
        raise TokenizerFormatError(f"{about}; {exceeded}")
