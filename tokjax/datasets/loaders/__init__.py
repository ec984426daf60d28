"""Loaders: batches as a function of a seed and a step."""
