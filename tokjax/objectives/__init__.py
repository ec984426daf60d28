"""Training objectives: inputs and labels as pure functions of token arrays and random numbers."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
