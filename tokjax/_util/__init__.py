"""Helpers without knowledge of tokenizers: files, locks, threads, arrays, checks, optional imports."""
