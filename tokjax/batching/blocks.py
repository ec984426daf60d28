"""Packed blocks, and the names that other libraries have for what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokjax._arrays import prefix_maximum
from tokjax._namespace import Array, namespace
from tokjax.batching import segments
from tokjax.batching.labels import causal_lm_labels
from tokjax.errors import InvalidArgumentError

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
        total_tokens: tokens in all blocks, separators too, padding not; shape `()`.
    """

    ids: Array
    attention_mask: Array
    segment_ids: Array
    positions: Array
    document_ids: Array
    total_tokens: Array

    def causal_lm_labels(self, *, ignore_index: int = -100, loss_mask: Array | None = None) -> Array:
        """The next id within each segment, as `causal_lm_labels` gives it: `(blocks, block_size)`.

        Args:
            ignore_index: stands at the end of each segment, and on padding.
            loss_mask: which *targets* count; `None` for all.
        """
        return causal_lm_labels(
            self.ids,
            self.attention_mask,
            ignore_index=ignore_index,
            segment_ids=self.segment_ids,
            loss_mask=loss_mask,
        )

    @property
    def lengths(self) -> Array:
        """Tokens a block, `int32`, `(blocks,)`: `query_seq_lengths` of `jax.nn.dot_product_attention`."""
        return self.attention_mask.sum(axis=-1, dtype=np.int32)

    def cu_seqlens(self, max_segments: int) -> Array:
        """Where segments start and the last one ends, `int32`, `(blocks, max_segments + 1)`."""
        return segments.cu_seqlens(self.segment_ids, max_segments)

    def to_maxtext(self) -> dict[str, Array]:
        """As MaxText's training step takes it: targets are shifted already.

        They count where `targets_segmentation` is not 0, and hold the id 0 elsewhere. All are `int32`,
        `(blocks, block_size)`.
        """
        labels = self.causal_lm_labels(ignore_index=-1)
        xp = namespace(labels)
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
        xp = namespace(labels)
        return {
            "tokens": self.ids,
            loss_name: (labels >= 0).astype(np.float32 if loss_name == "loss_weight" else np.int32),
            "segment_ids": xp.where(self.segment_ids > 0, self.segment_ids, np.int32(-1)),
        }

    def to_huggingface(self, *, ignore_index: int = -100) -> dict[str, Any]:
        """As transformers' models take packed rows: labels are *not* shifted, the model does that.

        The first token of each segment is no label, so that nothing is predicted from the segment before.
        There is no attention mask, since models find the segments where positions begin again: with each
        segment, also where `positions` counts from the start of documents.

        Returns:
            `input_ids`, `labels` and `position_ids`, `int32`, `(blocks, block_size)`.
        """
        xp = namespace(self.segment_ids)
        begins = self._begins_segment()
        place = xp.arange(begins.shape[-1], dtype=np.int32)
        within = place - prefix_maximum(xp.where(begins, place, np.int32(0)))
        present = self.segment_ids > 0
        return {
            "input_ids": self.ids,
            "labels": xp.where(present & ~begins, self.ids, np.int32(ignore_index)),
            "position_ids": xp.where(present, within, np.int32(0)),
        }

    def _begins_segment(self) -> Array:
        xp = namespace(self.segment_ids)
        before = xp.concatenate(
            [xp.zeros_like(self.segment_ids[..., :1]), self.segment_ids[..., :-1]], axis=-1
        )
        return self.segment_ids != before  # type: ignore[no-any-return]
