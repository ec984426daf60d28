"""Masked and prefix language modelling, and masked diffusion: a part of the tokens is predicted."""

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
    jit_eager,
    make_positions,
)
from tokjax._util.checks import check_float, check_id, check_int
from tokjax._util.display import display_batch, short_repr
from tokjax.batching.labels import causal_lm_labels
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


@display_batch
class MaskedDiffusionBatch(NamedTuple):
    """Training batch of a masked diffusion model: a pytree of arrays of the shape of the ids.

    Attributes:
        ids: input ids, with some tokens masked, `int32`, shape `(..., length)`.
        labels: original id of each masked token, `ignore_index` elsewhere, `int32`, shape `(..., length)`.
            Labels are not shifted.
        weights: weight of the loss at each position, `float32`, shape `(..., length)`: 1 divided by the rate
            at masked tokens, 0 elsewhere.
    """

    ids: Array
    labels: Array
    weights: Array


@jit_eager
def masked_diffusion(
    ids: Array,
    attention_mask: Array,
    draws: Array,
    rates: Array,
    *,
    mask_id: int,
    segment_ids: Array | None = None,
    loss_mask: Array | None = None,
    ignore_index: int = -100,
) -> MaskedDiffusionBatch:
    """Masks each token with the probability of its row or document, as LLaDA and MDLM do.

    The rate is the time `t` of the diffusion, usually uniform in `[0, 1)`. The loss of LLaDA is the sum of
    `weights * cross_entropy`, divided by the number of tokens that can be masked. It is an upper bound of the
    negative log-likelihood per token, in expectation over draws and rates. `masked_lm` has one rate for all
    rows, and also replaces tokens by random ids.

    Args:
        ids: token ids, integers, shape `(..., length)`.
        attention_mask: mask of tokens, 0 on padding, which is never masked, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (..., length))`; a token whose number is below its rate
            is masked.
        rates: probability that a token is masked, from 0 to 1, `float32`; one per row, shape `(...)`, or with
            `segment_ids` one per document, shape `(..., max_segments)`. For uniform rates:
            `draw_uniform(source, shape)`. LLaDA's rates are at least 0.001, which limits the weights to 1000:
            `np.maximum(rates, np.float32(0.001))`.
        mask_id: id of the mask token, `tokjax.mask_id(tokenizer)`.
        segment_ids: index of the document of each position in packed rows, from 1, and 0 on padding;
            integers, shape `(..., length)`. Tokens of document `i` have the rate `rates[..., i - 1]`.
        loss_mask: mask of the tokens that can be masked, 0 on the prompts of fine-tuning, shape
            `(..., length)`.
        ignore_index: label of tokens that are not masked.

    Returns:
        Ids, labels and weights; JAX arrays if one of the inputs is, else NumPy arrays.

    Raises:
        InvalidArgumentError: an array has the wrong shape or dtype, a rate is not from 0 to 1, or
            `segment_ids` has more documents than `rates`. Values are not checked in JAX arrays; tokens of
            documents without a rate are then not masked.

    >>> ids, rates = np.array([[11, 12, 13, 14]]), np.float32([0.5])
    >>> batch = masked_diffusion(ids, np.ones_like(ids), np.float32([[0.3, 0.8, 0.4, 0.6]]), rates, mask_id=4)
    >>> batch
    MaskedDiffusionBatch(ids=int32[1,4], labels=int32[1,4], weights=float32[1,4])
    >>> batch.ids, batch.labels
    (array([[ 4, 12,  4, 14]], dtype=int32), array([[  11, -100,   13, -100]], dtype=int32))
    >>> batch.weights
    array([[2., 0., 2., 0.]], dtype=float32)
    """
    check_id("mask_id", mask_id)
    check_id("ignore_index", ignore_index)
    xp = get_namespace(ids, attention_mask, draws, rates, segment_ids, loss_mask, mask_id, ignore_index)
    tokens = as_tokens(ids)
    draws = check_draws(draws, tokens.shape)
    eligible = as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    if loss_mask is not None:
        eligible = eligible & as_aligned_mask(xp, "loss_mask", loss_mask, tokens)
    if segment_ids is None:
        token_rates = check_draws(rates, tokens.shape[:-1], "rates")[..., None]
    else:
        segments = as_aligned_integers("segment_ids", segment_ids, tokens)
        token_rates, has_rate = _look_up_rates(xp, rates, segments)
        eligible = eligible & has_rate
    masked = eligible & (draws < token_rates)
    one, zero = np.float32(1), np.float32(0)
    return MaskedDiffusionBatch(
        xp.where(masked, xp.asarray(mask_id, dtype=np.int32), tokens),
        xp.where(masked, tokens, xp.asarray(ignore_index, dtype=np.int32)),
        xp.where(masked, one / xp.where(masked, token_rates, one), zero),
    )


def _look_up_rates(xp: Any, rates: Array, segments: Any) -> tuple[Any, Any]:
    """Returns the rate of the document of each position, and whether it has one; shape `(..., length)`."""
    max_segments = np.shape(rates)[-1] if np.ndim(rates) else 0
    values = check_draws(rates, (*segments.shape[:-1], max(max_segments, 1)), "rates")
    if xp is np and segments.size and not 0 <= segments.min() <= segments.max() <= max_segments:
        raise InvalidArgumentError(
            f"segment_ids are from {segments.min()} to {segments.max()}, but rates has {max_segments} per "
            "row; pass one rate for each document, numbered from 1"
        )
    has_rate = (segments > 0) & (segments <= np.int32(max_segments))
    index = xp.where(has_rate, segments - np.int32(1), np.int32(0))
    return xp.take_along_axis(xp.asarray(values), index, axis=-1), has_rate


@short_repr
class PrefixLMBatch(NamedTuple):
    """Labels and prefixes for a prefix language model, whose inputs are the ids: a pytree of `int32` arrays.

    Attributes:
        labels: id of the next token if that is in the suffix, else `ignore_index`, shape `(..., length)`.
            Labels are already shifted.
        prefix_mask: 1 on tokens of the prefix, which attend to each other in both directions, shape
            `(..., length)`.
        prefix_lengths: number of tokens of each prefix, shape `(...)`.
    """

    labels: Array
    prefix_mask: Array
    prefix_lengths: Array


@jit_eager
def prefix_lm(ids: Array, attention_mask: Array, draws: Array, *, ignore_index: int = -100) -> PrefixLMBatch:
    """Splits each row into a prefix and a suffix to predict, each of at least one token.

    All splits are equally likely, as in T5. A row of one token is all prefix, and has no labels.

    Args:
        ids: token ids, integers, shape `(..., length)`, with one document per row.
        attention_mask: mask of tokens, not 0 on these, shape `(..., length)`.
        draws: random numbers, `draw_uniform(source, (...))`, one per row.
        ignore_index: label of positions whose next token is not in the suffix.

    Returns:
        Labels, prefix mask and prefix lengths; JAX arrays if one of the inputs is, else NumPy arrays.

    Raises:
        InvalidArgumentError: an array has the wrong shape.

    >>> ids, mask = np.array([[3, 6, 7, 4, 0]]), np.array([[1, 1, 1, 1, 0]])
    >>> batch = prefix_lm(ids, mask, np.float32([0.5]))
    >>> batch.labels, batch.prefix_lengths
    (array([[-100,    7,    4, -100, -100]], dtype=int32), array([2], dtype=int32))
    """
    xp = get_namespace(ids, attention_mask, draws)
    tokens = as_tokens(ids)
    valid = as_aligned_mask(xp, "attention_mask", attention_mask, tokens)
    draws = check_draws(draws, tokens.shape[:-1])
    lengths = xp.sum(valid, axis=-1, dtype=np.int32)
    splits = np.int32(1) + draws_to_integers(draws, xp.maximum(lengths - np.int32(1), np.int32(1)))
    prefix_lengths = xp.minimum(splits, lengths)
    prefix = valid & (xp.cumsum(valid, axis=-1, dtype=np.int32) <= prefix_lengths[..., None])
    labels = causal_lm_labels(tokens, valid, ignore_index=ignore_index, loss_mask=valid & ~prefix)
    return PrefixLMBatch(labels, prefix.astype(np.int32), xp.asarray(prefix_lengths))
