"""Compliance checks for custom tokenizers, fields, batches and array functions, to run in your tests."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
