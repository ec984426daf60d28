"""Labels of tokens from labelled spans of text.

Spans and tokens are flat arrays over all texts, and each step handles all texts at once. An example with the
label `LOC` (tags `O B-LOC I-LOC`) and the default options:

    text             in New York         bytes 1..11
    tokens           [CLS]   in      New     York    [SEP]
    offsets          (0, 0)  (1, 3)  (4, 7)  (8, 12) (0, 0)
    spans            (4, 12, "LOC")

    1. select        tokens with bytes: 1, 2, 3          the others get ignore_index
    2. search        span 0 touches tokens 2:4           see `flat_tokens`
    3. pairs         (span 0, token 2), (span 0, token 3)
    4. filter        drop pairs that on_partial excludes, and all but the first pair of a token
    5. tags          first token: B-LOC, last token: I-LOC       see `TagSet.role_at_position`
    6. labels        -100  0  1  2  -100

With `texts`, whitespace at the edges of tokens is trimmed in step 3, so that the token " York" of byte-level
BPE lies inside the span of "York". Only tokens in a span are trimmed: most tokens are in none. See
docs/alignment.md for the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._util.checks import check_choice, check_int
from tokjax._util.display import short_repr
from tokjax.align.flat_tokens import make_flat_tokens, select_tokens
from tokjax.align.offset_trimming import fit_spans, join_texts, trim_token_spans
from tokjax.align.spans import (
    SpanColumns,
    check_columns,
    check_rows,
    check_span_bounds,
    compute_text_order,
    describe_span,
    span_columns,
)
from tokjax.align.tagset import FIRST, LAST, TagSet, check_tagset
from tokjax.align.window_merging import locate_tokens
from tokjax.core.ragged import concatenate_ranges
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax._util.arrays import Array
    from tokjax.align.flat_tokens import FlatTokens, TokenSelection
    from tokjax.align.offset_trimming import JoinedTexts
    from tokjax.align.spans import LabelledSpan
    from tokjax.align.tagset import Scheme
    from tokjax.core.records import MergedWindows, Results, TokenizationResult, Windows
    from tokjax.core.utf8 import Text


OnPartial: TypeAlias = Literal["include", "exclude", "error"]


@short_repr
class SpanLabels(NamedTuple):
    """Labels of tokens, and the number of tokens of each span.

    Attributes:
        labels: id of the tag of each token, `int32`, shape `(n,)` or `(batch, length)`.
        token_counts: number of tokens that are tagged for each span, in the order of the input, `int32`,
            shape `(spans,)` or `(batch, spans)`; 0 for a span whose tokens are truncated or belong to other
            spans.
    """

    labels: Array
    token_counts: Array


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
    """Tags the tokens that lie in labelled spans.

    Runs on the host.

    A token is labelled if its byte span is not empty. Inserted special tokens, padding and tokens that are
    trimmed to nothing get `ignore_index`; the special-tokens mask is not used. If a part of a span is
    truncated, the remaining tokens are tagged as a complete span. The tags of a text are therefore always
    valid in their scheme. If the end of a window splits a span, its part in the next window continues its
    tags, so that the tags are valid after `merge_windows`.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, `Windows`,
            `MergedWindows`, or an array of 1-based byte spans, `(n, 2)` for one text or `(batch, length, 2)`.
            The tokens of a window are tagged for the spans of its text.
        spans: `(start, stop, label)` in 1-based half-open bytes, in any order: a list of spans for one text,
            a list of lists for a batch, with one list per text for windows; or the result of `span_columns`,
            which is faster if the same spans are aligned several times. `spans_from_characters` converts
            0-based characters.
        labels: the labels that spans may have; `TagSet(labels, scheme)` maps the ids in the result to tags.
        scheme: `"BIO"`, `"BILOU"`, `"IOBES"`, `"IO"` or `"IOE2"`.
        on_partial: treatment of a token that is partly inside a span: `"include"` tags it (for the earlier
            span, if it is partly in two), `"exclude"` labels it `O`, `"error"` raises.
        first_subword_only: whether to label only the first token of each word, according to `word_ids`.
        ignore_index: label of tokens without bytes, and with `first_subword_only` of all but the first token
            of a word.
        texts: the texts that the offsets refer to; a list of one text for a single result. With texts,
            whitespace at the edges of tokens is ignored (see `trim_offsets`), and spans are checked. A span
            that starts or stops with whitespace is trimmed with a warning, since it often has another index
            base. Without texts, a token that starts with the space before its word is only partly inside the
            span of that word.
        word_ids: index of the word of each token, where `offsets` is an array: `(n,)` or `(batch, length)`.
        sequence_id: index of the text in its pair, 0 or 1, that the spans refer to; tokens of the other text
            get `ignore_index`.
        index_base: index of a text's first byte in `spans`, 1 or 0.

    Returns:
        Labels, shape `(n,)` with the tokens of all texts concatenated
        (`make_ragged(labels, batch.row_splits)` can be collated) or `(batch, length)`, and the number of
        tokens of each span in all windows of its text, shape `(spans,)`. The counts have no batch axis: pass
        a training step only the labels.

    Raises:
        InvalidArgumentError: a span is empty or has an unknown label; two spans overlap; a token is partly
            inside a span and `on_partial="error"`; `texts` is passed with offsets that refer to normalized
            texts (see `map_offsets_to_input`); or options are invalid.
        OffsetsContractError: a span is outside its text, or starts or stops inside a character. (The end of a
            text and its characters are checked only with `texts`.)

    >>> align_spans(np.array([[0, 0], [1, 4], [5, 9], [9, 10]]), [(1, 9, "LOC")], labels=["LOC"]).labels
    array([-100,    1,    2,    0], dtype=int32)
    """
    tagset = TagSet(labels, scheme)
    check_tagset(tagset, ignore_index)
    check_choice("on_partial", on_partial, ("include", "exclude", "error"))
    check_int("index_base", index_base, minimum=0, maximum=1)
    tokens = make_flat_tokens(offsets, word_ids)
    columns = _build_columns(spans, tokens, tagset, index_base)
    check_span_bounds(columns, index_base)
    joined = None if texts is None else join_texts(texts, tokens)
    if joined is not None:
        columns = fit_spans(columns, joined, index_base)
    order, rows = _assign_rows(tokens, columns, index_base)
    selection = select_tokens(
        tokens,
        first_subword_only=first_subword_only,
        sequence_id=sequence_id,
        exclude=None if joined is None else joined.tokens,
    )
    queries = columns._replace(starts=columns.starts[order], stops=columns.stops[order])
    pairs = _find_pairs(tokens, selection, queries, rows, joined)
    if on_partial != "include":
        is_partial = (pairs.starts < queries.starts[pairs.spans]) | (pairs.stops > queries.stops[pairs.spans])
        if on_partial == "error" and is_partial.any():
            pair = int(is_partial.argmax())
            span = describe_span(columns, int(order[pairs.spans[pair]]), tagset.labels, index_base)
            _reject_partial_token(tokens, pairs, pair, span)
        pairs = pairs.select(~is_partial)
    pairs = pairs.select(_is_first_pair(pairs.tokens))
    flat = ~selection.is_selected * np.int32(ignore_index)
    is_first, is_last = _find_span_ends(tokens, pairs, order, sequence_id)
    position = FIRST * is_first + LAST * is_last
    tags = 1 + columns.classes[order[pairs.spans]] * np.int32(tagset.num_roles)
    flat[pairs.tokens] = tags + tagset.role_at_position[position]
    counts = np.bincount(order[pairs.spans], minlength=len(columns.starts)).astype(np.int32)
    return SpanLabels(flat.reshape(tokens.shape[:-1]), counts)


def _assign_rows(
    tokens: FlatTokens, columns: SpanColumns, index_base: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the spans of each row of tokens, in the order of the text.

    A span is repeated for each window of its text.

    Returns:
        Index of the span and index of the row, `int64`, shape `(pairs of span and row,)` each.
    """
    order = compute_text_order(columns, index_base)
    splits = np.asarray(columns.row_splits)
    counts = np.diff(splits)
    if tokens.text_ids is not None:
        counts = counts[tokens.text_ids]
        order = order[concatenate_ranges(splits[tokens.text_ids], counts)]
    return order, np.repeat(np.arange(tokens.num_rows), counts)


def _build_columns(spans: Any, tokens: FlatTokens, tagset: TagSet, index_base: int) -> SpanColumns:
    """Returns the spans as columns of 1-based bytes, with one row per text."""
    if isinstance(spans, SpanColumns):
        columns = check_columns(spans)
        classes = columns.classes
        if ((classes < 0) | (classes >= len(tagset.labels))).any():
            raise InvalidArgumentError(
                f"spans has classes from {classes.min()} to {classes.max()}, and there are "
                f"{len(tagset.labels)} labels; use span_columns(spans, labels)"
            )
    else:
        columns = span_columns([spans] if tokens.is_one_text else spans, tagset.labels)
    check_rows("spans", len(columns.row_splits) - 1, tokens)
    if index_base == 1:
        return columns
    return columns._replace(starts=columns.starts + 1, stops=columns.stops + 1)


class _SpanTokenPairs(NamedTuple):
    """Pairs of a span and a token that share a byte.

    Attributes:
        spans: index of the span in the order of the text, non-decreasing, shape `(pairs,)`.
        tokens: index of the token, increasing within a span, shape `(pairs,)`.
        starts: first byte of the token, trimmed if texts are known, shape `(pairs,)`.
        stops: one past the last byte of the token, trimmed if texts are known, shape `(pairs,)`.
    """

    spans: NDArray[np.int64]
    tokens: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def select(self, keep: NDArray[np.bool_]) -> _SpanTokenPairs:
        """Returns the pairs where `keep` is true."""
        return self if keep.all() else _SpanTokenPairs(*(column[keep] for column in self))


def _find_pairs(
    tokens: FlatTokens,
    selection: TokenSelection,
    spans: SpanColumns,
    rows: NDArray[np.int64],
    texts: JoinedTexts | None,
) -> _SpanTokenPairs:
    """Returns the pairs of a span and a selected token, trimmed if texts are known, that share a byte."""
    first, after = selection.find_touched(np.asarray(spans.starts), np.asarray(spans.stops), rows)
    counts = after - first
    span_indices = np.repeat(np.arange(len(counts)), counts)
    token_indices = selection.indices[concatenate_ranges(first, counts)]
    if texts is None:
        starts, stops = tokens.offsets.take(token_indices, axis=0).T
        return _SpanTokenPairs(span_indices, token_indices, starts, stops)
    # A token may touch a span only with its whitespace.
    starts, stops = trim_token_spans(tokens, texts, token_indices, rows[span_indices]).T
    keep = (starts < spans.stops[span_indices]) & (stops > spans.starts[span_indices])
    return _SpanTokenPairs(span_indices, token_indices, starts, stops).select(keep)


def _is_first_pair(tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Returns whether each pair is the first one of its token.

    Spans are ordered and do not overlap, so that a token occurred before if and only if a token of at least
    its index did: 2 3 3 4 gives T T F T.
    """
    return tokens > np.append(-1, np.maximum.accumulate(tokens))[:-1]


def _find_span_ends(
    tokens: FlatTokens, pairs: _SpanTokenPairs, order: NDArray[np.int64], sequence_id: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns whether the token of each pair is the first one of its span, and whether it is the last one.

    If the end of a window splits a span, its part in the next window continues it:

        windows        to New            |  York is
        tags           O  B-LOC          |  I-LOC O

    Args:
        tokens: all tokens.
        pairs: the pairs.
        order: index of the span of the caller by the index of the span in `pairs`, which differs for each
            window of its text.
        sequence_id: index of the text in its pair.
    """
    is_first = np.diff(pairs.spans, prepend=-1) > 0
    is_last = np.append(is_first, True)[1:]
    if tokens.starts is not None:
        placed = locate_tokens(tokens, sequence_id)
        spans = order[pairs.spans]
        token_positions = placed.positions[np.searchsorted(placed.indices, pairs.tokens)]
        first = np.full(order.max(initial=-1) + 1, placed.row_splits[-1])
        last = np.zeros_like(first)
        np.minimum.at(first, spans, token_positions)
        np.maximum.at(last, spans, token_positions)
        is_first &= token_positions == first[spans]
        is_last &= token_positions == last[spans]
    return is_first, is_last


def _reject_partial_token(tokens: FlatTokens, pairs: _SpanTokenPairs, pair: int, span: str) -> None:
    """Raises `InvalidArgumentError` for a pair whose token is partly outside its span."""
    raise InvalidArgumentError(
        f"{span} contains only a part of token {tokens.get_index_in_row(int(pairs.tokens[pair]))}, whose "
        f"span is ({pairs.starts[pair]}, {pairs.stops[pair]}); pass on_partial='include' or 'exclude', or "
        "texts=TEXTS if the rest is whitespace"
    )
