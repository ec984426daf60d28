"""Whatever stands for the tokens of texts, as flat arrays on the host."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from tokjax._util.arrays import as_integers, bit_length, compute_prefix_maximum, is_jax, is_traced, scatter
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
"""Tokens that are looked at together: what is made of them on the way stays in the cache."""


class FlatTokens(NamedTuple):
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

    def get_text(self, row: int) -> int:
        """The text that a row is of."""
        return row if self.text_ids is None else int(self.text_ids[row])

    def get_row(self, token: int) -> int:
        """The text that a token is of."""
        return int(np.searchsorted(self.row_splits, token, "right")) - 1

    def get_index_in_row(self, token: int) -> int:
        """The number of a token within its text."""
        return token - int(self.row_splits[self.get_row(token)])


class TokenSelection(NamedTuple):
    """The tokens that can carry a label, and where to look for them.

    Attributes:
        is_selected: which tokens can carry one, `bool`, shape `(n,)`.
        rows: tokens in the order of their text, all that can carry a label and maybe others.
        indices: which tokens those of `rows` are, `int64`, shape `(m,)`; `None` if they were not moved.
    """

    is_selected: NDArray[np.bool_]
    rows: TokenRows
    indices: NDArray[np.int64] | None


def make_flat_tokens(offsets: Any, word_ids: Any = None) -> FlatTokens:
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
        return _read_array(as_integers("offsets", offsets, np.int64), word_ids)
    if word_ids is not None:
        raise InvalidArgumentError("word_ids goes with an array of offsets; results have word_ids themselves")
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


def _read_windows(windows: Any) -> FlatTokens:
    tokens = make_flat_tokens(windows.batch)
    text_ids = as_integers("text_ids", windows.text_ids, np.int64)
    if text_ids.shape != (tokens.num_rows,) or text_ids.min(initial=0) < 0:
        raise InvalidArgumentError(
            f"text_ids must say which text, from 0, each of {tokens.num_rows} windows is of; it is {text_ids}"
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
    """The tokens that have bytes of the text.

    Args:
        tokens: all tokens.
        first_subword_only: of each word only the first of them.
        sequence_id: which text of a pair.
        exclude: tokens that are left out too, `bool`, shape `(n,)`.

    Raises:
        InvalidArgumentError: tokens are not in the order of their text, or have no `word_ids`.
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
            f"{tuple(tokens.offsets[token].tolist())}, and one after it begins or ends earlier; tokens must "
            "be in the order of their text"
        )
    return TokenSelection(is_selected, rows, indices)


def _build_inner_rows(
    starts: Any, stops: Any, is_selected: Any, splits: NDArray[np.int64]
) -> TokenRows | None:
    """All tokens where they are, if none but the first and the last of rows are to be left out."""
    low, high = splits[:-1].copy(), splits[1:].copy()
    if len(is_selected):
        last = len(is_selected) - 1
        low += (low < high) & ~is_selected[np.minimum(low, last)]
        high -= (low < high) & ~is_selected[high - 1]
    if np.count_nonzero(is_selected) != (high - low).sum():
        return None
    return _build_rows(starts, stops, low, high)


def _find_first_subwords(tokens: FlatTokens, is_selected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the tokens that are counted are the first of their word."""
    if tokens.word_ids is None:
        raise InvalidArgumentError(
            "first_subword_only needs to know the words; pass results that have word_ids, or word_ids=ARRAY"
        )
    indices = np.flatnonzero(is_selected)
    words = tokens.word_ids[indices]
    is_first = np.ones(len(indices), bool)
    is_first[1:] = words[1:] != words[:-1]
    splits = np.searchsorted(indices, tokens.row_splits)
    is_first[splits[:-1][splits[:-1] < len(indices)]] = True
    firsts = np.zeros(len(is_selected), bool)
    firsts[indices[is_first]] = True
    return firsts


def _build_rows(starts: Any, stops: Any, low: NDArray[np.int64], high: NDArray[np.int64]) -> TokenRows:
    return TokenRows(starts, stops, low, high, int((high - low).max(initial=0)))


def _compare_offsets(starts: Any, stops: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each token has bytes, and whether it stops after the next one starts.

    Block by block: the offsets of many texts don't fit into the cache, where they are to be read again.
    """
    has_bytes, overlaps_next = np.empty(len(starts), bool), np.empty(max(len(starts) - 1, 0), bool)
    for start in range(0, len(starts), BLOCK):
        stop = start + BLOCK
        np.less(starts[start:stop], stops[start:stop], out=has_bytes[start:stop])
        after = starts[start + 1 : stop + 1]
        np.greater(stops[start : start + len(after)], after, out=overlaps_next[start:stop])
    return has_bytes, overlaps_next


def _find_unordered(rows: TokenRows, overlaps_next: Any) -> NDArray[np.int64]:
    """The tokens of rows of which the next begins or ends earlier: they can't be searched for spans."""
    filled = rows.high > rows.low
    ends = rows.high[filled] - 1
    overlaps_next[ends[ends < len(overlaps_next)]] = False
    pairs = np.flatnonzero(overlaps_next)
    row = np.searchsorted(rows.high, pairs, "right")
    in_a_row = (row < len(rows.high)) & (rows.low.take(row, mode="clip") <= pairs)
    falls = (rows.starts[pairs] > rows.starts[pairs + 1]) | (rows.stops[pairs] > rows.stops[pairs + 1])
    return pairs[in_a_row & falls]  # type: ignore[no-any-return]


Side: TypeAlias = Literal["left", "right"]

_BISECTION_COST = 2
"""A step for one span, in tokens that could be passed over meanwhile."""
_USUAL_MAX_TOKENS = 7
"""How many tokens most spans have at most."""


class TokenRows(NamedTuple):
    """Tokens in rows, those of row `i` from `low[i]` to before `high[i]`; what is between rows is no matter.

    Attributes:
        starts: the first byte of each token, shape `(n,)`.
        stops: one past the last byte, shape `(n,)`.
        low: shape `(rows,)`.
        high: shape `(rows,)`.
        longest: how many tokens a row has at most.
    """

    starts: Array
    stops: Array
    low: Any
    high: Any
    longest: int


class SpanQueries(NamedTuple):
    """The spans that are looked for, `(0, 0)` for one that is not to be found: shape `(spans,)` each."""

    starts: Array
    stops: Array
    rows: Any


class TokenRanges(NamedTuple):
    """The tokens of each span: from `first` to before `after`, none where they are equal."""

    first: Any
    after: Any


def find_touched_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """The tokens that share a byte with each span."""
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.stops, spans.starts, side="right")
    return TokenRanges(first, find(tokens.starts, spans.stops, side="left", minimum=first))


def find_contained_tokens(xp: Any, tokens: TokenRows, spans: SpanQueries) -> TokenRanges:
    """The tokens that lie inside of each span."""
    find = _make_search(xp, tokens, spans.rows)
    first = find(tokens.starts, spans.starts, side="left")
    return TokenRanges(first, find(tokens.stops, spans.stops, side="right", minimum=first))


def assign_to_first_span(xp: Any, found: TokenRanges) -> TokenRanges:
    """Each token to the first of the spans that have it."""
    if not found.first.shape[0]:
        return found
    reached = compute_prefix_maximum(found.after)
    first = xp.maximum(found.first[1:], reached[:-1])
    first = xp.concatenate([found.first[:1], first])
    return TokenRanges(first, xp.maximum(first, found.after))


def write_tags(xp: Any, labels: Array, found: TokenRanges, classes: Array, tagset: TagSet) -> Array:
    """The labels, with the tags of each span's tokens put in.

    Args:
        xp: NumPy or `jax.numpy`.
        labels: all of them 0 where a span has a token, `int32`, shape `(n,)`; a NumPy array is written to.
        found: the tokens of each span, none of them twice.
        classes: the label of each span, `int32`, shape `(spans,)`.
        tagset: the tags.
    """
    counts = found.after - found.first
    tag = 1 + classes * np.int32(tagset.num_roles)
    roles = tagset.role_at_position
    labels = _fill_tags(xp, labels, found, tag + roles[0])
    labels = scatter(labels, found.first, tag + roles[FIRST], counts > 1)
    labels = scatter(labels, found.after - 1, tag + roles[LAST], counts > 1)
    return scatter(labels, found.first, tag + roles[FIRST | LAST], counts == 1)


def is_word_start(xp: Any, is_selected: Array, words: Array) -> Array:
    """Whether each token is of another word than the last one before it that counts.

    Args:
        xp: NumPy or `jax.numpy`.
        is_selected: which tokens count, `(rows, length)`.
        words: the word of each token, `(rows, length)`.
    """
    position = xp.arange(1, words.shape[1] + 1, dtype=np.int32)[None]
    seen = compute_prefix_maximum(xp.where(is_selected, position, np.int32(0)))
    before = xp.pad(seen, ((0, 0), (1, 0)))[:, :-1]
    last_word = xp.take_along_axis(words, xp.maximum(before - 1, 0), axis=1)
    return (before == 0) | (last_word != words)  # type: ignore[no-any-return]


class _SearchFunction(Protocol):
    """What finds the first token of each row whose value is at least a target, or above it."""

    def __call__(self, values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        """The tokens, `high` of the row if it has none, but none before `minimum`.

        Sides are those of `np.searchsorted`.
        """


def _make_search(xp: Any, tokens: TokenRows, rows: Any) -> _SearchFunction:
    """A search in each of `rows`.

    Many spans are looked for in all rows at once, as one sorted array: that takes a pass over all tokens, and
    numbers that `int32` may not hold. Few spans, and those in JAX, bisect their rows side by side.
    """
    steps = bit_length(tokens.longest)
    if xp is np and _BISECTION_COST * steps * len(rows) > len(tokens.starts):
        return _make_sorted_search(tokens, rows)
    low, high = tokens.low[rows], tokens.high[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        if minimum is None:
            return _bisect(xp, low, high, steps, values, targets, side)
        if xp is not np:
            return _bisect(xp, minimum, high, steps, values, targets, side)
        near = np.minimum(minimum + _USUAL_MAX_TOKENS, high)
        found = _bisect(np, minimum, near, _USUAL_MAX_TOKENS.bit_length(), values, targets, side)
        more = np.flatnonzero((found == near) & (near < high))
        found[more] = _bisect(np, near[more], high[more], steps, values, targets[more], side)
        return found

    return find


def _make_sorted_search(tokens: TokenRows, rows: NDArray[np.int64]) -> _SearchFunction:
    size, beyond = len(tokens.starts), int(tokens.stops.max(initial=0)) + 2
    bases = np.arange(len(tokens.low)) * (beyond + 1)
    token_base = np.repeat(bases, np.diff(np.append(tokens.low[1:], size), prepend=0))
    gap_starts = np.append(0, tokens.high)
    gap_lengths = np.append(tokens.low, size) - gap_starts
    between = concatenate_ranges(gap_starts, gap_lengths)
    key_between = np.repeat(np.append(-1, bases + beyond), gap_lengths)
    span_base = bases[rows]

    def find(values: Array, targets: Array, *, side: Side, minimum: Array | None = None) -> Array:
        keys = values + token_base
        keys[between] = key_between
        found = np.searchsorted(keys, np.minimum(targets, np.int64(beyond - 1)) + span_base, side)
        if minimum is not None:
            return np.maximum(found, minimum)
        return found

    return find


def _bisect(xp: Any, low: Array, high: Array, steps: int, values: Array, targets: Array, side: Side) -> Array:
    if not values.shape[0]:
        return low
    last = high - 1
    is_before = operator.lt if side == "left" else operator.le

    def advance(step: Any, before: Array) -> Array:
        """The last of the tokens that are known to come before; one that is not in the row, at first."""
        probe = xp.minimum(before + (1 << (steps - 1 - step)), last)
        return xp.where(is_before(values[probe], targets), probe, before)  # type: ignore[no-any-return]

    before = low - 1
    if xp is np:
        for step in range(steps):
            before = advance(step, before)
        return before + 1
    import jax  # noqa: PLC0415 (loaded already)

    return jax.lax.fori_loop(0, steps, advance, before) + 1  # type: ignore[no-any-return]


def _fill_tags(xp: Any, labels: Array, found: TokenRanges, tags: Array) -> Array:
    """`labels`, all tokens of each span given its tag."""
    if xp is np:
        counts = found.after - found.first
        labels[concatenate_ranges(found.first, counts)] = np.repeat(tags, counts)
        return labels
    change = xp.zeros(labels.shape[0] + 1, np.int32).at[found.first].add(tags).at[found.after].add(-tags)
    return labels + xp.cumsum(change, dtype=np.int32)[:-1]  # type: ignore[no-any-return]
