"""Benchmarks: every figure is a ratio against a peer or a physical limit that is measured in the same run."""
