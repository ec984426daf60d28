"""Datasets on disk: fields, writers, readers, manifests, and loaders."""

from tokjax._util.imports import attach_names

__getattr__, __all__ = attach_names(__name__, __file__)
