"""Labels of tokens to spans of text."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import numpy as np

from tokjax._util.arrays import Array, is_traced
from tokjax.align.flat_tokens import make_flat_tokens, select_tokens
from tokjax.align.offset_trimming import join_texts, mark_whitespace, trim_token_spans
from tokjax.align.spans import check_index_base
from tokjax.align.tagset import check_tagset
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.align.flat_tokens import FlatTokens
    from tokjax.align.offset_trimming import TextWhitespace
    from tokjax.align.spans import LabelledSpan
    from tokjax.align.tagset import TagSet
    from tokjax.core.ragged import Ragged
    from tokjax.core.records import MergedWindows, TokenizationBatch, TokenizationResult, Windows
    from tokjax.core.utf8 import Text


class _Options(TypedDict, total=False):
    """The options of `spans_from_labels`, for its overloads."""

    strict: bool
    first_subword_only: bool
    ignore_index: int
    texts: Sequence[Text] | None
    word_ids: Array | None
    sequence_id: int
    index_base: Literal[0, 1]


@overload
def spans_from_labels(
    offsets: TokenizationResult,
    tag_ids: Array,
    tagset: TagSet,
    **options: Unpack[_Options],
) -> list[LabelledSpan]: ...
@overload
def spans_from_labels(
    offsets: TokenizationBatch | Ragged | Windows | MergedWindows | Sequence[TokenizationResult],
    tag_ids: Array,
    tagset: TagSet,
    **options: Unpack[_Options],
) -> list[list[LabelledSpan]]: ...
@overload
def spans_from_labels(
    offsets: Array,
    tag_ids: Array,
    tagset: TagSet,
    **options: Unpack[_Options],
) -> list[Any]: ...
def spans_from_labels(
    offsets: Any,
    tag_ids: Array,
    tagset: TagSet,
    *,
    strict: bool = False,
    first_subword_only: bool = False,
    ignore_index: int = -100,
    texts: Sequence[Text] | None = None,
    word_ids: Array | None = None,
    sequence_id: int = 0,
    index_base: Literal[0, 1] = 1,
) -> list[Any]:
    """The spans that tags of tokens stand for: the inverse of `align_spans`. Runs on the host.

    Tokens without bytes, and those tagged `ignore_index`, are passed over as if they were not there. A span
    reaches from the start of its first token to the stop of its last one.

    Tags that don't follow the scheme, as models give them, are read as seqeval does: by default leniently,
    so that a span begins wherever one must (`I-PER` after `O`, or after `B-ORG`) and ends where it can't go
    on; if `strict`, only whole spans count (`B I*`, `B I* L` or `U`, `B I* E` or `S`, `I* E`), other tags are
    passed over.

    Args:
        offsets: as in `align_spans`. Of `Windows`, spans are read from each by itself; `merge_windows` makes
            one answer of those of a text.
        tag_ids: ids of `tagset.tags`, or `ignore_index`: `(n,)` for the tokens of all texts, or
            `(batch, length)` where the offsets are `(batch, length, 2)`.
        tagset: the tags.
        strict: count whole spans only.
        first_subword_only: read only the tag of the first token of each word; spans reach to the end of the
            last word. Tags made with `first_subword_only` want this.
        ignore_index: the tag of tokens that are passed over.
        texts: what the offsets are places in; a list of one for one text. White space at the edges of tokens
            is left out then.
        word_ids: which word each token is of, where `offsets` is an array.
        sequence_id: which text of a pair to read.
        index_base: the index of a text's first byte in the result, 1 or 0.

    Returns:
        `(start, stop, label)` in half-open bytes, in the order of the text: a list for one text, a list of
        lists for a batch. `spans_to_characters` makes 0-based characters of them.

    Raises:
        InvalidArgumentError: an id is no tag, or tags have another shape than tokens.

    >>> indices = np.array([[0, 0], [1, 4], [5, 9], [9, 10]])
    >>> from tokjax.align.tagset import TagSet
    >>> spans_from_labels(indices, np.array([-100, 1, 2, 0]), TagSet(("LOC",)))
    [(1, 9, 'LOC')]
    """
    check_tagset(tagset, ignore_index)
    check_index_base(index_base)
    if is_traced(tag_ids):
        raise InvalidArgumentError("spans_from_labels gives lists, which jax.jit can't; call it outside")
    tokens = make_flat_tokens(offsets, word_ids)
    tags = tagset.check_tag_ids(tag_ids, ignore_index)
    if tags.shape not in (tokens.shape[:-1], (len(tokens.offsets),)):
        raise InvalidArgumentError(
            f"tag_ids has shape {tags.shape}, and the tokens have {tokens.shape[:-1]}; pass a tag for each, "
            "those of inserted tokens too, and none for padding that the tokens are without: "
            "array[attention_mask == 1]"
        )
    tags = tags.reshape(-1)
    space = None if texts is None else mark_whitespace(tokens, join_texts(texts))
    skipped = tags == ignore_index
    if space is not None:
        skipped |= space.tokens
    selection = select_tokens(
        tokens, first_subword_only=first_subword_only, sequence_id=sequence_id, exclude=skipped
    )
    read = np.flatnonzero(selection.is_selected)
    splits = np.searchsorted(read, tokens.row_splits)
    firsts, lasts = _find_span_tokens(tags[read], splits, tagset, strict=strict)
    begins, ends = read[firsts], read[lasts]
    if first_subword_only:
        ends = _find_word_ends(tokens, ends, sequence_id, space)
    starts, stops = (
        _compute_token_spans(tokens, begins, space)[:, 0],
        _compute_token_spans(tokens, ends, space)[:, 1],
    )
    if index_base == 0:
        starts, stops = starts - 1, stops - 1
    labels = map(tagset.labels.__getitem__, tagset.tag_classes[tags[begins]].tolist())
    found = [*zip(starts.tolist(), stops.tolist(), labels, strict=True)]
    span_splits = np.searchsorted(firsts, splits).tolist()
    rows = [found[start:stop] for start, stop in pairwise(span_splits)]
    return rows[0] if tokens.is_one_text else rows


def _find_span_tokens(
    tags: NDArray[np.int32], splits: NDArray[np.int64], tagset: TagSet, *, strict: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last token of each span, from the tags of tokens in rows."""
    classes = tagset.tag_classes[tags]
    continues = np.zeros(len(tags) + 1, bool)  # from the token before to this one
    continues[1:-1] = (
        tagset.can_precede[tags[:-1]] & tagset.can_follow[tags[1:]] & (classes[:-1] == classes[1:])
    )
    continues[splits] = False
    firsts = np.flatnonzero((classes >= 0) & ~continues[:-1])
    lasts = np.flatnonzero((classes >= 0) & ~continues[1:])
    if strict:
        is_valid = tagset.can_start[tags[firsts]] & tagset.can_end[tags[lasts]]
        firsts, lasts = firsts[is_valid], lasts[is_valid]
    return firsts, lasts


def _compute_token_spans(
    tokens: FlatTokens, indices: NDArray[np.int64], space: TextWhitespace | None
) -> NDArray[Any]:
    """The spans of some tokens, without white space if that is known, shape `(indices, 2)`."""
    if space is None:
        return tokens.offsets[indices]
    return trim_token_spans(tokens, space, indices, np.searchsorted(tokens.row_splits, indices, "right") - 1)


def _find_word_ends(
    tokens: FlatTokens, indices: NDArray[np.int64], sequence_id: int, space: TextWhitespace | None
) -> NDArray[np.int64]:
    """The last token of the word of each of some tokens."""
    exclude = None if space is None else space.tokens
    selected, firsts = (
        np.flatnonzero(
            select_tokens(
                tokens, first_subword_only=only, sequence_id=sequence_id, exclude=exclude
            ).is_selected
        )
        for only in (False, True)
    )
    after = np.append(firsts, len(tokens.offsets))[np.searchsorted(firsts, indices, "right")]
    return selected[np.searchsorted(selected, after) - 1]
