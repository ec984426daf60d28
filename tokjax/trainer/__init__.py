"""Trainers: build a vocabulary from text, and packed arrays that are encoded with it."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
