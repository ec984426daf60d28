"""Tokenizer files: loading, saving, export to other formats, and conversion of objects of other libraries."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
