"""Spans of text to labels of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.display import describe_batch
from tokjax.align.flat_tokens import SpanQueries, find_touched_tokens, make_flat_tokens, select_tokens
from tokjax.align.offset_trimming import fit_spans, join_texts, mark_whitespace, trim_token_spans
from tokjax.align.spans import (
    SpanColumns,
    check_columns,
    check_index_base,
    check_rows,
    check_span_bounds,
    compute_text_order,
    describe_span,
    span_columns,
)
from tokjax.align.tagset import FIRST, LAST, TagSet, check_tagset
from tokjax.core.ragged import concatenate_ranges
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax._util.arrays import Array
    from tokjax.align.flat_tokens import FlatTokens, TokenSelection
    from tokjax.align.offset_trimming import TextWhitespace
    from tokjax.align.spans import LabelledSpan
    from tokjax.align.tagset import Scheme
    from tokjax.core.records import MergedWindows, Results, TokenizationResult, Windows
    from tokjax.core.utf8 import Text

OnPartial: TypeAlias = Literal["include", "exclude", "error"]


class SpanLabels(NamedTuple):
    """Labels of tokens, and what became of the spans.

    Attributes:
        labels: the tag of each token, `int32`, shape `(n,)` or `(batch, length)`.
        token_counts: how many tokens are tagged for each span, in the order given, `int32`, shape `(spans,)`
            or `(batch, spans)`; 0 for one that is cut away, or whose tokens belong to others.
    """

    labels: Array
    token_counts: Array

    def __repr__(self) -> str:
        """The dtype and shape of each array."""
        return describe_batch(self)


def align_spans(
    offsets: Results | TokenizationResult | Windows | MergedWindows | Array,
    spans: SpanColumns | Sequence[LabelledSpan] | Iterable[Sequence[LabelledSpan]],
    *,
    labels: Sequence[str],
    scheme: Scheme = "BIO",
    on_partial: OnPartial = "include",
    first_subword_only: bool = False,
    ignore_index: int = -100,
    texts: Sequence[Text] | None = None,
    word_ids: Array | None = None,
    sequence_id: int = 0,
    index_base: Literal[0, 1] = 1,
) -> SpanLabels:
    """Tag the tokens that lie in labelled spans. Runs on the host; see `align_span_arrays` for `jax.jit`.

    A token is labelled if its span has a byte: inserted tokens, padding and tokens that are trimmed to
    nothing get `ignore_index`, whatever the special-tokens mask says. A span of which a part is cut away is
    tagged as if what is left were all of it. So the tags of a text are always valid in their scheme.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, `Windows`,
            `MergedWindows`, or an array of 1-based byte spans, `(n, 2)` for one text or `(batch, length, 2)`.
            The tokens of a window are tagged for the spans of its text.
        spans: `(start, stop, label)` in 1-based half-open bytes, in any order: a list of them for one text, a
            list of lists for a batch; or `span_columns` of them, which is quicker if it is there already.
            `spans_from_characters` converts 0-based characters. Of windows, there is a list for each text.
        labels: what spans may be labelled with; `TagSet(labels, scheme)` tells what the result means.
        scheme: `"BIO"`, `"BILOU"`, `"IOBES"`, `"IO"` or `"IOE2"`.
        on_partial: what becomes of a token that is partly inside of a span: `"include"` tags it (for the
            earlier one, if it is partly in two), `"exclude"` leaves it `O`, `"error"` refuses it.
        first_subword_only: label only the first token of each word, by `word_ids`.
        ignore_index: the label of tokens without bytes, and of other subwords.
        texts: what the offsets are places in; a list of one for one text. White space at the edges of tokens
            does not count then (see `trim_offsets`), and spans are checked: one that begins or ends with
            white space is trimmed, with a warning, since it often comes from another index base. Without
            texts, a token that begins with the blank before its word lies only partly inside of that word.
        word_ids: which word each token is of, where `offsets` is an array.
        sequence_id: which text of a pair the spans are places in; tokens of the other get `ignore_index`.
        index_base: the index of a text's first byte in `spans`, 1 or 0.

    Returns:
        Labels of shape `(n,)`, those of all texts end to end (`make_ragged(labels, batch.row_splits)` can be
        collated), or `(batch, length)`; and how many tokens each span has, in all windows of its text, shape
        `(spans,)`. The counts are not rows of a batch: a training step takes the labels alone, or what
        `align_span_arrays` returns.

    Raises:
        InvalidArgumentError: a span is empty or has an unknown label; two overlap; a
            token is partly inside of one and `on_partial="error"`; or options don't go together.
        OffsetsContractError: a span is no place in its text, or begins or ends inside a character. (Only
            `texts` tell where a text and its characters end.)

    >>> align_spans(np.array([[0, 0], [1, 4], [5, 9], [9, 10]]), [(1, 9, "LOC")], labels=["LOC"]).labels
    array([-100,    1,    2,    0], dtype=int32)
    """
    tagset = TagSet(labels, scheme)
    check_tagset(tagset, ignore_index)
    if on_partial not in ("include", "exclude", "error"):
        raise InvalidArgumentError(f"on_partial must be 'include', 'exclude' or 'error', not {on_partial!r}")
    check_index_base(index_base)
    tokens = make_flat_tokens(offsets, word_ids)
    columns = _build_columns(spans, tokens, tagset, index_base)
    check_span_bounds(columns, index_base)
    space = None
    if texts is not None:
        joined = join_texts(texts)
        space = mark_whitespace(tokens, joined)
        columns = fit_spans(columns, joined, index_base)
    order, rows = _assign_rows(tokens, columns, index_base)
    selection = select_tokens(
        tokens,
        first_subword_only=first_subword_only,
        sequence_id=sequence_id,
        exclude=None if space is None else space.tokens,
    )
    queries = SpanQueries(columns.starts[order], columns.stops[order], rows)
    pairs = _find_pairs(tokens, selection, queries, space)
    if on_partial != "include":
        partial = (pairs.starts < queries.starts[pairs.spans]) | (pairs.stops > queries.stops[pairs.spans])
        if on_partial == "error" and partial.any():
            _reject_partial_tokens(tokens, pairs, int(partial.argmax()), columns, order, tagset, index_base)
        pairs = pairs.select(~partial)
    pairs = pairs.select(_is_new(pairs.tokens))
    flat = ~selection.is_selected * np.int32(ignore_index)
    flat[pairs.tokens] = _compute_tags(pairs.spans, columns.classes[order], tagset)
    counts = np.bincount(order[pairs.spans], minlength=len(columns.starts)).astype(np.int32)
    return SpanLabels(flat.reshape(tokens.shape[:-1]), counts)


def _assign_rows(
    tokens: FlatTokens, columns: SpanColumns, index_base: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The spans of each row of tokens, in the order of the text: which span, and which row."""
    order = compute_text_order(columns, index_base)
    splits = np.asarray(columns.row_splits)
    counts = np.diff(splits)
    if tokens.text_ids is not None:
        counts = counts[tokens.text_ids]
        order = order[concatenate_ranges(splits[tokens.text_ids], counts)]
    return order, np.repeat(np.arange(tokens.num_rows), counts)


def _build_columns(spans: Any, tokens: FlatTokens, tagset: TagSet, index_base: int) -> SpanColumns:
    """The spans as columns of 1-based bytes, one row a text."""
    if isinstance(spans, SpanColumns):
        columns = check_columns(spans)
        classes = columns.classes
        if ((classes < 0) | (classes >= len(tagset.labels))).any():
            raise InvalidArgumentError(
                f"spans has classes from {classes.min()} to {classes.max()}, and there are "
                f"{len(tagset.labels)} labels; make it with span_columns(spans, labels)"
            )
    else:
        columns = span_columns([spans] if tokens.is_one_text else spans, tagset.labels)
    check_rows("spans", len(columns.row_splits) - 1, tokens)
    if index_base == 1:
        return columns
    return columns._replace(starts=columns.starts + 1, stops=columns.stops + 1)


class _SpanTokenPairs(NamedTuple):
    """Tokens that have bytes of a span, span by span; each array has an entry for each such pair.

    Attributes:
        spans: which span, in the order of the text, never falling.
        tokens: which token, rising within a span.
        starts: the first byte of the token.
        stops: one past the last byte of the token.
    """

    spans: NDArray[np.int64]
    tokens: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def select(self, keep: NDArray[np.bool_]) -> _SpanTokenPairs:
        """Some of them."""
        return self if keep.all() else _SpanTokenPairs(*(column[keep] for column in self))


def _find_pairs(
    tokens: FlatTokens, selection: TokenSelection, spans: SpanQueries, space: TextWhitespace | None
) -> _SpanTokenPairs:
    found = find_touched_tokens(np, selection.rows, spans)
    counts = found.after - found.first
    numbers = np.repeat(np.arange(len(counts)), counts)
    indices = concatenate_ranges(found.first, counts)
    if selection.indices is not None:
        indices = selection.indices[indices]
    keep = selection.is_selected[indices]
    if space is None:
        starts, stops = tokens.offsets.take(indices, axis=0).T
    else:
        starts, stops = trim_token_spans(tokens, space, indices, spans.rows[numbers]).T
        keep &= (starts < spans.stops[numbers]) & (stops > spans.starts[numbers])
    return _SpanTokenPairs(numbers, indices, starts, stops).select(keep)


def _is_new(tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each token was not there before. As spans are in order, it was if a later one was."""
    return tokens > np.append(-1, np.maximum.accumulate(tokens))[:-1]


def _compute_tags(spans: NDArray[np.int64], classes: Any, tagset: TagSet) -> NDArray[np.int32]:
    """The tags of tokens that are in spans, those of each span together."""
    is_first = np.diff(spans, prepend=-1) > 0
    position = FIRST * is_first + LAST * np.append(is_first, True)[1:]
    return 1 + classes[spans] * np.int32(tagset.num_roles) + tagset.role_at_position[position]  # type: ignore[no-any-return]


def _reject_partial_tokens(
    tokens: FlatTokens,
    pairs: _SpanTokenPairs,
    at: int,
    columns: SpanColumns,
    order: NDArray[np.int64],
    tagset: TagSet,
    index_base: int,
) -> None:
    span = describe_span(columns, int(order[pairs.spans[at]]), tagset.labels, index_base)
    raise InvalidArgumentError(
        f"{span} has only a part of token {tokens.get_index_in_row(int(pairs.tokens[at]))}, whose span is "
        f"({pairs.starts[at]}, {pairs.stops[at]}); pass on_partial='include' or 'exclude', or texts=TEXTS "
        "where that is white space"
    )
