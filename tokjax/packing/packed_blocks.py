"""Packed blocks, and their conversion to the batch formats of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._util.arrays import Array, get_namespace
from tokjax._util.display import describe_batch
from tokjax._util.eager_jit import jit_eager
from tokjax.batching.labels import causal_lm_labels
from tokjax.errors import InvalidArgumentError
from tokjax.packing import segments

if TYPE_CHECKING:
    from typing import Any, Literal


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

    def __repr__(self) -> str:
        """Returns the dtype and shape of each array."""
        return describe_batch(self)

    def causal_lm_labels(self, *, ignore_index: int = -100, loss_mask: Array | None = None) -> Array:
        """Returns the next id within each segment, as the function `causal_lm_labels` does.

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
        return segments.cu_seqlens(self.segment_ids, max_segments)

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
        """Returns the batch that models of transformers expect for packed rows. Labels are *not* shifted.

        The first token of each segment is not a label, so that nothing is predicted from the previous
        segment. The batch has no attention mask: a model detects segments by positions that restart at 0. So
        `position_ids` restart with each segment, even if `positions` count from the start of documents.

        A model does this only without a key-value cache. Call it as `model(**batch, use_cache=False)`, or set
        `model.config.use_cache = False` (a `Trainer` does so since transformers 5). With the default,
        `use_cache=True`, tokens attend to earlier documents of the block.

        Args:
            ignore_index: label of tokens that do not count.

        Returns:
            `input_ids`, `labels` and `position_ids`, shape `(blocks, block_size)`. From NumPy arrays they are
            `int64`, as torch's cross entropy requires, and ready for `torch.from_numpy`; from JAX arrays,
            `int32`.
        """
        xp = get_namespace(*self)
        positions = segments.compute_positions(self.segment_ids)
        counts = positions > 0
        if self.loss_mask is not None:
            counts = counts & (self.loss_mask != 0)
        columns = {
            "input_ids": self.ids,
            "labels": xp.where(counts, self.ids, np.int32(ignore_index)),
            "position_ids": positions,
        }
        if xp is np:
            return {name: column.astype(np.int64) for name, column in columns.items()}
        return columns
