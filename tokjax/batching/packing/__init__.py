"""Packing of rows into blocks: plans, blocks, segments."""
