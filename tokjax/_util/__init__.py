"""Helpers that do not depend on tokenizers: files, locks, threads, arrays, checks, optional imports."""
