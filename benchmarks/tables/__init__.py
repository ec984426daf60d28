"""All tables by the name of their place in a page, with the record that each is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tables.batches import (
    batching_table,
    device_table,
    loading_table,
    overlap_table,
    strategies_table,
)
from benchmarks.tables.encoding import (
    encode_table,
    first_table,
    growth_table,
    kinds_table,
    short_table,
    tokenizers_table,
)
from benchmarks.tables.explained import compared_table, counting_table, plans_table, rates_table
from benchmarks.tables.training import ladder_table, phases_table, train_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.record import Record

TABLES: dict[str, tuple[str, Callable[[Record], str]]] = {
    "encode": ("encode", encode_table),
    "short": ("short", short_table),
    "first": ("first", first_table),
    "tokenizers": ("tokenizers", tokenizers_table),
    "kinds": ("kinds", kinds_table),
    "growth": ("growth", growth_table),
    "train": ("train", train_table),
    "train-phases": ("train", phases_table),
    "ladder": ("ladder", ladder_table),
    "strategies": ("storage", strategies_table),
    "loading": ("loading", loading_table),
    "batching": ("batching", batching_table),
    "device": ("device", device_table),
    "overlap": ("device", overlap_table),
    "rates": ("encode", rates_table),
    "compared": ("encode", compared_table),
    "phases": ("train", counting_table),
    "plans": ("batching", plans_table),
}
