"""Packed blocks, and their conversion to the batch formats of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, get_namespace, is_traced, jit_eager, to_host
from tokjax._util.checks import check_choice
from tokjax._util.display import display_batch
from tokjax.batching.labels import causal_lm_labels, compute_positions, find_starts
from tokjax.errors import InvalidArgumentError
from tokjax.masks import make_attention_mask
from tokjax.packing.segments import cu_seqlens

if TYPE_CHECKING:
    from typing import Any, Literal


@display_batch
class PackedBlocks(NamedTuple):
    """Blocks of packed tokens, ready for a device: a pytree of `int32` arrays, and of side columns.

    Attributes:
        ids: token ids, shape `(blocks, block_size)`; the pad id on padding.
        attention_mask: 1 on tokens and 0 on padding, shape `(blocks, block_size)`.
        segment_ids: number of the segment within its block, from 1; 0 on padding. Shape
            `(blocks, block_size)`.
        positions: position of each token, from 0 at the start of its segment, or of its document with
            `positions="document"`; 0 on padding. Shape `(blocks, block_size)`.
        document_ids: index of the input row, -1 on padding, shape `(blocks, block_size)`.
        loss_mask: 1 on the tokens that count as targets, 0 on other tokens and on padding, shape
            `(blocks, block_size)`; `None` if `pack_blocks` got no loss mask, or the dataset of a loader has
            no column of this name, in which case all tokens count.
        columns: other side columns of a dataset by name, in their own dtypes, shape `(blocks, block_size)`,
            with their fill value on padding. Values per document are repeated for its tokens. `None` without
            such columns.

    The first axis of every array is that of blocks. So `jax.tree.map(lambda a: a[:8], blocks)` is a batch
    too, and `jax.vmap`, `jax.lax.scan` and sharding over blocks work. The methods accept any number of
    leading axes: a single block, or microbatches of shape `(steps, blocks, block_size)`.
    """

    ids: Array
    attention_mask: Array
    segment_ids: Array
    positions: Array
    document_ids: Array
    loss_mask: Array | None = None
    columns: dict[str, Array] | None = None

    def causal_lm_labels(self, *, ignore_index: int = -100, loss_mask: Array | None = None) -> Array:
        """Returns the next id within each segment, as the function `causal_lm_labels` does.

        **A loss in JAX does not ignore the label -100.** Weight it by `tokjax.label_weights(labels)`.

        Args:
            ignore_index: label at the end of each segment, on padding, and for targets that do not count.
            loss_mask: mask of the *targets* that count, shape `(blocks, block_size)`. The default is the
                `loss_mask` of the blocks; if that is `None`, all targets count.

        Returns:
            Labels, `int32`, shape `(blocks, block_size)`.
        """
        return causal_lm_labels(
            self.ids,
            self.attention_mask,
            ignore_index=ignore_index,
            segment_ids=self.segment_ids,
            loss_mask=self.loss_mask if loss_mask is None else loss_mask,
        )

    @property
    def total_tokens(self) -> Array:
        """Number of tokens in all blocks, with separators and without padding: `int32`, shape `()`."""
        return self.attention_mask.sum(dtype=np.int32)

    @property
    def lengths(self) -> Array:
        """Number of tokens in each block, `int32`, shape `(blocks,)`.

        These are the `query_seq_lengths` of `jax.nn.dot_product_attention`.
        """
        return self.attention_mask.sum(axis=-1, dtype=np.int32)

    def cu_seqlens(self, max_segments: int) -> Array:
        """Computes the cumulative segment lengths of each block, as the function `cu_seqlens` does.

        Args:
            max_segments: maximum number of segments per block; static under `jax.jit`.

        Returns:
            Start of each segment and end of the last one, `int32`, shape `(blocks, max_segments + 1)`.
        """
        return cu_seqlens(self.segment_ids, max_segments)

    @jit_eager
    def to_maxtext(self) -> dict[str, Array]:
        """Returns the batch that MaxText's training step expects. Targets are already shifted.

        Targets count where `targets_segmentation` is not 0. Elsewhere their id is 0.

        Returns:
            `inputs`, `inputs_position`, `inputs_segmentation`, `targets`, `targets_position` and
            `targets_segmentation`, all `int32`, shape `(blocks, block_size)`.
        """
        labels = self.causal_lm_labels(ignore_index=-1)
        xp = get_namespace(labels)
        counts = labels >= 0
        zero = np.int32(0)
        return {
            "inputs": self.ids,
            "inputs_position": self.positions,
            "inputs_segmentation": self.segment_ids,
            "targets": xp.where(counts, labels, zero),
            "targets_position": self.positions,
            "targets_segmentation": xp.where(counts, self.segment_ids, zero),
        }

    def to_grain(self, feature: str = "tokens") -> dict[str, Array]:
        """Returns the arrays under the names that Grain's packing uses. Nothing is shifted.

        Args:
            feature: name of the ids, and prefix of the other names.

        Returns:
            `{feature}`, `{feature}_segment_ids` and `{feature}_positions`, `int32`, shape
            `(blocks, block_size)`.
        """
        return {
            feature: self.ids,
            f"{feature}_segment_ids": self.segment_ids,
            f"{feature}_positions": self.positions,
        }

    @jit_eager
    def to_levanter(self, loss_name: Literal["loss_weight", "loss_mask"] = "loss_weight") -> dict[str, Array]:
        """Returns the fields of Levanter's `LmExample`. The loss weight says whether the *next* token counts.

        Args:
            loss_name: name of the field of loss weights: `"loss_weight"` in releases of `marin-levanter`,
                `"loss_mask"` in releases of `levanter` up to 1.2.

        Returns:
            `tokens` and `segment_ids` (for the attention mask; -1 on padding), `int32`, and `loss_weight`,
            `float32`, or `loss_mask`, `int32`, all of shape `(blocks, block_size)`.

        Raises:
            InvalidArgumentError: `loss_name` is not one of these two names.
        """
        check_choice("loss_name", loss_name, ("loss_weight", "loss_mask"))
        labels = self.causal_lm_labels(ignore_index=-1)
        xp = get_namespace(labels)
        return {
            "tokens": self.ids,
            loss_name: (labels >= 0).astype(np.float32 if loss_name == "loss_weight" else np.int32),
            "segment_ids": xp.where(self.segment_ids > 0, self.segment_ids, np.int32(-1)),
        }

    @jit_eager
    def to_t5x(self, *, bos_id: int = 0) -> dict[str, Array]:
        """Returns the features of a decoder, as seqio's `LMFeatureConverter` makes them for T5X.

        Inputs are the targets, shifted right by one within each segment. So the first token of a segment is a
        target, too, unless `loss_mask` excludes it.

        Args:
            bos_id: id of the first input of each segment.

        Returns:
            `decoder_target_tokens`, `decoder_input_tokens`, `decoder_loss_weights` (1 on targets that count),
            `decoder_segment_ids` and `decoder_positions`, all `int32`, shape `(blocks, block_size)`.
        """
        xp = get_namespace(self.ids)
        shifted = xp.concatenate([self.ids[..., :1], self.ids[..., :-1]], axis=-1)
        present = self.segment_ids > 0
        inputs = xp.where(find_starts(self.segment_ids), np.int32(bos_id), shifted)
        weights = present if self.loss_mask is None else present & (self.loss_mask != 0)
        return {
            "decoder_target_tokens": self.ids,
            "decoder_input_tokens": xp.where(present, inputs, np.int32(0)),
            "decoder_loss_weights": weights.astype(np.int32),
            "decoder_segment_ids": self.segment_ids,
            "decoder_positions": self.positions,
        }

    @jit_eager
    def to_tunix(self) -> dict[str, Array]:
        """Returns the arguments that Tunix's `PeftTrainer` passes to its loss function. Nothing is shifted.

        The attention mask has a value for each pair of positions. So call this under `jax.jit`, as the
        function of `trainer.with_gen_model_input_fn`, for batches `blocks._asdict()`.

        Returns:
            `input_tokens` and `positions`, `int32`, and `input_mask`, `bool`, shape `(blocks, block_size)`:
            whether a token counts as a target of the token before it. `attention_mask`, `bool`, shape
            `(blocks, block_size, block_size)`.
        """
        targets = (self.segment_ids > 0) & ~find_starts(self.segment_ids)
        return {
            "input_tokens": self.ids,
            "input_mask": targets if self.loss_mask is None else targets & (self.loss_mask != 0),
            "positions": self.positions,
            "attention_mask": make_attention_mask(segment_ids=self.segment_ids)[..., 0, :, :],
        }

    def to_huggingface(self, *, ignore_index: int = -100, flash_attention: bool = False) -> dict[str, Any]:
        """Returns the batch that models of transformers expect for packed rows. Labels are *not* shifted.

        The first token of each segment is not a label, so that nothing is predicted from the previous
        segment. The batch has no attention mask: a model detects segments by positions that restart at 0. So
        `position_ids` restart with each segment, even if `positions` count from the start of documents.

        A model does this only without a key-value cache. Call it as `model(**batch, use_cache=False)`, or set
        `model.config.use_cache = False` (a `Trainer` does so since transformers 5). With the default,
        `use_cache=True`, tokens attend to earlier documents of the block.

        With FlashAttention, a model looks at the positions only if the batch is a single block. With several
        blocks, tokens attend to earlier documents unless `flash_attention` is set.

        Args:
            ignore_index: label of tokens that do not count.
            flash_attention: whether to add the segments in the form that FlashAttention takes. Their number
                differs from batch to batch, so this does not work under `jax.jit`.

        Returns:
            `input_ids`, `labels` and `position_ids`, shape `(blocks, block_size)`. From NumPy arrays they are
            `int64`, as torch's cross entropy requires, and ready for `torch.from_numpy`; from JAX arrays,
            `int32`. With `flash_attention`, also `cu_seq_lens_q` and `cu_seq_lens_k`: start of each segment
            in all blocks, concatenated, and the end of the last, `int32`, shape `(segments + 1,)`. The
            padding of a block is a segment. `max_length_q` and `max_length_k`, `int`: length of the longest.

        Raises:
            InvalidArgumentError: `flash_attention` is set under `jax.jit`.
        """
        batch = _convert_for_huggingface(self, ignore_index=ignore_index)
        if not flash_attention:
            return batch
        if is_traced(self.segment_ids):
            raise InvalidArgumentError(
                "flash_attention=True needs the number of segments, which is unknown under jax.jit; call "
                "to_huggingface outside of it"
            )
        xp = get_namespace(self.segment_ids)
        starts = np.array(to_host(find_starts(self.segment_ids)))
        starts[..., :1] = True  # a block that is empty
        bounds = np.append(np.flatnonzero(starts), starts.size).astype(np.int32)
        cu_seq_lens, max_length = xp.asarray(bounds), int(np.diff(bounds).max(initial=0))
        return {
            **batch,
            "cu_seq_lens_q": cu_seq_lens,
            "cu_seq_lens_k": cu_seq_lens,
            "max_length_q": max_length,
            "max_length_k": max_length,
        }


@jit_eager
def _convert_for_huggingface(blocks: PackedBlocks, *, ignore_index: int) -> dict[str, Any]:
    xp = get_namespace(*blocks)
    positions = compute_positions(blocks.segment_ids, segment_ids=blocks.segment_ids)
    counts = positions > 0
    if blocks.loss_mask is not None:
        counts = counts & (blocks.loss_mask != 0)
    columns = {
        "input_ids": blocks.ids,
        "labels": xp.where(counts, blocks.ids, np.int32(ignore_index)),
        "position_ids": positions,
    }
    if xp is np:
        return {name: column.astype(np.int64) for name, column in columns.items()}
    return columns
