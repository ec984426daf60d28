"""Labelled spans of text from labels of tokens."""

from __future__ import annotations

import unicodedata
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import numpy as np

from tokjax._util.arrays import Array, is_traced
from tokjax._util.checks import check_int
from tokjax.align.flat_tokens import make_flat_tokens, select_tokens
from tokjax.align.offset_trimming import join_texts, mark_whitespace, trim_token_spans
from tokjax.align.tagset import check_tagset
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokjax.align.flat_tokens import FlatTokens
    from tokjax.align.offset_trimming import JoinedTexts, TextWhitespace
    from tokjax.align.spans import LabelledSpan
    from tokjax.align.tagset import TagSet
    from tokjax.core.ragged import Ragged
    from tokjax.core.records import MergedWindows, TokenizationBatch, TokenizationResult, Windows
    from tokjax.core.utf8 import Text


_MAX_MARK_BYTES = 256
"""Number of bytes after a span in which removed characters are searched."""


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
    """Decodes tags of tokens to labelled spans: the inverse of `align_spans`. Runs on the host.

    Tokens without bytes, and tokens tagged `ignore_index`, are skipped as if they did not exist. A span
    extends from the start of its first token to the stop of its last token.

    Tags that are invalid in their scheme, such as predictions of a model, are decoded as seqeval does. By
    default decoding is lenient: a span starts wherever one must (`I-PER` after `O`, or after `B-ORG`) and
    stops where it cannot continue. With `strict`, only complete spans count (`B I*`, `B I* L` or `U`,
    `B I* E` or `S`, `I* E`), and other tags are skipped.

    Args:
        offsets: the tokens, as in `align_spans`. Each window of `Windows` is decoded separately; use
            `merge_windows` first to get one result per text.
        tag_ids: ids of `tagset.tags`, or `ignore_index`, integers: `(n,)` for the tokens of all texts, or
            `(batch, length)` where the offsets are `(batch, length, 2)`.
        tagset: the tags.
        strict: whether to decode complete spans only.
        first_subword_only: whether to read only the tag of the first token of each word; spans then extend to
            the end of the last word. Set it for tags made with `first_subword_only`.
        ignore_index: tag of tokens to skip.
        texts: the texts that the offsets refer to; a list of one text for a single result. With texts,
            whitespace at the edges of tokens is not part of a span, and a span contains the combining marks
            and format characters after its last character that no token has, since a normalizer removed them.
        word_ids: index of the word of each token, where `offsets` is an array: `(n,)` or `(batch, length)`.
        sequence_id: index of the text to decode in its pair, 0 or 1; 0 without pairs.
        index_base: index of a text's first byte in the result, 1 or 0.

    Returns:
        `(start, stop, label)` in half-open bytes, in the order of the text: a list for one text, a list of
        lists for a batch. `spans_to_characters` converts them to 0-based characters.

    Raises:
        InvalidArgumentError: an id is not the id of a tag, `tag_ids` does not have one entry per token, or
            `texts` is passed with offsets that refer to normalized texts (see `map_offsets_to_input`).

    >>> indices = np.array([[0, 0], [1, 4], [5, 9], [9, 10]])
    >>> from tokjax.align.tagset import TagSet
    >>> spans_from_labels(indices, np.array([-100, 1, 2, 0]), TagSet(("LOC",)))
    [(1, 9, 'LOC')]
    """
    check_tagset(tagset, ignore_index)
    check_int("index_base", index_base, minimum=0, maximum=1)
    if is_traced(tag_ids):
        raise InvalidArgumentError(
            "spans_from_labels returns lists, and jax.jit cannot; call it outside of jax.jit"
        )
    tokens = make_flat_tokens(offsets, word_ids)
    tags = tagset.as_tag_ids(tag_ids, ignore_index)
    if tags.shape not in (tokens.shape[:-1], (len(tokens.offsets),)):
        raise InvalidArgumentError(
            f"tag_ids has shape {tags.shape}, and the tokens have {tokens.shape[:-1]}; pass one tag "
            "per token, including inserted special tokens, and if the offsets have no padding, leave it out: "
            "array[attention_mask == 1]"
        )
    tags = tags.reshape(-1)
    joined = None if texts is None else join_texts(texts)
    whitespace = None if joined is None else mark_whitespace(tokens, joined)
    is_skipped = tags == ignore_index
    if whitespace is not None:
        is_skipped |= whitespace.tokens
    selection = select_tokens(
        tokens, first_subword_only=first_subword_only, sequence_id=sequence_id, exclude=is_skipped
    )
    selected = np.flatnonzero(selection.is_selected)
    splits = np.searchsorted(selected, tokens.row_splits)
    firsts, lasts = _find_span_tokens(tags[selected], splits, tagset, strict=strict)
    begins, ends = selected[firsts], selected[lasts]
    if first_subword_only:
        ends = _find_word_ends(tokens, ends, sequence_id, whitespace)
    starts, stops = (
        _compute_token_spans(tokens, begins, whitespace)[:, 0],
        _compute_token_spans(tokens, ends, whitespace)[:, 1],
    )
    if joined is not None and not joined.data.isascii():
        stops = _include_removed_marks(tokens, ends, stops, joined)
    if index_base == 0:
        starts, stops = starts - 1, stops - 1
    labels = map(tagset.labels.__getitem__, tagset.tag_classes[tags[begins]].tolist())
    spans = [*zip(starts.tolist(), stops.tolist(), labels, strict=True)]
    span_splits = np.searchsorted(firsts, splits).tolist()
    rows = [spans[start:stop] for start, stop in pairwise(span_splits)]
    return rows[0] if tokens.is_one_text else rows


def _find_span_tokens(
    tags: NDArray[np.int32], splits: NDArray[np.int64], tagset: TagSet, *, strict: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the first and the last token of each span.

    Args:
        tags: tags of the tokens of all rows, `int32`, shape `(n,)`.
        splits: index of the first token of each row, and `n`, `int64`, shape `(rows + 1,)`.
        tagset: the tags.
        strict: whether to return only spans whose first and last tags are valid at their positions.
    """
    classes = tagset.tag_classes[tags]
    continues = np.zeros(len(tags) + 1, bool)  # whether a span contains both token i - 1 and token i
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
    tokens: FlatTokens, indices: NDArray[np.int64], whitespace: TextWhitespace | None
) -> NDArray[Any]:
    """Returns the spans of the tokens at `indices`, trimmed if texts are known, shape `(indices, 2)`."""
    if whitespace is None:
        return tokens.offsets[indices]
    return trim_token_spans(
        tokens, whitespace, indices, np.searchsorted(tokens.row_splits, indices, "right") - 1
    )


def _include_removed_marks(
    tokens: FlatTokens, ends: NDArray[np.int64], stops: NDArray[np.int64], texts: JoinedTexts
) -> NDArray[np.int64]:
    """Returns the stops of spans, moved after combining marks and format characters that no token has.

    As in the word boundaries of Unicode, they belong to the character before them.

    Args:
        tokens: all tokens.
        ends: index of the last token of each span, shape `(spans,)`.
        stops: stop of each span, shape `(spans,)`.
        texts: the texts.
    """
    stops = stops.copy()
    rows = np.searchsorted(tokens.row_splits, ends, "right") - 1
    shift = texts.shift[rows if tokens.text_ids is None else tokens.text_ids[rows]]
    data = np.frombuffer(texts.data, np.uint8)
    next_starts = tokens.offsets[np.minimum(ends + 1, len(tokens.offsets) - 1), 0]
    for span in np.flatnonzero((data[stops + shift] >= 0xC0) & (next_starts != stops)).tolist():
        row = slice(*tokens.row_splits[rows[span] : rows[span] + 2])
        starts_after = tokens.offsets[row][tokens.offsets[row, 1] > stops[span], 0]
        limit = int(starts_after.min(initial=len(data)) + shift[span])
        start = int(stops[span] + shift[span])
        following = texts.data[start : min(limit, start + _MAX_MARK_BYTES)].decode("utf-8", "replace")
        marks = takewhile(lambda mark: unicodedata.category(mark) in ("Mn", "Mc", "Me", "Cf"), following)
        stops[span] += len("".join(marks).encode())
    return stops


def _find_word_ends(
    tokens: FlatTokens, indices: NDArray[np.int64], sequence_id: int, whitespace: TextWhitespace | None
) -> NDArray[np.int64]:
    """Returns the last token of the word of each token at `indices`."""
    exclude = None if whitespace is None else whitespace.tokens
    selected, word_starts = (
        np.flatnonzero(
            select_tokens(
                tokens, first_subword_only=first_only, sequence_id=sequence_id, exclude=exclude
            ).is_selected
        )
        for first_only in (False, True)
    )
    after = np.append(word_starts, len(tokens.offsets))[np.searchsorted(word_starts, indices, "right")]
    return selected[np.searchsorted(selected, after) - 1]
