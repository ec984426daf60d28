"""Rendering of batches as plain text, in colour, or as HTML."""
