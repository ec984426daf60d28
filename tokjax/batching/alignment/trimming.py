"""Tokens without the white space at their edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokjax.batching.alignment.spans import check_rows
from tokjax.batching.alignment.tokens import token_rows
from tokjax.errors import OffsetsContractError
from tokjax.ragged import splits_from_lengths
from tokjax.utf8 import to_utf8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.batching.alignment.tokens import Tokens
    from tokjax.utf8 import Text

_WHITE_SPACE = [chr(code) for code in range(0x3001) if chr(code).isspace()]
_BLANK_BYTE = bytes(chr(code).isspace() and code < 0x80 for code in range(256))
_WIDE = {
    width: np.array(
        [int.from_bytes(c.encode(), "big") for c in _WHITE_SPACE if len(c.encode()) == width], np.uint32
    )
    for width in (2, 3)
}


def trim_offsets(offsets: Any, texts: Sequence[Text]) -> NDArray[np.int64]:
    """The spans of tokens without the white space at their edges.

    Tokens of byte-level BPE begin with the blank before their word, so that none of them lies inside the
    span of that word. White space is what `str.isspace` says.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, or an array of
            shape `(n, 2)` (one text) or `(batch, length, 2)`.
        texts: what the offsets are places in; a list of one for one text.

    Returns:
        `int64`, shape `(n, 2)` with all tokens of all texts, or `(batch, length, 2)`. A token of nothing but
        white space becomes the empty span at its end; `(0, 0)` stays.

    Raises:
        OffsetsContractError: a token ends after its text.

    >>> trim_offsets(np.array([[1, 4], [4, 9]]), ["New York"]).tolist()
    [[1, 4], [5, 9]]
    """
    tokens = token_rows(offsets)
    return trimmed(tokens, texts).reshape(tokens.shape)


def trimmed(tokens: Tokens, texts: Sequence[Text]) -> NDArray[np.int64]:
    """The spans of `tokens`, trimmed, `int64`, shape `(n, 2)`."""
    check_rows("texts", len(texts), tokens.num_rows)
    encoded = [to_utf8(text) for text in texts]
    splits = splits_from_lengths(map(len, encoded))
    lengths = np.diff(tokens.row_splits)
    starts, stops = tokens.offsets.T.astype(np.int64)
    ends = np.repeat(np.diff(splits) + 1, lengths)
    beyond = stops > ends
    if beyond.any():
        token = int(np.flatnonzero(beyond)[0])
        raise OffsetsContractError(
            f"text {tokens.row_of(token)}: a token has the span {tuple(tokens.offsets[token].tolist())}, and "
            f"the text has {ends[token] - 1} bytes; is it the text that was encoded? (see tokenization_view)"
        )
    shift = np.repeat(splits[:-1], lengths) - 1
    starts += shift
    stops += shift
    _leave_white_space(_is_white_space(b"".join(encoded)), starts, stops)
    return np.stack([starts - shift, stops - shift], axis=1)


def _leave_white_space(blank: NDArray[np.bool_], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
    """Move `starts` on and `stops` back to where a byte is not blank, but not past each other."""
    edges = np.flatnonzero(np.diff(blank, prepend=False, append=False))
    run_starts, run_stops = edges[::2], edges[1::2]
    blank = np.append(blank, False)
    lead = np.flatnonzero((starts < stops) & blank.take(starts, mode="clip"))
    starts[lead] = np.minimum(run_stops[np.searchsorted(run_starts, starts[lead], "right") - 1], stops[lead])
    trail = np.flatnonzero((starts < stops) & blank.take(stops - 1, mode="clip"))
    stops[trail] = run_starts[np.searchsorted(run_starts, stops[trail] - 1, "right") - 1]


def _is_white_space(text: bytes) -> NDArray[np.bool_]:
    """Which bytes of UTF-8 are of white space."""
    blank = np.frombuffer(bytearray(text.translate(_BLANK_BYTE)), np.bool_)
    if text.isascii():
        return blank
    data = np.frombuffer(text, np.uint8)
    for width, codes in _WIDE.items():
        is_lead = np.zeros(256, bool)
        is_lead[codes >> np.uint32(8 * (width - 1))] = True
        leads = np.flatnonzero(is_lead[data[: len(data) - width + 1]])
        found = np.zeros(len(leads), np.uint32)
        for i in range(width):
            found = found << np.uint32(8) | data[leads + i]
        for i in range(width):
            blank[leads[np.isin(found, codes)] + i] = True
    return blank
