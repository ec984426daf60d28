"""Spans of text to labels of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokjax._checks import check_id
from tokjax._namespace import Array, as_integers
from tokjax.batching.alignment._placing import (
    Found,
    Rows,
    Searched,
    contained_tokens,
    given_once,
    tagged,
    touched_tokens,
)
from tokjax.batching.alignment.spans import (
    SpanColumns,
    check_rows,
    describe_span,
    in_text_order,
    refuse_spans_beyond,
    span_columns,
)
from tokjax.batching.alignment.tagset import TagSet
from tokjax.batching.alignment.tokens import Covering, Tokens, covering_tokens, token_rows
from tokjax.batching.alignment.trimming import trimmed
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokjax.batching.alignment.spans import LabelledSpan
    from tokjax.batching.alignment.tagset import Scheme
    from tokjax.records import Results, TokenizationResult
    from tokjax.utf8 import Text

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


def align_spans(
    offsets: Results | TokenizationResult | Array,
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
) -> SpanLabels:
    """Tag the tokens that lie in labelled spans. Runs on the host; see `align_span_arrays` for `jax.jit`.

    A token is labelled if its span has a byte: inserted tokens, padding and tokens that are trimmed to
    nothing get `ignore_index`, whatever the special-tokens mask says. A span of which a part is cut away is
    tagged as if what is left were all of it. So the tags of a text are always valid in their scheme.

    Args:
        offsets: a `TokenizationResult`, a `TokenizationBatch`, a `Ragged`, a list of results, or an array of
            1-based byte spans, `(n, 2)` for one text or `(batch, length, 2)`.
        spans: `(start, stop, label)` in 1-based half-open bytes, in any order: a list of them for one text, a
            list of lists for a batch; or `span_columns` of them, which is quicker if it is there already.
            `spans_from_characters` converts 0-based characters.
        labels: what spans may be labelled with; `TagSet(labels, scheme)` tells what the result means.
        scheme: `"BIO"`, `"BILOU"`, `"IO"` or `"IOE2"`.
        on_partial: what becomes of a token that is partly inside of a span: `"include"` tags it (for the
            earlier one, if it is partly in two), `"exclude"` leaves it `O`, `"error"` refuses it.
        first_subword_only: label only the first token of each word, by `word_ids`.
        ignore_index: the label of tokens without bytes, and of other subwords.
        texts: what the offsets are places in; a list of one for one text. White space at the edges of tokens
            does not count then (see `trim_offsets`). Without it, a token that begins with the blank before
            its word lies only partly inside of that word.
        word_ids: which word each token is of, where `offsets` is an array.
        sequence_id: which text of a pair the spans are places in; tokens of the other get `ignore_index`.

    Returns:
        Labels of shape `(n,)`, those of all texts end to end (`make_ragged(labels, batch.row_splits)` can be
        collated), or `(batch, length)`; and how many tokens each span has.

    Raises:
        InvalidArgumentError: a span is empty or has an unknown label; two overlap (see `split_layers`); a
            token is partly inside of one and `on_partial="error"`; or options don't go together.
        OffsetsContractError: a span is no place in its text.

    >>> align_spans(np.array([[0, 0], [1, 4], [5, 9], [9, 10]]), [(1, 9, "LOC")], labels=["LOC"]).labels
    array([-100,    1,    2,    0], dtype=int32)
    """
    check_id("ignore_index", ignore_index)
    tagset = TagSet(labels, scheme)
    if on_partial not in ("include", "exclude", "error"):
        raise InvalidArgumentError(f"on_partial must be 'include', 'exclude' or 'error', not {on_partial!r}")
    tokens = token_rows(offsets, word_ids)
    columns = _columns(spans, tokens, tagset)
    if texts is not None:
        tokens = tokens._replace(offsets=trimmed(tokens, texts))
        refuse_spans_beyond(columns, texts)
    order = in_text_order(columns)
    covering = covering_tokens(tokens, first_subword_only=first_subword_only, sequence_id=sequence_id)
    found = given_once(np, _found(tokens, covering, columns, order, on_partial, tagset))
    flat = _tags(tokens, covering, found, columns.classes[order], tagset, ignore_index)
    counts = np.empty(len(order), np.int32)
    counts[order] = found.after - found.first
    return SpanLabels(flat.reshape(tokens.shape[:-1]), counts)


def _columns(spans: Any, tokens: Tokens, tagset: TagSet) -> SpanColumns:
    """The spans as columns, one row a text."""
    if isinstance(spans, SpanColumns):
        classes = as_integers("classes", spans.classes, np.int32)
        if ((classes < 0) | (classes >= len(tagset.labels))).any():
            raise InvalidArgumentError(
                f"spans has classes from {classes.min()} to {classes.max()}, and there are "
                f"{len(tagset.labels)} labels; make it with span_columns(spans, labels)"
            )
        columns = SpanColumns(*map(np.asarray, spans))
    else:
        columns = span_columns([spans] if tokens.is_one_text else spans, tagset.labels)
    check_rows("spans", len(columns.row_splits) - 1, tokens.num_rows)
    return columns


def _found(
    tokens: Tokens,
    covering: Covering,
    spans: SpanColumns,
    order: NDArray[np.int64],
    on_partial: OnPartial,
    tagset: TagSet,
) -> Found:
    """The tokens of each span, spans in `order`."""
    rows = np.repeat(np.arange(tokens.num_rows), np.diff(spans.row_splits))[order]
    wanted = Searched(np.asarray(spans.starts)[order], np.asarray(spans.stops)[order], rows)
    longest = int((covering.high - covering.low).max(initial=0))
    among = Rows(covering.starts, covering.stops, covering.low, covering.high, longest)
    if on_partial == "include":
        return touched_tokens(np, among, wanted)
    inside = contained_tokens(np, among, wanted)
    if on_partial == "error":
        touched = touched_tokens(np, among, wanted)
        partial = np.flatnonzero(touched.after - touched.first > inside.after - inside.first)
        if len(partial):
            which = partial[0]
            at_start = (
                touched.first[which] < inside.first[which] or inside.first[which] >= inside.after[which]
            )
            token = touched.first[which] if at_start else inside.after[which]
            _refuse_partial(
                tokens, covering, int(token), describe_span(spans, int(order[which]), tagset.labels)
            )
    return inside


def _refuse_partial(tokens: Tokens, covering: Covering, found: int, span: str) -> None:
    token = covering.place_of(found)
    raise InvalidArgumentError(
        f"{span} has only a part of token {tokens.in_row(token)}, whose span is "
        f"{tuple(tokens.offsets[token].tolist())}; pass on_partial='include' or 'exclude', or "
        "texts=TEXTS where that is white space"
    )


def _tags(
    tokens: Tokens,
    covering: Covering,
    found: Found,
    classes: Array,
    tagset: TagSet,
    ignore_index: int,
) -> NDArray[np.int32]:
    """The labels of all tokens, shape `(n,)`."""
    if covering.places is not None:
        labels = np.full(len(tokens.offsets), ignore_index, np.int32)
        labels[covering.places] = tagged(np, np.zeros(len(covering.places), np.int32), found, classes, tagset)
        return labels
    labels = np.zeros(len(tokens.offsets), np.int32)
    labels[covering.low[covering.low > tokens.row_splits[:-1]] - 1] = ignore_index
    labels[covering.high[covering.high < tokens.row_splits[1:]]] = ignore_index
    return tagged(np, labels, found, classes, tagset)  # type: ignore[return-value]
