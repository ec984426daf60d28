"""Masked language modelling: some tokens are masked, and the model predicts them."""

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
from tokjax._util.display import display_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.core.array_inputs import as_aligned_integers, as_aligned_mask, as_tokens
from tokjax.errors import InvalidArgumentError
from tokjax.objectives.random_draws import check_draws, draws_to_integers

if TYPE_CHECKING:
    from collections.abc import Sequence


@display_batch
class MaskedLMBatch(NamedTuple):
    """Training batch of a masked language model: a pytree of `int32` arrays of the shape of the ids.

    Attributes:
        ids: input ids, with some tokens masked or replaced.
        labels: original id of each chosen token, `ignore_index` elsewhere. Labels are not shifted.
    """

    ids: Array
    labels: Array


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
    """Chooses tokens at random, masks most of them, and makes all of them labels, as BERT does.

    Each token is chosen with `probability`; with `word_ids`, each word is. Then each chosen token becomes the
    mask id (80%) or a random id (10%), or stays unchanged (10%). These decisions are independent, also for
    tokens of one word.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (..., 3, length))`. The three numbers of a token decide
            whether it is chosen, whether it is masked, replaced or unchanged, and which random id replaces
            it.
        mask_id: id of the mask token, `tokjax.mask_id(tokenizer)`.
        special_tokens_mask: mask of the tokens that are never chosen, not 0 on these, shape `(..., length)`.
            By default, that of a `PaddedBatch` covers padding too.
        vocab_size: upper limit of random ids, which are from 0 to `vocab_size - 1`, special tokens included.
        replacement_ids: ids to choose random ids from, instead of `vocab_size`, shape `(n,)`; for example the
            ids of all tokens that are not special.
        attention_mask: mask of tokens, 0 on padding, which is never chosen, shape `(..., length)`. Not needed
            if `special_tokens_mask` covers padding.
        word_ids: word of each token, as in a `PaddedBatch`, shape `(..., length)`. Adjacent tokens with the
            same number are a word, which is chosen by the random number of its last token. Tokens without a
            word (-1) are never chosen.
        sequence_ids: text of each token, shape `(..., length)`. Pass it if a row holds several texts, so that
            no word extends over two texts.
        probability: probability that a token or word is chosen, from 0 to 1.
        mask_share: fraction of chosen tokens that become the mask id.
        random_share: fraction of chosen tokens that become a random id. With 0, neither `vocab_size` nor
            `replacement_ids` is needed.
        ignore_index: label of tokens that are not chosen.

    Returns:
        Ids and labels, `int32`, shape `(..., length)`; JAX arrays if one of the inputs is, else NumPy arrays.

    Raises:
        InvalidArgumentError: an array has the wrong shape, `mask_share + random_share` is more than 1, or not
            exactly one of `vocab_size` and `replacement_ids` is given where random ids are needed.

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
    threshold, mask_bound, random_bound = _check_shares(probability, mask_share, random_share)
    optional_columns = (special_tokens_mask, attention_mask, word_ids, sequence_ids)
    xp = get_namespace(ids, draws, *optional_columns, replacement_ids, mask_id, ignore_index)
    tokens = as_tokens(ids)
    draws = check_draws(draws, (*tokens.shape[:-1], 3, tokens.shape[-1]))
    choice_draws, action_draws, id_draws = (draws[..., i, :] for i in range(3))
    eligible = ~as_aligned_mask(xp, "special_tokens_mask", special_tokens_mask, tokens)
    if attention_mask is not None:
        eligible &= as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    if word_ids is not None:
        words = as_aligned_integers("word_ids", word_ids, tokens)
        eligible &= words >= 0
        choice_draws = xp.take_along_axis(choice_draws, _find_word_ends(xp, words, sequence_ids), axis=-1)
    chosen = eligible & (choice_draws < threshold)
    result = xp.where(chosen & (action_draws < mask_bound), xp.asarray(mask_id, dtype=np.int32), tokens)
    if random_share > 0:
        random_ids = _draw_random_ids(id_draws, vocab_size, replacement_ids)
        is_random = (action_draws >= mask_bound) & (action_draws < random_bound)
        result = xp.where(chosen & is_random, random_ids, result)
    return MaskedLMBatch(result, xp.where(chosen, tokens, xp.asarray(ignore_index, dtype=np.int32)))


def _check_shares(*values: float) -> tuple[np.float32, np.float32, np.float32]:
    """Checks the shares, and returns thresholds for random numbers.

    Returns:
        Below the first, a token is chosen; below the second, it is masked; below the third, it is replaced.
    """
    names = ("probability", "mask_share", "random_share")
    probability, mask_share, random_share = (
        check_float(name, value, minimum=0, maximum=1) for name, value in zip(names, values, strict=True)
    )
    if mask_share + random_share > 1:
        raise InvalidArgumentError(
            f"mask_share and random_share are {mask_share} and {random_share}, more than 1 in total; pass "
            "fractions of the chosen tokens, such as 0.8 and 0.1"
        )
    return np.float32(probability), np.float32(mask_share), np.float32(mask_share + random_share)


def _find_word_ends(xp: Any, words: Any, sequence_ids: Array | None) -> Any:
    """Returns the position of the last token of each token's word."""
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
            "pass either vocab_size or replacement_ids, to choose random ids from, or random_share=0"
        )
    if vocab_size is not None:
        return draws_to_integers(draws, check_int("vocab_size", vocab_size, minimum=1))
    pool = as_int32("replacement_ids", replacement_ids)
    if pool.ndim != 1 or pool.shape[0] == 0:
        raise InvalidArgumentError(
            f"replacement_ids must hold at least one id, shape (n,), not shape {pool.shape}"
        )
    return gather(pool, draws_to_integers(draws, pool.shape[0]))
