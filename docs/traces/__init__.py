"""The steps of the engine, the trainer and the packing, one by one: what the page on performance shows.

Everything here runs the library's own code, and only looks at what is between two of its steps.
"""
