"""Masked language modelling: some tokens are hidden, and the model says what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokjax._util.arrays import (
    Array,
    as_int32,
    as_size,
    compute_suffix_minimum,
    gather,
    get_namespace,
    make_positions,
)
from tokjax._util.checks import check_float, check_id, check_int
from tokjax._util.display import describe_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_aligned_integers, as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.random_draws import check_draws, draws_to_integers

if TYPE_CHECKING:
    from collections.abc import Sequence


class MaskedLMBatch(NamedTuple):
    """What a masked language model trains on: a pytree of `int32` arrays of the shape of the ids.

    Attributes:
        ids: the inputs, with some tokens hidden.
        labels: what stood at a chosen place, `ignore_index` elsewhere. They are not shifted.
    """

    ids: Array
    labels: Array

    def __repr__(self) -> str:
        """The dtype and shape of each array."""
        return describe_batch(self)


@jit_eager
def masked_lm(
    ids: Array,
    draws: Array,
    *,
    mask_id: int,
    special_tokens_mask: Array,
    vocab_size: int | None = None,
    replacement_ids: Sequence[int] | Array | None = None,
    attention_mask: Array | None = None,
    word_ids: Array | None = None,
    sequence_ids: Array | None = None,
    probability: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    ignore_index: int = -100,
) -> MaskedLMBatch:
    """Choose tokens as BERT does, hide most of them, and make all of them labels.

    Each token, or each word if `word_ids` are given, is chosen with `probability`. Of the chosen tokens,
    also of those of one word, each by itself becomes the mask id (80%), a random id (10%), or stays.

    Args:
        ids: integers, shape `(..., length)`.
        draws: `draw_uniform(source, (..., 3, length))`: for each token whether it is chosen, what becomes of
            it, and which random id.
        mask_id: the id that hides a token.
        special_tokens_mask: not 0 on tokens that are never chosen, of the shape of `ids`; in a `PaddedBatch`
            that is padding too, by default.
        vocab_size: random ids come from 0 up to this, special ones included.
        replacement_ids: the ids that random ones come from instead, shape `(n,)`: those of the ordinary
            tokens, say.
        attention_mask: 0 on padding, which is never chosen; not needed if `special_tokens_mask` tells.
        word_ids: as in a `PaddedBatch`, of the shape of `ids`. Neighbours with the same number are a word,
            for which the draw of its last token decides; tokens of no word (-1) are never chosen.
        sequence_ids: where words of several texts meet, the numbers of the texts, of the shape of `ids`: a
            word ends with its text.
        probability: how likely a token or word is chosen, from 0 to 1.
        mask_share: the share of chosen tokens that become the mask id.
        random_share: the share that become a random id; 0 needs no `vocab_size` nor `replacement_ids`.
        ignore_index: the label of tokens that are not chosen.

    Returns:
        `int32`, of the shape of `ids` and of the kind that was given.

    Raises:
        InvalidArgumentError: draws of another shape, shares of more than 1 together, or no ids or two kinds
            of ids for random tokens.

    >>> ids = np.array([2, 11, 12, 13, 3])
    >>> draws = np.float32([[0, 0.1, 0.9, 0.1, 0], [0, 0.5, 0, 0.85, 0], [0, 0, 0, 0.5, 0]])
    >>> batch = masked_lm(ids, draws, mask_id=4, vocab_size=100, special_tokens_mask=[1, 0, 0, 0, 1])
    >>> batch
    MaskedLMBatch(ids=int32[5], labels=int32[5])
    >>> batch.ids, batch.labels
    (array([ 2,  4, 12, 50,  3], dtype=int32), array([-100,   11, -100,   13, -100], dtype=int32))
    """
    check_id("mask_id", mask_id)
    check_id("ignore_index", ignore_index)
    chance, hidden, replaced = _check_shares(probability, mask_share, random_share)
    optional_columns = (special_tokens_mask, attention_mask, word_ids, sequence_ids)
    xp = get_namespace(ids, draws, *optional_columns, replacement_ids, mask_id, ignore_index)
    tokens = as_tokens(ids)
    draws = check_draws(draws, (*tokens.shape[:-1], 3, tokens.shape[-1]))
    choosing, treating, replacing = (draws[..., i, :] for i in range(3))
    eligible = ~as_aligned_mask(xp, "special_tokens_mask", special_tokens_mask, tokens)
    if attention_mask is not None:
        eligible &= as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    if word_ids is not None:
        words = as_aligned_integers("word_ids", word_ids, tokens)
        eligible &= words >= 0
        choosing = xp.take_along_axis(choosing, _find_word_ends(xp, words, sequence_ids), axis=-1)
    chosen = eligible & (choosing < chance)
    result = xp.where(chosen & (treating < hidden), xp.asarray(mask_id, dtype=np.int32), tokens)
    if random_share > 0:
        random_ids = _draw_random_ids(replacing, vocab_size, replacement_ids)
        result = xp.where(chosen & (treating >= hidden) & (treating < replaced), random_ids, result)
    return MaskedLMBatch(result, xp.where(chosen, tokens, xp.asarray(ignore_index, dtype=np.int32)))


def _check_shares(*values: float) -> tuple[np.float32, np.float32, np.float32]:
    """The chance of a token, and the bounds below which its second draw hides or replaces it."""
    names = ("probability", "mask_share", "random_share")
    probability, mask_share, random_share = (
        check_float(name, value, minimum=0, maximum=1) for name, value in zip(names, values, strict=True)
    )
    if mask_share + random_share > 1:
        raise InvalidArgumentError(
            f"mask_share and random_share are {mask_share} and {random_share}, more than 1 together"
        )
    return np.float32(probability), np.float32(mask_share), np.float32(mask_share + random_share)


def _find_word_ends(xp: Any, words: Any, sequence_ids: Array | None) -> Any:
    """The place of the last token of each token's word."""
    ends = words[..., 1:] != words[..., :-1]
    if sequence_ids is not None:
        texts = as_aligned_integers("sequence_ids", sequence_ids, words)
        ends |= texts[..., 1:] != texts[..., :-1]
    ends = xp.concatenate([ends, xp.ones_like(words[..., :1], dtype=bool)], axis=-1)
    length = words.shape[-1]
    return compute_suffix_minimum(xp.where(ends, make_positions(xp, length, words.ndim), as_size(xp, length)))


def _draw_random_ids(
    draws: Any, vocab_size: int | None, replacement_ids: Sequence[int] | Array | None
) -> Any:
    if (vocab_size is None) == (replacement_ids is None):
        raise InvalidArgumentError(
            "give vocab_size or replacement_ids, one of the two, to draw random ids from; or random_share=0"
        )
    if vocab_size is not None:
        return draws_to_integers(draws, check_int("vocab_size", vocab_size, minimum=1))
    pool = as_int32("replacement_ids", replacement_ids)
    if pool.ndim != 1 or pool.shape[0] == 0:
        raise InvalidArgumentError(
            f"replacement_ids must have shape (n,) and hold at least one id, not shape {pool.shape}"
        )
    return gather(pool, draws_to_integers(draws, pool.shape[0]))
