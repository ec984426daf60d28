from .encode import (
    Capacities as Capacities,
    DeviceBytes as DeviceBytes,
    DeviceTokens as DeviceTokens,
    TokenizerTables as TokenizerTables,
    decode_jit as decode_jit,
    encode_jit as encode_jit,
    suggest_capacities as suggest_capacities,
)
from .tables import (
    tokenizer_tables as tokenizer_tables,
)
