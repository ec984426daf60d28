"""Built-in tokenizer types, BPE dropout, and segmentation sampling with SentencePiece models."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
