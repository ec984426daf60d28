"""Packing of rows into blocks: plans, packed blocks, segment boundaries, orders for context parallelism."""

from tokjax._util.imports import mark_namespace
from tokjax.packing.apply_plan import apply_packing, pack_blocks
from tokjax.packing.context_parallel import (
    reorder_for_context_parallel,
    restore_context_parallel_order,
)
from tokjax.packing.packed_blocks import PackedBlocks
from tokjax.packing.plans import PackingPlan, plan_packing
from tokjax.packing.segments import (
    PreferenceSegments,
    cu_seqlens,
    cudnn_segments,
    segment_lengths,
    split_preference_pairs,
)

__all__ = [
    "PackedBlocks",
    "PackingPlan",
    "PreferenceSegments",
    "apply_packing",
    "cu_seqlens",
    "cudnn_segments",
    "pack_blocks",
    "plan_packing",
    "reorder_for_context_parallel",
    "restore_context_parallel_order",
    "segment_lengths",
    "split_preference_pairs",
]
mark_namespace(__name__)
