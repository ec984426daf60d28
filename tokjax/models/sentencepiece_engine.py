"""SentencePiece BPE models on the array engine, with the same ids as the library.

The library merges the pair of characters or pieces whose concatenation is the piece of highest score, and of
equal scores the leftmost. The array engine merges symbols that way, if the symbols are numbered by score. It
starts from bytes instead of characters. So the bytes of each character of the vocabulary are symbols that
merge before all others:

    symbols of a model with the pieces "▁", "e", "é", "▁é"
        0 to 255     the bytes, of which the space is "▁" and 0x65 is "e"
        256          C3 A9, the character "é"
        257          20 C3 A9, the piece "▁é"

Merging that ends at a byte, or at a part of a character, means that the character is unknown. It becomes the
byte pieces of the model, or the unknown piece.

See docs/performance.md, section "SentencePiece".
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tokjax.bpe.array_engine import ArrayEngine
from tokjax.bpe.merge_rules import MergeRules, RulesTooLargeError, check_symbol_lengths
from tokjax.bpe.pre_tokenizers import AdjacencyPreTokenizer, SymbolPreTokenizer
from tokjax.models.byte_spans import SPACE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokjax.models.sentencepiece_files import ModelInfo, Pieces

_MARK = SPACE.decode("utf-8")
_NUM_BYTES = 256


def build_engine(pieces: Pieces, info: ModelInfo) -> ArrayEngine | None:
    """Builds the array engine of a BPE model, which encodes normalized texts with spaces for `▁`.

    Each byte of a character that is not in the vocabulary becomes its byte piece, or the unknown piece.

    Args:
        pieces: pieces of the model.
        info: properties of the model.

    Returns:
        The engine, or `None` if the model needs the library: one of another type, pieces of equal scores,
        unused pieces, pieces with spaces, no piece `▁`, a symbol with `▁` and other characters, too many
        symbols, or whitespace that is not written as `▁` before words.
    """
    if info.model_type != "bpe" or info.spaces.is_suffix or info.spaces.mark != SPACE:
        return None
    texts = [*pieces.scores, *pieces.symbols]
    if pieces.has_unused or any(" " in text or "\0" in text for text in texts):
        return None
    if any(_MARK in symbol and symbol.strip(_MARK) for symbol in pieces.symbols):
        return None
    symbols = _number_symbols(pieces)
    if symbols is None or _MARK not in pieces.scores or 0 < len(pieces.byte_ids) < _NUM_BYTES:
        return None
    try:
        check_symbol_lengths(symbols)
    except RulesTooLargeError:
        return None
    return _build_array_engine(symbols, pieces)


def _number_symbols(pieces: Pieces) -> dict[bytes, int] | None:
    """Returns the numbers of all symbols, or `None` if pieces that merges make have equal scores."""
    merged = sorted(
        (text for text in pieces.scores if len(text) > 1), key=pieces.scores.__getitem__, reverse=True
    )
    if any(pieces.scores[a] == pieces.scores[b] for a, b in itertools.pairwise(merged)):
        return None
    symbols = {bytes([byte]): byte for byte in range(_NUM_BYTES)}
    characters = sorted(set().union(*pieces.scores) - {_MARK})
    for character in map(str.encode, characters):
        for stop in range(2, len(character) + 1):
            symbols.setdefault(character[:stop], len(symbols))
    for text in merged:
        symbols[_write_spaces(text)] = len(symbols)
    return symbols


def _build_array_engine(symbols: Mapping[bytes, int], pieces: Pieces) -> ArrayEngine:
    ids = np.full(len(symbols), -1, np.int32)
    ids[:_NUM_BYTES] = [pieces.byte_ids.get(byte, pieces.unknown_id) for byte in range(_NUM_BYTES)]
    by_bytes = {_write_spaces(pieces.texts[id_]): id_ for id_ in pieces.ids.values()}
    for symbol in symbols.keys() & by_bytes.keys():
        ids[symbols[symbol]] = by_bytes[symbol]
    atomic_ids = {bytes([byte]): int(ids[byte]) for byte in range(_NUM_BYTES)}
    atomic_ids |= {_write_spaces(symbol): pieces.ids[symbol] for symbol in pieces.symbols}
    rules = MergeRules(symbols, None, None, ids, atomic_ids)
    user_defined = frozenset(symbol.replace(_MARK, " ") for symbol in pieces.symbols)
    if user_defined:
        return ArrayEngine(rules, SymbolPreTokenizer(symbols, user_defined))
    return ArrayEngine(rules, AdjacencyPreTokenizer(symbols, split_before_spaces=False))


def _write_spaces(piece: str) -> bytes:
    """Returns the bytes of a piece, with spaces for `▁`."""
    return piece.replace(_MARK, " ").encode("utf-8")
