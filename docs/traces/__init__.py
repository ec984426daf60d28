"""Traces of the engine, the trainer and the packing, for the page on performance.

The functions here run the library's own code, and record its state between two steps.
"""
