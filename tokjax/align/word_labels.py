"""Conversion between labels of words and labels of tokens, and word ids from spans."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    compute_prefix_maximum,
    gather,
    get_namespace,
    jit_eager,
    scatter,
    vmap_rows,
)
from tokjax._util.checks import MAX_INT32, check_choice, check_id, check_int
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
    """Converts labels of words to labels of their tokens; runs under `jax.jit`.

    Args:
        word_ids: index of the word of each token, integers, `(..., length)`; -1 on inserted special tokens
            and padding. All words of a row are words of one text: for pairs, set the word ids of the other
                text to -1.
        word_labels: labels of words, integers, `(..., words)`; any values on padding.
        label_all_tokens: whether to label all tokens of a word rather than only the first.
        tagset: the tag set, if labels are tags and a word of several tokens is to get several tags: `B`
            becomes `B I I`, and `U` becomes `B I L`. Without it, all tokens of a word get its label. A label
            that is not the id of a tag raises on the host; in JAX, where values cannot be checked, its tokens
            get `ignore_index`.
        ignore_index: label of tokens without a word, and of tokens whose word has the label `ignore_index`.

    Returns:
        `int32`, `(..., length)`: a NumPy array for NumPy inputs and a JAX array for JAX inputs.

    Raises:
        InvalidArgumentError: the shapes do not match, or a label of a word is not the id of a tag of
            `tagset`.

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
    token_labels = xp.take_along_axis(labels, xp.where(has_word, words, 0), axis=1)
    keep, is_first = has_word & (token_labels != ignored_label), _is_word_start(xp, words >= 0, words)
    if not label_all_tokens:
        keep &= is_first
    elif tagset is not None:
        if xp is np:
            tagset.as_tag_ids(token_labels[keep], ignore_index)
        keep &= (token_labels >= 0) & (token_labels < len(tagset))
        position = FIRST * is_first.astype(np.int32) + LAST * _is_word_end(xp, words >= 0, words).astype(
            np.int32
        )
        table = tagset.subword_tags
        token_labels = gather(
            table.reshape(-1), xp.where(keep, token_labels, 0) * np.int32(table.shape[1]) + position
        )
    return xp.where(keep, token_labels, ignored_label).reshape(shape)  # type: ignore[no-any-return]


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
    """Converts labels of tokens to labels of their words; runs under `jax.jit`, where `num_words` is static.

    With `method="majority"`, the tokens of a word vote on its label, or `O`. The label with the most votes
    wins; of equal ones, the label that occurs first. The tag of the word then follows from the tags of its
    first and last token: each contributes its position in a span if it has the winning label. In BILOU,
    `B-PER I-PER` gives `B-PER`, and `B-PER L-PER` gives `U-PER`.

    Args:
        word_ids: index of the word of each token, as in `labels_from_words`, integers, `(..., length)`.
        labels: labels of tokens, integers, `(..., length)`; tokens with the label `ignore_index` are skipped.
        num_words: number of words per row of the result.
        method: `"first"` for the label of a word's first token that is not skipped, or `"majority"`, which
            takes memory for each row, word and label.
        tagset: the tags; required for `"majority"`.
        ignore_index: label of words that have no labelled token.

    Returns:
        `int32`, `(..., num_words)`: a NumPy array for NumPy inputs and a JAX array for JAX inputs.

    Raises:
        InvalidArgumentError: the shapes do not match, or an option is invalid.

    >>> words_from_labels(np.array([[-1, 0, 0, 1]]), np.array([[-100, 1, 2, 0]]), num_words=3)
    array([[   1,    0, -100]], dtype=int32)
    """
    xp = get_namespace(word_ids, labels)
    _check_ignore_index(tagset, ignore_index)
    check_int("num_words", num_words, minimum=0, maximum=MAX_INT32)
    check_choice("method", method, ("first", "majority"))
    if method == "majority" and tagset is None:
        raise InvalidArgumentError("method='majority' needs the tags; pass tagset=TagSet(LABELS)")
    words, token_labels = as_int32("word_ids", word_ids), as_int32("labels", labels)
    if words.shape != token_labels.shape:
        raise InvalidArgumentError(
            f"labels has shape {token_labels.shape}, and word_ids has shape {words.shape}; they must be equal"
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
    # Slot of the word of each token in the flat result.
    slots = xp.where(
        has_vote, words + np.int32(num_words) * xp.arange(len(words), dtype=np.int32)[:, None], 0
    )

    def scatter_to_words(values: Array, where: Array) -> Array:
        """Writes the values of some tokens, at most one per word, to the slots of their words."""
        empty = xp.zeros(len(words) * num_words, np.int32) + ignored_label
        return scatter(empty, *(array.reshape(-1) for array in (slots, values, where)))

    result = scatter_to_words(token_labels, has_vote & _is_word_start(xp, has_vote, words))
    if method == "majority" and tagset is not None:
        classes = xp.where(has_vote, gather(tagset.tag_classes, xp.where(has_vote, token_labels, 0)), -1)
        wins = _has_majority(xp, slots, classes, has_vote, result.shape[0], len(tagset.labels) + 1)
        winners = scatter_to_words(classes, wins & _is_word_start(xp, wins, words))
        last = scatter_to_words(token_labels, has_vote & _is_word_end(xp, has_vote, words))
        result = xp.where(
            result == ignored_label, ignored_label, _compute_word_tags(xp, tagset, winners, result, last)
        )
    return result.reshape(*leading, num_words)


@jit_eager
def word_ids_from_spans(offsets: Array, word_spans: Array) -> Array:
    """Computes the word of each token from the byte spans of tokens and words; runs under `jax.jit`.

    A token belongs to the first word that contains it. If none does, it belongs to the word that shares the
    most bytes with it, or the first of equal ones.

    Args:
        offsets: byte spans of tokens, integers, `(..., length, 2)`.
        word_spans: byte spans of words, integers, `(..., words, 2)`; `(0, 0)` on padding. The function takes
            memory for each row, token and word.

    Returns:
        Indices into `word_spans`, and -1 for tokens that share no byte with a word, `int32`, `(..., length)`:
        a NumPy array for NumPy inputs and a JAX array for JAX inputs.

    Raises:
        InvalidArgumentError: the shapes do not match.

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


def _is_word_start(xp: Any, is_selected: Array, words: Array) -> Array:
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


def _has_majority(
    xp: Any, slots: Array, classes: Array, has_vote: Array, size: int, num_classes: int
) -> Array:
    """Returns whether each token votes for a class that no other class of its word exceeds.

    Args:
        xp: NumPy or `jax.numpy`.
        slots: slot of the word of each token, `int32`, `(rows, length)`.
        classes: class of the tag of each token, -1 for `O`, `int32`, `(rows, length)`.
        has_vote: whether each token votes, `bool`, `(rows, length)`.
        size: number of slots.
        num_classes: number of classes, including `O`.
    """
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
    """Computes the tags of words from their classes and the tags of their first and last tokens.

    Args:
        xp: NumPy or `jax.numpy`.
        tagset: the tags.
        classes: class of each word, negative for `O`, `int32`, shape `(words,)`.
        first: tag of the first voting token of each word, `int32`, shape `(words,)`.
        last: tag of the last voting token of each word, `int32`, shape `(words,)`.
    """
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
    """Returns whether each token is in another word than the next selected token, `(rows, length)`."""
    return _is_word_start(xp, is_selected[:, ::-1], words[:, ::-1])[:, ::-1]


def _check_ignore_index(tagset: TagSet | None, ignore_index: int) -> None:
    """Raises `InvalidArgumentError` if `ignore_index` is not an integer, or is the id of a tag."""
    if tagset is None:
        check_id("ignore_index", ignore_index)
    else:
        check_tagset(tagset, ignore_index)


def _flatten_leading_axes(values: Array, trailing: int) -> Array:
    """Returns `values` with all axes except the last `trailing` ones merged into one."""
    split = values.ndim - trailing
    return values.reshape(math.prod(values.shape[:split]), *values.shape[split:])


def _check_leading_axes(name: str, values: Array, tokens: Array, trailing: int) -> None:
    """Raises `InvalidArgumentError` if the leading axes of an array differ from those of the tokens."""
    if values.ndim != tokens.ndim or values.shape[:-trailing] != tokens.shape[:-trailing]:
        raise InvalidArgumentError(
            f"{name} has shape {values.shape}, and the tokens have shape {tokens.shape}; their "
            "leading axes must be equal"
        )
