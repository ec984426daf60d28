"""Calls of every batching function that runs under `jax.jit`, with arrays of a large batch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tokjax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Cases = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]
    """Functions and their arguments, by name."""

VOCAB_SIZE = 50_257
SENTINELS = range(VOCAB_SIZE, VOCAB_SIZE + 1000)
EOS, PAD, MASK = 1, 0, 2
SEGMENTS = 8
SPANS, WORDS = 16, 64
BYTES_PER_TOKEN = 4
TAGS = tokjax.align.TagSet(("PER", "LOC", "ORG"))
MASKED_ROWS = 64
"""Factor by which attention masks have fewer rows, because their size is quadratic in the length."""


class Batch(NamedTuple):
    """Arrays on the host that the calls are made from.

    Attributes:
        ids: random token ids, shape `(rows, length)`.
        padded: 1 for tokens and 0 for padding on the right, shape `(rows, length)`.
        holes: `padded` with a tenth of the tokens masked, shape `(rows, length)`.
        segments: segment ids from 1, shape `(rows, length)`.
        lengths: number of tokens per row, shape `(rows,)`.
    """

    ids: NDArray[np.int32]
    padded: NDArray[np.int32]
    holes: NDArray[np.int32]
    segments: NDArray[np.int32]
    lengths: NDArray[np.int32]


def make_batch(rows: int, length: int) -> Batch:
    """Returns random rows, whose lengths are between a quarter of `length` and `length`."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(length // 4, length + 1, rows).astype(np.int32)
    present = np.arange(length) < lengths[:, None]
    return Batch(
        rng.integers(3, VOCAB_SIZE, (rows, length), dtype=np.int32),
        present.astype(np.int32),
        (present & (rng.random((rows, length)) < 0.9)).astype(np.int32),
        np.sort(rng.integers(1, SEGMENTS + 1, (rows, length), dtype=np.int32), axis=1),
        lengths,
    )


def make_cases(rows: int, length: int) -> Iterator[tuple[str, tuple[Callable[..., Any], tuple[Any, ...]]]]:
    """Yields all calls by name. Each group is made lazily, to limit memory."""
    batch = make_batch(rows, length)
    for make_group in (
        make_padding_cases,
        make_label_cases,
        make_packing_cases,
        make_mask_cases,
        make_objective_cases,
        make_alignment_cases,
    ):
        yield from make_group(batch).items()


def _make_ragged(batch: Batch) -> tokjax.Ragged:
    return tokjax.ragged_from_rows([row[:n] for row, n in zip(batch.ids, batch.lengths, strict=True)])


def _make_draws(*shape: int) -> Any:
    return tokjax.objectives.draw_uniform(np.random.default_rng(0), shape)


def make_padding_cases(batch: Batch) -> Cases:
    length = batch.ids.shape[1]
    pad = partial(tokjax.pad_ragged, length=length, pad_id=PAD)
    pad_rows = partial(tokjax.quick.batch_pad_sequences, max_length=length, pad_value=PAD)
    pad_one = partial(tokjax.quick.pad_sequence, max_length=2 * batch.ids.size, pad_value=PAD)
    return {
        "pad_ragged": (pad, (_make_ragged(batch),)),
        "batch_pad_sequences": (pad_rows, (batch.ids, batch.lengths)),
        "pad_sequence": (pad_one, (batch.ids.reshape(-1),)),
    }


def make_label_cases(batch: Batch) -> Cases:
    labels = tokjax.causal_lm_labels
    find_ends = partial(
        tokjax.masks.find_document_boundaries, eos_token=EOS, max_documents=batch.ids.size // 64
    )
    return {
        "labels, right-padded": (labels, (batch.ids, batch.padded)),
        "labels, segments": (
            lambda i, m, s: labels(i, m, segment_ids=s),
            (batch.ids, batch.padded, batch.segments),
        ),
        "labels, holes": (labels, (batch.ids, batch.holes)),
        "labels, loss mask": (
            lambda i, m, c: labels(i, m, loss_mask=c),
            (batch.ids, batch.padded, batch.holes),
        ),
        "to_one_based": (tokjax.quick.to_one_based, (batch.ids,)),
        "to_zero_based": (tokjax.quick.to_zero_based, (batch.ids,)),
        "find_document_boundaries": (find_ends, (np.where(batch.ids % 97, batch.ids, EOS).reshape(-1),)),
    }


def make_packing_cases(batch: Batch) -> Cases:
    ragged = _make_ragged(batch)
    plan = tokjax.packing.plan_packing(ragged.lengths, batch.ids.shape[1], "best_fit")
    blocks = tokjax.packing.apply_packing(plan, ragged, pad_id=PAD)
    segments = (batch.segments,)
    return {
        "apply_packing": (partial(tokjax.packing.apply_packing, pad_id=PAD), (plan, ragged)),
        "segment_lengths": (partial(tokjax.packing.segment_lengths, max_segments=SEGMENTS), segments),
        "cu_seqlens": (partial(tokjax.packing.cu_seqlens, max_segments=SEGMENTS), segments),
        "cudnn_segments": (partial(tokjax.packing.cudnn_segments, max_segments=SEGMENTS), segments),
        "PackedBlocks.causal_lm_labels": (tokjax.PackedBlocks.causal_lm_labels, (blocks,)),
        "PackedBlocks.to_maxtext": (tokjax.PackedBlocks.to_maxtext, (blocks,)),
        "PackedBlocks.to_grain": (tokjax.PackedBlocks.to_grain, (blocks,)),
        "PackedBlocks.to_levanter": (tokjax.PackedBlocks.to_levanter, (blocks,)),
        "PackedBlocks.to_huggingface": (tokjax.PackedBlocks.to_huggingface, (blocks,)),
    }


def make_mask_cases(batch: Batch) -> Cases:
    length = batch.ids.shape[1]
    rows = max(1, len(batch.ids) // MASKED_ROWS)
    segments, padded, prefix_lengths = batch.segments[:rows], batch.padded[:rows], batch.lengths[:rows] // 2
    prefixes = (np.arange(length) < prefix_lengths[:, None]).astype(np.int32)
    mask = np.asarray(tokjax.masks.segment_mask(segments))
    make = tokjax.masks.make_attention_mask
    suffix = f", {rows} rows"
    return {
        "create_attention_mask": (
            partial(tokjax.masks.create_attention_mask, max_length=length),
            (batch.lengths,),
        ),
        "padding_mask": (tokjax.masks.padding_mask, (batch.padded,)),
        f"attention mask{suffix}": (lambda s: make(segment_ids=s), (segments,)),
        f"attention mask, padding{suffix}": (lambda m: make(attention_mask=m), (padded,)),
        f"attention mask, window{suffix}": (lambda s: make(segment_ids=s, window=128), (segments,)),
        f"attention mask, prefix{suffix}": (lambda p: make(in_prefix=p), (prefixes,)),
        f"segment_mask{suffix}": (tokjax.masks.segment_mask, (segments,)),
        f"prefix_mask{suffix}": (tokjax.masks.prefix_mask, (prefixes,)),
        f"unmask_empty_rows{suffix}": (tokjax.masks.unmask_empty_rows, (mask,)),
        f"additive_mask{suffix}": (partial(tokjax.masks.additive_mask, dtype="bfloat16"), (mask,)),
    }


def make_objective_cases(batch: Batch) -> Cases:
    rows, length = batch.ids.shape
    ids, mask, token_draws = batch.ids, batch.padded, _make_draws(rows, length)
    ragged = _make_ragged(batch)
    mask_tokens = partial(tokjax.objectives.masked_lm, mask_id=MASK, vocab_size=VOCAB_SIZE)
    corrupt = partial(tokjax.objectives.span_corruption, sentinel_ids=SENTINELS, eos_id=EOS, pad_id=PAD)
    mix = partial(
        tokjax.objectives.denoising_mixture,
        denoisers=tokjax.objectives.UL2_DENOISERS,
        sentinel_ids=SENTINELS,
        eos_id=EOS,
        pad_id=PAD,
    )
    size = len(ragged.ids) + 3 * rows
    fill = partial(tokjax.objectives.fill_in_the_middle, prefix_id=3, middle_id=4, suffix_id=5, size=size)
    mask_answers = partial(tokjax.objectives.assistant_loss_mask, start_ids=[7, 8], end_ids=[9])
    return {
        "draw_uniform": (
            partial(tokjax.objectives.draw_uniform, shape=(rows, 3, length)),
            (jax.random.key(0),),
        ),
        "masked language modelling": (
            lambda i, d, s: mask_tokens(i, d, special_tokens_mask=s),
            (ids, _make_draws(rows, 3, length), 1 - mask),
        ),
        "span_corruption": (corrupt, (ids, mask, token_draws)),
        "denoising_mixture": (mix, (ids, mask, _make_draws(rows, length + 1))),
        "prefix_lm": (tokjax.objectives.prefix_lm, (ids, mask, _make_draws(rows))),
        "fill_in_the_middle": (fill, (ragged, _make_draws(rows, 4))),
        "completion_loss_mask": (
            partial(tokjax.objectives.completion_loss_mask, length=length),
            (batch.lengths,),
        ),
        "assistant_loss_mask": (mask_answers, (np.where(ids % 31, ids, 7),)),
    }


def make_alignment_cases(batch: Batch) -> Cases:
    """Makes calls with tokens of four bytes, and with 64 words and 16 entities per row."""
    rows, length = batch.ids.shape
    starts = 1 + BYTES_PER_TOKEN * np.arange(length, dtype=np.int32)
    offsets = np.broadcast_to(np.stack([starts, starts + BYTES_PER_TOKEN], -1), (rows, length, 2))
    offsets = offsets * batch.padded[..., None]
    word_ids = np.where(batch.padded, np.arange(length) * WORDS // length, -1).astype(np.int32)
    word_labels = np.ones((rows, WORDS), np.int32)
    fewer_rows = max(1, rows // MASKED_ROWS)
    label_words = partial(tokjax.align.words_from_labels, num_words=WORDS)
    return {
        "labels_from_words": (tokjax.align.labels_from_words, (word_ids, word_labels)),
        "words_from_labels": (label_words, (word_ids, batch.padded)),
        "words_from_labels, majority": (
            partial(label_words, method="majority", tagset=TAGS),
            (word_ids, batch.padded),
        ),
        f"word_ids_from_spans, {fewer_rows} rows": (
            tokjax.align.word_ids_from_spans,
            (offsets[:fewer_rows], _make_spans(fewer_rows, length, WORDS)),
        ),
    }


def _make_spans(rows: int, length: int, count: int) -> NDArray[np.int32]:
    """Returns evenly spaced byte spans, with gaps as long as the spans, shape `(rows, count, 2)`."""
    step = BYTES_PER_TOKEN * length // count
    starts = 1 + step * np.arange(count, dtype=np.int32)
    return np.broadcast_to(np.stack([starts, starts + step // 2], -1), (rows, count, 2)).astype(np.int32)


def put_on_device(arguments: Any) -> Any:
    """Puts all arrays of a pytree on the default device."""
    return jax.tree.map(jnp.asarray, arguments)


def count_bytes(*trees: Any) -> int:
    """Returns the total size of the arrays in pytrees, in bytes."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(trees))
