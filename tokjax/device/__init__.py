"""Tokenization on devices: byte-level BPE under `jax.jit`, as a pure function of arrays."""

from tokjax._util.imports import mark_namespace
from tokjax.device.encode import (
    Capacities,
    DeviceBytes,
    DeviceTokens,
    TokenizerTables,
    decode_jit,
    encode_jit,
    suggest_capacities,
)
from tokjax.device.tables import tokenizer_tables

__all__ = [
    "Capacities",
    "DeviceBytes",
    "DeviceTokens",
    "TokenizerTables",
    "decode_jit",
    "encode_jit",
    "suggest_capacities",
    "tokenizer_tables",
]
mark_namespace(__name__)
