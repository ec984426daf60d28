"""Tokenization inside `jax.jit`: byte-level BPE as a pure function of device arrays."""
