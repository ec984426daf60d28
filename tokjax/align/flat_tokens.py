"""Flat tokens: the tokens of all texts of a batch in one array, and those of them that can carry a label.

All forms of input (results, batches, windows, arrays of offsets) become `FlatTokens`. `select_tokens` then
finds the tokens that have bytes, and returns them as rows that can be searched for spans:

    batch          [CLS]  in     New    [SEP]   |  [CLS]  hi     [SEP]
    offsets        (0,0)  (1,3)  (4,7)  (0,0)   |  (0,0)  (1,3)  (0,0)
    flat index     0      1      2      3          4      5      6          row_splits 0 4 7
    is_selected    F      T      T      F          F      T      F

    rows           low    1  5     the tokens 1:3 and 5:6
                   high   3  6

The tokens of a row are in the order of their text, so that the tokens of a span are contiguous, and two
searches in sorted arrays find them. Tokens that *touch* a span share a byte with it; tokens that it
*contains* lie inside it:

    byte          1   2   3   4   5   6   7   8
    token         |0          |1      |2      |3  |
    starts        1           4       6       8
    stops         4           6       8       9
    span                          |-----------|              start 5, stop 8

    touched       first = number of stops  <= 5 = 1,  after = number of starts <  8 = 3:  tokens 1 and 2
    contained     first = number of starts <  5 = 2,  after = number of stops  <= 8 = 3:  token 2

The spans of all rows are searched by bisection, one vectorized step at a time, each span in its own row.

Tokens, words and characters that are looked up are 0-based, as indices are. Bytes are 1-based, as offsets
are. See docs/alignment.md for which tokens of a span are labelled.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.arrays import as_integers, compute_prefix_maximum, count_bits, is_jax, is_traced
from tokjax._util.checks import check_int, is_iterable
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import Ragged
from tokjax.core.records import MergedWindows, TokenizationBatch, TokenizationResult, Windows
from tokjax.errors import InvalidArgumentError
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tokjax._util.arrays import Array
    from tokjax.core.utf8 import Text


_Condition: TypeAlias = "tuple[Array, Callable[[Any, Any], Any]]"
_USUAL_MAX_TOKENS = 7
"""Number of tokens that few spans exceed."""


class FlatTokens(NamedTuple):
    """The concatenated tokens of one or more rows. A row is a text, or a window of a text.

    Attributes:
        offsets: 1-based byte spans, integers, shape `(n, 2)`.
        row_splits: index of the first token of each row, and `n`, `int64`, shape `(rows + 1,)`.
        shape: shape of the offsets in the input, `(n, 2)` or `(batch, length, 2)`.
        is_one_text: whether the input was a single text rather than a batch.
        word_ids: index of the word of each token, shape `(n,)`, or `None`.
        sequence_ids: index, 0 or 1, of each token's text in its pair, shape `(n,)`, or `None`.
        text_ids: index of the text of each window, `int64`, shape `(rows,)`; `None` where each row is a whole
            text.
        is_normalized: whether the offsets refer to the normalized text.
        ids: token ids, shape `(n,)`; `None` where the input has no ids.
    """

    offsets: NDArray[np.integer[Any]]
    row_splits: NDArray[np.int64]
    shape: tuple[int, ...]
    is_one_text: bool
    word_ids: NDArray[np.integer[Any]] | None = None
    sequence_ids: NDArray[np.integer[Any]] | None = None
    text_ids: NDArray[np.int64] | None = None
    is_normalized: bool = False
    ids: NDArray[np.integer[Any]] | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows: texts or windows."""
        return len(self.row_splits) - 1

    @property
    def num_texts(self) -> int:
        """Number of texts."""
        return self.num_rows if self.text_ids is None else int(self.text_ids.max(initial=-1)) + 1

    def get_text(self, row: Any) -> Any:
        """Returns the index of the text of a row, or those of several rows."""
        return row if self.text_ids is None else self.text_ids[row]

    def get_row(self, token: int) -> int:
        """Returns the index of the row that holds a token."""
        return int(np.searchsorted(self.row_splits, token, "right")) - 1

    def get_index_in_row(self, token: int) -> int:
        """Returns the index of a token within its row."""
        return token - int(self.row_splits[self.get_row(token)])


class TokenRows(NamedTuple):
    """Tokens in rows: row `i` is `low[i]:high[i]`. Tokens between rows are ignored.

    Attributes:
        starts: first byte of each token, shape `(n,)`.
        stops: one past the last byte of each token, shape `(n,)`.
        low: index of the first token of each row, shape `(rows,)`.
        high: one past the index of the last token of each row, shape `(rows,)`.
        longest: maximum number of tokens of a row.
    """

    starts: Array
    stops: Array
    low: Any
    high: Any
    longest: int


class SpanQueries(NamedTuple):
    """The spans to find tokens for; `(0, 0)` has no tokens.

    Attributes:
        starts: first byte of each span, shape `(spans,)`.
        stops: one past the last byte of each span, shape `(spans,)`.
        rows: index of the row of tokens of each span, shape `(spans,)`.
    """

    starts: Array
    stops: Array
    rows: Any


class TokenRanges(NamedTuple):
    """The range of tokens `first:after` of each span; empty where `first == after`.

    Attributes:
        first: index of the first token of each span, shape `(spans,)`.
        after: one past the index of the last token of each span, shape `(spans,)`.
    """

    first: Any
    after: Any


class TokenSelection(NamedTuple):
    """The tokens that can carry a label, as arrays that can be searched for spans.

    Attributes:
        is_selected: whether each token can carry a label, `bool`, shape `(n,)`.
        rows: the selected tokens, in the order of their text.
        indices: index in the flat tokens of each of them, `int64`, shape `(m,)`; `None` if they are the flat
            tokens without those at the ends of rows.
    """

    is_selected: NDArray[np.bool_]
    rows: TokenRows
    indices: NDArray[np.int64] | None


def make_flat_tokens(offsets: Any, word_ids: Any = None) -> FlatTokens:
    """Converts the tokens of one text, or of a batch, to flat arrays.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, `Windows` (one
            row per window), `MergedWindows`, or an array of shape `(n, 2)` (one text) or
            `(batch, length, 2)`.
        word_ids: index of the word of each token, where `offsets` is an array: `(n,)` or `(batch, length)`.

    Raises:
        InvalidArgumentError: `offsets` has another type or shape, has no offsets, or is traced by `jax.jit`.
    """
    if is_traced(offsets):
        raise InvalidArgumentError(
            "offsets has no known values under jax.jit; call align_span_arrays(offsets, spans, tagset) there"
        )
    if is_jax(offsets) or isinstance(offsets, np.ndarray):
        return _read_array(as_integers("offsets", offsets, np.int64), word_ids)
    if word_ids is not None:
        raise InvalidArgumentError(
            "pass word_ids only with an array of offsets; results have word_ids already"
        )
    if isinstance(offsets, Windows):
        return _read_windows(offsets)
    if isinstance(offsets, MergedWindows):
        spans, splits = np.asarray(offsets.offsets), np.asarray(offsets.row_splits, np.int64)
        is_normalized = is_reference_normalized(offsets)
        return FlatTokens(spans, splits, spans.shape, is_one_text=False, is_normalized=is_normalized)
    is_one_text = isinstance(offsets, TokenizationResult)
    results = _as_results(offsets)
    ragged = as_ragged(results)
    if ragged.offsets is None:
        raise InvalidArgumentError("the results have no offsets; encode with return_offsets=True")
    spans = np.asarray(ragged.offsets)
    return FlatTokens(
        spans,
        np.asarray(ragged.row_splits, np.int64),
        spans.shape,
        is_one_text,
        None if ragged.word_ids is None else np.asarray(ragged.word_ids),
        None if ragged.sequence_ids is None else np.asarray(ragged.sequence_ids),
        is_normalized=is_reference_normalized(results),
        ids=np.asarray(ragged.ids),
    )


def find_text_positions(tokens: FlatTokens, sequence_id: int) -> NDArray[np.int64]:
    """Returns the position of each token in its text, where windows share tokens.

    Offsets do not tell the tokens of a text apart, since the bytes of a character that was normalized can be
    several tokens. So the tokens that a window shares with the window before it are found: they are the last
    ones there, and the first ones here.

    Args:
        tokens: the tokens of windows.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.

    Returns:
        Increasing positions, `int64`, shape `(n,)`; 0 for tokens of the other text and without bytes.
    """
    assert tokens.text_ids is not None
    keys = np.column_stack([tokens.offsets, *([] if tokens.ids is None else [tokens.ids])])
    is_in_text = keys[:, 0] < keys[:, 1]
    if tokens.sequence_ids is not None:
        is_in_text &= tokens.sequence_ids == sequence_id
    positions, previous = np.zeros(len(keys), np.int64), (-1, np.zeros(0, np.int64))
    indices = np.flatnonzero(is_in_text)
    parts = np.split(indices, np.searchsorted(indices, tokens.row_splits[1:-1]))
    windows = [(int(tokens.text_ids[row]), part) for row, part in enumerate(parts) if len(part)]
    for text, current in sorted(windows, key=lambda window: (window[0], keys[window[1][0], 0])):
        positions[current] = np.arange(len(current))
        if text == previous[0]:
            shared = _count_shared_tokens(keys[previous[1]], keys[current])
            positions[current] += positions[previous[1][-1]] + 1 - shared
        previous = text, current
    return positions


def _count_shared_tokens(before: NDArray[Any], current: NDArray[Any]) -> int:
    """Returns the number of tokens at the end of a window that are at the start of the next one."""
    for first in np.flatnonzero((before == current[0]).all(axis=1)).tolist():
        shared = len(before) - first
        if np.array_equal(before[first:], current[:shared]):
            return int(shared)
    return 0


def is_reference_normalized(results: Any) -> bool:
    """Returns whether the offsets of results refer to the normalized text. Arrays do not record it."""
    if isinstance(results, list):
        return any(map(is_reference_normalized, results))
    metadata = getattr(results, "metadata", results)
    return getattr(metadata, "offsets_reference", None) == "tokenizer_normalized_text"


def reject_normalized_offsets(is_normalized: bool) -> None:
    """Raises `InvalidArgumentError` if offsets that are used with a text refer to the normalized text."""
    if is_normalized:
        raise InvalidArgumentError(
            "the offsets refer to the normalized text, where a word can have other bytes than in the text; "
            "pass map_offsets_to_input(tokenizer, text, results), with all texts for a batch or windows "
            "(before merge_windows). To align in the normalized text, encode tokenization_view(tokenizer, "
            "text) with assume_normalized=True"
        )


def select_tokens(
    tokens: FlatTokens, *, first_subword_only: bool = False, sequence_id: int = 0, exclude: Any = None
) -> TokenSelection:
    """Selects the tokens that have bytes of the text.

    Args:
        tokens: all tokens.
        first_subword_only: whether to select only the first of these tokens in each word.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.
        exclude: whether to leave out each token, `bool`, shape `(n,)`; `None` to leave out no further tokens.

    Raises:
        InvalidArgumentError: tokens are not in the order of their text, or `first_subword_only` is set and
            they have no `word_ids`.
    """
    is_selected = tokens.offsets[:, 0] < tokens.offsets[:, 1]
    sequences = tokens.sequence_ids
    if sequences is not None and (sequence_id or sequences.max(initial=0) > 0):
        is_selected = is_selected & (sequences == sequence_id)
    if exclude is not None:
        is_selected = is_selected & ~exclude
    if first_subword_only:
        is_selected = _find_first_subwords(tokens, is_selected)
    starts, stops = tokens.offsets.T
    low, high = tokens.row_splits[:-1].copy(), tokens.row_splits[1:].copy()
    if len(is_selected):
        low += (low < high) & ~is_selected[np.minimum(low, len(is_selected) - 1)]
        high -= (low < high) & ~is_selected[high - 1]
    indices = None
    if np.count_nonzero(is_selected) != (high - low).sum():  # not only a special token at either end of a row
        indices = np.flatnonzero(is_selected)
        starts, stops = starts[indices], stops[indices]
        splits = np.searchsorted(indices, tokens.row_splits)
        low, high = splits[:-1], splits[1:]
    rows = TokenRows(starts, stops, low, high, int((high - low).max(initial=0)))
    unordered = _find_unordered(rows)
    if len(unordered):
        token = int(unordered[0] if indices is None else indices[unordered[0]])
        raise InvalidArgumentError(
            f"text {tokens.get_row(token)}: token {tokens.get_index_in_row(token)} has the span "
            f"{tuple(tokens.offsets[token].tolist())}, and the next one starts or stops earlier; tokens must "
            "be in the order of their text"
        )
    return TokenSelection(is_selected, rows, indices)


def _find_unordered(rows: TokenRows) -> NDArray[np.int64]:
    """Returns the tokens whose successor in the row starts or stops earlier: such rows cannot be searched."""
    pairs = np.flatnonzero(rows.stops[:-1] > rows.starts[1:])  # few, and others are in order
    row = np.searchsorted(rows.high, pairs, "right")
    low, high = (bounds.take(row, mode="clip") for bounds in (rows.low, rows.high))
    decreases = (rows.starts[pairs] > rows.starts[pairs + 1]) | (rows.stops[pairs] > rows.stops[pairs + 1])
    return pairs[(low <= pairs) & (pairs + 1 < high) & decreases]  # type: ignore[no-any-return]


def _as_results(offsets: Any) -> Any:
    """Returns `offsets` in a form that `as_ragged` accepts."""
    if isinstance(offsets, (TokenizationBatch, Ragged)):
        return offsets
    if isinstance(offsets, TokenizationResult):
        return [offsets]
    results = [*offsets] if is_iterable(offsets) else [offsets]
    if not all(isinstance(result, TokenizationResult) for result in results):
        raise InvalidArgumentError(
            "offsets must be tokenization results or an array of byte spans, not a "
            f"{type(offsets).__name__}; convert a list of spans with np.array(spans)"
        )
    return results


def _read_windows(windows: Any) -> FlatTokens:
    tokens = make_flat_tokens(windows.batch)
    text_ids = as_integers("text_ids", windows.text_ids, np.int64)
    if text_ids.shape != (tokens.num_rows,) or text_ids.min(initial=0) < 0:
        raise InvalidArgumentError(
            f"text_ids must hold the 0-based text index of each of {tokens.num_rows} windows, not {text_ids}"
        )
    return tokens._replace(text_ids=text_ids)


def _read_array(offsets: NDArray[np.int64], word_ids: Any) -> FlatTokens:
    if offsets.ndim not in (2, 3) or offsets.shape[-1] != 2:
        raise InvalidArgumentError(
            f"offsets must have shape (n, 2) for one text or (batch, length, 2), not {offsets.shape}"
        )
    shape = offsets.shape
    if word_ids is not None:
        word_ids = as_integers("word_ids", word_ids, np.int32)
        if word_ids.shape != shape[:-1]:
            raise InvalidArgumentError(f"word_ids must have shape {shape[:-1]}, not {word_ids.shape}")
        word_ids = word_ids.reshape(-1)
    splits = np.arange((shape[0] if len(shape) == 3 else 1) + 1) * shape[-2]
    return FlatTokens(offsets.reshape(-1, 2), splits, shape, len(shape) == 2, word_ids)


def _find_first_subwords(tokens: FlatTokens, is_selected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns whether each token is the first selected token of its word, `bool`, shape `(n,)`."""
    if tokens.word_ids is None:
        raise InvalidArgumentError(
            "first_subword_only=True needs word ids; pass results that have word_ids, or word_ids=ARRAY"
        )
    indices = np.flatnonzero(is_selected)
    words = tokens.word_ids[indices]
    is_first = np.ones(len(indices), bool)
    is_first[1:] = words[1:] != words[:-1]
    splits = np.searchsorted(indices, tokens.row_splits)
    is_first[splits[:-1][splits[:-1] < len(indices)]] = True
    is_first_subword = np.zeros(len(is_selected), bool)
    is_first_subword[indices[is_first]] = True
    return is_first_subword


def find_touched_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """Returns the tokens that share a byte with each span."""
    return _search(xp, tokens, spans, (tokens.stops, operator.le), (tokens.starts, operator.lt))


def find_contained_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """Returns the tokens that lie inside each span."""
    return _search(xp, tokens, spans, (tokens.starts, operator.lt), (tokens.stops, operator.le))


def assign_to_first_span(xp: Any, ranges: TokenRanges) -> TokenRanges:
    """Assigns each token to the first of the spans that have it.

    Each range then starts where the ranges before it have ended:

        first:after           0:4   2:3   3:6
        maximum of after      4     4     6
        result                0:4   4:4   4:6
    """
    if not ranges.first.shape[0]:
        return ranges
    assigned = compute_prefix_maximum(ranges.after)
    first = xp.maximum(ranges.first[1:], assigned[:-1])
    first = xp.concatenate([ranges.first[:1], first])
    return TokenRanges(first, xp.maximum(first, ranges.after))


def _search(
    xp: Any, tokens: TokenRows, spans: SpanQueries, is_earlier: _Condition, is_within: _Condition
) -> TokenRanges:
    """Returns the tokens from the first that is not before each span, up to the last that is not after it.

    Args:
        xp: NumPy or `jax.numpy`.
        tokens: the tokens.
        spans: the spans.
        is_earlier: condition of a token before the span: its start or stop is below that of the span.
        is_within: condition of a token that is not after the span: its start or stop is below its stop.
    """
    steps, high = count_bits(tokens.longest), tokens.high[spans.rows]
    first = _bisect(xp, tokens.low[spans.rows], high, steps, is_earlier, spans.starts)
    if xp is not np:
        return TokenRanges(first, _bisect(xp, first, high, steps, is_within, spans.stops))
    # The end of a span is close to its first token: search there first, and in the rest of the row only for
    # the few spans that are longer.
    near = np.minimum(first + _USUAL_MAX_TOKENS, high)
    after = _bisect(np, first, near, _USUAL_MAX_TOKENS.bit_length(), is_within, spans.stops)
    rest = np.flatnonzero((after == near) & (near < high))
    after[rest] = _bisect(np, near[rest], high[rest], steps, is_within, spans.stops[rest])
    return TokenRanges(first, after)


def _bisect(xp: Any, low: Array, high: Array, steps: int, condition: _Condition, targets: Array) -> Array:
    """Returns the first index of each range `low:high` at which the condition does not hold, or `high`.

    Args:
        xp: NumPy or `jax.numpy`.
        low: start of each range, shape `(spans,)`.
        high: stop of each range, shape `(spans,)`.
        steps: number of bits of the longest range.
        condition: values, which do not decrease within a range, shape `(n,)`, and their comparison with a
            target.
        targets: one target for each range, shape `(spans,)`.
    """
    values, is_before = condition
    if not values.shape[0]:
        return low
    last = high - 1

    def advance(step: Any, before: Array) -> Array:
        """Moves `before`, the last index whose value is known to be before the target, by a power of 2."""
        probe = xp.minimum(before + (1 << (steps - 1 - step)), last)
        return xp.where(is_before(values[probe], targets), probe, before)  # type: ignore[no-any-return]

    before = low - 1
    if xp is np:
        for step in range(steps):
            before = advance(step, before)
        return before + 1
    import jax  # noqa: PLC0415 (loaded already)

    return jax.lax.fori_loop(0, steps, advance, before) + 1  # type: ignore[no-any-return]


def byte_to_token(result: TokenizationResult, byte: int, *, sequence_id: int = 0) -> int | None:
    """Returns the first token whose span contains a byte of the text, or `None`.

    Args:
        result: encoding of one text or of a pair of texts, with offsets.
        byte: 1-based position of the byte in the text that the offsets refer to, which is the normalized text
            unless `result.metadata.offsets_reference` is `"input_text"`.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.

    Raises:
        InvalidArgumentError: the result has no offsets, or `byte` is not positive.
    """
    offsets = _get_column(result, "offsets")
    position = check_int("byte", byte, minimum=1)
    contains_byte = (offsets[:, 0] <= position) & (position < offsets[:, 1])
    positions = np.flatnonzero(contains_byte & (_get_column(result, "sequence_ids") == sequence_id))
    return int(positions[0]) if len(positions) else None


def char_to_token(
    result: TokenizationResult, text: Text, character: int, *, sequence_id: int = 0
) -> int | None:
    """Returns the first token whose span contains the first byte of a character, or `None`.

    Each call reads the whole text. For many characters, call `char_to_byte_spans` once and `byte_to_token`
    for each character, or `align_spans` for labels.

    Args:
        result: encoding of one text or of a pair of texts, with offsets.
        text: the text that the offsets refer to.
        character: 0-based index of the character `text[character]`.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.

    Raises:
        InvalidArgumentError: the result has no offsets, or they refer to the normalized text; see
            `map_offsets_to_input`.
        OffsetsContractError: the index is beyond the end of the text.
    """
    position = check_int("character", character, minimum=0)
    reject_normalized_offsets(is_reference_normalized(result))
    [[byte, _]] = char_to_byte_spans(text, [(position, position + 1)])
    return byte_to_token(result, int(byte), sequence_id=sequence_id)


def token_to_span(result: TokenizationResult, token: int) -> tuple[int, int]:
    """Returns the 1-based byte span of a token, or `(0, 0)` for an inserted special token.

    Args:
        result: encoding of one text or of a pair of texts, with offsets.
        token: 0-based index of the token.

    Raises:
        InvalidArgumentError: the result has no offsets, or `token` is out of range.
    """
    start, stop = _get_column(result, "offsets")[_check_token_index(result, token)].tolist()
    return start, stop


def token_to_word(result: TokenizationResult, token: int) -> int | None:
    """Returns the index of the word of a token, or `None` for an inserted special token.

    Args:
        result: encoding of one text or of a pair of texts, with `word_ids`.
        token: 0-based index of the token.

    Raises:
        InvalidArgumentError: the result has no `word_ids`, or `token` is out of range.
    """
    word = int(_get_column(result, "word_ids")[_check_token_index(result, token)])
    return None if word < 0 else word


def word_to_tokens(result: TokenizationResult, word: int, *, sequence_id: int = 0) -> slice | None:
    """Returns the tokens of a word as a slice of the result's columns, or `None` if it has no token.

    Args:
        result: encoding of one text or of a pair of texts, with `word_ids`.
        word: 0-based index of the word.
        sequence_id: index of the text in its pair, 0 or 1; 0 without pairs.

    Raises:
        InvalidArgumentError: the result has no `word_ids`.
    """
    is_in_word = _get_column(result, "word_ids") == check_int("word", word, minimum=0)
    positions = np.flatnonzero(is_in_word & (_get_column(result, "sequence_ids") == sequence_id))
    return slice(int(positions[0]), int(positions[-1]) + 1) if len(positions) else None


def _get_column(result: TokenizationResult, name: str) -> NDArray[np.integer]:
    """Returns a column of the result; raises `InvalidArgumentError` if it is absent."""
    if not isinstance(result, TokenizationResult):
        raise InvalidArgumentError(f"result must be a TokenizationResult, not a {type(result).__name__}")
    column: NDArray[np.integer] | None = getattr(result, name)
    if column is None:
        raise InvalidArgumentError(f"the result has no {name}; encode with return_offsets=True")
    return column


def _check_token_index(result: TokenizationResult, token: int) -> int:
    """Returns the index of a token; raises `InvalidArgumentError` if it is out of range."""
    position = check_int("token", token, minimum=0)
    if position >= len(result):
        raise InvalidArgumentError(f"token is {position}, and the result has {len(result)} tokens")
    return position
