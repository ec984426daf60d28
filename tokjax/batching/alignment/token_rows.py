"""Whatever stands for the tokens of texts, as flat arrays on the host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.array_namespace import as_integers, is_jax, is_traced
from tokjax.batching.alignment.covering import Rows
from tokjax.batching.inputs import as_ragged, is_merged, is_windows
from tokjax.core.errors import InvalidArgumentError
from tokjax.core.ragged import Ragged
from tokjax.core.records import TokenizationBatch, TokenizationResult

if TYPE_CHECKING:
    from numpy.typing import NDArray


BLOCK = 1 << 15
"""Tokens that are looked at together: what is made of them on the way stays in the cache."""


class Tokens(NamedTuple):
    """The tokens of texts, end to end.

    Attributes:
        offsets: 1-based byte spans, shape `(n, 2)`.
        row_splits: where the tokens of each text begin, `int64`, shape `(texts + 1,)`.
        shape: the shape of the offsets as they were given.
        is_one_text: whether one text was given, and no batch.
        word_ids: which word each token is of, shape `(n,)`, or `None`.
        sequence_ids: which text of a pair each token is of, shape `(n,)`, or `None`.
        text_ids: which text each row is a window of, `int64`, shape `(rows,)`; `None` where each row is a
            text of its own.
    """

    offsets: NDArray[np.integer[Any]]
    row_splits: NDArray[np.int64]
    shape: tuple[int, ...]
    is_one_text: bool
    word_ids: NDArray[np.integer[Any]] | None = None
    sequence_ids: NDArray[np.integer[Any]] | None = None
    text_ids: NDArray[np.int64] | None = None

    @property
    def num_rows(self) -> int:
        """How many rows there are: texts, or windows of them."""
        return len(self.row_splits) - 1

    @property
    def num_texts(self) -> int:
        """How many texts there are."""
        return self.num_rows if self.text_ids is None else int(self.text_ids.max(initial=-1)) + 1

    def text_of(self, row: int) -> int:
        """The text that a row is of."""
        return row if self.text_ids is None else int(self.text_ids[row])

    def row_of(self, token: int) -> int:
        """The text that a token is of."""
        return int(np.searchsorted(self.row_splits, token, "right")) - 1

    def in_row(self, token: int) -> int:
        """The number of a token within its text."""
        return token - int(self.row_splits[self.row_of(token)])


class Covering(NamedTuple):
    """The tokens that can carry a label, and where to look for them.

    Attributes:
        covers: which tokens can carry one, `bool`, shape `(n,)`.
        rows: tokens in the order of their text, all that can carry a label and maybe others.
        places: which tokens those of `rows` are, `int64`, shape `(m,)`; `None` if they were not moved.
    """

    covers: NDArray[np.bool_]
    rows: Rows
    places: NDArray[np.int64] | None


def token_rows(offsets: Any, word_ids: Any = None) -> Tokens:
    """The tokens of one text, or of a batch.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, `Windows` (each
            a row), `MergedWindows`, or an array of shape `(n, 2)` (one text) or `(batch, length, 2)`.
        word_ids: which word each token is of, where `offsets` is an array: `(n,)` or `(batch, length)`.

    Raises:
        InvalidArgumentError: there are no offsets, or none whose values are known.
    """
    if is_traced(offsets):
        raise InvalidArgumentError(
            "the offsets are not known under jax.jit; there use align_span_arrays(offsets, spans, tagset)"
        )
    if is_jax(offsets) or isinstance(offsets, np.ndarray):
        return _of_array(as_integers("offsets", offsets, np.int64), word_ids)
    if word_ids is not None:
        raise InvalidArgumentError("word_ids goes with an array of offsets; results have word_ids themselves")
    if is_windows(offsets):
        return _of_windows(offsets)
    if is_merged(offsets):
        spans = np.asarray(offsets.offsets)
        return Tokens(spans, np.asarray(offsets.row_splits, np.int64), spans.shape, is_one_text=False)
    is_one_text = isinstance(offsets, TokenizationResult)
    ragged = as_ragged(_results(offsets))
    if ragged.offsets is None:
        raise InvalidArgumentError("the results have no offsets; encode with return_offsets=True")
    spans = np.asarray(ragged.offsets)
    return Tokens(
        spans,
        np.asarray(ragged.row_splits, np.int64),
        spans.shape,
        is_one_text,
        None if ragged.word_ids is None else np.asarray(ragged.word_ids),
        None if ragged.sequence_ids is None else np.asarray(ragged.sequence_ids),
    )


def _results(offsets: Any) -> Any:
    """Results, or a batch of them."""
    if isinstance(offsets, (TokenizationBatch, Ragged)):
        return offsets
    if isinstance(offsets, TokenizationResult):
        return [offsets]
    results = [*offsets] if isinstance(offsets, Iterable) else [offsets]
    if not all(isinstance(result, TokenizationResult) for result in results):
        raise InvalidArgumentError(
            "offsets must be results that have them, or an array of byte spans, and this "
            f"{type(offsets).__name__} is neither; of a list of spans make np.array(spans)"
        )
    return results


def _of_windows(windows: Any) -> Tokens:
    tokens = token_rows(windows.batch)
    text_ids = as_integers("text_ids", windows.text_ids, np.int64)
    if text_ids.shape != (tokens.num_rows,) or text_ids.min(initial=0) < 0:
        raise InvalidArgumentError(
            f"text_ids must say which text, from 0, each of {tokens.num_rows} windows is of; it is {text_ids}"
        )
    return tokens._replace(text_ids=text_ids)


def _of_array(offsets: NDArray[np.int64], word_ids: Any) -> Tokens:
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
    return Tokens(offsets.reshape(-1, 2), splits, shape, len(shape) == 2, word_ids)


def covering_tokens(
    tokens: Tokens, *, first_subword_only: bool = False, sequence_id: int = 0, but: Any = None
) -> Covering:
    """The tokens that have bytes of the text.

    Args:
        tokens: all tokens.
        first_subword_only: of each word only the first of them.
        sequence_id: which text of a pair.
        but: tokens that are left out too, `bool`, shape `(n,)`.

    Raises:
        InvalidArgumentError: tokens are not in the order of their text, or have no `word_ids`.
    """
    starts, stops = tokens.offsets[:, 0], tokens.offsets[:, 1]
    has_bytes, meets_next = _compared(starts, stops)
    covers = has_bytes
    sequences = tokens.sequence_ids
    if sequences is not None and (sequence_id or sequences.max(initial=0) > 0):
        covers = covers & (sequences == sequence_id)
    if but is not None:
        covers = covers & ~but
    if first_subword_only:
        covers = _first_of_words(tokens, covers)
    rows = _without_edges(starts, stops, has_bytes, tokens.row_splits)
    if rows is not None and not len(_going_back(rows, meets_next)):
        return Covering(covers, rows, None)
    places = np.flatnonzero(covers)
    splits = np.searchsorted(places, tokens.row_splits)
    rows = _rows(starts[places], stops[places], splits[:-1], splits[1:])
    going_back = _going_back(rows, rows.stops[:-1] > rows.starts[1:])
    if len(going_back):
        token = int(places[going_back[0]])
        raise InvalidArgumentError(
            f"text {tokens.row_of(token)}: token {tokens.in_row(token)} has the span "
            f"{tuple(tokens.offsets[token].tolist())}, and one after it begins or ends earlier; tokens must "
            "be in the order of their text"
        )
    return Covering(covers, rows, places)


def _without_edges(starts: Any, stops: Any, covers: Any, splits: NDArray[np.int64]) -> Rows | None:
    """All tokens where they are, if none but the first and the last of rows are to be left out."""
    low, high = splits[:-1].copy(), splits[1:].copy()
    if len(covers):
        last = len(covers) - 1
        low += (low < high) & ~covers[np.minimum(low, last)]
        high -= (low < high) & ~covers[high - 1]
    if np.count_nonzero(covers) != (high - low).sum():
        return None
    return _rows(starts, stops, low, high)


def _first_of_words(tokens: Tokens, covers: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the tokens that are counted are the first of their word."""
    if tokens.word_ids is None:
        raise InvalidArgumentError(
            "first_subword_only needs to know the words; pass results that have word_ids, or word_ids=ARRAY"
        )
    places = np.flatnonzero(covers)
    words = tokens.word_ids[places]
    is_first = np.ones(len(places), bool)
    is_first[1:] = words[1:] != words[:-1]
    splits = np.searchsorted(places, tokens.row_splits)
    is_first[splits[:-1][splits[:-1] < len(places)]] = True
    firsts = np.zeros(len(covers), bool)
    firsts[places[is_first]] = True
    return firsts


def _rows(starts: Any, stops: Any, low: NDArray[np.int64], high: NDArray[np.int64]) -> Rows:
    return Rows(starts, stops, low, high, int((high - low).max(initial=0)))


def _compared(starts: Any, stops: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each token has bytes, and whether it stops after the next one starts.

    Block by block: the offsets of many texts don't fit into the cache, where they are to be read again.
    """
    has_bytes, meets_next = np.empty(len(starts), bool), np.empty(max(len(starts) - 1, 0), bool)
    for start in range(0, len(starts), BLOCK):
        stop = start + BLOCK
        np.less(starts[start:stop], stops[start:stop], out=has_bytes[start:stop])
        after = starts[start + 1 : stop + 1]
        np.greater(stops[start : start + len(after)], after, out=meets_next[start:stop])
    return has_bytes, meets_next


def _going_back(rows: Rows, meets_next: Any) -> NDArray[np.int64]:
    """The tokens of rows of which the next begins or ends earlier: they can't be searched for spans."""
    filled = rows.high > rows.low
    ends = rows.high[filled] - 1
    meets_next[ends[ends < len(meets_next)]] = False
    pairs = np.flatnonzero(meets_next)
    row = np.searchsorted(rows.high, pairs, "right")
    in_a_row = (row < len(rows.high)) & (rows.low.take(row, mode="clip") <= pairs)
    falls = (rows.starts[pairs] > rows.starts[pairs + 1]) | (rows.stops[pairs] > rows.stops[pairs + 1])
    return pairs[in_a_row & falls]  # type: ignore[no-any-return]
