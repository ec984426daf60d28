"""Loaders of datasets: batches as a function of seed and step."""
