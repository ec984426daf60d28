"""Packing beside TRL, Grain and seqio: plans, and whole documents to blocks."""

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
    """Plans for many documents, and how full the blocks are."""

    def of(strategy: Any) -> Callable[[], tokjax.packing.PackingPlan]:
        return lambda: tokjax.packing.plan_packing(lengths, BLOCK, strategy, overlong="split")

    bench.settings[FULLEST_PLAN] = compute_fullest_plan(lengths)
    plans: Contenders = {strategy: of(strategy) for strategy in STRATEGIES}
    fill = {strategy: of(strategy)().fill_rate for strategy in STRATEGIES}
    bench.compare("planning", plans, bench.rounds(10), fill=fill)


def compute_fullest_plan(lengths: NDArray[np.int64]) -> float:
    """How full no plan can be more than, that splits documents as `plan_packing` does: by Martello and Toth.

    Documents of up to a block stay whole, and longer ones are cut at each block's length.
    Pieces of more than `BLOCK - small` share no block with any of at least `small`; those of more than half a
    block share none with each other, and what is left in their blocks is all that the rest may have of them.
    """
    full, rests = int((lengths // BLOCK).sum()), lengths % BLOCK
    rests = np.sort(rests[rests > 0])
    ends = np.concatenate([[0], np.cumsum(rests)])
    half = np.searchsorted(rests, BLOCK // 2, "right")
    small = np.arange(BLOCK // 2 + 1)
    alone = np.searchsorted(rests, BLOCK - small, "right")
    first = np.searchsorted(rests, small)
    left = (alone - half) * BLOCK - (ends[alone] - ends[half])
    more = np.maximum(0, -(-(ends[half] - ends[first] - left) // BLOCK))
    least = full + int((len(rests) - half + more).max())
    return float(lengths.sum() / (least * BLOCK))


def measure_planning_beside_trl(bench: Bench, lengths: NDArray[np.int64]) -> None:
    """Plans for as many documents as TRL does in seconds; it copies a byte a token besides."""
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
    """Whole documents to blocks, each in its own form: TRL gives ids and lengths, others positions too.

    The package that each needs, and what makes the calls.
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

    def of(strategy: Any) -> Callable[[], tokjax.PackedBlocks]:
        return lambda: tokjax.pack_blocks(ragged, block_size=BLOCK, pad_id=0, strategy=strategy)

    return {"tokjax, best fit": of("best_fit"), "tokjax, first fit": of("first_fit")}


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

    def of(kind: Any) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            source = grain.MapDataset.source(records).to_iter_dataset()
            return list(kind(source, length_struct={"tokens": BLOCK}, num_packing_bins=64))

        return run

    return {
        "Grain, best fit of 64": of(BestFitPackIterDataset),
        "Grain, first fit of 64": of(FirstFitPackIterDataset),
    }


def pack_with_seqio(rows: Rows) -> Contenders:
    """Documents packed in their order by seqio, on TensorFlow's pipelines."""
    import seqio
    import tensorflow

    ragged = tokjax.ragged_from_rows(rows)

    def run() -> list[Any]:
        values = tensorflow.RaggedTensor.from_row_splits(ragged.ids, ragged.row_splits)
        source = tensorflow.data.Dataset.from_tensor_slices(values).map(lambda row: {"targets": row})
        return list(seqio.trim_and_pack_dataset(source, {"targets": BLOCK}).as_numpy_iterator())

    return {"seqio": run}


def measure_packing(bench: Bench, lengths: NDArray[np.int64]) -> None:
    """All packers that are installed, and how full their blocks are."""
    task = "packing"
    ours, *others_of = [
        make()
        for name, (package, make) in make_packers(lengths).items()
        if bench.has_package(package, task, name)
    ]
    others = {name: run for made_of in others_of for name, run in made_of.items()}
    blocks = {name: count_blocks(run()) for name, run in (ours | others).items()}
    made = np.ones((5, blocks["tokjax, best fit"], BLOCK), np.int32)
    contenders = ours | {"memcpy of the result": made.copy} | others
    remaining = int(np.minimum(lengths, BLOCK).sum())
    fill = {name: remaining / (count * BLOCK) for name, count in blocks.items()}
    bench.compare(task, contenders, bench.rounds(5), twice=True, fill=fill)


def count_blocks(packed: Any) -> int:
    return packed.ids.shape[0] if isinstance(packed, tokjax.PackedBlocks) else len(packed)
