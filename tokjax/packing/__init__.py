"""Packing of rows into blocks: plans, packed blocks, segment boundaries, orders for context parallelism."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
