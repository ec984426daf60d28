from .apply_plan import (
    apply_packing as apply_packing,
    pack_blocks as pack_blocks,
)
from .context_parallel import (
    reorder_for_context_parallel as reorder_for_context_parallel,
    restore_context_parallel_order as restore_context_parallel_order,
)
from .packed_blocks import (
    PackedBlocks as PackedBlocks,
)
from .plans import (
    PackingPlan as PackingPlan,
    plan_packing as plan_packing,
)
from .segments import (
    PreferenceSegments as PreferenceSegments,
    cu_seqlens as cu_seqlens,
    cudnn_segments as cudnn_segments,
    segment_lengths as segment_lengths,
    split_preference_pairs as split_preference_pairs,
)
