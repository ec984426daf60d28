"""Packed blocks, and the names that other libraries have for what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, compute_prefix_maximum, get_namespace, make_positions
from tokjax._util.display import describe_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.batching.labels import causal_lm_labels
from tokjax.errors import InvalidArgumentError
from tokjax.packing import segments

if TYPE_CHECKING:
    from typing import Any, Literal


class PackedBlocks(NamedTuple):
    """Blocks of packed tokens, ready for a device: a pytree of `int32` arrays.

    Attributes:
        ids: `(blocks, block_size)`, the pad id on padding.
        attention_mask: `(blocks, block_size)`, 1 on tokens and 0 on padding.
        segment_ids: `(blocks, block_size)`, the documents of a block from 1, 0 on padding.
        positions: `(blocks, block_size)`, from 0 at the start of each segment; or of each document, if
            `apply_packing` was told so.
        document_ids: `(blocks, block_size)`, which row of the input, -1 on padding.
        loss_mask: `(blocks, block_size)`, 1 on the tokens that count as targets and 0 on padding; `None`
            where none was given to `pack_blocks`: then all of them count.

    All arrays have the axis of blocks first, so `jax.tree.map(lambda a: a[:8], blocks)` is a batch too, and
    `jax.vmap`, `jax.lax.scan` and shardings over blocks work. The methods take any number of axes before the
    last one: one block, or microbatches of shape `(steps, blocks, block_size)`.
    """

    ids: Array
    attention_mask: Array
    segment_ids: Array
    positions: Array
    document_ids: Array
    loss_mask: Array | None = None

    def __repr__(self) -> str:
        """The dtype and shape of each array."""
        return describe_batch(self)

    def causal_lm_labels(self, *, ignore_index: int = -100, loss_mask: Array | None = None) -> Array:
        """The next id within each segment, as `causal_lm_labels` gives it: `(blocks, block_size)`.

        Args:
            ignore_index: stands at the end of each segment, and on padding.
            loss_mask: which *targets* count, `(blocks, block_size)`; by default those of the blocks' own
                `loss_mask`, and all where there is none.
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
        """Tokens in all blocks, separators too, padding not: `int32`, shape `()`."""
        return self.attention_mask.sum(dtype=np.int32)

    @property
    def lengths(self) -> Array:
        """Tokens a block, `int32`, `(blocks,)`: `query_seq_lengths` of `jax.nn.dot_product_attention`."""
        return self.attention_mask.sum(axis=-1, dtype=np.int32)

    def cu_seqlens(self, max_segments: int) -> Array:
        """Where segments start and the last one ends, `int32`, `(blocks, max_segments + 1)`."""
        return segments.cu_seqlens(self.segment_ids, max_segments)

    @jit_eager
    def to_maxtext(self) -> dict[str, Array]:
        """As MaxText's training step takes it: targets are shifted already.

        They count where `targets_segmentation` is not 0, and hold the id 0 elsewhere. All are `int32`,
        `(blocks, block_size)`.
        """
        labels = self.causal_lm_labels(ignore_index=-1)
        xp = get_namespace(labels)
        counts = labels >= 0
        nothing = np.int32(0)
        return {
            "inputs": self.ids,
            "inputs_position": self.positions,
            "inputs_segmentation": self.segment_ids,
            "targets": xp.where(counts, labels, nothing),
            "targets_position": self.positions,
            "targets_segmentation": xp.where(counts, self.segment_ids, nothing),
        }

    def to_grain(self, feature: str = "tokens") -> dict[str, Array]:
        """As Grain's packing names it: nothing is shifted.

        Args:
            feature: the name of the ids, which the other names begin with.

        Returns:
            `int32` arrays, `(blocks, block_size)`.
        """
        return {
            feature: self.ids,
            f"{feature}_segment_ids": self.segment_ids,
            f"{feature}_positions": self.positions,
        }

    @jit_eager
    def to_levanter(self, loss_name: Literal["loss_weight", "loss_mask"] = "loss_weight") -> dict[str, Array]:
        """Returns the fields of Levanter's `LmExample`; the weight tells whether the *next* token counts.

        Args:
            loss_name: the name of that field: `"loss_weight"` in releases of `marin-levanter`, `"loss_mask"`
                in those of `levanter` up to 1.2.

        Returns:
            `tokens` and `segment_ids` (of the attention mask; -1 on padding), `int32`, and `loss_weight`,
            `float32`, or `loss_mask`, `int32`, all `(blocks, block_size)`.
        """
        if loss_name not in ("loss_weight", "loss_mask"):
            raise InvalidArgumentError(f"loss_name must be 'loss_weight' or 'loss_mask', not {loss_name!r}")
        labels = self.causal_lm_labels(ignore_index=-1)
        xp = get_namespace(labels)
        return {
            "tokens": self.ids,
            loss_name: (labels >= 0).astype(np.float32 if loss_name == "loss_weight" else np.int32),
            "segment_ids": xp.where(self.segment_ids > 0, self.segment_ids, np.int32(-1)),
        }

    @jit_eager
    def to_huggingface(self, *, ignore_index: int = -100) -> dict[str, Any]:
        """Returns the blocks as models of transformers take packed rows: labels are *not* shifted.

        The first token of each segment is no label, so that nothing is predicted from the segment before.
        There is no attention mask: a model finds the segments where positions begin again, with each segment
        (also where `positions` counts from the start of documents). It does so only without a cache of keys
        and values. Call it as `model(**batch, use_cache=False)`, or set `model.config.use_cache = False`
        (a `Trainer` does so, from transformers 5 on). With the default of models, `use_cache=True`, tokens
        attend to the documents before their own.

        Args:
            ignore_index: the label of tokens that don't count.

        Returns:
            `input_ids`, `labels` and `position_ids`, `(blocks, block_size)`: `int64` from NumPy arrays, as
            torch's cross entropy needs (`torch.from_numpy` takes them as they are); `int32` from JAX arrays.
        """
        xp = get_namespace(*self)
        segments = self.segment_ids
        before = xp.concatenate([xp.zeros_like(segments[..., :1]), segments[..., :-1]], axis=-1)
        begins, present = segments != before, segments > 0
        position = make_positions(xp, segments.shape[-1], segments.ndim)
        within = position - compute_prefix_maximum(xp.where(begins, position, np.int32(0)))
        counts = present & ~begins
        if self.loss_mask is not None:
            counts = counts & (self.loss_mask != 0)
        columns = {
            "input_ids": self.ids,
            "labels": xp.where(counts, self.ids, np.int32(ignore_index)),
            "position_ids": xp.where(present, within, np.int32(0)),
        }
        if xp is np:
            return {name: column.astype(np.int64) for name, column in columns.items()}
        return columns
