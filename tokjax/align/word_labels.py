"""Labels of words to labels of tokens, and back; and which token is of which word."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax._util.arrays import Array, as_int32, gather, get_namespace, scatter, vmap_rows
from tokjax._util.checks import check_id, check_int
from tokjax._util.eager_jit import jit_eager
from tokjax.align.flat_tokens import is_word_start
from tokjax.align.tagset import FIRST, LAST, check_tagset
from tokjax.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tokjax.align.tagset import TagSet

_FULL_OVERLAP = np.int32(np.iinfo(np.int32).max)


@jit_eager
def labels_from_words(
    word_ids: Array,
    word_labels: Array,
    *,
    label_all_tokens: bool = False,
    tagset: TagSet | None = None,
    ignore_index: int = -100,
) -> Array:
    """Labels of words as labels of their tokens; runs under `jax.jit`.

    Args:
        word_ids: which word each token is of, `(..., length)`; -1 on inserted tokens and padding. The words
            of one text each: of pairs, set those of the other text to -1.
        word_labels: `(..., words)`; anything on padding.
        label_all_tokens: label all tokens of a word, and not only the first.
        tagset: if labels are tags, what their words become in several tokens: `B` is `B I I` then, and `U` is
            `B I L`. Without it, all tokens of a word get its label. A label that is no tag is an error on the
            host; in JAX, which can't look at values, its tokens get `ignore_index`.
        ignore_index: the label of tokens that are of no word, and of words that have none (those whose label
            is `ignore_index`).

    Returns:
        `int32`, `(..., length)`, of the kind that was given.

    Raises:
        InvalidArgumentError: the shapes don't go together, or a label of a word is no tag of `tagset`.

    >>> words, tags = np.array([[-1, 0, 0, 1, -1]]), np.array([[1, 2]])
    >>> labels_from_words(words, tags)
    array([[-100,    1, -100,    2, -100]], dtype=int32)
    >>> from tokjax.align.tagset import TagSet
    >>> labels_from_words(words, tags, label_all_tokens=True, tagset=TagSet(("PER",)))
    array([[-100,    1,    2,    2, -100]], dtype=int32)
    """
    xp = get_namespace(word_ids, word_labels)
    _check_ignore_index(tagset, ignore_index)
    words, labels = as_int32("word_ids", word_ids), as_int32("word_labels", word_labels)
    _check_leading_axes("word_labels", labels, words, 1)
    if xp is not np and words.ndim > 1:
        convert_row = partial(
            labels_from_words, label_all_tokens=label_all_tokens, tagset=tagset, ignore_index=ignore_index
        )
        return vmap_rows(convert_row, words.ndim - 1)(words, labels)
    ignored_label = xp.asarray(ignore_index, dtype=np.int32)
    shape, count = words.shape, labels.shape[-1]
    if not count:
        return xp.broadcast_to(ignored_label, shape) + xp.zeros((), np.int32)  # type: ignore[no-any-return]
    words, labels = _flatten_leading_axes(words, 1), _flatten_leading_axes(labels, 1)
    has_word = (words >= 0) & (words < count)
    found = xp.take_along_axis(labels, xp.where(has_word, words, 0), axis=1)
    keep, is_first = has_word & (found != ignored_label), is_word_start(xp, words >= 0, words)
    if not label_all_tokens:
        keep &= is_first
    elif tagset is not None:
        if xp is np:
            tagset.check_tag_ids(found[keep], ignore_index)
        keep &= (found >= 0) & (found < len(tagset))
        position = FIRST * is_first.astype(np.int32) + LAST * _is_word_end(xp, words >= 0, words).astype(
            np.int32
        )
        table = tagset.subword_tags
        found = gather(table.reshape(-1), xp.where(keep, found, 0) * np.int32(table.shape[1]) + position)
    return xp.where(keep, found, ignored_label).reshape(shape)  # type: ignore[no-any-return]


@jit_eager
def words_from_labels(
    word_ids: Array,
    labels: Array,
    *,
    num_words: int,
    method: Literal["first", "majority"] = "first",
    tagset: TagSet | None = None,
    ignore_index: int = -100,
) -> Array:
    """Labels of tokens as labels of their words; runs under `jax.jit`, where `num_words` is static.

    Args:
        word_ids: as in `labels_from_words`, `(..., length)`.
        labels: of the same shape; tokens whose label is `ignore_index` have no say.
        num_words: words a row of the result.
        method: `"first"` takes the label of a word's first token. `"majority"` takes what most tokens say,
            and of equals what was said first: tokens vote on what the word is part of, or `O`, and the tag is
            the one that fits what the first and the last of them say of the word's place in it. It takes
            memory for each row, word and label.
        tagset: the tags; `"majority"` needs it.
        ignore_index: the label of words that have no token with a label.

    Returns:
        `int32`, `(..., num_words)`, of the kind that was given.

    >>> words_from_labels(np.array([[-1, 0, 0, 1]]), np.array([[-100, 1, 2, 0]]), num_words=3)
    array([[   1,    0, -100]], dtype=int32)
    """
    xp = get_namespace(word_ids, labels)
    _check_ignore_index(tagset, ignore_index)
    check_int("num_words", num_words, minimum=0)
    if method not in ("first", "majority"):
        raise InvalidArgumentError(f"method must be 'first' or 'majority', not {method!r}")
    if method == "majority" and tagset is None:
        raise InvalidArgumentError("method='majority' needs to know the tags; pass tagset=TagSet(LABELS)")
    words, token_labels = as_int32("word_ids", word_ids), as_int32("labels", labels)
    if words.shape != token_labels.shape:
        raise InvalidArgumentError(
            f"labels has shape {token_labels.shape}, and word_ids {words.shape}; they must be equal"
        )
    if xp is not np and words.ndim > 1:
        convert_row = partial(
            words_from_labels, num_words=num_words, method=method, tagset=tagset, ignore_index=ignore_index
        )
        return vmap_rows(convert_row, words.ndim - 1)(words, token_labels)
    leading = words.shape[:-1]
    words, token_labels = _flatten_leading_axes(words, 1), _flatten_leading_axes(token_labels, 1)
    ignored_label = xp.asarray(ignore_index, dtype=np.int32)
    has_vote = (words >= 0) & (words < num_words) & (token_labels != ignored_label)
    if tagset is not None:
        has_vote &= (token_labels >= 0) & (token_labels < len(tagset))
    slots = xp.where(
        has_vote, words + np.int32(num_words) * xp.arange(len(words), dtype=np.int32)[:, None], 0
    )

    def scatter_to_words(values: Array, where: Array) -> Array:
        empty = xp.zeros(len(words) * num_words, np.int32) + ignored_label
        return scatter(empty, *(array.reshape(-1) for array in (slots, values, where)))

    result = scatter_to_words(token_labels, has_vote & is_word_start(xp, has_vote, words))
    if method == "majority" and tagset is not None:
        classes = xp.where(has_vote, gather(tagset.tag_classes, xp.where(has_vote, token_labels, 0)), -1)
        wins = _has_majority(xp, slots, classes, has_vote, result.shape[0], len(tagset.labels) + 1)
        chosen = scatter_to_words(classes, wins & is_word_start(xp, wins, words))
        last = scatter_to_words(token_labels, has_vote & _is_word_end(xp, has_vote, words))
        result = xp.where(
            result == ignored_label, ignored_label, _compute_word_tags(xp, tagset, chosen, result, last)
        )
    return result.reshape(*leading, num_words)


@jit_eager
def word_ids_from_spans(offsets: Array, word_spans: Array) -> Array:
    """Which word each token is of, by their spans; runs under `jax.jit`.

    A token is of the first word that it lies in; if of none, of the one with which it shares most bytes, and
    of equals of the first.

    Args:
        offsets: spans of tokens, `(..., length, 2)`.
        word_spans: spans of words, `(..., words, 2)`; `(0, 0)` on padding. It takes memory for each row,
            token and word.

    Returns:
        `int32`, `(..., length)`, of the kind that was given: places in `word_spans`, and -1 where a token
        shares no byte with any.

    >>> word_ids_from_spans(np.array([[0, 0], [1, 3], [3, 7]]), np.array([[1, 4], [4, 8]]))
    array([-1,  0,  1], dtype=int32)
    """
    xp = get_namespace(offsets, word_spans)
    tokens, words = as_int32("offsets", offsets), as_int32("word_spans", word_spans)
    for name, spans in (("offsets", tokens), ("word_spans", words)):
        if spans.ndim < 2 or spans.shape[-1] != 2:
            raise InvalidArgumentError(f"{name} must have shape (..., n, 2), not {spans.shape}")
    _check_leading_axes("word_spans", words, tokens, 2)
    if not words.shape[-2]:
        return xp.full(tokens.shape[:-1], -1, np.int32)  # type: ignore[no-any-return]
    starts, stops = tokens[..., :, None, 0], tokens[..., :, None, 1]
    word_starts, word_stops = words[..., None, :, 0], words[..., None, :, 1]
    shared = xp.minimum(stops, word_stops) - xp.maximum(starts, word_starts)
    is_inside = (word_starts <= starts) & (stops <= word_stops) & (starts < stops)
    shared = xp.where(is_inside, _FULL_OVERLAP, shared)
    best = xp.argmax(shared, axis=-1).astype(np.int32)
    return xp.where(shared.max(axis=-1) > 0, best, np.int32(-1))  # type: ignore[no-any-return]


def _has_majority(
    xp: Any, slots: Array, classes: Array, has_vote: Array, size: int, num_classes: int
) -> Array:
    """Whether a token has a say, and no class has more tokens of its word than its own."""
    ballots = (slots * np.int32(num_classes) + classes + 1).reshape(-1)
    counts = xp.zeros(size * num_classes, np.int32)
    if xp is np:
        np.add.at(counts, ballots[has_vote.reshape(-1)], 1)
    else:
        counts = counts.at[xp.where(has_vote.reshape(-1), ballots, counts.shape[0])].add(1, mode="drop")
    if not size:
        return has_vote
    maximum = counts.reshape(size, num_classes).max(axis=1)
    return has_vote & (counts[ballots].reshape(has_vote.shape) == maximum[slots])  # type: ignore[no-any-return]


def _compute_word_tags(xp: Any, tagset: TagSet, classes: Array, first: Array, last: Array) -> Array:
    """The tags of words of some classes, from the tags of their first and last tokens."""
    position = xp.zeros_like(classes)
    for tag, bit in ((first, FIRST), (last, LAST)):
        tag_ids = xp.maximum(tag, 0)
        position = position + xp.where(
            gather(tagset.tag_classes, tag_ids) == classes,
            gather(tagset.marked_position, tag_ids) & np.int32(bit),
            0,
        )
    tags = 1 + classes * np.int32(tagset.num_roles) + gather(tagset.role_at_position, position)
    return xp.where(classes >= 0, tags, 0)  # type: ignore[no-any-return]


def _is_word_end(xp: Any, is_selected: Array, words: Array) -> Array:
    """Whether each token is of another word than the next one after it that counts, `(rows, length)`."""
    return is_word_start(xp, is_selected[:, ::-1], words[:, ::-1])[:, ::-1]


def _check_ignore_index(tagset: TagSet | None, ignore_index: int) -> None:
    if tagset is None:
        check_id("ignore_index", ignore_index)
    else:
        check_tagset(tagset, ignore_index)


def _flatten_leading_axes(values: Array, trailing: int) -> Array:
    """`values` with all their leading axes made one."""
    split = values.ndim - trailing
    return values.reshape(math.prod(values.shape[:split]), *values.shape[split:])


def _check_leading_axes(name: str, values: Array, tokens: Array, trailing: int) -> None:
    """Refuse arrays whose rows are not those of the tokens."""
    if values.ndim != tokens.ndim or values.shape[:-trailing] != tokens.shape[:-trailing]:
        raise InvalidArgumentError(
            f"{name} has shape {values.shape}, and the tokens {tokens.shape}; their "
            "leading axes must be equal"
        )
