"""Batches for people to look at."""
