"""Benchmark programs; their results are in RESULTS.md."""
