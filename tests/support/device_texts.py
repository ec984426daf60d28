"""Texts as arrays of static shapes, for tests of tokenization under jit."""

import jax.numpy as jnp
import numpy as np

_CHARACTERS = [
    *("a", "B", " ", "  ", "\n", "\r\n", "'", "s", "'ll", "1", "23", "٣", "é", "É", "你", "!", "_", "\t"),
    *("\u0301", "ǅ", "\u00a0", "😀", "/", "'S", "ſ", "m", "re", "中文", "00000", "-", "\u2028", "\x00"),
]
PIECES = [piece.encode() for piece in _CHARACTERS] + [b"\xff", b"\x80", b"\xe4\xbd", b"\xf0\x9f\x98"]
"""Parts of texts that are hard to split, with invalid UTF-8."""
NUM_BYTES = 2048
NUM_ROWS = 12


def to_arrays(texts, num_bytes=NUM_BYTES, num_rows=NUM_ROWS):
    """Returns the bytes of texts and their row splits, padded to static shapes. Missing rows are empty."""
    data = b"".join(texts)
    assert len(data) <= num_bytes
    assert len(texts) <= num_rows
    padded = np.zeros(num_bytes, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    splits = np.cumsum([0, *map(len, texts), *[0] * (num_rows - len(texts))])
    return jnp.asarray(padded), jnp.asarray(splits, jnp.int32)


def fit(texts, num_bytes=NUM_BYTES, num_rows=NUM_ROWS):
    """Returns as many of the texts as fit."""
    kept, total = [], 0
    for text in texts[:num_rows]:
        if total + len(text) <= num_bytes:
            kept.append(text)
            total += len(text)
    return kept
