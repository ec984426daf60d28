"""Datasets on disk: a directory of plain `.npy` files and a manifest."""
