"""Datasets on disk: fields, writers, readers, manifests, and loaders."""
