"""Packing with tokjax, TRL, Grain and seqio: computing plans, and packing documents into blocks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import tokjax
from benchmarks.names import FULLEST_PLAN

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.bench import Bench

    Contenders = dict[str, Callable[[], object]]
    Rows = list[NDArray[np.int32]]

BLOCK = 2048
VOCAB_SIZE = 50_257
STRATEGIES = ("concat", "first_fit", "best_fit")


def measure_planning(bench: Bench, lengths: NDArray[np.int64]) -> None:
    """Times packing plans for many documents, and records the fill rate of the blocks."""

    def make_planner(strategy: Any) -> Callable[[], tokjax.packing.PackingPlan]:
        return lambda: tokjax.packing.plan_packing(lengths, BLOCK, strategy, overlong="split")

    bench.settings[FULLEST_PLAN] = compute_fullest_plan(lengths)
    plans: Contenders = {strategy: make_planner(strategy) for strategy in STRATEGIES}
    fill = {strategy: make_planner(strategy)().fill_rate for strategy in STRATEGIES}
    bench.compare("planning", plans, bench.rounds(10), fill=fill)


def compute_fullest_plan(lengths: NDArray[np.int64]) -> float:
    """Returns an upper bound of the fill rate of any plan that splits documents as `plan_packing` does.

    A document longer than a block is split at every multiple of the block size; its last piece, and every
    shorter document, is not split. The bound on the number of blocks for these pieces is L2 of Martello and
    Toth. For any threshold `small`, up to half a block, sort the pieces by length:

        0      small        BLOCK/2        BLOCK - small      BLOCK
        |ignored|    medium    |     large       |  exclusive  |

    - Two pieces above half a block never share one, so large and exclusive pieces need one block each.
    - An exclusive piece shares its block with no piece of `small` or more, so medium pieces do not fit there.
    - Medium pieces fill the free space after large pieces; the remainder needs further blocks.

    The best bound is the maximum over all thresholds.
    """
    num_full, lasts = int((lengths // BLOCK).sum()), lengths % BLOCK
    lasts = np.sort(lasts[lasts > 0])
    ends = np.concatenate([[0], np.cumsum(lasts)])  # ends[j] - ends[i] is the total length of lasts[i:j]
    half = np.searchsorted(lasts, BLOCK // 2, "right")  # first index of the large pieces
    small = np.arange(BLOCK // 2 + 1)
    exclusive = np.searchsorted(lasts, BLOCK - small, "right")  # first index of the exclusive pieces
    medium = np.searchsorted(lasts, small)  # first index of the medium pieces
    free = (exclusive - half) * BLOCK - (ends[exclusive] - ends[half])
    num_further = np.maximum(0, -(-(ends[half] - ends[medium] - free) // BLOCK))
    minimum = num_full + int((len(lasts) - half + num_further).max())
    return float(lengths.sum() / (minimum * BLOCK))


def measure_planning_of_trl(bench: Bench, lengths: NDArray[np.int64]) -> None:
    """Times plans of tokjax and TRL, whose function also copies the documents, here one byte per token."""
    task = f"planning, {len(lengths):,}"
    if not bench.has_package("trl", task, "TRL"):
        return
    import pyarrow as pa
    from trl.data_utils import _pack_bfd

    splits = np.concatenate([[0], np.cumsum(lengths)])
    tokens = pa.array(np.zeros(int(splits[-1]), np.int8))
    table = pa.table({"input_ids": pa.LargeListArray.from_arrays(splits, tokens)})
    contenders: Contenders = {
        "tokjax": lambda: tokjax.packing.plan_packing(lengths, BLOCK, "best_fit", overlong="split"),
        "TRL": lambda: _pack_bfd(table, BLOCK, "split"),
    }
    bench.compare(task, contenders, bench.rounds(5))


def make_packers(lengths: NDArray[np.int64]) -> dict[str, tuple[str, Callable[[], Contenders]]]:
    """Returns the package that each packer needs, and a function that makes its contenders.

    Each packer returns blocks in its own format: TRL has ids and lengths, the others also have positions.
    """
    truncated = np.minimum(lengths, BLOCK)
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, VOCAB_SIZE, n).astype(np.int32) for n in truncated]
    return {
        "tokjax": ("tokjax", partial(pack_with_tokjax, rows)),
        "TRL, best fit": ("trl", partial(pack_with_trl, rows)),
        "Grain": ("grain", partial(pack_with_grain, rows)),
        "seqio": ("seqio", partial(pack_with_seqio, rows)),
    }


def pack_with_tokjax(rows: Rows) -> Contenders:
    ragged = tokjax.ragged_from_rows(rows)

    def make(strategy: Any) -> Callable[[], tokjax.PackedBlocks]:
        return lambda: tokjax.pack_blocks(ragged, block_size=BLOCK, pad_id=0, strategy=strategy)

    return {"tokjax, best fit": make("best_fit"), "tokjax, first fit": make("first_fit")}


def pack_with_trl(rows: Rows) -> Contenders:
    from datasets import Dataset, disable_progress_bars
    from trl.data_utils import pack_dataset

    disable_progress_bars()
    dataset = Dataset.from_dict({"input_ids": rows})
    options = {"keep_in_memory": True, "load_from_cache_file": False}
    return {"TRL, best fit": lambda: pack_dataset(dataset, BLOCK, "bfd", options)}


def pack_with_grain(rows: Rows) -> Contenders:
    import grain.python as grain
    from grain.experimental import BestFitPackIterDataset, FirstFitPackIterDataset

    records = [{"tokens": row} for row in rows]

    def make(kind: Any) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            source = grain.MapDataset.source(records).to_iter_dataset()
            return list(kind(source, length_struct={"tokens": BLOCK}, num_packing_bins=64))

        return run

    return {
        "Grain, best fit of 64": make(BestFitPackIterDataset),
        "Grain, first fit of 64": make(FirstFitPackIterDataset),
    }


def pack_with_seqio(rows: Rows) -> Contenders:
    """Makes the contender seqio, which packs documents in order on `tensorflow.data`."""
    import seqio
    import tensorflow

    ragged = tokjax.ragged_from_rows(rows)

    def run() -> list[Any]:
        values = tensorflow.RaggedTensor.from_row_splits(ragged.ids, ragged.row_splits)
        source = tensorflow.data.Dataset.from_tensor_slices(values).map(lambda row: {"targets": row})
        return list(seqio.trim_and_pack_dataset(source, {"targets": BLOCK}).as_numpy_iterator())

    return {"seqio": run}


def measure_packing(bench: Bench, lengths: NDArray[np.int64]) -> None:
    """Times the packers that are installed, and records the fill rate of their blocks."""
    task = "packing"
    ours, *groups = [
        make()
        for name, (package, make) in make_packers(lengths).items()
        if bench.has_package(package, task, name)
    ]
    others = {name: run for group in groups for name, run in group.items()}
    blocks = {name: count_blocks(run()) for name, run in (ours | others).items()}
    result = np.ones((5, blocks["tokjax, best fit"], BLOCK), np.int32)
    contenders = ours | {"memcpy of the result": result.copy} | others
    num_tokens = int(np.minimum(lengths, BLOCK).sum())
    fill = {name: num_tokens / (count * BLOCK) for name, count in blocks.items()}
    bench.compare(task, contenders, bench.rounds(5), twice=True, fill=fill)


def count_blocks(packed: Any) -> int:
    return packed.ids.shape[0] if isinstance(packed, tokjax.PackedBlocks) else len(packed)
