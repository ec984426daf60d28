"""Tests of the project: pages, examples, benchmarks, layers, imports."""
