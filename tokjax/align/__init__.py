"""Alignment of labelled text spans and words with the labels of tokens, in both directions."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
