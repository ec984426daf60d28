"""Tables of the pages, by the name of their marker, with the record that each is rendered from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.tables.batches import (
    make_batching_table,
    make_device_costs_table,
    make_device_encoding_table,
    make_device_table,
    make_loading_table,
    make_overlap_table,
    make_strategies_table,
    make_windows_table,
)
from benchmarks.tables.encoding import (
    make_encode_table,
    make_first_table,
    make_growth_table,
    make_kinds_table,
    make_short_table,
    make_tokenizers_table,
)
from benchmarks.tables.explained import (
    make_counting_table,
    make_rates_table,
)
from benchmarks.tables.training import (
    make_algorithms_table,
    make_phases_table,
    make_texts_table,
    make_train_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.record import Record

TABLES: dict[str, tuple[str, Callable[[Record], str]]] = {
    "encode": ("encode", make_encode_table),
    "texts": ("texts", make_texts_table),
    "short": ("short", make_short_table),
    "first": ("first", make_first_table),
    "tokenizers": ("tokenizers", make_tokenizers_table),
    "kinds": ("kinds", make_kinds_table),
    "growth": ("growth", make_growth_table),
    "train": ("train", make_train_table),
    "train-phases": ("train", make_phases_table),
    "ladder": ("ladder", make_algorithms_table),
    "strategies": ("storage", make_strategies_table),
    "loading": ("loading", make_loading_table),
    "windows": ("loading", make_windows_table),
    "batching": ("batching", make_batching_table),
    "device": ("device", make_device_table),
    "device-encoding": ("device", make_device_encoding_table),
    "device-costs": ("device", make_device_costs_table),
    "overlap": ("device", make_overlap_table),
    "rates": ("encode", make_rates_table),
    "phases": ("train", make_counting_table),
}
