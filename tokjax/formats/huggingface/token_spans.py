"""Byte spans of tokens of the `tokenizers` library, without overlaps.

The library reports spans in whole characters of the text, so all tokens that come from one character have its
span. They are separated by means of the *normalized text*: the bytes that the model receives. The *origin* of
a byte is the span of the character that it came from.

Example: "½€", with an NFKC normalizer, a `▁` before texts, and a model with few tokens.

    normalized bytes   ▁▁▁1⁄⁄⁄2                          €€€
    origins            [1, 3) for all 8                  [3, 6) for all 3

    tokens             ▁       1       ⁄       2         <0xE2>  <0x82>  <0xAC>
    library's spans    [1, 3)  [1, 3)  [1, 3)  [1, 3)    [3, 6)  [3, 6)  [3, 6)
    spans here         [1, 1)  [1, 3)  [3, 3)  [3, 3)    [3, 4)  [4, 5)  [5, 6)

Consecutive bytes with the same origin are a *group*. If a group ends with the bytes of its origin, each of
these has its own span; the bytes before them were inserted, so their spans are empty. In any other group, the
first byte after an inserted prefix has the whole origin as its span, and the spans of the others are empty.

The library does not return the normalized text. A `SpanSeparator` has a tokenizer with the same steps, but
with a model that has one token per byte. It encodes only the texts whose spans overlap.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.imports import import_optional
from tokjax.core.utf8 import find_character_starts
from tokjax.models.byte_spans import clip_spans
from tokjax.pretokenize.bytes_to_unicode import map_unicode_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_FIRST_BYTE_ID = 1 << 31
"""Id of byte 0 in the model of `SpanSeparator.byte_tokenizer`. The ids of added tokens are smaller."""


class LibraryTokens(NamedTuple):
    """Tokens of a text, with the library's spans.

    Attributes:
        spans: 1-based byte spans, rounded outward to whole characters, `int64`, shape `(n, 2)`.
        ids: token ids, `int32`, shape `(n,)`.
        word_ids: index of the pre-token of each token, ascending, `int32`, shape `(n,)`.
    """

    spans: NDArray[np.int64]
    ids: NDArray[np.int32]
    word_ids: NDArray[np.int32]


class SpanSeparator(NamedTuple):
    """What `separate_spans` needs of a tokenizer. `make_span_separator` creates it.

    Attributes:
        model: the library's model.
        byte_tokenizer: tokenizer of the library with the same steps, and one token per byte.
        prefixes: pattern of inserted text at the start of a group. It never matches the whole group.
        is_byte_level: whether the model receives bytes as `bytes_to_unicode` writes them.
    """

    model: Any
    byte_tokenizer: Any
    prefixes: re.Pattern[bytes]
    is_byte_level: bool


def make_span_separator(
    library: Any, prefixes: Iterable[str], *, encode_special_tokens: bool, is_byte_level: bool
) -> SpanSeparator:
    """Returns the separator of a tokenizer of the library.

    Args:
        library: the library's `Tokenizer`. Its steps, added tokens and model are shared.
        prefixes: texts that its steps insert before texts, such as `▁`.
        encode_special_tokens: whether special tokens in texts are encoded as ordinary text.
        is_byte_level: whether the model receives bytes as `bytes_to_unicode` writes them.
    """
    tokenizers = import_optional("tokenizers", extra="huggingface", purpose="this tokenizer")
    byte_tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_tokenizer.normalizer = library.normalizer
    byte_tokenizer.pre_tokenizer = library.pre_tokenizer
    byte_tokenizer.encode_special_tokens = encode_special_tokens
    added_tokens = library.get_added_tokens_decoder()
    byte_tokenizer.add_tokens([added_tokens[id_] for id_ in sorted(added_tokens)])
    # Set the model after adding tokens, so that an added token `<0x41>` does not get the id of a byte.
    byte_ids = {f"<0x{byte:02X}>": _FIRST_BYTE_ID + byte for byte in range(256)}
    byte_tokenizer.model = tokenizers.models.BPE(byte_ids, [], byte_fallback=True)
    forms = b"|".join(re.escape(prefix.encode()) for prefix in prefixes)
    pattern = re.compile(b"(?:%b)*(?=.)" % forms, re.DOTALL)
    return SpanSeparator(library.model, byte_tokenizer, pattern, is_byte_level)


def has_overlaps(spans: NDArray[np.int64]) -> bool:
    """Returns whether spans overlap or are not in ascending order.

    Args:
        spans: half-open spans, `int64`, shape `(n, 2)`.

    >>> has_overlaps(np.array([[1, 2], [2, 5]])), has_overlaps(np.array([[1, 3], [2, 5]]))
    (False, True)
    """
    return not _flag_run_starts(spans).all()


def _flag_run_starts(spans: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Flags the first span of each run. Spans of different runs do not overlap; shape `(n,)`."""
    # A run ends between two neighbours if all spans up to the first end before all spans from the second on
    # start. Comparing only the two is not enough: a trimmed span may start after the next one.
    max_stops = np.maximum.accumulate(spans[:, 1])
    min_starts = np.minimum.accumulate(spans[::-1, 0])[::-1]
    starts_run = np.ones(len(spans), bool)
    np.greater_equal(min_starts[1:], max_stops[:-1], out=starts_run[1:])
    return starts_run


def separate_spans(
    separator: SpanSeparator, tokens: LibraryTokens, text: str, data: bytes
) -> NDArray[np.int64]:
    """Returns spans without overlaps, `int64`, shape `(n, 2)`. Spans that do not overlap are not changed.

    Args:
        separator: separator of the tokenizer.
        tokens: tokens of a text, at least one.
        text: the text as the library encodes it.
        data: bytes of the text that the spans refer to.
    """
    spans = tokens.spans
    run_starts = np.flatnonzero(_flag_run_starts(spans))
    run_sizes = np.diff(run_starts, append=len(spans))
    overlaps = np.repeat(run_sizes > 1, run_sizes)
    bounds = np.where(overlaps[:, None], _compute_bounds(separator, tokens, overlaps, text, data), spans)
    first = np.repeat(np.minimum.reduceat(spans[:, 0], run_starts), run_sizes)
    last = np.repeat(np.maximum.reduceat(spans[:, 1], run_starts), run_sizes)
    bounds = bounds.clip(first[:, None], last[:, None])
    # A span may be trimmed: keep its part within the bounds of the token. Tokens that are not located, such
    # as added tokens, have no separate bounds, so the parts are clipped once more.
    return clip_spans(spans.clip(bounds[:, :1], bounds[:, 1:]), np.array([0, len(spans)]))


def _compute_bounds(
    separator: SpanSeparator, tokens: LibraryTokens, overlaps: NDArray[np.bool_], text: str, data: bytes
) -> NDArray[np.int64]:
    """Returns the spans of the normalized bytes of each token, as far as the tokens can be located.

    Args:
        separator: separator of the tokenizer.
        tokens: tokens of a text.
        overlaps: whether each token overlaps others, `bool`, shape `(n,)`. Only these need bounds.
        text: the text as the library encodes it.
        data: bytes of the text that the spans refer to.

    Returns:
        1-based byte spans, `int64`, shape `(n, 2)`.
    """
    encoding = separator.byte_tokenizer.encode(text)
    byte_ids = np.array(encoding.ids, np.int64) - _FIRST_BYTE_ID
    is_byte = byte_ids >= 0  # the others are added tokens
    normalized = byte_ids[is_byte].astype(np.uint8).tobytes()
    words = np.array(encoding.word_ids, np.int64)[is_byte]
    characters = np.array(encoding.offsets, np.int64).reshape(-1, 2)[is_byte]
    origins = find_character_starts(data).take(characters) + 1
    located, positions = _locate_tokens(separator.model, tokens, overlaps, normalized, words)
    decoded = map_unicode_to_bytes(normalized.decode()) if separator.is_byte_level else None
    if decoded is not None:
        form_starts = find_character_starts(normalized)
        # A byte token of the model may be part of a form, which is one byte.
        starts = np.searchsorted(form_starts, positions[:, 0], "right") - 1
        positions = np.stack([starts, np.searchsorted(form_starts, positions[:, 1])], axis=1)
        normalized, origins = decoded, origins[form_starts[:-1]]
    byte_spans = _compute_byte_spans(normalized, origins, data, separator.prefixes)
    bounds = tokens.spans.copy()
    bounds[located, 0] = byte_spans[positions[:, 0], 0]
    bounds[located, 1] = byte_spans[positions[:, 1] - 1, 1]
    return bounds


def _locate_tokens(
    model: Any,
    tokens: LibraryTokens,
    overlaps: NDArray[np.bool_],
    normalized: bytes,
    words: NDArray[np.int64],
) -> tuple[list[int], NDArray[np.int64]]:
    """Locates the tokens of pre-tokens with overlaps in a normalized text.

    Added tokens are not located, nor are the tokens of a pre-token whose positions the library does not
    report: if the model selects tokens at random (`dropout`), or the positions do not end with the pre-token.

    Args:
        model: the library's model.
        tokens: tokens of a text.
        overlaps: whether each token overlaps others, `bool`, shape `(n,)`.
        normalized: normalized text.
        words: index of the pre-token of each byte, ascending, `int64`, shape `(len(normalized),)`.

    Returns:
        Indices of `m` tokens, and their half-open positions in the normalized text, `int64`, shape `(m, 2)`.
    """
    located: list[int] = []
    positions = [np.zeros((0, 2), np.int64)]
    word_ids = np.unique(tokens.word_ids[overlaps])
    limits = np.stack([word_ids, word_ids + 1], axis=1)
    token_slices = np.searchsorted(tokens.word_ids, limits).tolist()
    byte_slices = np.searchsorted(words, limits).tolist()
    for (first, stop), (begin, end) in zip(token_slices, byte_slices, strict=True):
        pretoken = normalized[begin:end].decode()
        model_tokens = model.tokenize(pretoken) if pretoken else []
        if [token.id for token in model_tokens] != tokens.ids[first:stop].tolist():
            continue
        # The positions are wrong if the model drops characters, or adds byte tokens of a suffix.
        if model_tokens and model_tokens[-1].offsets[1] == end - begin:
            located += range(first, stop)
            positions.append(begin + _get_positions(model_tokens))
    return located, np.concatenate(positions)


def _get_positions(model_tokens: list[Any]) -> NDArray[np.int64]:
    """Returns the half-open position of each token in its pre-token, in bytes, `int64`, shape `(n, 2)`."""
    positions: list[tuple[int, int]] = []
    for (start, stop), group in groupby(token.offsets for token in model_tokens):
        count = len(list(group))
        if count == stop - start:
            # Byte tokens of a Unigram model all have the position of the characters that they encode.
            positions += [(position, position + 1) for position in range(start, stop)]
        else:
            positions += [(start, stop)] * count
    return np.array(positions, np.int64)


def _compute_byte_spans(
    normalized: bytes, origins: NDArray[np.int64], data: bytes, prefixes: re.Pattern[bytes]
) -> NDArray[np.int64]:
    r"""Returns the span of each byte of a normalized text, `int64`, shape `(len(normalized), 2)`.

    Args:
        normalized: normalized text.
        origins: span of the character that each byte came from, 1-based, `int64`, shape
            `(len(normalized), 2)`.
        data: bytes of the text that the spans refer to.
        prefixes: pattern of inserted text at the start of a group.

    >>> origins = np.array([[1, 3], [1, 3], [1, 3]])
    >>> _compute_byte_spans(b"_\xc3\xa9", origins, b"\xc3\xa9", re.compile(b"")).tolist()
    [[1, 1], [1, 2], [2, 3]]
    """
    spans = origins.copy()
    starts_group = np.ones(len(normalized), bool)
    starts_group[1:] = (origins[1:] != origins[:-1]).any(axis=1)
    bounds = np.append(np.flatnonzero(starts_group), len(normalized))
    for index in np.flatnonzero(np.diff(bounds) > 1).tolist():
        first, stop = bounds[index : index + 2].tolist()
        start, end = origins[first].tolist()
        group, origin = normalized[first:stop], data[start - 1 : end - 1]
        if origin and group.endswith(origin):
            num_inserted = len(group) - len(origin)
            edges = [start] * num_inserted + list(range(start, end + 1))
        else:
            match = prefixes.match(group)
            num_inserted = match.end() if match else 0
            edges = [start] * (num_inserted + 1) + [end] * (len(group) - num_inserted)
        spans[first:stop, 0], spans[first:stop, 1] = edges[:-1], edges[1:]
    return spans
