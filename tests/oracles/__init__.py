"""Slow and obvious versions of what the library does quickly."""
