"""Whatever stands for the tokens of texts, as flat arrays on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._namespace import as_integers, is_jax, is_traced
from tokjax.batching._inputs import as_ragged
from tokjax.errors import InvalidArgumentError
from tokjax.ragged import ranges
from tokjax.records import TokenizationResult

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Tokens(NamedTuple):
    """The tokens of texts, end to end.

    Attributes:
        offsets: 1-based byte spans, shape `(n, 2)`.
        row_splits: where the tokens of each text begin, `int64`, shape `(texts + 1,)`.
        shape: the shape of the offsets as they were given.
        is_one_text: whether one text was given, and no batch.
        word_ids: which word each token is of, shape `(n,)`, or `None`.
        sequence_ids: which text of a pair each token is of, shape `(n,)`, or `None`.
    """

    offsets: NDArray[np.integer[Any]]
    row_splits: NDArray[np.int64]
    shape: tuple[int, ...]
    is_one_text: bool
    word_ids: NDArray[np.integer[Any]] | None = None
    sequence_ids: NDArray[np.integer[Any]] | None = None

    @property
    def num_rows(self) -> int:
        """How many texts there are."""
        return len(self.row_splits) - 1

    def row_of(self, token: int) -> int:
        """The text that a token is of."""
        return int(np.searchsorted(self.row_splits, token, "right")) - 1

    def in_row(self, token: int) -> int:
        """The number of a token within its text."""
        return token - int(self.row_splits[self.row_of(token)])


class Covering(NamedTuple):
    """The tokens that can carry a label, row by row without a gap.

    Attributes:
        starts: the first byte of each, shape `(m,)`.
        stops: one past the last byte, shape `(m,)`.
        low: the first of each row, `int64`, shape `(texts,)`.
        high: one past the last of each row, `int64`, shape `(texts,)`.
        places: which tokens these are, `int64`, shape `(m,)`; `None` if they were not moved. Then `starts`
            and `stops` hold all tokens, and those outside of `low` and `high` can't carry a label.
    """

    starts: NDArray[np.integer[Any]]
    stops: NDArray[np.integer[Any]]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    places: NDArray[np.int64] | None

    @property
    def all_places(self) -> NDArray[np.int64]:
        """Which tokens these are, `int64`, shape `(m,)`."""
        return ranges(self.low, self.high - self.low) if self.places is None else self.places

    def place_of(self, found: int) -> int:
        """Which token one of `starts` is of."""
        return found if self.places is None else int(self.places[found])


def token_rows(offsets: Any, word_ids: Any = None) -> Tokens:
    """The tokens of one text, or of a batch.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, or an array of
            shape `(n, 2)` (one text) or `(batch, length, 2)`.
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
    is_one_text = isinstance(offsets, TokenizationResult)
    ragged = as_ragged([offsets] if is_one_text else offsets)
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
    covers = starts < stops
    if tokens.sequence_ids is not None and (sequence_id or (tokens.sequence_ids > 0).any()):
        covers &= tokens.sequence_ids == sequence_id
    if but is not None:
        covers &= ~but
    if first_subword_only:
        covers = _first_of_words(tokens, covers)
    found = _without_edges(starts, stops, covers, tokens.row_splits)
    if found is None:
        places = np.flatnonzero(covers)
        splits = np.searchsorted(places, tokens.row_splits)
        found = Covering(starts[places], stops[places], splits[:-1], splits[1:], places)
    _check_order(tokens, found)
    return found


def _without_edges(starts: Any, stops: Any, covers: Any, splits: NDArray[np.int64]) -> Covering | None:
    """The tokens where they are, if only the first and the last of rows are not to be counted."""
    low, high = splits[:-1].copy(), splits[1:].copy()
    if len(covers):
        last = len(covers) - 1
        low += (low < high) & ~covers[np.minimum(low, last)]
        high -= (low < high) & ~covers[high - 1]
    if np.count_nonzero(covers) != (high - low).sum():
        return None
    return Covering(starts, stops, low, high, None)


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


def _check_order(tokens: Tokens, found: Covering) -> None:
    """Refuse tokens that go back in their text: they can't be searched for spans."""
    back = found.stops[:-1] > found.starts[1:]
    filled = found.high > found.low
    ends = found.high[filled] - 1
    back[ends[ends < len(back)]] = False
    if not back.any():
        return
    pairs = np.flatnonzero(back)
    rows = np.searchsorted(found.high, pairs, "right")
    in_a_row = (rows < len(found.high)) & (found.low.take(rows, mode="clip") <= pairs)
    falls = (found.starts[pairs] > found.starts[pairs + 1]) | (found.stops[pairs] > found.stops[pairs + 1])
    pairs = pairs[in_a_row & falls]
    if len(pairs):
        token = found.place_of(int(pairs[0]))
        raise InvalidArgumentError(
            f"text {tokens.row_of(token)}: token {tokens.in_row(token)} has the span "
            f"{tuple(tokens.offsets[token].tolist())}, and one after it begins or ends earlier; tokens must "
            "be in the order of their text"
        )
