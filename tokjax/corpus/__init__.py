"""Corpus readers: file formats, documents, chunks and annotated text."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
