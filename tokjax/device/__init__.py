"""Tokenization on devices: byte-level BPE under `jax.jit`, as a pure function of arrays."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
