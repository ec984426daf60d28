"""Flat arrays of token offsets, and the search for the tokens of a byte span.

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

The rows of a batch are searched together. There are two ways, with the same result:

1. Bisection: one vectorized step at a time for all spans, each in its own row. This is the way under
   `jax.jit`, and on the host where there are few spans.
2. One `np.searchsorted` over all rows. A multiple of `gap_key + 1` is added to the values of each row, so
   that they increase across rows too. Positions between rows (special tokens, padding) get `gap_key`, which
   is greater than any target of the row before them:

       row        0   0   -   1   1         gap_key = 9 + 2 = 11
       stops      4   9   0   3   7
       base       0   0       12  12
       key        4   9   11  15  19        stop 3 in row 1 is searched for as 3 + 12 = 15

See docs/alignment.md for which tokens of a span are labelled.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from tokjax._util.arrays import as_integers, compute_prefix_maximum, count_bits, is_jax, is_traced, scatter
from tokjax.align.tagset import FIRST, LAST
from tokjax.core.array_inputs import as_ragged
from tokjax.core.ragged import Ragged, concatenate_ranges
from tokjax.core.records import MergedWindows, TokenizationBatch, TokenizationResult, Windows
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokjax._util.arrays import Array
    from tokjax.align.tagset import TagSet


BLOCK = 1 << 15
"""Number of tokens that are processed together, so that intermediate arrays stay in the processor's cache."""


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
        """Number of rows: texts or windows."""
        return len(self.row_splits) - 1

    @property
    def num_texts(self) -> int:
        """Number of texts."""
        return self.num_rows if self.text_ids is None else int(self.text_ids.max(initial=-1)) + 1

    def get_text(self, row: int) -> int:
        """Returns the index of the text of a row."""
        return row if self.text_ids is None else int(self.text_ids[row])

    def get_row(self, token: int) -> int:
        """Returns the index of the row that holds a token."""
        return int(np.searchsorted(self.row_splits, token, "right")) - 1

    def get_index_in_row(self, token: int) -> int:
        """Returns the index of a token within its row."""
        return token - int(self.row_splits[self.get_row(token)])


class TokenSelection(NamedTuple):
    """The tokens that can carry a label, as arrays that can be searched for spans.

    Attributes:
        is_selected: whether each token can carry a label, `bool`, shape `(n,)`.
        rows: tokens in the order of their text: all selected tokens, and possibly others.
        indices: index in the flat tokens of each token of `rows`, `int64`, shape `(m,)`; `None` if `rows`
            holds all tokens at their original indices.
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
        spans = np.asarray(offsets.offsets)
        return FlatTokens(spans, np.asarray(offsets.row_splits, np.int64), spans.shape, is_one_text=False)
    is_one_text = isinstance(offsets, TokenizationResult)
    ragged = as_ragged(_as_results(offsets))
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
    )


def _as_results(offsets: Any) -> Any:
    """Returns `offsets` in a form that `as_ragged` accepts."""
    if isinstance(offsets, (TokenizationBatch, Ragged)):
        return offsets
    if isinstance(offsets, TokenizationResult):
        return [offsets]
    results = [*offsets] if isinstance(offsets, Iterable) else [offsets]
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
    starts, stops = tokens.offsets[:, 0], tokens.offsets[:, 1]
    has_bytes, overlaps_next = _compare_offsets(starts, stops)
    is_selected = has_bytes
    sequences = tokens.sequence_ids
    if sequences is not None and (sequence_id or sequences.max(initial=0) > 0):
        is_selected = is_selected & (sequences == sequence_id)
    if exclude is not None:
        is_selected = is_selected & ~exclude
    if first_subword_only:
        is_selected = _find_first_subwords(tokens, is_selected)
    # Usually all tokens except a special token at either end of a row have bytes. Then the arrays are
    # searched as they are. Otherwise the selected tokens are gathered.
    rows = _build_inner_rows(starts, stops, has_bytes, tokens.row_splits)
    if rows is not None and not len(_find_unordered(rows, overlaps_next)):
        return TokenSelection(is_selected, rows, None)
    indices = np.flatnonzero(is_selected)
    splits = np.searchsorted(indices, tokens.row_splits)
    rows = _build_rows(starts[indices], stops[indices], splits[:-1], splits[1:])
    unordered = _find_unordered(rows, rows.stops[:-1] > rows.starts[1:])
    if len(unordered):
        token = int(indices[unordered[0]])
        raise InvalidArgumentError(
            f"text {tokens.get_row(token)}: token {tokens.get_index_in_row(token)} has the span "
            f"{tuple(tokens.offsets[token].tolist())}, and the next one starts or stops earlier; tokens must "
            "be in the order of their text"
        )
    return TokenSelection(is_selected, rows, indices)


def _build_inner_rows(
    starts: Any, stops: Any, is_selected: Any, splits: NDArray[np.int64]
) -> TokenRows | None:
    """Returns rows over the given arrays, or `None` if tokens inside a row are unselected too."""
    low, high = splits[:-1].copy(), splits[1:].copy()
    if len(is_selected):
        last = len(is_selected) - 1
        low += (low < high) & ~is_selected[np.minimum(low, last)]
        high -= (low < high) & ~is_selected[high - 1]
    if np.count_nonzero(is_selected) != (high - low).sum():
        return None
    return _build_rows(starts, stops, low, high)


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


def _build_rows(starts: Any, stops: Any, low: NDArray[np.int64], high: NDArray[np.int64]) -> TokenRows:
    return TokenRows(starts, stops, low, high, int((high - low).max(initial=0)))


def _compare_offsets(starts: Any, stops: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns whether each token has bytes, and whether it stops after the next one starts.

    The offsets of many texts do not fit into the processor's cache. Working in blocks reads them from memory
    once for both comparisons.
    """
    has_bytes, overlaps_next = np.empty(len(starts), bool), np.empty(max(len(starts) - 1, 0), bool)
    for start in range(0, len(starts), BLOCK):
        stop = start + BLOCK
        np.less(starts[start:stop], stops[start:stop], out=has_bytes[start:stop])
        after = starts[start + 1 : stop + 1]
        np.greater(stops[start : start + len(after)], after, out=overlaps_next[start:stop])
    return has_bytes, overlaps_next


def _find_unordered(rows: TokenRows, overlaps_next: Any) -> NDArray[np.int64]:
    """Returns the tokens whose successor in the row starts or stops earlier: such rows cannot be searched.

    Args:
        rows: the tokens.
        overlaps_next: whether each token stops after the next one starts, shape `(n - 1,)`; overwritten at
            the ends of rows. Only these tokens can be out of order.
    """
    is_nonempty = rows.high > rows.low
    ends = rows.high[is_nonempty] - 1
    overlaps_next[ends[ends < len(overlaps_next)]] = False
    pairs = np.flatnonzero(overlaps_next)
    row = np.searchsorted(rows.high, pairs, "right")
    is_in_row = (row < len(rows.high)) & (rows.low.take(row, mode="clip") <= pairs)
    decreases = (rows.starts[pairs] > rows.starts[pairs + 1]) | (rows.stops[pairs] > rows.stops[pairs + 1])
    return pairs[is_in_row & decreases]  # type: ignore[no-any-return]


Side: TypeAlias = Literal["left", "right"]

_BISECTION_COST = 2
"""Cost of one bisection step for one span, relative to the cost per token of a search in all rows."""
_USUAL_MAX_TOKENS = 7
"""Number of tokens that few spans exceed."""


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


def find_touched_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """Returns the tokens that share a byte with each span."""
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.stops, spans.starts, side="right")
    return TokenRanges(first, find(tokens.starts, spans.stops, side="left", minimum=first))


def find_contained_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """Returns the tokens that lie inside each span."""
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.starts, spans.starts, side="left")
    return TokenRanges(first, find(tokens.stops, spans.stops, side="right", minimum=first))


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


def write_tags(xp: Any, labels: Array, ranges: TokenRanges, classes: Array, tagset: TagSet) -> Array:
    """Returns the labels with the tags of each span's tokens.

    Args:
        xp: NumPy or `jax.numpy`.
        labels: labels to update, `int32`, shape `(n,)`, 0 at the tokens of spans. A NumPy array is updated in
            place.
        ranges: the tokens of each span; no token is in two ranges.
        classes: index of the label of each span, `int32`, shape `(spans,)`.
        tagset: the tags.
    """
    counts = ranges.after - ranges.first
    tag = 1 + classes * np.int32(tagset.num_roles)
    roles = tagset.role_at_position
    # All tokens of a span get its inside tag first. Those at its ends are then overwritten.
    labels = _fill_tags(xp, labels, ranges, tag + roles[0])
    labels = scatter(labels, ranges.first, tag + roles[FIRST], counts > 1)
    labels = scatter(labels, ranges.after - 1, tag + roles[LAST], counts > 1)
    return scatter(labels, ranges.first, tag + roles[FIRST | LAST], counts == 1)


def is_word_start(xp: Any, is_selected: Array, words: Array) -> Array:
    """Returns whether each token is in another word than the last selected token before it.

    Args:
        xp: NumPy or `jax.numpy`.
        is_selected: whether each token is selected, `bool`, `(rows, length)`.
        words: index of the word of each token, `int32`, `(rows, length)`.

    Returns:
        `bool`, `(rows, length)`; also true where no selected token comes before.
    """
    position = xp.arange(1, words.shape[1] + 1, dtype=np.int32)[None]
    # 1-based position of the last selected token up to each token, and before each token; 0 if there is none.
    last_selected = compute_prefix_maximum(xp.where(is_selected, position, np.int32(0)))
    before = xp.pad(last_selected, ((0, 0), (1, 0)))[:, :-1]
    last_word = xp.take_along_axis(words, xp.maximum(before - 1, 0), axis=1)
    return (before == 0) | (last_word != words)  # type: ignore[no-any-return]


class _SearchFunction(Protocol):
    """A search for the first token of each row whose value is at least, or greater than, a target."""

    def __call__(self, values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        """Returns the index of that token for each target, or `high` of the row without such a token.

        Args:
            values: starts or stops of all tokens, shape `(n,)`.
            targets: value to search for in the row of each span, shape `(spans,)`.
            side: `"left"` for values `>= target`, `"right"` for values `> target`, as in `np.searchsorted`.
            minimum: lower bound of each result, shape `(spans,)`; `None` for the start of the row.
        """


def _make_search(xp: Any, tokens: TokenRows, rows: Any) -> _SearchFunction:
    """Returns a search function for one target in each of `rows`.

    Many spans on the host are searched for in all rows at once, as one sorted array. That takes a pass over
    all tokens, and keys that may exceed `int32`. Few spans, and spans in JAX, bisect their rows in parallel.
    """
    steps = count_bits(tokens.longest)
    if xp is np and _BISECTION_COST * steps * len(rows) > len(tokens.starts):
        return _make_sorted_search(tokens, rows)
    low, high = tokens.low[rows], tokens.high[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        if minimum is None:
            return _bisect(xp, low, high, steps, values, targets, side)
        if xp is not np:
            return _bisect(xp, minimum, high, steps, values, targets, side)
        # The end of a span is close to its first token: search there first, and in the rest of the row only
        # for the few spans that are longer.
        near = np.minimum(minimum + _USUAL_MAX_TOKENS, high)
        indices = _bisect(np, minimum, near, _USUAL_MAX_TOKENS.bit_length(), values, targets, side)
        unfinished = np.flatnonzero((indices == near) & (near < high))
        indices[unfinished] = _bisect(
            np, near[unfinished], high[unfinished], steps, values, targets[unfinished], side
        )
        return indices

    return find


def _make_sorted_search(tokens: TokenRows, rows: NDArray[np.int64]) -> _SearchFunction:
    """Returns a search function that searches all rows as one sorted array (see the head of this module)."""
    size, gap_key = len(tokens.starts), int(tokens.stops.max(initial=0)) + 2
    bases = np.arange(len(tokens.low)) * (gap_key + 1)
    token_base = np.repeat(bases, np.diff(np.append(tokens.low[1:], size), prepend=0))
    gap_starts = np.append(0, tokens.high)
    gap_lengths = np.append(tokens.low, size) - gap_starts
    gap_indices = concatenate_ranges(gap_starts, gap_lengths)
    gap_keys = np.repeat(
        np.append(-1, bases + gap_key), gap_lengths
    )  # (-1: less than all, before the first row)
    span_base = bases[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        keys = values + token_base
        keys[gap_indices] = gap_keys
        # A target beyond all tokens must not reach the keys of the next row.
        indices = np.searchsorted(keys, np.minimum(targets, np.int64(gap_key - 1)) + span_base, side)
        if minimum is not None:
            return np.maximum(indices, minimum)
        return indices

    return find


def _bisect(xp: Any, low: Array, high: Array, steps: int, values: Array, targets: Array, side: Side) -> Array:
    """Returns the first index of each range `low:high` whose value is not before the target, or `high`.

    Args:
        xp: NumPy or `jax.numpy`.
        low: start of each range, shape `(spans,)`.
        high: stop of each range, shape `(spans,)`.
        steps: number of bits of the longest range.
        values: values that do not decrease within a range, shape `(n,)`.
        targets: one target for each range, shape `(spans,)`.
        side: `"left"` if values less than the target are before it, `"right"` if equal values are too.
    """
    if not values.shape[0]:
        return low
    last = high - 1
    is_before = operator.lt if side == "left" else operator.le

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


def _fill_tags(xp: Any, labels: Array, ranges: TokenRanges, tags: Array) -> Array:
    """Returns `labels` with one tag, `tags[i]`, for all tokens of span `i`."""
    if xp is np:
        counts = ranges.after - ranges.first
        labels[concatenate_ranges(ranges.first, counts)] = np.repeat(tags, counts)
        return labels
    # The number of tokens is dynamic. Their tags are therefore the running sum of `tag` at the first token of
    # each span and `-tag` after the last.
    change = xp.zeros(labels.shape[0] + 1, np.int32).at[ranges.first].add(tags).at[ranges.after].add(-tags)
    return labels + xp.cumsum(change, dtype=np.int32)[:-1]  # type: ignore[no-any-return]
