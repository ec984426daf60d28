r"""Normalization of texts for SentencePiece models, as the library does it, with the origins of all bytes.

Most texts are *plain*: each character is replaced separately, so a few string or array operations normalize
the text. All others, such as texts with combining marks, are normalized by the library.

An example, for a model that replaces the newline by a space, "½" by "1⁄2", and merges spaces:

    text                "½ \n a "
    replaced             1 ⁄ ⁄ ⁄ 2 · · · a ·      (a dot is a space, and "⁄" has three bytes)
    origins              0 0 0 0 0 2 3 4 5 6
    spaces merged        1 ⁄ ⁄ ⁄ 2 · a
    with added space   · 1 ⁄ ⁄ ⁄ 2 · a

See docs/performance.md, section "SentencePiece".
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokjax.core.ragged import concatenate_ranges, make_row_splits
from tokjax.core.sorting import find_distinct
from tokjax.core.utf8 import find_character_starts
from tokjax.models.sentencepiece_spans import SPACE, NormalizedTexts, make_normalized_texts
from tokjax.pretokenize.character_map import parse_character_map
from tokjax.pretokenize.special_tokens import compile_byte_matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.models.sentencepiece_files import ModelInfo
    from tokjax.models.sentencepiece_spans import SpaceRules

    LibraryNormalizer: TypeAlias = Callable[[bytes], tuple[bytes, list[int]]]

_MARK = SPACE.decode("utf-8")
_NUM_CODE_POINTS = 0x110000
_NUM_ASCII = 128
_REPLACED, _EXCEPTION = 1, 2
"""Kinds of characters: those that are replaced, and those because of which a text is not plain."""
_MAX_REPLACED = 32
"""Maximum number of different characters that are replaced one after the other."""


class TextNormalizer:
    """Normalizer of the texts of one model, which writes `▁` for spaces, and adds it before texts only.

    Make it with `build_normalizer`.

    Args:
        charsmap: precompiled character map of the model; empty for none.
        spaces: how the model treats whitespace.
        symbols: user-defined symbols of the model, which are not normalized. None contains a space, and `▁`
            is part of symbols that consist of it only.
        library: normalizer of the library. It returns the normalized text and the origins of its bytes.

    Raises:
        ValueError: the character map is damaged, or a replacement contains `▁` or several spaces.
    """

    def __init__(
        self, charsmap: bytes, spaces: SpaceRules, symbols: Collection[str], library: LibraryNormalizer
    ) -> None:
        self._replacements, joining = parse_character_map(charsmap)
        if any(_MARK in text or "  " in text for text in self._replacements.values()):
            raise ValueError("a replacement contains the mark of a space, or several spaces")
        self._spaces = spaces
        self._library = library
        self._table = {ord(c): text for c, text in self._replacements.items()}
        self._ascii_table = {code: text for code, text in self._table.items() if code < _NUM_ASCII}
        self._are_chained = not self._replacements.keys().isdisjoint("".join(self._replacements.values()))
        self._long_symbols = frozenset(
            symbol for symbol in symbols if len(symbol) > 1 and _MARK not in symbol
        )
        in_symbols = {character for symbol in symbols for character in symbol}
        exceptions = {_MARK, "\0"} | joining | (in_symbols & self._replacements.keys())
        self._kinds = np.zeros(_NUM_CODE_POINTS, np.uint8)
        self._kinds[list(self._table)] = _REPLACED
        self._kinds[list(map(ord, exceptions))] = _EXCEPTION
        # The added space is before a removed character, so it has another origin than the first byte.
        whitespace = {" "} | {c for c, text in self._replacements.items() if text == " "}
        removed = {c for c, text in self._replacements.items() if not text}
        self._begins_with_removed = re.compile(
            _compile_set(whitespace).pattern + "*" + _compile_set(removed).pattern
        )

    def normalize(self, text: bytes) -> str:
        """Returns a text after normalization, with spaces for `▁`."""
        plain = self._decode_plain(text)
        if plain is None:
            return self._library(text)[0].decode("utf-8").replace(_MARK, " ")
        plain = self._replace_characters(plain)
        if self._spaces.are_merged:
            plain = plain.strip(" ")
            while "  " in plain:  # faster than an expression
                plain = plain.replace("  ", " ")
            is_empty = not plain
        else:
            is_empty = not text
        return " " + plain if self._spaces.is_added and not is_empty else plain

    def keeps_bytes(self, texts: Iterable[bytes]) -> bool:
        """Returns whether normalization changes none of the texts, apart from a space added before them."""
        if self._replacements or self._spaces.are_merged:
            return False
        return all(SPACE not in text and b"\0" not in text and _is_utf8(text) for text in texts)

    def locate(self, texts: Sequence[bytes]) -> NormalizedTexts:
        """Returns texts after normalization as the library writes them, and the origins of their bytes."""
        is_plain = [self._decode_plain(text) is not None for text in texts]
        located = self._locate_plain([text for text, plain in zip(texts, is_plain, strict=True) if plain])
        if all(is_plain):
            return make_normalized_texts(*located, self._spaces)
        plain_columns = zip(*(np.split(column, located[2][1:-1]) for column in located[:2]), strict=True)
        columns = [
            next(plain_columns) if plain else self._locate_by_library(text)
            for text, plain in zip(texts, is_plain, strict=True)
        ]
        data, origins = (np.concatenate(column) for column in zip(*columns, strict=True))
        splits = make_row_splits([len(text) for text, _ in columns])
        return make_normalized_texts(data, origins, splits, self._spaces)

    def _decode_plain(self, text: bytes) -> str | None:
        """Returns the characters of a plain text, or `None` for any other text."""
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError:
            return None
        has_exception = self._kinds.take(_to_code_points(decoded)).max(initial=0) == _EXCEPTION
        return None if has_exception or self._begins_with_removed.match(decoded) else decoded

    def _replace_characters(self, text: str) -> str:
        if not self._replacements:
            return text
        if text.isascii():
            return text.translate(self._ascii_table)
        codes = _to_code_points(text)
        is_replaced = self._kinds.take(codes) == _REPLACED
        replaced = find_distinct(codes.take(np.flatnonzero(is_replaced))).tolist()
        if self._are_chained or len(replaced) > _MAX_REPLACED:
            return text.translate(self._table)
        for code in replaced:  # faster than `translate`, which looks up each character
            text = text.replace(chr(code), self._table[code])
        return text

    def _locate_by_library(self, text: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        normalized, origins = self._library(text)
        return np.frombuffer(normalized + b"\0", np.uint8), np.array(origins or [0], np.int64)

    def _locate_plain(
        self, texts: Sequence[bytes]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Returns plain texts after normalization, the origins of their bytes, and the start of each text."""
        joined = b"\0".join([*texts, b""])
        data, origins = self._replace_in_arrays(joined)
        if self._long_symbols:
            _join_origins(origins, compile_byte_matcher(self._long_symbols).finditer(joined))
        if self._spaces.are_merged:
            data, origins = _merge_spaces(data, origins)
        ends = np.flatnonzero(data == 0)
        starts = np.append(0, ends + 1)[:-1]
        text_starts = make_row_splits([len(text) + 1 for text in texts])[:-1]
        origins = origins - np.repeat(text_starts, ends + 1 - starts)
        origins[ends[starts == ends]] = 0  # as in the library
        if self._spaces.is_added:
            starts = starts[starts < ends]
            data, origins = np.insert(data, starts, ord(" ")), np.insert(origins, starts, origins[starts])
        data, origins = _write_marks(data, origins)
        return data, origins, np.append(0, np.flatnonzero(data == 0) + 1)

    def _replace_in_arrays(self, text: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Returns a text with replaced characters, and the position that each byte came from."""
        characters = text.decode("utf-8")
        data = np.frombuffer(self._replace_characters(characters).encode("utf-8"), np.uint8)
        starts = find_character_starts(characters)
        if len(characters) == len(text) == len(data):
            return data, starts[:-1]
        codes = np.frombuffer(characters.encode("utf-32-le"), "<u4")
        return data, np.repeat(starts[:-1], self._replacement_lengths.take(codes))

    @cached_property
    def _replacement_lengths(self) -> NDArray[np.int64]:
        """Number of bytes of the replacement of each code point, `int64`, shape `(0x110000,)`."""
        lengths = np.ones(_NUM_CODE_POINTS, np.int64)
        for first in (0x80, 0x800, 0x10000):
            lengths[first:] += 1
        for character, replacement in self._replacements.items():
            lengths[ord(character)] = len(replacement.encode("utf-8"))
        return lengths


def build_normalizer(
    info: ModelInfo, symbols: Collection[str], library: LibraryNormalizer
) -> TextNormalizer | None:
    """Builds the normalizer of a model.

    Args:
        info: properties of the model.
        symbols: user-defined symbols of the model.
        library: function of the library that returns a normalized text and its origins.

    Returns:
        The normalizer, or `None` if the library has to normalize all texts: whitespace is not written as `▁`
        before words, a symbol has a space, or `▁` and other characters, or the character map is damaged or
        has unusual replacements.
    """
    if info.spaces.is_suffix or info.spaces.mark != SPACE:
        return None
    if any(" " in symbol or (_MARK in symbol and symbol.strip(_MARK)) for symbol in symbols):
        return None
    try:
        return TextNormalizer(info.charsmap, info.spaces, symbols, library)
    except ValueError:
        return None


def _join_origins(origins: NDArray[np.int64], matches: Iterable[re.Match[bytes]]) -> None:
    """Sets the origins of all bytes of each match to that of the first, in place."""
    spans = np.array([match.span() for match in matches], np.int64).reshape(-1, 2)
    first, last = np.searchsorted(origins, spans[:, 0]), np.searchsorted(origins, spans[:, 1])
    origins[concatenate_ranges(first, last - first)] = np.repeat(spans[:, 0], last - first)


def _merge_spaces(
    data: NDArray[np.uint8], origins: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Removes repeated spaces, and spaces at the start and end of texts. A zero byte is after each text.

    The zero byte gets the origin of the spaces before it.
    """
    is_space, is_end = data == ord(" "), data == 0
    repeated = is_space.copy()
    repeated[1:] &= is_space[:-1] | is_end[:-1]
    kept = np.flatnonzero(~repeated)
    data, origins = data[kept], origins[kept]
    before_end = np.flatnonzero((data[:-1] == ord(" ")) & (data[1:] == 0))
    origins[before_end + 1] = origins[before_end]
    return np.delete(data, before_end), np.delete(origins, before_end)


def _write_marks(
    data: NDArray[np.uint8], origins: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Replaces each space by the three bytes of `▁`."""
    spaces = np.flatnonzero(data == ord(" "))
    lengths = np.ones(len(data), np.int64)
    lengths[spaces] = len(SPACE)
    written = np.repeat(data, lengths)
    first = spaces + np.arange(len(spaces)) * (len(SPACE) - 1)
    for i, byte in enumerate(SPACE):
        written[first + i] = byte
    return written, np.repeat(origins, lengths)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _to_code_points(text: str) -> NDArray[Any]:
    """Returns the code points of a text, as bytes if it is ASCII."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8)
    return np.frombuffer(text.encode("utf-32-le"), "<u4")


def _compile_set(characters: Iterable[str]) -> re.Pattern[str]:
    """Compiles the expression of one of the characters; of nothing if there are none."""
    members = "".join(map(re.escape, characters))
    return re.compile(f"[{members}]" if members else "(?!)")
