"""Flat tokens: the tokens of all texts of a batch in one array, and those of them that can carry a label.

All forms of input (results, batches, windows, arrays of offsets) become `FlatTokens`. `select_tokens` then
finds the tokens that have bytes, which can be searched for spans:

    batch          [CLS]  in     New    [SEP]   |  [CLS]  hi     [SEP]
    offsets        (0,0)  (1,3)  (4,7)  (0,0)   |  (0,0)  (1,3)  (0,0)
    flat index     0      1      2      3          4      5      6          row_splits 0 4 7
    is_selected    F      T      T      F          F      T      F

The tokens of a row are in the order of their text, so that the tokens of a span are contiguous, and two
searches in sorted arrays find them. Tokens that *touch* a span share a byte with it:

    byte          1   2   3   4   5   6   7   8
    token         |0          |1      |2      |3  |
    starts        1           4       6       8
    stops         4           6       8       9
    span                          |-----------|              start 5, stop 8

    touched       first = number of stops  <= 5 = 1,  after = number of starts <  8 = 3:  tokens 1 and 2

The spans of all rows are searched at once by bisection, each in its own row. Nothing is computed for all
tokens but which of them are selected: most tokens are in no span.

Tokens, words and characters that are looked up are 0-based, as indices are. Bytes are 1-based, as offsets
are. See docs/alignment.md for which tokens of a span are labelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import as_integers, is_jax, is_traced
from tokjax._util.checks import check_int, is_iterable
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import Ragged
from tokjax.core.records import MergedWindows, TokenizationBatch, TokenizationResult, Windows
from tokjax.errors import InvalidArgumentError
from tokjax.offsets import char_to_byte_spans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax.core.utf8 import Text


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
        starts: position of each window's first token in its text, as in `Windows`, `int64`, shape
            `(rows, 2)`; `None` where each row is a whole text.
        is_normalized: whether the offsets refer to the normalized text.
    """

    offsets: NDArray[np.integer[Any]]
    row_splits: NDArray[np.int64]
    shape: tuple[int, ...]
    is_one_text: bool
    word_ids: NDArray[np.integer[Any]] | None = None
    sequence_ids: NDArray[np.integer[Any]] | None = None
    text_ids: NDArray[np.int64] | None = None
    starts: NDArray[np.int64] | None = None
    is_normalized: bool = False

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


class TokenSelection(NamedTuple):
    """The tokens that can carry a label, in the order of their text.

    Attributes:
        offsets: byte spans of all tokens, shape `(n, 2)`.
        is_selected: whether each token can carry a label, `bool`, shape `(n,)`.
        indices: index of each of them in the flat tokens, `int64`, shape `(m,)`.
        row_splits: bounds of their rows, `int64`, shape `(rows + 1,)`.
    """

    offsets: NDArray[np.integer[Any]]
    is_selected: NDArray[np.bool_]
    indices: NDArray[np.int64]
    row_splits: NDArray[np.int64]

    def find_touched(
        self, starts: NDArray[np.int64], stops: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the range `first:after` in the selection of the tokens that share a byte with each span.

        Args:
            starts: first byte of each span, shape `(spans,)`.
            stops: one past the last byte of each span, shape `(spans,)`.
            rows: index of the row of each span, shape `(spans,)`.
        """
        first = self._bisect(1, starts, self.row_splits[rows], self.row_splits[rows + 1])
        return first, self._bisect(0, stops - 1, first, self.row_splits[rows + 1])

    def _bisect(
        self, column: int, positions: NDArray[np.int64], low: NDArray[np.int64], high: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Returns the first token of each range whose start (column 0) or stop (1) is above a position."""
        while (low < high).any():
            middle = (low + high) // 2
            tokens = self.indices.take(middle, mode="clip")
            is_below = (low < high) & (self.offsets[tokens, column] <= positions)
            low, high = np.where(is_below, middle + 1, low), np.where(is_below, high, middle)
        return low


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
            "offsets has no known values under jax.jit; align outside of it, and pass the labels"
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
    is_batch = isinstance(offsets, (TokenizationBatch, TokenizationResult, Ragged))
    results = offsets if is_batch or not is_iterable(offsets) else [*offsets]
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
    )


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
    indices = np.flatnonzero(is_selected)
    row_splits = np.searchsorted(indices, tokens.row_splits)
    selection = TokenSelection(tokens.offsets, is_selected, indices, row_splits)
    unordered = _find_unordered(selection)
    if len(unordered):
        token = int(unordered[0])
        raise InvalidArgumentError(
            f"text {tokens.get_row(token)}: token {tokens.get_index_in_row(token)} has the span "
            f"{tuple(tokens.offsets[token].tolist())}, and the next one starts or stops earlier; tokens must "
            "be in the order of their text"
        )
    return selection


def _find_unordered(selection: TokenSelection) -> NDArray[np.int64]:
    """Returns the selected tokens after which the next one in the row starts or stops earlier."""
    offsets, is_selected, indices, row_splits = selection
    has_next = is_selected.copy()
    has_next[indices[row_splits[row_splits > 0] - 1]] = False
    # A token that stops before the next one starts is in order. Few others have to be compared.
    is_in_order = is_selected[1:] & (offsets[:-1, 1] <= offsets[1:, 0])
    before = np.flatnonzero(has_next[:-1] & ~is_in_order)
    after = indices[np.searchsorted(indices, before) + 1]
    return before[(offsets[after] < offsets[before]).any(axis=1)]


def _read_windows(windows: Any) -> FlatTokens:
    tokens = make_flat_tokens(windows.batch)
    text_ids, starts = (
        as_integers(name, getattr(windows, name), np.int64) for name in ("text_ids", "starts")
    )
    if (
        text_ids.shape != (tokens.num_rows,)
        or starts.shape != (tokens.num_rows, 2)
        or text_ids.min(initial=0) < 0
    ):
        raise InvalidArgumentError(
            f"text_ids and starts must have the text and the positions of each of {tokens.num_rows} windows, "
            f"as encode_windows returns them, not {text_ids} and {starts.tolist()!r:.80}"
        )
    return tokens._replace(text_ids=text_ids, starts=starts)


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
